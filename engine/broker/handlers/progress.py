"""How far a group is in a queue, as tools are told: from memory, at one instant.

Invariant: lag is the queue's max offset less the group's consume offset; a group without an offset
is told as 0, as RocketMQ does on this wire. Absent on purpose: judging progress (pipelines).
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.broker.parts import BrokerParts
from engine.broker.state.readers import QueueKey
from engine.protocol.bodies import ConsumeStats, OffsetWrapper
from engine.protocol.message import MessageQueue


def progress_of(parts: BrokerParts, key: QueueKey) -> OffsetWrapper:
    """The group's marks in one queue."""
    group, topic, queue_id = key
    store = parts.store
    reading = parts.readers.of(key)
    consumed = parts.offsets.committed(group, topic, queue_id) or 0
    pulled = reading.pulled_offset if reading is not None else None
    last_ms = store.store_time_at(topic, queue_id, consumed - 1) if consumed > 0 else None
    return OffsetWrapper(
        broker_offset=store.max_offset(topic, queue_id),
        consumer_offset=consumed,
        pull_offset=max(consumed, pulled or 0),
        last_timestamp_ms=last_ms or 0,
    )


def consume_stats_of(parts: BrokerParts, group: str, topics: Iterable[str]) -> ConsumeStats:
    """The group's marks in every readable queue of these topics, and its rate over a minute."""
    table = {}
    rate = 0.0
    for topic in topics:
        config = parts.topics.find(topic)
        if config is None:
            continue
        for queue_id in range(config.read_queue_nums):
            queue = MessageQueue(topic, parts.config.broker_name, queue_id)
            table[queue] = progress_of(parts, (group, topic, queue_id))
        count = parts.traffic.gets.find((group, topic))
        if count is not None:
            sums = count.last_minute(parts.steady_ms())
            rate += sums.per_second(sums.messages)
    return ConsumeStats(table, consume_tps=rate)
