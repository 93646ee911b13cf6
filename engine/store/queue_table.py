"""Table of a store's consume queues by (topic, queue_id), with the next offset of each.

Place in the walk: `message_store.put` asks for the next queue offset, `dispatch` looks its queues
up here.

The offset given out (`next_offset`) runs ahead of the queue's `max_offset` by what is written and
not yet dispatched.

Invariant: a queue offset is given out once, and only after its record is in the log.
Absent on purpose: topic settings. A queue exists here because a message for it was stored.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from typing import NamedTuple
from zlib import crc32

from engine.foundation.errors import StorageError
from engine.runtime.disk import Disk
from engine.store.consume_queue import ConsumeQueue
from engine.store.mapped_file import FilePool
from engine.store.record_reading import DispatchRequest, has_queue_offset, is_plain_topic

QueueKey = tuple[str, int]

SIZE_KEY = "mappedFileSizeConsumeQueue"


class QueueMarks(NamedTuple):
    """Where a queue stands at one instant."""

    min_offset: int
    max_offset: int
    flushed_offset: int
    """First queue offset whose message a power cut could lose now."""
    replicated_offset: int | None
    """First queue offset whose message is on no replica yet; None without replicas."""
    last_store_time_ms: int | None


class QueueTable:
    """The queues below one `consumequeue` folder."""

    def __init__(self, disk: Disk, directory: str, file_size_bytes: int, pool: FilePool) -> None:
        self._disk = disk
        self.directory = directory
        self._file_size_bytes = file_size_bytes
        self._pool = pool
        self._queues: dict[QueueKey, ConsumeQueue] = {}
        self._sorted: list[QueueKey] | None = None
        self._next_offsets: dict[QueueKey, int] = {}
        self._ids_of: dict[str, dict[int, None]] = {}
        """topic → ids of its queues, and of those that an offset was asked for."""
        self.dirty: dict[QueueKey, ConsumeQueue] = {}
        """Queues written since the last flush."""
        self.moved: dict[QueueKey, None] = {}
        """Queues whose ends moved since the watermarks were read."""
        self.folder_dirty = False

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, if any message of it was ever dispatched and the topic not deleted since."""
        return self._queues.get((topic, queue_id))

    def newest_physical_offset(self) -> int | None:
        """Where the newest record that any queue leads to begins; None when none does."""
        units = (queue.unit(queue.max_offset - 1) for queue in self._queues.values())
        return max((unit[0] for unit in units if unit is not None), default=None)

    def has_unit_of(self, record: DispatchRequest) -> bool:
        """Is the record a message: has the queue that it names the unit of this very record?"""
        if not has_queue_offset(record.sys_flag):
            return False
        queue = self.find(record.topic, record.queue_id)
        unit = None if queue is None else queue.unit(record.queue_offset)
        return unit is not None and unit[:2] == (record.physical_offset, record.size_bytes)

    def find_or_add(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made now if need be. Raises StorageError for a name that is none."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            check_queue_name(topic, queue_id)
            queue = ConsumeQueue(
                self._disk,
                f"{self.directory}/{topic}/{queue_id}",
                self._file_size_bytes,
                self._pool,
            )
            self._queues[topic, queue_id] = queue
            self._ids_of.setdefault(topic, {})[queue_id] = None
            if self._sorted is not None:
                insort(self._sorted, (topic, queue_id))
            self.folder_dirty = True
        return queue

    def keys(self) -> list[QueueKey]:
        """Every queue there is, sorted."""
        if self._sorted is None:
            self._sorted = sorted(self._queues)
        return list(self._sorted)

    def all(self) -> list[ConsumeQueue]:
        """Every queue there is, in the order of `keys`."""
        return [self._queues[key] for key in self.keys()]

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset for the next message put. Raises StorageError for a name that is none."""
        offset = self._next_offsets.get((topic, queue_id))
        if offset is None:
            check_queue_name(topic, queue_id)
            offset = self._next_offsets[topic, queue_id] = 0
            self._ids_of.setdefault(topic, {})[queue_id] = None
        return offset

    def advance(self, topic: str, queue_id: int, next_offset: int) -> None:
        """The offsets before `next_offset` were given to records that are in the log."""
        self._next_offsets[topic, queue_id] = next_offset

    def has_given_offsets(self, topic: str) -> bool:
        """Has any message of the topic got a queue offset since the topic was made?"""
        offsets = self._next_offsets
        return any(offsets.get((topic, queue_id), 0) for queue_id in self._ids_of.get(topic, ()))

    def bury(self, deleted: Mapping[str, int]) -> None:
        """Remove what a crash has left of queues whose topics were deleted behind all they hold."""
        ends: dict[str, int] = {}
        for (topic, _), queue in self._queues.items():
            if topic in deleted:
                ends[topic] = max(ends.get(topic, 0), queue.end_physical)
        for topic, end in ends.items():
            if end <= deleted[topic]:
                for queue in self.take_out(topic):
                    queue.take_out()()
                self._disk.remove_directory(self.folder_of(topic))

    def folder_of(self, topic: str) -> str:
        """Where the topic's queues have their folders."""
        return f"{self.directory}/{topic}"

    def load(self, *, clean: bool) -> list[str]:
        """Find all queues on disk; return a sentence for each thing put right."""
        repairs: list[str] = []
        for topic in self._disk.names(self.directory):
            for name in self._disk.names(f"{self.directory}/{topic}"):
                if name.isdecimal():
                    repairs += self.find_or_add(topic, int(name)).load(SIZE_KEY, clean=clean)
        self.folder_dirty = False
        return repairs

    def look(self) -> None:
        """Find all queues on disk, and change nothing."""
        for topic in self._disk.names(self.directory):
            for name in self._disk.names(f"{self.directory}/{topic}"):
                if name.isdecimal():
                    self.find_or_add(topic, int(name)).look(SIZE_KEY)

    def fingerprint(self) -> int:
        """Equal while the queues that hold anything, and their ends, are the same."""
        found = 0
        for key in self.keys():
            queue = self._queues[key]
            if queue.max_offset:
                found = crc32(repr((key, queue.ends)).encode(), found)
        return found

    def note_written(self, key: QueueKey, queue: ConsumeQueue) -> None:
        """Units were appended. Hot."""
        # Whoever deletes the topic's earlier life late forgets what was given to this one.
        if self._next_offsets.get(key, 0) < queue.max_offset:
            self._next_offsets[key] = queue.max_offset
        self.dirty[key] = queue
        self.moved[key] = None

    def take_moved(self) -> list[QueueKey]:
        """Queues whose ends moved, or that went, since the last call."""
        moved, self.moved = self.moved, {}
        return list(moved)

    def follow_log(self, physical_min: int) -> dict[QueueKey, tuple[int, int]]:
        """Drop units of messages before `physical_min`; for each queue that lost some, its first
        offset before and now.
        """
        purged: dict[QueueKey, tuple[int, int]] = {}
        for key in self.keys():
            queue = self._queues[key]
            before = queue.min_offset
            queue.follow_log(physical_min)
            if queue.min_offset > before:
                purged[key] = (before, queue.min_offset)
        self.moved.update(dict.fromkeys(purged))
        return purged

    def take_dirty(self, least_bytes: int) -> dict[QueueKey, ConsumeQueue]:
        """Take the dirty queues with at least so many new bytes; others stay dirty."""
        dirty, self.dirty = self.dirty, {}
        due: dict[QueueKey, ConsumeQueue] = {}
        for key, queue in dirty.items():
            (due if queue.dirty_bytes >= least_bytes else self.dirty)[key] = queue
        return due

    def touch_all(self) -> None:
        """Count every queue as written, for the next flush."""
        for key in self.keys():
            queue = self._queues[key]
            queue.touch()
            self.dirty[key] = queue
        self.folder_dirty = True

    def settle(self) -> None:
        """After recovery: the next message of each queue comes behind its newest. What was found
        counts as synced: a flush of everything comes next, where that is not so.
        """
        self._next_offsets = {key: queue.max_offset for key, queue in self._queues.items()}
        for queue in self._queues.values():
            queue.loaded_to = queue.max_offset
            queue.synced_offset, queue.synced_physical = queue.max_offset, queue.end_physical

    def go_on_at(self, undispatched: Mapping[QueueKey, int]) -> None:
        """After a cut, or a start: the next message of each queue comes behind its newest unit, and
        behind those of its messages that have none yet.
        """
        for key in self._next_offsets:
            queue = self._queues.get(key)
            self._next_offsets[key] = 0 if queue is None else queue.max_offset
        self._next_offsets.update(undispatched)

    def take_out(self, topic: str) -> list[ConsumeQueue]:
        """Forget the topic's queues, and return them to be deleted; a topic made again under the
        name begins at offset 0, and only when their files are gone.
        """
        taken = []
        for queue_id in self._ids_of.pop(topic, ()):
            key = (topic, queue_id)
            self._next_offsets.pop(key, None)
            queue = self._queues.pop(key, None)
            if queue is not None:
                taken.append(queue)
                self.dirty.pop(key, None)
                self.moved[key] = None
        if taken and self._sorted is not None:
            begin = bisect_left(self._sorted, (topic, -1))
            del self._sorted[begin : begin + len(taken)]
        if taken:
            self.folder_dirty = True
        return taken

    def close(self) -> None:
        """Close every file."""
        for queue in self.all():
            queue.close()


def check_queue_name(topic: str, queue_id: int) -> None:
    """Raise StorageError unless topic and queue id can name folders of ours."""
    if not is_plain_topic(topic):
        raise StorageError(f"topic {topic!r}: 1 to 255 of [A-Za-z0-9_%|-] are allowed")
    if not 0 <= queue_id <= 0x7FFFFFFF:
        raise StorageError(f"queue id {queue_id} of topic {topic} is not in [0, 2**31)")
