"""Finds where a group without a consume offset has to begin.

Place in the walk: `handlers/offset` asks, for a client that begins to read a queue. Absent on
purpose: the client's own start policy, which counts where nothing is found here.
"""

from __future__ import annotations

from engine.broker.groups.group_configs import GroupConfigs
from engine.broker.groups.readers import QueueKey
from engine.broker.node import BrokerNode
from engine.broker.offsets.new_lives import NewLives
from engine.broker.offsets.remembered_offsets import RememberedOffsets
from engine.broker.topics.topics import Topics
from engine.store import MessageStore


class StartingPoints:
    """Those of the groups of one broker."""

    def __init__(
        self,
        *,
        node: BrokerNode,
        store: MessageStore,
        topics: Topics,
        group_configs: GroupConfigs,
        remembered: RememberedOffsets,
        new_lives: NewLives,
    ) -> None:
        self._store = store
        self._topics = topics
        self._group_configs = group_configs
        self._remembered = remembered
        self._new_lives = new_lives
        self._resident_bytes = node.config.store.resident_bytes

    def place(self, key: QueueKey) -> int | None:
        """Where a group that read an earlier life of the topic has to begin, stored as its offset;
        None for any other group.
        """
        group, topic, queue_id = key
        config = self._topics.find(topic)
        if config is None or not 0 <= queue_id < config.read_queue_nums:
            return None
        if not self._group_configs.known(group):
            return None
        first = self._remembered.beginning_of(key)
        if first is not None:
            self._new_lives.place_at_beginning(key)
        return first

    def is_young(self, topic: str, queue_id: int) -> bool:
        """Is the queue's first message still there, and near the end of the log?

        A group without an offset then begins at 0, so that none of a new topic is missed; an old
        queue that was never cut must not be read from its beginning by everybody who comes.
        """
        store = self._store
        if store.min_offset(topic, queue_id) > 0:
            return False
        first = store.queue_units(topic, queue_id, 0, 1)
        if not first:
            return False
        return store.physical_max - first[0][0] <= self._resident_bytes
