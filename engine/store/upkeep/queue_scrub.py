"""Repairs damaged consume-queue units from the log, at start-up and while running.

Place in the walk: `QueueEnd` in `recovery`, before the queues' ends are believed: a unit with a
flipped bit would end the queue, and what lies behind it would be hidden. `QueueScrub` from
`MessageStore.start` on, beside the loop: a unit has no checksum, and one whose tags code has a
flipped bit hides its message from every filter.

Invariant: a unit is put right only by a record that says that it lies there; one that leads to a
sound record of its queue and its place is never written over by another. A step takes a few
milliseconds of the loop; what it reads is brought into memory beside the loop before. Absent on
purpose: units that are missing at a queue's end, which recovery adds; what follows from damage of
the log itself. A stop amid the scrub lets the next start begin anew.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from engine.foundation.errors import DiskFull, StorageError
from engine.foundation.limits import (
    QUEUE_SCRUB_BYTES,
    QUEUE_SCRUB_FILES_TOLD,
    QUEUE_SCRUB_SHARE,
    QUEUE_SCRUB_STEP_US,
)
from engine.foundation.observing import LifecycleEvent, Observer, report
from engine.runtime import Runtime
from engine.store.commit_log import CommitLog
from engine.store.consume_queue import FILLER_SIZE, ConsumeQueue, Unit
from engine.store.dispatch import Dispatcher
from engine.store.holes import Hole
from engine.store.log_walk import CheckedRecords
from engine.store.queue_table import QueueKey, QueueTable
from engine.store.record_reading import DispatchRequest, has_queue_offset, is_no_code_of
from engine.store.sound_records import message_at

OFFSET_BITS = 64
UNITS_MENDED_MAX = 16
"""In one queue; with more of them it is built again."""


class QueueEnd:
    """The end of one queue, as it was loaded."""

    def __init__(self, log: CommitLog, key: QueueKey, queue: ConsumeQueue, deleted_to: int) -> None:
        """`deleted_to`: what the log holds before it for the topic was deleted."""
        self._log = log
        self._key = key
        self._queue = queue
        self._deleted_to = deleted_to
        self.mended = 0
        """Units that were put right."""

    def find(self) -> bool:
        """Put right what hides the queue's end; False when units that follow show that one of them
        cannot be.
        """
        queue = self._queue
        while self.mended < UNITS_MENDED_MAX:
            newest, behind = queue.max_offset - 1, queue.unit_in_file(queue.max_offset)
            unit = queue.unit(newest)
            if unit is not None and self._put_right(newest, unit):
                continue
            if behind is not None and self._put_right(newest + 1, behind):
                continue
            # Zeros were never written, whatever of a later page has come to the disk.
            return behind is None or not any(self._is_own(newest + ahead) for ahead in (1, 2))
        return False

    def _put_right(self, queue_offset: int, unit: Unit) -> bool:
        """Was the unit wrong, and is it what it was, now?"""
        if unit[1] == FILLER_SIZE:
            return False
        named = unit[0] % (1 << OFFSET_BITS)
        for place in (named, *(named ^ 1 << bit for bit in range(OFFSET_BITS))):
            found = self._record_of(queue_offset, place)
            if found is None:
                continue
            if (place, found.size_bytes) == unit[:2]:
                return False
            self._queue.put_right(queue_offset, (place, found.size_bytes, unit[2]))
            self.mended += 1
            return True
        return False

    def _is_own(self, queue_offset: int) -> bool:
        unit = self._queue.unit_in_file(queue_offset)
        return unit is not None and self._record_of(queue_offset, unit[0]) is not None

    def _record_of(self, queue_offset: int, place: int) -> DispatchRequest | None:
        """The sound record there, if it says that it is the queue's message at the offset."""
        if not self._deleted_to <= place < self._log.end_offset:
            return None
        return message_at(self._log, place, self._key, queue_offset)


RECORDS_AT_ONCE = 32
"""Between two looks at the clock: half a millisecond."""
PAUSE_MIN_MS = 1
REPORT_FIRST_MS = 1_000
"""After a report: what is mended from then on waits so long, and twice as long each time.
"""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Mended:
    """Units of one file that were written again."""

    count: int
    first: int
    last: int
    """Queue offsets."""

    def sentence(self, path: str) -> str:
        """For the terminal."""
        which = f"entry {self.first} was"
        if self.count > 1:
            which = f"{self.count} entries ({self.first} to {self.last}) were"
        return (
            f"{path}: {which} not what the log says, and written again from it; whoever read there "
            f"before may have been led past messages"
        )


