"""Walks the commit log: every sound record in order, and the holes between them.

Place in the walk: `recovery` dispatches what is found here, `store check` compares with it. Holes
are noted in the log as they are met.

A record is sound when size, magic, CRC, lengths and its own physical offset agree, and its queue
offset can follow the one before it in its queue. Where none begins:

    below `synced_to`       a hole, up to the next sound record that is a message of its own (see
                            `behind_damage`), at the latest to the next file or to `synced_to`; a
                            file that is missing is one, too
    at or behind it         the end of the log: what lies behind was never promised to anybody

Invariant: `position` only grows, and at the end it is not below `synced_to` unless no file is left
that could reach it. Absent on purpose: what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.foundation.errors import CorruptRecord
from engine.store.behind_damage import BehindDamage
from engine.store.commit_log import NO_DELAYS, CommitLog
from engine.store.holes import Hole
from engine.store.queue_table import QueueKey, QueueTable
from engine.store.record import (
    RECORD_BYTES_MIN,
    DispatchRequest,
    check_record,
    has_queue_offset,
)

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
