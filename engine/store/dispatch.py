"""Dispatches commit-log records to consume queues and the index, and notifies readers.

Place in the walk: between append (or flush) and long poll; `recovery` runs the same code over the
tail of the log after a crash, so that live and recovered files are the same bytes.

A put hands over what it appended, so that a record need not be read again a moment later;
everything else is read from the log. A property test says that both are the same.

Invariant: records are dispatched in the log's order, each once per life of the process; the queue
offsets are those the records carry. Whatever a queue already holds is skipped, so running
over the same records again changes nothing.
Absent on purpose: waiting, timers. `run` does what there is to do and returns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from engine.foundation.errors import DiskFull, StorageError
from engine.foundation.limits import (
    DISPATCH_BATCH_MAX,
    DISPATCH_TOLD_MAX,
    INDEX_FILL_BYTES,
    INDEX_FILL_RECORDS,
)
from engine.protocol.hashes import index_key_hash
from engine.store.commit_log import CommitLog
from engine.store.consume_queue import ConsumeQueue, Unit
from engine.store.index.index import Index
from engine.store.index.index_file import IndexKey
from engine.store.index.index_layout import DamagedIndex
from engine.store.log_walk import CheckedRecords
from engine.store.queue_table import QueueKey, QueueTable
from engine.store.record_reading import (
    RECORD_BYTES_MIN,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
    DispatchRequest,
    glance,
    has_queue_offset,
    keys_at_most,
    property_value,
)
from engine.store.sound_records import message_at

Arrival = Callable[[Sequence[DispatchRequest]], None]
"""Hears of messages that became visible, together, in the order of the log."""


class QueueGap(StorageError):
    """A record's queue offset lies beyond the end of its queue: units in between are missing."""


