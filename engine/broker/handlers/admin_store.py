"""Handles admin requests about the store: timestamps, queue units, clean-up and HA status.

Place in the walk: beside it.

Invariant: cleaning removes only what has expired anyway, or what no topic owns. Unlike RocketMQ's,
a cleaned queue keeps its place: the next message's offset never falls back to 0.
Absent on purpose: deciding what has expired (store/upkeep/retention).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.identity import BrokerNode
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.removing.deletion import Deletions
from engine.broker.topics.topics import Topics
from engine.foundation.errors import RequestRefused
from engine.foundation.limits import QUEUE_UNITS_TOLD_MAX
from engine.protocol.bodies_admin import (
    ConsumeQueueData,
    ConsumeQueueUnits,
    ConsumeTimeSpans,
    HaRuntimeInfo,
    QueueTimeSpan,
)
from engine.protocol.body_codec import WireQueue
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import ConsumeTimeSpanRequestHeader, QueryConsumeQueueRequestHeader
from engine.protocol.names import is_system_topic
from engine.remoting import Handlers, Peer, serves
from engine.runtime.clock import Clock
from engine.store import MessageStore

UNKNOWN_TIME_MS = -1
"""What RocketMQ says for the store time of a message that is not there."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class StoreHandlers(Handlers):
    """Requests of tools about the store."""

    clock: Clock
    deletions: Deletions
    groups: ConsumerGroups
    status: Callable[[], HaRuntimeInfo]
    node: BrokerNode
    offsets: ConsumerOffsets
    store: MessageStore
    topics: Topics

    @serves(RequestCode.QUERY_CONSUME_TIME_SPAN)
    def time_spans(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """QUERY_CONSUME_TIME_SPAN (303): when each queue begins, ends, and where a group is."""
        header = ConsumeTimeSpanRequestHeader.decode(request.fields)
        topic, config = header.topic, self.topics.require(header.topic)
        spans = [
            self._time_span(header.group, topic, queue_id)
            for queue_id in range(config.write_queue_nums)
        ]
        return request.respond(ResponseCode.SUCCESS, body=ConsumeTimeSpans(spans).encode())

    def _time_span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        store = self.store
        begin, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        committed = self.offsets.committed(group, topic, queue_id)
        min_ms = self._stored_ms(topic, queue_id, begin)
        consumed_ms = min_ms
        if committed:
            consumed_ms = self._stored_ms(topic, queue_id, committed - 1)
        delay_ms = 0
        if (committed or 0) < end:
            waits_since_ms = store.store_time_at(topic, queue_id, max(begin, committed or 0))
            delay_ms = 0 if waits_since_ms is None else max(0, self.clock.now_ms() - waits_since_ms)
        return QueueTimeSpan(
            message_queue=WireQueue(self.node.config.broker_name, queue_id, topic),
            min_timestamp_ms=min_ms,
            max_timestamp_ms=self._stored_ms(topic, queue_id, end - 1),
            consume_timestamp_ms=consumed_ms,
            delay_time_ms=delay_ms,
        )

    def _stored_ms(self, topic: str, queue_id: int, queue_offset: int) -> int:
        stored_ms = self.store.store_time_at(topic, queue_id, queue_offset)
        return UNKNOWN_TIME_MS if stored_ms is None else stored_ms

    @serves(RequestCode.QUERY_CONSUME_QUEUE)
    def queue_units(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """QUERY_CONSUME_QUEUE (321): what the consume queue says of each message."""
        asked = QueryConsumeQueueRequestHeader.decode(request.fields)
        count = min(asked.count, QUEUE_UNITS_TOLD_MAX)
        store, topic, queue_id = self.store, asked.topic, asked.queue_id
        units = store.queue_units(topic, queue_id, asked.index, count)
        if units is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        answer = ConsumeQueueUnits(
            max_queue_index=store.max_offset(topic, queue_id),
            min_queue_index=store.min_offset(topic, queue_id),
            queue_data=[ConsumeQueueData(*unit) for unit in units],
        )
        if asked.consumer_group:
            group = self.groups.of(asked.consumer_group)
            answer.subscription_data = None if group is None else group.subscriptions.get(topic)
            if answer.subscription_data is None:
                answer.filter_data = f"{asked.consumer_group}@{topic} is not online!"
            else:
                answer.filter_data = "null"  # A tag expression has no compiled filter to show.
        return request.respond(ResponseCode.SUCCESS, body=answer.encode())

    @serves(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    def clean_expired_queues(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """CLEAN_EXPIRED_CONSUMEQUEUE (306): queues drop what the log no longer holds."""
        self.store.retention.follow_log()
        return request.respond(ResponseCode.SUCCESS)

    @serves(RequestCode.CLEAN_UNUSED_TOPIC)
    async def clean_unused_topics(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """CLEAN_UNUSED_TOPIC (316): queues go whose topic this broker no longer has."""
        stored = dict.fromkeys(topic for topic, _ in self.store.queues())
        for topic in stored:
            if self.topics.find(topic) is None and not is_system_topic(topic):
                _log.info("queues of %s, a topic that is gone, are deleted as asked", topic)
                await self.deletions.delete_topic(topic)
        return request.respond(ResponseCode.SUCCESS)

    @serves(RequestCode.DELETE_EXPIRED_COMMITLOG)
    async def delete_expired_log(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """DELETE_EXPIRED_COMMITLOG (329): aged files go now, not at their hour."""
        now_ms = self.clock.wall_ms()
        await self.store.retention.run(now_ms, by_hand=True)
        return request.respond(ResponseCode.SUCCESS)

    @serves(RequestCode.GET_BROKER_HA_STATUS)
    def ha_status(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_HA_STATUS (907): where the log ends, and how far each slave has it."""
        return request.respond(ResponseCode.SUCCESS, body=self.status().encode())
