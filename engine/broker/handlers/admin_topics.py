"""Handles admin requests to create, change, delete and inspect topics.

Place in the walk: beside it. A change is in force when it is answered, and the name servers have
heard of a topic that was made; then it survives SIGKILL and a power cut.

Invariant: topics of the broker's own can be looked at, and neither changed nor deleted. Absent on
purpose: static topics; what attributes mean.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.identity import BrokerNode
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.removing.deletion import Deletions
from engine.broker.removing.topic_changes import Shrinking, TopicChanges, is_own
from engine.broker.reporting.retention_losses import ExpiredDeadLetters
from engine.broker.stats.broker_stats import BrokerStats
from engine.broker.topics.topics import Topics, without_force
from engine.foundation.chunked_work import in_steps, sorted_in_steps
from engine.foundation.errors import ProtocolError, RequestRefused
from engine.foundation.limits import BODY_ADMIN_ENTRIES_MAX
from engine.protocol.bodies import GroupList, TopicConfig, TopicList, TopicOffset, TopicStatsTable
from engine.protocol.bodies_admin import TopicConfigs
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import (
    AllTopicConfigResponseHeader,
    CreateTopicRequestHeader,
    TopicRequestHeader,
)
from engine.protocol.message import MessageQueue
from engine.protocol.names import DEDUPLICATION_FLAG, DLQ_PREFIX
from engine.remoting import Handlers, Peer, serves
from engine.runtime.clock import Clock
from engine.store import MessageStore


def check_entries(what: str, count: int) -> None:
    """Raise RequestRefused when one request is to make more than one may."""
    if count > BODY_ADMIN_ENTRIES_MAX:
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"{count} {what} in one request: {BODY_ADMIN_ENTRIES_MAX} at most; send some at a time",
        )


@dataclass(slots=True, kw_only=True, eq=False)
class TopicHandlers(Handlers):
    """Requests of tools about topics."""

    changes: TopicChanges
    shrinking: Shrinking
    deletions: Deletions
    expired: ExpiredDeadLetters
    save_settings: Callable[[], Awaitable[None]]
    topics_registered: Callable[[], Awaitable[None]]

    @serves(RequestCode.UPDATE_AND_CREATE_TOPIC)
    async def create(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_TOPIC (17); what it strands by force is the remark."""
        header = CreateTopicRequestHeader.decode(request.fields)
        self.changes.check_name(header.topic)
        config = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_sys_flag=header.topic_sys_flag & ~DEDUPLICATION_FLAG,  # From a route.
            order=header.order,
        )
        attributes, forced = without_force(header.attributes)
        look = await self.shrinking.look_before(config)
        stranded = self.shrinking.check(look, config, forced=forced or header.force is True)
        self.changes.take_attributes(config, attributes)
        self.changes.put_all([config])
        await self.save_settings()
        await self.topics_registered()
        return request.respond(ResponseCode.SUCCESS, stranded or None)

    @serves(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST)
    async def create_all(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_TOPIC_LIST (18): none of them when one is refused."""
        try:
            configs = TopicConfigs.decode(request.body).topic_config_list
        except ProtocolError as error:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
        check_entries("topics", len(configs))
        looks = [await self.shrinking.look_before(config) for config in configs]
        checked = []
        for config, look in zip(configs, looks, strict=True):  # No step of others between them.
            self.changes.check_name(config.topic_name)
            words = ",".join(f"{key}={value}" for key, value in config.attributes.items())
            attributes, forced = without_force(words)
            self.shrinking.check(look, config, forced=forced)
            self.changes.take_attributes(config, attributes)
            checked.append(config)
        self.changes.put_all(checked)
        await self.save_settings()
        await self.topics_registered()
        return request.respond(ResponseCode.SUCCESS)

    @serves(RequestCode.DELETE_TOPIC_IN_BROKER)
    async def delete(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """DELETE_TOPIC_IN_BROKER (215): the topic, its queues and everybody's offsets on it."""
        topic = TopicRequestHeader.decode(request.fields).topic
        self.changes.check_name(topic)
        if topic.startswith(DLQ_PREFIX):
            await in_steps(self.expired.emit_deleted(topic))
        await self.deletions.delete_topic(topic)
        await self.save_settings()
        return request.respond(ResponseCode.SUCCESS)


@dataclass(slots=True, kw_only=True, eq=False)
class TopicQueryHandlers(Handlers):
    """Questions of tools about topics."""

    node: BrokerNode
    clock: Clock
    store: MessageStore
    topics: Topics
    stats: BrokerStats
    groups: ConsumerGroups
    offsets: ConsumerOffsets

    @serves(RequestCode.GET_TOPIC_CONFIG)
    def config(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_TOPIC_CONFIG (351)."""
        topic = TopicRequestHeader.decode(request.fields).topic
        config = self.topics.find(topic)
        if config is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic in this broker. topic: {topic}",
            )
        return request.respond(ResponseCode.SUCCESS, body=config.encode())

    @serves(RequestCode.GET_ALL_TOPIC_CONFIG)
    async def all_configs(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_TOPIC_CONFIG (21)."""
        topics, pieces = self.topics, list[bytes]()
        await in_steps(topics.encoded(pieces, self.node.data_version(topics.counter)))
        fields = AllTopicConfigResponseHeader(total_topic_num=len(topics)).encode()
        return request.respond(ResponseCode.SUCCESS, fields=fields, body=b"".join(pieces))

    @serves(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    def system_topics(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305)."""
        names = [config.topic_name for config in self.topics.all()]
        own = [name for name in names if is_own(name, self.node.config)]
        return request.respond(ResponseCode.SUCCESS, body=TopicList(own).encode())

    @serves(RequestCode.GET_TOPIC_STATS_INFO)
    def topic_stats(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_TOPIC_STATS_INFO (202): the ends of each queue, and when it last grew."""
        topic = TopicRequestHeader.decode(request.fields).topic
        config, store = self.topics.require(topic), self.store
        table = {}
        for queue_id in range(config.write_queue_nums):
            queue = MessageQueue(topic, self.node.config.broker_name, queue_id)
            table[queue] = TopicOffset(
                min_offset=store.min_offset(topic, queue_id),
                max_offset=store.max_offset(topic, queue_id),
                last_update_timestamp_ms=store.last_store_time(topic, queue_id) or 0,
            )
        now_ms, rate = self.clock.steady_ms(), 0.0
        for count in self.stats.puts_of(topic):
            minute = count.last_minute(now_ms)
            rate += minute.per_second(minute.messages)
        stats = TopicStatsTable(table, topic_put_tps=rate)
        return request.respond(ResponseCode.SUCCESS, body=stats.encode())

    @serves(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)
    async def groups_of(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """QUERY_TOPIC_CONSUME_BY_WHO (300): groups that subscribe to it or have offsets on it."""
        topic, names = TopicRequestHeader.decode(request.fields).topic, list[str]()
        await in_steps(self._groups_of(topic, names))
        return request.respond(ResponseCode.SUCCESS, body=GroupList(names).encode())

    def _groups_of(self, topic: str, names: list[str]) -> Iterator[None]:
        found = dict[str, None]()
        for group in self.groups.subscribers_of(topic):
            if group is None:
                yield
            else:
                found[group.name] = None
        found |= dict.fromkeys(self.offsets.groups_on(topic))
        names += yield from sorted_in_steps(found)