class Dispatcher:
    """Reads the log from `position` on."""

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        index: Index | None,
        delay_levels_ms: Sequence[int],
        *,
        queued_max: int = DISPATCH_TOLD_MAX,
        deleted: Mapping[str, int] | None = None,
    ) -> None:
        """`deleted`: deleted topics, each with the end of its deleted records."""
        self._log = log
        self._deleted = {} if deleted is None else deleted
        self._queues = queues
        self._index = index
        self.delay_levels_ms = delay_levels_ms
        self.position = 0
        """Physical offset of the next record to dispatch."""
        self.last_store_time_ms = 0
        """Store time of the newest message dispatched by `run`; 0 before the first."""
        self.arrivals: list[Arrival] = []
        self.on_applied: Callable[[Sequence[DispatchRequest], int, int], None] = _ignore
        """Called with every record of each run, visible to readers or not, and the physical offsets
        between which they lie.
        """
        self._queued: deque[DispatchRequest] = deque()
        self._queued_max = queued_max
        self._filling = CheckedRecords(log, queues)

    def was_deleted(self, request: DispatchRequest) -> bool:
        """Was its topic deleted since it was stored?"""
        return request.physical_offset < self._deleted.get(request.topic, 0)

    def enqueue(self, request: DispatchRequest) -> None:
        """A record was appended to the log; past a limit it will be read from there. Hot."""
        if len(self._queued) < self._queued_max:
            self._queued.append(request)

    def enqueue_all(self, requests: Sequence[DispatchRequest]) -> None:
        """As `enqueue`, of records one behind the other."""
        self._queued.extend(requests[: max(0, self._queued_max - len(self._queued))])

    def run(self, limit: int, *, now_ms: int) -> bool:
        """Dispatch records that end by `limit`; True when a batch's end left more to do."""
        requests, position, more = self._next(limit)
        if requests:
            # A gap here is a topic deleted while messages of it waited for their flush.
            self.apply(requests, now_ms=now_ms, fill_gaps=True)
        before, self.position = self.position, position  # A full disk finds the same ones again.
        if requests:
            self.last_store_time_ms = requests[-1].store_timestamp_ms
            self._announce(requests)
        if position > before:
            self.on_applied(requests, before, position)
        return more

    def cut(self, end_offset: int, stored_ms: int) -> None:
        """The log ends at `end_offset`, behind a message stored at `stored_ms`: what lay behind is
        not dispatched, what comes there is.
        """
        self.last_store_time_ms = min(self.last_store_time_ms, stored_ms)
        while self._queued and self._queued[-1].physical_offset >= end_offset:
            self._queued.pop()
        self.position = min(self.position, end_offset)
        self._filling.cut(end_offset)
        if self._index is not None and self._index.filled_to is not None:
            self._index.filled_to = min(self._index.filled_to, end_offset)

    def _next(self, limit: int) -> tuple[list[DispatchRequest], int, bool]:
        """Records of DISPATCH_BATCH_MAX keys or so that end at or before `limit`; also where the
        next one begins, and whether it ends there, too, as far as is known. Hot.
        """
        queued, position, left = self._queued, self.position, DISPATCH_BATCH_MAX
        requests: list[DispatchRequest] = []
        while position < limit and left > 0:
            if queued and queued[0].physical_offset <= position:
                request = queued[0]
                end = request.physical_offset + request.size_bytes
                if end > limit:
                    break
                queued.popleft()
                if request.physical_offset == position:  # Else it was read from the log before.
                    requests.append(request)
                    left -= keys_at_most(request)
                    position = end
            else:
                read, before = len(requests), position
                position = self._read(requests, position, limit, left)
                if position == before:  # `limit` lies amid a record.
                    break
                left -= sum(map(keys_at_most, requests[read:]))
        return requests, position, left <= 0 and position < limit

    def _read(
        self, requests: list[DispatchRequest], position: int, limit: int, keys_max: int
    ) -> int:
        """Read records of `keys_max` keys or so from `position` on, to the end of their file or
        the first one that was enqueued; returns where the next one begins. Hot.
        """
        file_size_bytes = self._log.file_size_bytes
        delay_levels_ms = self.delay_levels_ms
        inside = position % file_size_bytes
        start = position - inside
        view = self._log.file_view(start)
        stop = min(limit - start, file_size_bytes)
        if self._queued:
            stop = min(stop, self._queued[0].physical_offset - start)
        while inside < stop and keys_max > 0:
            if file_size_bytes - inside < RECORD_BYTES_MIN:
                return start + file_size_bytes
            request = glance(view, inside, delay_levels_ms)
            if request is None:
                return start + file_size_bytes
            if inside + request.size_bytes > stop:
                break
            requests.append(request)
            keys_max -= keys_at_most(request)
            inside += request.size_bytes
        return start + inside

    def apply(self, requests: Sequence[DispatchRequest], *, now_ms: int, fill_gaps: bool) -> None:
        """Write the queue units and index entries of consecutive records.

        A record whose predecessors in the queue are missing raises QueueGap, unless `fill_gaps`
        says that they are gone for good: then an empty queue starts at it, and one that has units
        is bridged. A record that lies before the whole queue then shows that the queue's front is
        missing: it is begun anew.
        """
        if self._deleted:
            requests = [one for one in requests if not self.was_deleted(one)]
        batch: dict[QueueKey, tuple[ConsumeQueue, list[Unit]]] = {}
        for request in requests:
            if not has_queue_offset(request.sys_flag):
                continue
            key = (request.topic, request.queue_id)
            entry = batch.get(key)
            if entry is None:
                entry = batch[key] = (self._queues.find_or_add(*key), [])
            queue, units = entry
            if request.physical_offset < queue.end_physical:
                if fill_gaps and _lies_before(queue, request):
                    queue.begin_anew()
                elif _held(self._log, queue, request):
                    continue
            if request.queue_offset != queue.max_offset + len(units):
                self._write(key, queue, units)
                self._realign(queue, request, fill_gaps=fill_gaps)
            units.append((request.physical_offset, request.size_bytes, request.tags_code))
            queue.last_store_time_ms = request.store_timestamp_ms
        for key, (queue, units) in batch.items():
            self._write(key, queue, units)
        if self._index is not None and not self._index.is_behind:
            self._put_keys(self._index, requests, now_ms)

    def fill_index(self, *, now_ms: int) -> bool:
        """Put the keys of the next few records that an index that is behind lacks; True while it
        stays behind. Damage in the log, which has taken its keys with it, is passed over.

        Raises DiskFull; the next call tries again.
        """
        index = self._index
        if index is None or not index.is_behind:
            return False
        if index.filled_to is None:
            self._filling.begin(index.end_physical or 0)
        before = self._filling.state
        requests = self._filling.some(
            self.position,
            self.delay_levels_ms,
            bytes_max=INDEX_FILL_BYTES,
            keys_max=INDEX_FILL_RECORDS,
        )
        kept = [one for one in requests if not self.was_deleted(one)]
        try:
            self._put_keys(index, kept, now_ms)
        except DamagedIndex as error:
            index.give_up(error)
            return True
        except DiskFull:
            self._filling.state = before
            raise
        index.filled_to = self._filling.position
        index.is_behind = index.filled_to < self.position
        return index.is_behind

    def _write(self, key: QueueKey, queue: ConsumeQueue, units: list[Unit]) -> None:
        if units:
            queue.append(units)
            units.clear()
            self._queues.note_written(key, queue)

    def _realign(self, queue: ConsumeQueue, request: DispatchRequest, *, fill_gaps: bool) -> None:
        """The queue is not where the record says: its topic was made anew, or units are missing."""
        if request.queue_offset < queue.max_offset:
            # The topic was deleted and made again: the newer messages count.
            queue.truncate(request.queue_offset)
        elif not fill_gaps:
            raise QueueGap(
                f"the record at {request.physical_offset} has queue offset {request.queue_offset}, "
                f"{queue.directory} ends at {queue.max_offset}"
            )
        elif queue.min_offset == queue.max_offset:
            queue.skip_to(request.queue_offset)
        else:
            hole = self._log.holes.before(request.physical_offset)
            lost_from = hole.start if hole is not None else queue.end_physical
            queue.bridge_to(request.queue_offset, lost_from)

    def _put_keys(self, index: Index, requests: Sequence[DispatchRequest], now_ms: int) -> None:
        """Hot: UNIQ_KEY and KEYS of every message but rolled-back ones."""
        indexed_to = index.end_physical
        if indexed_to is None:
            indexed_to = -1
        keys: list[IndexKey] = []
        for request in requests:
            physical_offset = request.physical_offset
            if physical_offset < indexed_to:
                continue
            if request.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
                continue
            named = message_keys(request.properties)
            if physical_offset == indexed_to:  # Its other keys may belong into a file to be made.
                named = named[index.newest_count() :]
            for key in named:
                key_hash = index_key_hash(request.topic, key)
                keys.append((key_hash, physical_offset, request.store_timestamp_ms))
        index.put(keys, now_ms=now_ms)

    def _announce(self, requests: Sequence[DispatchRequest]) -> None:
        visible = [request for request in requests if has_queue_offset(request.sys_flag)]
        if visible:
            for arrival in self.arrivals:
                arrival(visible)


