"""Questions to the store: messages of a queue, records, offsets by time, messages by key.

Place in the walk: `handlers/pull`, `handlers/query` and the telemetry's watermarks ask here.

Invariant: nothing here writes, waits or moves an offset; unknown is None, never 0.
Absent on purpose: putting, flushing, recovery: `message_store`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from engine.foundation.errors import CorruptRecord
from engine.protocol.hashes import index_key_hash
from engine.store.commit_log import CommitLog
from engine.store.config import StoreConfig
from engine.store.consume_queue import ConsumeQueue, Unit
from engine.store.holes import Holes
from engine.store.index import Index
from engine.store.queue_table import QueueKey, QueueTable
from engine.store.reading import GetLimits, GetResult, GetStatus, read_queue
from engine.store.record import (
    PLACE,
    RECORD_BYTES_MIN,
    DispatchRequest,
    check_record,
    store_timestamp_of,
)


@dataclass(slots=True)
class KeyQueryResult:
    """Answer of the index. Hashes may collide: compare the messages' own keys."""

    physical_offsets: list[int]
    index_last_update_timestamp_ms: int
    index_last_update_physical_offset: int


class QueueMarks(NamedTuple):
    """Where a queue stands at one instant."""

    min_offset: int
    max_offset: int
    flushed_offset: int
    """First queue offset whose message a power cut could lose now."""
    last_store_time_ms: int | None


