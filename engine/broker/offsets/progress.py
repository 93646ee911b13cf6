"""Reads a group's marks on a topic's queues and reports its progress to admin tools.

Place in the walk: beside it, from memory, at one instant; also where a topic that a group left is
found or forgotten.

Invariant: lag is the queue's max offset less the group's consume offset; a group without an offset
is shown as 0, as RocketMQ does on this wire. Absent on purpose: judging progress (pipelines),
deciding that a topic was left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from engine.broker.groups.readers import QueueKey, Readers
from engine.broker.identity import BrokerNode
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.stats.broker_stats import BrokerStats
from engine.broker.topics.topics import Topics
from engine.foundation.limits import LOOP_STEP_ENTRIES_MAX
from engine.protocol import fastjson
from engine.protocol.bodies import ConsumeStats, OffsetWrapper
from engine.protocol.body_codec import encode_entries_object_keyed
from engine.protocol.message import MessageQueue
from engine.runtime.clock import Clock
from engine.store import MessageStore


@dataclass(slots=True, kw_only=True, eq=False)
class GroupQueues:
    """What groups have on the queues of a topic."""

    offsets: ConsumerOffsets
    readers: Readers
    topics: Topics

    def queues_of(self, group: str, topic: str) -> list[QueueKey]:
        """Queues of a topic on which a group may have an offset, or have pulled."""
        config = self.topics.find(topic)
        ids = dict.fromkeys(self.offsets.queues(group, topic))
        ids |= dict.fromkeys(range(0 if config is None else config.read_queue_nums))
        return [(group, topic, queue_id) for queue_id in ids]

    def last_pull(self, group: str, topic: str) -> tuple[int, int] | None:
        """The group's last pull of the topic: when (wall time), and of which queue."""
        readings = ((key[2], self.readers.of(key)) for key in self.queues_of(group, topic))
        return max(
            (
                (one.last_pull_ms, queue_id)
                for queue_id, one in readings
                if one is not None and one.last_pull_ms is not None
            ),
            default=None,
        )


@dataclass(slots=True, kw_only=True, eq=False)
class Progress:
    """The progress of the groups of one broker."""

    clock: Clock
    node: BrokerNode
    offsets: ConsumerOffsets
    readers: Readers
    store: MessageStore
    topics: Topics
    stats: BrokerStats

    def of_queue(self, key: QueueKey) -> OffsetWrapper:
        """The group's marks in one queue."""
        group, topic, queue_id = key
        store = self.store
        reading = self.readers.of(key)
        consumed = self.offsets.committed(group, topic, queue_id) or 0
        pulled = reading.pulled_offset if reading is not None else None
        last_ms = store.store_time_at(topic, queue_id, consumed - 1) if consumed > 0 else None
        return OffsetWrapper(
            broker_offset=store.max_offset(topic, queue_id),
            consumer_offset=consumed,
            pull_offset=max(consumed, pulled or 0),
            last_timestamp_ms=last_ms or 0,
        )

    def consume_stats_of(self, group: str, topic: str) -> ConsumeStats:
        """The group's marks in every readable queue of the topic, and its rate over a minute."""
        queues = self._queues_of(topic)
        table = {queue: self.of_queue((group, topic, queue.queue_id)) for queue in queues}
        return ConsumeStats(table, consume_tps=self._rate(group, topic))

    def encode_consume_stats(
        self, group: str, topics: Iterable[str], pieces: list[bytes]
    ) -> Iterator[None]:
        """Write the group's `ConsumeStats` over these topics into `pieces`, in steps of so many
        queues; each queue is reported as it is when it has its turn.
        """
        rate, some, parts = 0.0, dict[MessageQueue, OffsetWrapper](), list[bytes]()
        for topic in topics:
            rate += self._rate(group, topic)
            for queue in self._queues_of(topic):
                some[queue] = self.of_queue((group, topic, queue.queue_id))
                if len(some) == LOOP_STEP_ENTRIES_MAX:
                    parts.append(encode_entries_object_keyed(some))
                    some.clear()
                    yield
        if some:
            parts.append(encode_entries_object_keyed(some))
        pieces += [
            b'{"consumeTps":%s,"offsetTable":{' % fastjson.dumps(rate),
            b",".join(parts),
            b"}}",
        ]

    def _queues_of(self, topic: str) -> Iterator[MessageQueue]:
        """Those of a topic that can be read; none of one that is not here."""
        config = self.topics.find(topic)
        for queue_id in range(config.read_queue_nums if config is not None else 0):
            yield MessageQueue(topic, self.node.config.broker_name, queue_id)

    def _rate(self, group: str, topic: str) -> float:
        """Messages a second that the group got of the topic in the last minute."""
        count = self.stats.gets.find((group, topic))
        if count is None or self.topics.find(topic) is None:
            return 0.0
        sums = count.last_minute(self.clock.steady_ms())
        return sums.per_second(sums.messages)