class QueueScrub:
    """Looks until everything was looked at; `run` once."""

    def __init__(
        self,
        runtime: Runtime,
        observer: Observer,
        *,
        log: CommitLog,
        queues: QueueTable,
        dispatcher: Dispatcher,
    ) -> None:
        """`dispatcher` knows what was deleted, and the delay levels."""
        self._clock = runtime.clock
        self._disk = runtime.disk
        self._observer = observer
        self._dispatcher = dispatcher
        self._log = log
        self._queues = queues
        self._records = CheckedRecords(log, queues, on_damage=log.note_damage)
        self._end = self._warm_to = 0
        self._mended: dict[str, Mended] = {}
        self._mended_unreported = 0
        """Units in files beside those."""
        self._report_from_ms = 0
        self._report_pause_ms = REPORT_FIRST_MS

    async def run(self, pause: Callable[[int], Awaitable[bool]]) -> None:
        """Hold the queues against what of the log is on stable storage now. `pause` waits so many
        milliseconds; True: stop. Never raises for the disk.
        """
        self._end = self._log.flushed_offset
        self._records.begin(self._log.min_offset)
        stopped = False
        try:
            while self._records.position < self._end and not stopped:
                await self._warm()
                began_us = self._clock.steady_us()
                self._step(began_us)
                self._report()
                took_us = self._clock.steady_us() - began_us
                pause_ms = int(took_us * (1 / QUEUE_SCRUB_SHARE - 1)) // 1000
                stopped = await pause(max(PAUSE_MIN_MS, pause_ms))
        except StorageError as error:
            words = f"consume queues are not held against the log behind {self._records.position}"
            report(self._observer, _log, LifecycleEvent("DAMAGED_FILE", f"{words}: {error}"))
        self._report(at_last=True)

    def cut(self, end_offset: int) -> None:
        """The log ends at `end_offset`: what follows there is of this life."""
        self._end = min(self._end, end_offset)

    async def _warm(self) -> None:
        """Have the next bytes of the log in memory, so that no step waits for the disk."""
        log, position = self._log, max(self._records.position, self._log.min_offset)
        start = log.files.start_at(position)
        if position < self._warm_to:
            return
        if not log.files.has(start):
            self._warm_to = start + log.file_size_bytes
            return
        stop = min(self._end, start + log.file_size_bytes, position + QUEUE_SCRUB_BYTES)
        entry = log.files.open_file(start).pin()
        try:
            await self._disk.off_loop(lambda: entry.file.pread(stop - position, position - start))
        finally:
            entry.unpin()
        self._warm_to = stop

    def _step(self, began_us: int) -> None:
        """What is in memory, for some milliseconds. Raises StorageError."""
        records, stop = self._records, min(self._end, self._warm_to)
        while records.position < stop:
            for request in records.some(
                self._end,
                self._dispatcher.delay_levels_ms,
                bytes_max=stop - records.position,
                keys_max=RECORDS_AT_ONCE,
            ):
                if has_queue_offset(request.sys_flag):
                    self._look_at(request)
            if self._clock.steady_us() - began_us >= QUEUE_SCRUB_STEP_US:
                return

    def _look_at(self, request: DispatchRequest) -> None:
        """Is the record's unit what dispatch makes of it? Hot."""
        key, at = (request.topic, request.queue_id), request.queue_offset
        queue = self._queues.find(*key)
        if queue is None or not 0 <= at < min(queue.loaded_to, queue.max_offset):
            return
        unit = queue.unit(at)
        wanted = (request.physical_offset, request.size_bytes, request.tags_code)
        if unit == wanted or self._dispatcher.was_deleted(request):
            return
        if unit is None:
            if _lies_before(queue, request):
                self._mend(key, queue, request, None)
        elif unit[0] == request.physical_offset:
            if unit[1] != request.size_bytes or is_no_code_of(request, unit[2]):
                self._mend(key, queue, request, unit)
        elif not self._leads(key, at, unit) and self._fits_between(key, queue, request):
            self._mend(key, queue, request, unit)

    def _leads(self, key: QueueKey, queue_offset: int, unit: Unit) -> bool:
        """Is there a sound record of this queue and place? Then its topic was made anew, or the
        record at hand says what it is not.
        """
        return message_at(self._log, unit[0], key, queue_offset) is not None

    def _fits_between(self, key: QueueKey, queue: ConsumeQueue, request: DispatchRequest) -> bool:
        """Does the record lie between those before and behind it in the queue?"""
        place, at = request.physical_offset, request.queue_offset
        before, behind = queue.unit(at - 1), queue.unit(at + 1)
        if before is not None and before[0] >= place:
            fits = before[0] > place and not self._leads(key, at - 1, before)
        else:
            fits = True
        if fits and behind is not None and behind[0] <= place:
            fits = behind[0] < place and not self._leads(key, at + 1, behind)
        return fits

    def _mend(
        self, key: QueueKey, queue: ConsumeQueue, request: DispatchRequest, unit: Unit | None
    ) -> None:
        """Write the unit again; where that cannot be, the next start builds the queue again."""
        at, code = request.queue_offset, request.tags_code
        if unit is not None and not is_no_code_of(request, unit[2]):
            code = unit[2]
        try:
            is_there = (unit is not None or at == queue.min_offset - 1) and queue.mend(
                at, (request.physical_offset, request.size_bytes, code)
            )
        except DiskFull:
            is_there = False
        if not is_there:
            end = request.physical_offset + request.size_bytes
            reason = "no entry of its queue leads there; the next start builds the queue again"
            self._log.note_stranger(Hole(request.physical_offset, end, reason))
            return
        if unit is not None:
            self._log.forget_stranger(unit[0])
        self._queues.note_written(key, queue)
        path = queue.file_of(at)
        mended = self._mended.get(path)
        if mended is not None:
            mended.count, mended.last = mended.count + 1, at
        elif len(self._mended) < QUEUE_SCRUB_FILES_TOLD:
            self._mended[path] = Mended(1, at, at)
        else:
            self._mended_unreported += 1

    def _report(self, *, at_last: bool = False) -> None:
        """One line a file, soon after its first unit was mended, and not often."""
        now_ms = self._clock.steady_ms()
        if not self._mended or (now_ms < self._report_from_ms and not at_last):
            return
        sentences = [mended.sentence(path) for path, mended in self._mended.items()]
        if self._mended_unreported:
            sentences.append(
                f"consume queues: {self._mended_unreported} such entries in further files"
            )
        for sentence in sentences:
            report(self._observer, _log, LifecycleEvent("DAMAGED_FILE", sentence))
        self._mended.clear()
        self._mended_unreported = 0
        self._report_from_ms = now_ms + self._report_pause_ms
        self._report_pause_ms *= 2


def _lies_before(queue: ConsumeQueue, request: DispatchRequest) -> bool:
    """Does the record lie before all that its queue is said to hold?"""
    first = queue.unit(queue.min_offset)
    return first is not None and request.physical_offset < first[0]