class StoreQueries:
    """The reading side of a store."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        queues: QueueTable,
        index: Index | None,
        *,
        deleted: Mapping[str, int],
    ) -> None:
        """`index` is None when keys are not indexed; `deleted` are the deleted topics, each with
        the end of its deleted records.
        """
        self._deleted = deleted
        self._config = config
        self._log = log
        self._queues = queues
        self._index = index

    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        max_count: int,
        max_bytes: int,
        wanted: Callable[[int], bool] | None = None,
        matches: Callable[[bytes], bool] | None = None,
        max_tests: int | None = None,
    ) -> GetResult:
        """Messages of a queue from `queue_offset` on; see `reading` for statuses and limits.

        `wanted` tests the tags_code, `matches` the property string of what passed that; of so many
        messages at most (`max_tests`) when that is fewer than `max_filter_message_bytes` allow.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        limits = GetLimits(max_count, max_bytes, wanted, matches, max_tests)
        return read_queue(
            self._log,
            queue,
            queue_offset,
            key=(topic, queue_id),
            limits=limits,
            config=self._config,
        )

    def marks_of(self, topic: str, queue_id: int) -> QueueMarks | None:
        """All that moves in a queue, at one look; None when it is not there. Hot."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return None
        return QueueMarks(
            queue.min_offset,
            queue.max_offset,
            queue.first_reaching(self._log.flushed_offset),
            self.last_store_time(topic, queue_id),
        )

    def min_offset(self, topic: str, queue_id: int) -> int:
        """First queue offset kept; 0 for a queue without messages."""
        queue = self._queues.find(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset behind the newest visible message; 0 for a queue without messages."""
        queue = self._queues.find(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def synced_offset(self, topic: str, queue_id: int) -> int:
        """First queue offset whose message a power cut could lose now; 0 without messages."""
        queue = self._queues.find(topic, queue_id)
        return queue.first_reaching(self._log.flushed_offset) if queue is not None else 0

    def queues(self) -> list[QueueKey]:
        """(topic, queue_id) of every queue that has or had messages, sorted."""
        return self._queues.keys()

    def has_held(self, topic: str) -> bool:
        """Was any message of the topic put since it was made?"""
        return self._queues.has_given_offsets(topic)

    def was_deleted(self, topic: str, physical_offset: int) -> bool:
        """Was the topic deleted since something was stored for it at `physical_offset`? Hot."""
        return physical_offset < self._deleted.get(topic, 0)

    def record_at(self, physical_offset: int) -> bytes | None:
        """The record at `physical_offset`, checked; None when none can begin there.

        Only for a place that is known to be a record's, from a queue unit or the index: a message's
        body may hold the bytes of a record, with this very offset in them.
        """
        found = self._record_at(physical_offset)
        return None if found is None else bytes(found[0])

    def known_record_at(self, physical_offset: int) -> bytes | None:
        """The record of the message that begins at `physical_offset`, an offset that anybody may
        have named; None when the queue that the record names has no unit for it (any more).
        """
        found = self._record_at(physical_offset)
        if found is None or not self._queues.has_unit_of(found[1]):
            return None
        return bytes(found[0])

    def _record_at(self, physical_offset: int) -> tuple[memoryview, DispatchRequest] | None:
        head = self._log.view(physical_offset, 8)
        if head is None:
            return None
        size_bytes = int.from_bytes(head[:4], "big", signed=True)
        view = self._log.view(physical_offset, size_bytes)
        if view is None:
            return None
        try:
            found = check_record(view, 0, physical_offset, self._config.delay_levels_ms)
        except CorruptRecord:
            return None
        return None if found is None else (view, found)

    def bytes_at(self, physical_offset: int, size_bytes: int) -> memoryview | None:
        """So many bytes of the log, as they are: nothing says that a record begins there. None when
        they are not (all) kept, or not yet committed. Hot.
        """
        return self._log.view(physical_offset, size_bytes)

    def store_time_at(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        """Store time (ms) of the message at `queue_offset`; None when there is none (any more)."""
        queue = self._queues.find(topic, queue_id)
        unit = queue.unit(queue_offset) if queue is not None else None
        if unit is None or unit[1] < RECORD_BYTES_MIN or self._log.holes.at(unit[0]) is not None:
            return None
        view = self._log.view(unit[0], unit[1])
        if view is None or PLACE.unpack_from(view) != (unit[1], queue_id, queue_offset, unit[0]):
            return None
        return store_timestamp_of(view)

    def last_store_time(self, topic: str, queue_id: int) -> int | None:
        """Store time (ms) of the queue's newest message; None when it has none."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or queue.max_offset == queue.min_offset:
            return None
        if queue.last_store_time_ms is None:
            queue.last_store_time_ms = self.store_time_at(topic, queue_id, queue.max_offset - 1)
        return queue.last_store_time_ms

    def oldest_store_time(self) -> int | None:
        """Store time (ms) of the first message kept; None when there is none."""
        record = self.record_at(self.physical_min)
        return None if record is None else store_timestamp_of(memoryview(record))

    def offset_at_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """First queue offset stored at or after `timestamp_ms`; max_offset when all are older."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        low, high = queue.min_offset, queue.max_offset
        while low < high:
            middle = known = (low + high) // 2
            stored_ms = self.store_time_at(topic, queue_id, known)
            while stored_ms is None and known < high:  # Damaged: the next sound one speaks for it.
                known = self._behind_damage(queue, known)
                stored_ms = self.store_time_at(topic, queue_id, known) if known < high else None
            if stored_ms is None or stored_ms >= timestamp_ms:
                high = middle
            else:
                low = known + 1
        return low

    def _behind_damage(self, queue: ConsumeQueue, queue_offset: int) -> int:
        """The next offset whose message may be sound: behind the hole, when its place is known."""
        unit = queue.unit(queue_offset)
        hole = self._log.holes.at(unit[0]) if unit is not None else None
        if hole is None:
            return queue_offset + 1
        return max(queue.first_reaching(hole.end), queue_offset + 1)

    def queue_units(
        self, topic: str, queue_id: int, queue_offset: int, count_max: int
    ) -> list[Unit] | None:
        """Units of the consume queue from `queue_offset` on, at most `count_max`, over file ends.

        None for a queue that is not there; none of them beyond its ends.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return None
        units: list[Unit] = []
        while len(units) < count_max:
            more = queue.units(queue_offset + len(units), count_max - len(units))
            if not more:
                break
            units += more
        return units

    def query_by_key(
        self, topic: str, key: str, *, max_count: int, begin_ms: int, end_ms: int
    ) -> KeyQueryResult:
        """Physical offsets of messages indexed under the key, ascending; the newest `max_count`."""
        index = self._index
        if index is None or not index.files:
            return KeyQueryResult([], 0, 0)
        found = index.find(index_key_hash(topic, key), max_count, begin_ms, end_ms)
        newest = index.files[-1]
        begin = max(self._log.min_offset, self._deleted.get(topic, 0))
        return KeyQueryResult(
            [offset for offset in found if offset >= begin],
            newest.end_timestamp_ms,
            newest.end_physical,
        )

    @property
    def holes(self) -> Holes:
        """What is damaged of the log below the synced position, as far as anybody has looked."""
        return self._log.holes

    @property
    def physical_min(self) -> int:
        """First byte of the log kept."""
        return self._log.min_offset

    @property
    def physical_max(self) -> int:
        """First byte of the log not yet written."""
        return self._log.end_offset

    @property
    def physical_committed(self) -> int:
        """Everything before this byte is in the files: readers see it, SIGKILL leaves it."""
        return self._log.committed_offset

    @property
    def physical_flushed(self) -> int:
        """Everything before this byte survives a power cut."""
        return self._log.flushed_offset
