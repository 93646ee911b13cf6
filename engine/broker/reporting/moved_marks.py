"""Collects which marks have moved since they were asked for last.

Place in the walk: handlers move tables, the tables note what moved, and once a second `watermarks`
takes it from here. Absent on purpose: reading marks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from engine.broker.bounded_work import stepped
from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.groups.group_configs import GroupConfigs
from engine.broker.groups.queue_locks import QueueLocks
from engine.broker.groups.readers import QueueKey, Readers
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.topics.topics import Topics
from engine.store import MessageStore


class MovedMarks:
    """What moved in the tables of one broker."""

    def __init__(
        self,
        *,
        store: MessageStore,
        topics: Topics,
        group_configs: GroupConfigs,
        groups: ConsumerGroups,
        locks: QueueLocks,
        offsets: ConsumerOffsets,
        readers: Readers,
    ) -> None:
        self._store = store
        self._topics = topics
        self._group_configs = group_configs
        self._groups = groups
        self._locks = locks
        self._offsets = offsets
        self._readers = readers

    @property
    def topics_leaving(self) -> Collection[str]:
        """Topics that are being deleted, of which nothing is read."""
        return self._topics.being_deleted

    @property
    def groups_leaving(self) -> Collection[str]:
        """Groups that are being deleted with their offsets."""
        return self._group_configs.being_deleted

    def drop_expired_locks(self, now_ms: int) -> Iterator[None]:
        """Locks whose time is over by `now_ms`, steady time, go; in steps."""
        return stepped(self._locks.drop_expired(now_ms))

    def all_queues(self) -> Iterable[tuple[str, int]]:
        """Every queue that is there."""
        return self._store.queues()

    def all_keys(self) -> Iterator[Iterable[QueueKey]]:
        """Every queue on which a group has an offset, or has pulled."""
        yield self._offsets.keys()
        yield self._readers.keys()

    def take_queues(self) -> list[tuple[str, int]]:
        """Queues whose ends moved."""
        return self._store.moved_queues()

    def take_keys(self) -> Iterator[Iterable[QueueKey]]:
        """Queues of groups whose offsets, readers or locks moved."""
        for source in (self._offsets, self._readers, self._locks):
            yield source.take_moved()

    def take_heard(self) -> Iterator[Iterable[QueueKey]]:
        """Queues of groups that pulled or reported, and nothing moved."""
        for source in (self._offsets, self._readers):
            yield source.take_heard()

    def take_topics(self) -> Iterable[str]:
        """Topics whose settings changed."""
        return self._topics.take_moved()

    def take_groups(self) -> Iterable[str]:
        """Groups whose members changed."""
        return self._groups.take_moved()

    def release_queues(self, keys: Iterable[QueueKey]) -> None:
        """The group has left the topic of these queues: nobody reads them for it."""
        self._readers.release_queues(keys)
