"""Recovery: where does the log end, and do the derived files say the same?

Place in the walk: `MessageStore.open`, before anything is served. After a clean stop the newest
queue entry shows where to look; after `kill -9` or a power cut the log is read from the last point
the checkpoint vouches for.

Every record from there on is checked (size, magic, place, CRC, lengths, its queue's next offset)
and dispatched again by the code that dispatches live. The first record that fails ends the log;
what lies behind it is wiped, reported and gone, so that it can never come back between newer
records. Queues and index are then cut to the same end.

Invariant: what remains is a prefix of what was written; recovering again changes nothing. A consume
queue that lacks units is filled by reading the log from its very beginning.
Absent on purpose: repair of log bytes, waiting. Blocks; there is no event loop to hold yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.foundation.errors import CorruptRecord
from engine.foundation.limits import DISPATCH_BATCH_MAX
from engine.foundation.observing import LifecycleEvent
from engine.store.commit_log import CommitLog, written_end
from engine.store.consume_queue import FILLER_SIZE, ConsumeQueue
from engine.store.dispatch import Dispatcher, QueueGap
from engine.store.index import Index
from engine.store.queue_table import QueueKey, QueueTable
from engine.store.record import DispatchRequest, check_record, has_queue_offset
from engine.store.upkeep.checkpoint import Checkpoint


@dataclass(slots=True)
class Recovered:
    """What recovery found."""

    clean: bool
    """Was the last stop a clean one?"""
    end_offset: int = 0
    """End of the log."""
    written_offset: int = 0
    """How far the log reached before: where bytes were found, or how far the checkpoint says that
    it had been written; equal to end_offset when nothing is known to be gone.
    """
    dropped_bytes: int = 0
    """Bytes found behind the end and wiped."""
    last_store_time_ms: int = 0
    """Store time of the newest message read; 0 when none was."""
    records_checked: int = 0
    scanned_from: int = 0
    stopped_by: str = ""
    """Why reading ended, in words."""
    damaged: list[str] = field(default_factory=list)
    """One sentence for each file that was not as it should be."""

    def events(self, min_offset: int) -> list[LifecycleEvent]:
        """What an operator should know of it: each damage, then one RECOVERY."""
        lost_bytes = self.written_offset - self.end_offset
        detail = (
            f"commit log [{min_offset}, {self.end_offset}): {self.records_checked} records checked "
            f"from {self.scanned_from}, {self.dropped_bytes} bytes dropped; {self.stopped_by}"
        )
        if lost_bytes:
            detail += f"; at least {lost_bytes} bytes lost of {self.written_offset} written"
        recovery = LifecycleEvent(
            "RECOVERY",
            detail,
            clean=self.clean,
            truncated_from=self.end_offset if lost_bytes else None,
            truncated_to=self.written_offset if lost_bytes else None,
        )
        return [*(LifecycleEvent("DAMAGED_FILE", each) for each in self.damaged), recovery]


class Recovery:
    """One recovery of one store; `run` once."""

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        index: Index | None,
        *,
        dispatcher: Dispatcher,
        delay_levels_ms: Sequence[int],
        deleted: Mapping[str, int],
    ) -> None:
        """`deleted`: deleted topics, each with the end of its deleted records."""
        self._deleted = deleted
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._delay_levels_ms = delay_levels_ms

    def run(self, checkpoint: Checkpoint, *, clean: bool, now_ms: int) -> Recovered:
        """Find the end of the log, bring the derived files to it. Raises DiskFull, StorageError."""
        found = Recovered(clean)
        found.damaged += self._log.load()
        found.damaged += self._queues.load(clean=clean)
        self._queues.bury(self._deleted)
        if self._index is not None:
            found.damaged += self._index.load()
        # Until the end is known, everything in the files may be read.
        starts = self._log.files.starts
        self._log.end_offset = starts[-1] + self._log.file_size_bytes if starts else 0
        self._log.committed_offset = self._log.end_offset
        if self._index is not None and not clean:
            self._index.repair_newest(self._log.end_offset)
        for key, queue in zip(self._queues.keys(), self._queues.all(), strict=True):
            if not clean:
                self._drop_units_without_records(key, queue)
            queue.wipe_behind_end()
        scan_from = self._trusted_end() if clean else None
        if scan_from is None:
            scan_from = self._vouched_start(checkpoint)
        try:
            self._scan(found, scan_from, now_ms=now_ms, fill_gaps=scan_from == self._log.min_offset)
        except QueueGap as gap:
            found.damaged.append(f"{gap}; the consume queues are built again from the log's start")
            self._scan(found, self._log.min_offset, now_ms=now_ms, fill_gaps=True)
        self._cut(found, checkpoint)
        if found.last_store_time_ms and found.last_store_time_ms < checkpoint.physic_timestamp_ms:
            found.damaged.append(
                f"the commit log ends at {found.end_offset} ({found.stopped_by}), though messages "
                f"up to time {checkpoint.physic_timestamp_ms} were on disk"
            )
        return found

    def _drop_units_without_records(self, key: QueueKey, queue: ConsumeQueue) -> None:
        """The newest unit must lead to its record: what lies before it counts as held."""
        good = queue.max_offset
        while good > queue.min_offset:
            unit = queue.unit(good - 1)
            if unit is None or unit[1] == FILLER_SIZE or unit[0] < self._log.min_offset:
                break
            request = self._record_at(unit[0])
            if request is not None and (
                (request.topic, request.queue_id, request.queue_offset) == (*key, good - 1)
            ):
                break
            good -= 1
        if good < queue.max_offset:
            queue.truncate(good)

    # ---- where to begin ---------------------------------------------------------------------

    def _trusted_end(self) -> int | None:
        """End of the newest message any queue knows, if that message is really there; else None."""
        newest: ConsumeQueue | None = None
        for queue in self._queues.all():
            if newest is None or queue.end_physical > newest.end_physical:
                newest = queue
        if newest is None or newest.end_physical <= self._log.min_offset:
            return None
        unit = newest.unit(newest.max_offset - 1)
        assert unit is not None, f"{newest.directory} has an end and no newest unit"
        physical_offset, size_bytes, _ = unit
        request = self._record_at(physical_offset)
        if request is None or request.size_bytes != size_bytes:
            return None
        return physical_offset

    def _vouched_start(self, checkpoint: Checkpoint) -> int:
        """Start of the newest file whose first message is older than all the checkpoint vouches
        for.

        Not newer than what the index holds, so that its missing entries are made.
        """
        for start in reversed(self._log.files.starts):
            request = self._record_at(start)
            if request is None or request.store_timestamp_ms > checkpoint.recover_from_ms:
                continue
            indexed = self._index.end_physical if self._index is not None else start
            if indexed is None or indexed < start:
                continue
            return start
        return self._log.min_offset

    def _record_at(self, physical_offset: int) -> DispatchRequest | None:
        start = self._log.files.start_at(physical_offset)
        if not self._log.files.has(start):
            return None
        view = self._log.file_view(start)
        try:
            return check_record(
                view, physical_offset - start, physical_offset, self._delay_levels_ms
            )
        except CorruptRecord:
            return None

    # ---- reading on -------------------------------------------------------------------------

    def _scan(self, found: Recovered, scan_from: int, *, now_ms: int, fill_gaps: bool) -> None:
        """Check and dispatch record after record until one fails. Hot."""
        position = file_start = file_end = scan_from
        found.scanned_from = scan_from
        found.records_checked = 0
        batch: list[DispatchRequest] = []
        expected: dict[QueueKey, int] = {}
        view = memoryview(b"")
        try:
            while True:
                if position >= file_end:
                    file_start = self._log.files.start_at(position)
                    if not self._log.files.has(file_start):
                        found.stopped_by = "no further file"
                        break
                    view = self._log.file_view(file_start)
                    file_end = file_start + self._log.file_size_bytes
                request = check_record(view, position - file_start, position, self._delay_levels_ms)
                if request is None:
                    position = file_end
                    continue
                self._check_queue_offset(request, expected, whole_log=scan_from == 0)
                batch.append(request)
                position += request.size_bytes
                found.records_checked += 1
                found.last_store_time_ms = request.store_timestamp_ms
                if len(batch) == DISPATCH_BATCH_MAX:
                    self._dispatcher.apply(batch, now_ms=now_ms, fill_gaps=fill_gaps)
                    batch.clear()
        except CorruptRecord as error:
            found.stopped_by = str(error)
        self._dispatcher.apply(batch, now_ms=now_ms, fill_gaps=fill_gaps)
        found.end_offset = position

    def _check_queue_offset(
        self, request: DispatchRequest, expected: dict[QueueKey, int], *, whole_log: bool
    ) -> None:
        """A record's queue offset follows its predecessor's, or is 0: a topic made again.

        The first message of a queue may have any offset only if older ones were deleted by age.
        """
        if not has_queue_offset(request.sys_flag):
            return
        key = (request.topic, request.queue_id)
        wanted = expected.get(key, 0 if whole_log else request.queue_offset)
        if request.queue_offset not in (wanted, 0):
            raise CorruptRecord(
                f"the record at {request.physical_offset} has queue offset {request.queue_offset} "
                f"of {request.topic} {request.queue_id}, where {wanted} comes next"
            )
        expected[key] = request.queue_offset + 1

    # ---- cutting ----------------------------------------------------------------------------

    def _cut(self, found: Recovered, checkpoint: Checkpoint) -> None:
        """Make log, queues and index end at the same message."""
        reached = max(found.end_offset, self._written_end(found.end_offset))
        found.dropped_bytes = reached - found.end_offset
        found.written_offset = max(reached, checkpoint.written_offset)
        self._log.set_end(found.end_offset)
        for key, queue in zip(self._queues.keys(), self._queues.all(), strict=True):
            queue.truncate_to_log(found.end_offset)
            if not found.clean:  # A record may have turned out to be another queue's.
                self._drop_units_without_records(key, queue)
            queue.follow_log(self._log.min_offset)
        if self._index is not None:
            self._index.truncate_to_log(found.end_offset)
            self._index.follow_log(self._log.min_offset)
        self._queues.settle()
        self._dispatcher.position = found.end_offset

    def _written_end(self, end_offset: int) -> int:
        """Offset behind the last byte at or after `end_offset` that is not zero; 0 when all are."""
        first = self._log.files.start_at(end_offset)
        for start in reversed(self._log.files.starts):
            if start < first:
                break
            inside = end_offset - start if start == first else 0
            length = written_end(self._log.file_view(start)[inside:])
            if length:
                return start + inside + length
        return 0
