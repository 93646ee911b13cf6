"""Scans the commit log for sound records, and for the holes between them.

Place in the walk: `recovery` dispatches what `LogWalk` finds, `store check` compares with it.
`CheckedRecords` reads some records at a time beside the loop's other work: `dispatch` fills an
index from it, `upkeep.queue_scrub` holds consume queues against it.

A record is sound when size, magic, CRC, lengths and its own physical offset agree, and its queue
offset can follow the one before it in its queue. Where none begins:

    below `synced_to`       a hole, up to the next sound record that is a message of its own (see
                            `behind_damage`), at the latest to the next file or to `synced_to`; a
                            file that is missing is one, too
    at or behind it         the end of the log: what lies behind was never promised to anybody

Invariant: `position` only grows, and at the end it is not below `synced_to` unless no file is left
that could reach it. `CheckedRecords` counts behind damage only what its queue knows: looking ahead
takes seconds. Absent on purpose: what to do about a hole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field

from engine.foundation.errors import CorruptRecord
from engine.store.behind_damage import BehindDamage
from engine.store.commit_log import NO_DELAYS, CommitLog
from engine.store.holes import Hole
from engine.store.queue_table import QueueKey, QueueTable
from engine.store.record_reading import (
    RECORD_BYTES_MIN,
    DispatchRequest,
    check_record,
    has_queue_offset,
    keys_at_most,
)
from engine.store.sound_records import record_at, sound_places


@dataclass(slots=True, eq=False)
class CheckedRecords:
    """Reads on from where `begin` has set it.

    `on_damage` hears of each damage that was passed, but for holes that are known.
    """

    log: CommitLog
    queues: QueueTable
    _: KW_ONLY
    on_damage: Callable[[Hole], None] | None = None
    position: int = field(default=0, init=False)
    """Where the next record is looked for."""
    _damage: tuple[int, str] | None = field(default=None, init=False)
    """Where the damage began amid which `position` is, and what is wrong there."""

    @property
    def state(self) -> tuple[int, tuple[int, str] | None]:
        """What to set again, to read the same records once more."""
        return self.position, self._damage

    @state.setter
    def state(self, state: tuple[int, tuple[int, str] | None]) -> None:
        self.position, self._damage = state

    def begin(self, position: int) -> None:
        """Read from `position` on, where a record begins."""
        self.position, self._damage = position, None

    def cut(self, end_offset: int) -> None:
        """The log ends at `end_offset`: what follows there is read anew."""
        if self.position > end_offset:
            self.begin(end_offset)

    def some(
        self, limit: int, delay_levels_ms: Sequence[int], *, bytes_max: int, keys_max: int
    ) -> list[DispatchRequest]:
        """The next sound records before `limit`, of about so many bytes and keys at most (a record
        is one more); none while damage is passed, or when `position` has come to `limit`.
        """
        log = self.log
        if self.position < log.min_offset:
            self.begin(log.min_offset)
        requests: list[DispatchRequest] = []
        position, end = self.position, min(limit, self.position + bytes_max)
        while position < end and keys_max > 0:
            start = log.files.start_at(position)
            hole, file_end = log.holes.at(position), start + log.file_size_bytes
            if hole is not None or not log.files.has(start):
                position = file_end if hole is None else hole.end
                self._damage = None
                continue
            view = log.file_view(start)
            if self._damage is not None:
                position = self._known_from(view, start, position, min(end, file_end))
                if position >= min(limit, file_end):
                    self._passed(min(limit, file_end))
                continue
            try:
                request = check_record(view, position - start, position, delay_levels_ms)
            except CorruptRecord as error:
                self._damage = position, str(error)
                position += 1
                continue
            if request is None:
                position = file_end
                continue
            requests.append(request)
            keys_max -= keys_at_most(request)
            position += request.size_bytes
        self.position = min(position, limit)
        return requests

    def _known_from(self, view: memoryview, start: int, begin: int, limit: int) -> int:
        """The first sound record that begins in [begin, limit) and that its queue knows, which ends
        the damage; `limit` without any.
        """
        for place in sound_places(view, start, begin, limit):
            request = record_at(self.log, place)
            if request is not None and self.queues.has_unit_of(request):
                self._passed(place)
                return place
        return limit

    def _passed(self, end: int) -> None:
        """The damage ends here."""
        damage, self._damage = self._damage, None
        if damage is not None and self.on_damage is not None:
            self.on_damage(Hole(damage[0], end, damage[1]))


LOOK_AHEAD_RECORDS = 4096
LOOKS_AHEAD_MAX = 256
"""How far, and how often in one walk, the next record of a queue is looked for: some 5 s in all."""


class LogWalk:
    """One walk from `begin` on; iterate `records` once."""

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        begin: int,
        *,
        synced_to: int,
        delay_levels_ms: Sequence[int],
    ) -> None:
        self._log = log
        self._queues = queues
        self._behind_damage = BehindDamage(log, queues)
        self._synced_to = synced_to
        self._delay_levels_ms = delay_levels_ms
        self.position = begin
        """Where the next record would begin; at last the end of the log."""
        self.stopped_by = ""
        """Why the walk ended, in words."""
        self.records_count = 0
        self._expected: dict[QueueKey, tuple[int, int]] = {}
        """Of each queue: the offset that comes next, and the bytes of holes before it was known."""
        self._known_to = {
            key: queue.max_offset for key, queue in zip(queues.keys(), queues.all(), strict=True)
        }
        """What queues knew when the walk began: what is dispatched meanwhile proves nothing."""
        self._holes_bytes = 0
        self._looks_ahead = 0
        self._whole_log = begin == 0

    def records(self) -> Iterator[DispatchRequest]:
        """Every sound record, from where an earlier call was left. Hot."""
        files, levels_ms = self._log.files, self._delay_levels_ms
        while not self.stopped_by:
            start = files.start_at(self.position)
            if not files.has(start):
                if self.position >= self._synced_to:
                    self.stopped_by = "no further file"
                    return
                missing = f"file {start:020d} is missing"
                self._pass_over(start + files.file_size_bytes, missing)
                if self.position > self._synced_to:  # What it held beyond that is unknown.
                    self.stopped_by = missing
                    return
                continue
            view = self._log.file_view(start)
            position, file_end = self.position, start + files.file_size_bytes
            while position < file_end:
                try:
                    request = check_record(view, position - start, position, levels_ms)
                    if request is not None:
                        self._check_queue_offset(request)
                except CorruptRecord as error:
                    if position >= self._synced_to:
                        self.stopped_by = str(error)
                        return
                    limit = min(file_end, self._synced_to)
                    hole = self._log.holes.at(position)
                    if hole is None:
                        end = self._behind_damage.find(position, limit)
                    else:  # Of an earlier walk, when queues may have known more than now.
                        end = min(hole.end, limit)
                    self._pass_over(end, str(error))
                    position = self.position
                    continue
                position = file_end if request is None else position + request.size_bytes
                self.position = position
                if request is not None:
                    self.records_count += 1
                    yield request

    def _pass_over(self, end: int, reason: str) -> None:
        """What is between here and `end` is a hole."""
        self._log.holes.add(Hole(self.position, end, reason))
        self._holes_bytes += end - self.position
        self.position = end

    def _check_queue_offset(self, request: DispatchRequest) -> None:
        """A record's queue offset follows its predecessor's, or is 0: a topic made again. Behind a
        hole it may be so much higher as there is room for records in the hole. It has no checksum:
        below the synced position the next record of the queue decides which of two that do not fit
        is damaged, so that a flipped bit costs no more than its record. A topic that was made again
        twice may have had one message in between, so that two begin at 0.

        The first message of a queue may have any offset only if older ones were deleted by age, or
        the walk begins amid the log; then the queue may know the record by its place.
        """
        if not has_queue_offset(request.sys_flag):
            return
        key, offset = (request.topic, request.queue_id), request.queue_offset
        if offset < 0:
            raise CorruptRecord(f"queue offset {offset} at {request.physical_offset} is negative")
        known = self._expected.get(key)
        wanted, holes_before = known or (0 if self._whole_log else self._known_offset(request), 0)
        if offset != wanted:
            lost_max = (self._holes_bytes - holes_before) // RECORD_BYTES_MIN
            behind_hole = wanted < offset <= wanted + lost_max
            fits = behind_hole or offset == 0 or offset <= lost_max
            if not behind_hole and request.physical_offset < self._synced_to:
                following = self._following_offset(request)
                if following is not None:
                    room = (request.physical_offset - self._log.min_offset) // RECORD_BYTES_MIN
                    goes_on = following == offset + 1 or following == offset == 0
                    fits = goes_on and offset <= wanted + room
                    if following == wanted and self._is_anothers(request):
                        fits = False  # The queue goes on without this one.
            if not fits:
                raise CorruptRecord(
                    f"the record at {request.physical_offset} has queue offset {offset} "
                    f"of {request.topic} {request.queue_id}, where {wanted} comes next"
                )
        self._expected[key] = (offset + 1, self._holes_bytes)

    def _known_offset(self, request: DispatchRequest) -> int:
        """The offset of the record's unit in its queue; what the record says if it has none."""
        queue = self._queues.find(request.topic, request.queue_id)
        if queue is not None:
            offset = queue.first_reaching(request.physical_offset)
            unit = queue.unit(offset)
            if unit is not None and unit[:2] == (request.physical_offset, request.size_bytes):
                return offset
        return request.queue_offset

    def _is_anothers(self, request: DispatchRequest) -> bool:
        """Had its queue, when the walk began, the unit of an older message in its place?"""
        queue = self._queues.find(request.topic, request.queue_id)
        known_to = self._known_to.get((request.topic, request.queue_id), 0)
        if queue is None or request.queue_offset >= known_to:
            return False
        unit = queue.unit(request.queue_offset)
        return unit is not None and unit[0] < request.physical_offset

    def _following_offset(self, request: DispatchRequest) -> int | None:
        """Queue offset of the queue's next record, if it is not far; None when nobody knows."""
        self._looks_ahead += 1
        if self._looks_ahead > LOOKS_AHEAD_MAX:
            return None
        position = request.physical_offset + request.size_bytes
        for _ in range(LOOK_AHEAD_RECORDS):
            start = self._log.files.start_at(position)
            if not self._log.files.has(start):
                return None
            try:
                found = check_record(
                    self._log.file_view(start), position - start, position, NO_DELAYS
                )
            except CorruptRecord:
                return None
            if found is None:
                position = start + self._log.file_size_bytes
                continue
            if (found.topic, found.queue_id) == (request.topic, request.queue_id):
                return found.queue_offset
            position += found.size_bytes
        return None
