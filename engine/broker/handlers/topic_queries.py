"""Requests of tools that read topics: settings, ends of queues, who consumes.

Place in the walk: beside it. Absent on purpose: changing topics (admin_topics).
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.broker.bounded_work import in_steps
from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.node import BrokerNode
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.removing.topic_changes import is_own
from engine.broker.stats.broker_stats import BrokerStats
from engine.broker.topics.topics import Topics
from engine.foundation.errors import RequestRefused
from engine.foundation.long_lists import sorted_in_steps
from engine.protocol.bodies import GroupList, TopicList, TopicOffset, TopicStatsTable
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import AllTopicConfigResponseHeader, TopicRequestHeader
from engine.protocol.message import MessageQueue
from engine.remoting import Handler, Peer
from engine.runtime.clock import Clock
from engine.store import MessageStore


class TopicQueryHandlers:
    """Questions of tools about topics."""

    def __init__(
        self,
        *,
        node: BrokerNode,
        clock: Clock,
        store: MessageStore,
        topics: Topics,
        stats: BrokerStats,
        groups: ConsumerGroups,
        offsets: ConsumerOffsets,
    ) -> None:
        self._node = node
        self._clock = clock
        self._store = store
        self._topics = topics
        self._stats = stats
        self._groups = groups
        self._offsets = offsets

    def handlers(self) -> dict[int, Handler]:
        """Request code → handler."""
        return {
            RequestCode.GET_TOPIC_CONFIG: self.config,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.all_configs,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
            RequestCode.GET_TOPIC_STATS_INFO: self.topic_stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of,
        }

    def config(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_TOPIC_CONFIG (351)."""
        topic = TopicRequestHeader.decode(request.fields).topic
        config = self._topics.find(topic)
        if config is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic in this broker. topic: {topic}",
            )
        return request.respond(ResponseCode.SUCCESS, body=config.encode())

    async def all_configs(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_TOPIC_CONFIG (21)."""
        topics, pieces = self._topics, list[bytes]()
        await in_steps(topics.encoded(pieces, self._node.data_version(topics.counter)))
        fields = AllTopicConfigResponseHeader(total_topic_num=len(topics)).encode()
        return request.respond(ResponseCode.SUCCESS, fields=fields, body=b"".join(pieces))

    def system_topics(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305)."""
        names = [config.topic_name for config in self._topics.all()]
        own = [name for name in names if is_own(name, self._node.config)]
        return request.respond(ResponseCode.SUCCESS, body=TopicList(own).encode())

    def topic_stats(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_TOPIC_STATS_INFO (202): the ends of each queue, and when it last grew."""
        topic = TopicRequestHeader.decode(request.fields).topic
        config, store = self._topics.require(topic), self._store
        table = {}
        for queue_id in range(config.write_queue_nums):
            queue = MessageQueue(topic, self._node.config.broker_name, queue_id)
            table[queue] = TopicOffset(
                min_offset=store.min_offset(topic, queue_id),
                max_offset=store.max_offset(topic, queue_id),
                last_update_timestamp_ms=store.last_store_time(topic, queue_id) or 0,
            )
        now_ms, rate = self._clock.steady_ms(), 0.0
        for count in self._stats.puts_of(topic):
            minute = count.last_minute(now_ms)
            rate += minute.per_second(minute.messages)
        stats = TopicStatsTable(table, topic_put_tps=rate)
        return request.respond(ResponseCode.SUCCESS, body=stats.encode())

    async def groups_of(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """QUERY_TOPIC_CONSUME_BY_WHO (300): groups that subscribe to it or have offsets on it."""
        topic, names = TopicRequestHeader.decode(request.fields).topic, list[str]()
        await in_steps(self._groups_of(topic, names))
        return request.respond(ResponseCode.SUCCESS, body=GroupList(names).encode())

    def _groups_of(self, topic: str, names: list[str]) -> Iterator[None]:
        found = dict[str, None]()
        for group in self._groups.subscribers_of(topic):
            if group is None:
                yield
            else:
                found[group.name] = None
        found |= dict.fromkeys(self._offsets.groups_on(topic))
        names += yield from sorted_in_steps(found)
