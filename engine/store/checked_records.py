"""Reads the commit log some records at a time, checks each and goes on behind damage.

Place in the walk: beside the loop's other work, a step at a time: `dispatch` fills an index that is
behind from here, `upkeep.queue_scrub` holds consume queues against what is read here.

Invariant: behind damage only what its queue knows counts: a message's body may hold the bytes of a
record. Absent on purpose: looking ahead for the end of damage (`log_walk`), which takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.foundation.errors import CorruptRecord
from engine.store.commit_log import CommitLog
from engine.store.holes import Hole
from engine.store.queue_table import QueueTable
from engine.store.record import DispatchRequest, check_record, keys_at_most
from engine.store.sound_records import record_at, sound_places


class CheckedRecords:
    """Reads on from where `begin` has set it."""

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        *,
        on_damage: Callable[[Hole], None] | None = None,
    ) -> None:
        """`on_damage` hears of each damage that was passed, but for holes that are known."""
        self._log = log
        self._queues = queues
        self._on_damage = on_damage
        self.position = 0
        """Where the next record is looked for."""
        self._damage: tuple[int, str] | None = None
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
        log = self._log
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
            request = record_at(self._log, place)
            if request is not None and self._queues.has_unit_of(request):
                self._passed(place)
                return place
        return limit

    def _passed(self, end: int) -> None:
        """The damage ends here."""
        damage, self._damage = self._damage, None
        if damage is not None and self._on_damage is not None:
            self._on_damage(Hole(damage[0], end, damage[1]))