def _ignore(entries: object, begin: int, end: int) -> None:
    del entries, begin, end


def _lies_before(queue: ConsumeQueue, request: DispatchRequest) -> bool:
    """Is the record older than the first unit of its queue?"""
    if request.queue_offset >= queue.min_offset:
        return False
    first = queue.unit(queue.min_offset)
    return first is not None and request.physical_offset < first[0]


def _held(log: CommitLog, queue: ConsumeQueue, request: DispatchRequest) -> bool:
    """Has the queue this record's unit, or a newer message's in its place? Only after a restart.

    A power cut can leave a torn unit; it and what follows it are cut off, to be written again.
    """
    unit = queue.unit(request.queue_offset)
    if unit is None or (unit[0] > request.physical_offset and _leads_on(log, unit, request)):
        return True  # Of a topic deleted and made again since.
    if unit == (request.physical_offset, request.size_bytes, request.tags_code):
        return True
    queue.truncate(request.queue_offset)
    return False


def _leads_on(log: CommitLog, unit: Unit, request: DispatchRequest) -> bool:
    """Does the unit lead to a record of its queue, or into damage that has taken it?"""
    if log.holes.at(unit[0]) is not None:
        return True
    key = (request.topic, request.queue_id)
    return message_at(log, unit[0], key, request.queue_offset) is not None


def message_keys(properties: bytes) -> list[str]:
    """The keys a message is indexed under: UNIQ_KEY, then each of KEYS (split at blanks)."""
    unique = property_value(properties, b"UNIQ_KEY\x01")
    keys = [unique.decode("utf-8", "replace")] if unique else []
    if b"KEYS\x01" in properties:
        listed = property_value(properties, b"KEYS\x01")
        keys += [key for key in listed.decode("utf-8", "replace").split(" ") if key]
    return keys
