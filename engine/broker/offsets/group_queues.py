"""Finds what a group has on the queues of a topic: offsets, and when it pulled last.

Place in the walk: beside it, where a topic that a group left is found or forgotten. Absent on
purpose: deciding that it was left.
"""

from __future__ import annotations

from engine.broker.groups.readers import QueueKey, Readers
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.topics.topics import Topics


class GroupQueues:
    """What groups have on the queues of a topic."""

    def __init__(
        self,
        *,
        offsets: ConsumerOffsets,
        readers: Readers,
        topics: Topics,
    ) -> None:
        self._offsets = offsets
        self._readers = readers
        self._topics = topics

    def queues_of(self, group: str, topic: str) -> list[QueueKey]:
        """Queues of a topic on which a group may have an offset, or have pulled."""
        config = self._topics.find(topic)
        ids = dict.fromkeys(self._offsets.queues(group, topic))
        ids |= dict.fromkeys(range(0 if config is None else config.read_queue_nums))
        return [(group, topic, queue_id) for queue_id in ids]

    def last_pull(self, group: str, topic: str) -> tuple[int, int] | None:
        """The group's last pull of the topic: when (wall time), and of which queue."""
        readings = ((key[2], self._readers.of(key)) for key in self.queues_of(group, topic))
        return max(
            (
                (one.last_pull_ms, queue_id)
                for queue_id, one in readings
                if one is not None and one.last_pull_ms is not None
            ),
            default=None,
        )
