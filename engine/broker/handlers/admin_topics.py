"""Topics as tools see them: create, change, delete, list, count.

Place in the walk: beside it. A change is in force when it is answered, and the name servers have
heard of a topic that was made; then it survives SIGKILL and a power cut.

Invariant: topics of the broker's own can be looked at, and neither changed nor deleted. Absent on
purpose: static topics; what attributes mean.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.broker.deletions import delete_topic
from engine.broker.expired_dead_letters import tell_deleted
from engine.broker.gone import tell_queues_removed
from engine.broker.membership import Membership
from engine.broker.parts import BrokerParts
from engine.broker.state.topic_attributes import (
    TAG_FILTER,
    changed_attributes,
    tag_filter,
    without_force,
)
from engine.broker.topic_shrinking import check_shrinking, look_before_shrinking
from engine.broker.work_in_steps import in_steps
from engine.foundation.errors import ProtocolError, RequestRefused
from engine.foundation.limits import BODY_ADMIN_ENTRIES_MAX
from engine.foundation.long_lists import sorted_in_steps
from engine.protocol.bodies import (
    GroupList,
    TopicConfig,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from engine.protocol.bodies_admin import TopicConfigs
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import (
    AllTopicConfigResponseHeader,
    CreateTopicRequestHeader,
    TopicRequestHeader,
)
from engine.protocol.message import MessageQueue
from engine.protocol.names import (
    DEDUPLICATION_FLAG,
    DLQ_PREFIX,
    check_topic,
    is_system_topic,
    reply_topic,
)
from engine.remoting import Handler, Peer


def check_entries(what: str, count: int) -> None:
    """Raise RequestRefused when one request is to make more than one may."""
    if count > BODY_ADMIN_ENTRIES_MAX:
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"{count} {what} in one request: {BODY_ADMIN_ENTRIES_MAX} at most; send some at a time",
        )


class TopicHandlers:
    """Requests of tools about topics."""

    def __init__(self, parts: BrokerParts, membership: Membership) -> None:
        self._parts = parts
        self._membership = membership

    def handlers(self) -> dict[int, Handler]:
        """Request code → handler."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.create,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.create_all,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
            RequestCode.GET_TOPIC_CONFIG: self.config,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.all_configs,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
            RequestCode.GET_TOPIC_STATS_INFO: self.stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of,
        }

    async def create(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_TOPIC (17); what it strands by force is the remark."""
        header = CreateTopicRequestHeader.decode(request.fields)
        self._check_name(header.topic)
        config = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_sys_flag=header.topic_sys_flag & ~DEDUPLICATION_FLAG,  # From a route.
            order=header.order,
        )
        attributes, forced = without_force(header.attributes)
        look = await look_before_shrinking(self._parts, config)
        stranded = check_shrinking(self._parts, look, config, forced=forced or header.force is True)
        self._take_attributes(config, attributes)
        self._put(config)
        await self._parts.settings_saved()
        await self._parts.topics_told()
        return request.respond(ResponseCode.SUCCESS, stranded or None)

    async def create_all(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_TOPIC_LIST (18): none of them when one is refused."""
        try:
            configs = TopicConfigs.decode(request.body).topic_config_list
        except ProtocolError as error:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
        check_entries("topics", len(configs))
        looks = [await look_before_shrinking(self._parts, config) for config in configs]
        changes = []
        for config, look in zip(configs, looks, strict=True):  # No step of others between them.
            self._check_name(config.topic_name)
            words = ",".join(f"{key}={value}" for key, value in config.attributes.items())
            attributes, forced = without_force(words)
            check_shrinking(self._parts, look, config, forced=forced)
            self._take_attributes(config, attributes)
            self._parts.topics.check(config)
            changes.append(config)
        self._parts.topics.check_room(config.topic_name for config in changes)
        for config in changes:
            self._put(config)
        await self._parts.settings_saved()
        await self._parts.topics_told()
        return request.respond(ResponseCode.SUCCESS)

    def _check_name(self, topic: str) -> None:
        check_topic(topic)
        self._refuse_system(topic)

    def _take_attributes(self, config: TopicConfig, change: str) -> None:
        """What the topic has after `change`, in the words of RocketMQ's tools. Raises
        RequestRefused.
        """
        topic = config.topic_name
        before = self._parts.topics.find(topic)
        old = {} if before is None else before.attributes
        config.attributes = changed_attributes(None if before is None else old, change)
        self._refuse_another_tag_filter(topic, tag_filter(old), tag_filter(config.attributes))

    def _put(self, config: TopicConfig) -> None:
        """Create or change a topic."""
        topic = config.topic_name
        before = self._parts.topics.find(topic)
        self._parts.topics.put(config)
        self._parts.topics_changed()
        if before is not None and before.read_queue_nums > config.read_queue_nums:
            tell_queues_removed(self._parts, topic, config.read_queue_nums)
        if before is not None and before.read_queue_nums != config.read_queue_nums:
            self._membership.queues_changed(topic, before.read_queue_nums, config.read_queue_nums)

    async def delete(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """DELETE_TOPIC_IN_BROKER (215): the topic, its queues and everybody's offsets on it."""
        parts, topic = self._parts, TopicRequestHeader.decode(request.fields).topic
        self._check_name(topic)
        if topic.startswith(DLQ_PREFIX):
            await in_steps(tell_deleted(parts, topic))
        await delete_topic(parts, topic)
        await parts.settings_saved()
        return request.respond(ResponseCode.SUCCESS)

    def config(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_TOPIC_CONFIG (351)."""
        topic = TopicRequestHeader.decode(request.fields).topic
        config = self._parts.topics.find(topic)
        if config is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic in this broker. topic: {topic}",
            )
        return request.respond(ResponseCode.SUCCESS, body=config.encode())

    async def all_configs(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_TOPIC_CONFIG (21)."""
        topics, pieces = self._parts.topics, list[bytes]()
        await in_steps(topics.encoded(pieces, self._parts.data_version(topics.counter)))
        fields = AllTopicConfigResponseHeader(total_topic_num=len(topics)).encode()
        return request.respond(ResponseCode.SUCCESS, fields=fields, body=b"".join(pieces))

    def system_topics(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305)."""
        names = [config.topic_name for config in self._parts.topics.all()]
        own = [name for name in names if self._is_own(name)]
        return request.respond(ResponseCode.SUCCESS, body=TopicList(own).encode())

    def stats(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_TOPIC_STATS_INFO (202): the ends of each queue, and when it last grew."""
        topic = TopicRequestHeader.decode(request.fields).topic
        config, store = self._parts.topics.require(topic), self._parts.store
        table = {}
        for queue_id in range(config.write_queue_nums):
            queue = MessageQueue(topic, self._parts.config.broker_name, queue_id)
            table[queue] = TopicOffset(
                min_offset=store.min_offset(topic, queue_id),
                max_offset=store.max_offset(topic, queue_id),
                last_update_timestamp_ms=store.last_store_time(topic, queue_id) or 0,
            )
        now_ms, rate = self._parts.steady_ms(), 0.0
        for count in self._parts.traffic.puts_of(topic):
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
        parts, found = self._parts, dict[str, None]()
        for group in parts.groups.subscribers_of(topic):
            if group is None:
                yield
            else:
                found[group.name] = None
        found |= dict.fromkeys(parts.offsets.groups_on(topic))
        names += yield from sorted_in_steps(found)

    def _is_own(self, topic: str) -> bool:
        config = self._parts.config
        own = (config.cluster_name, config.broker_name, reply_topic(config.cluster_name))
        return is_system_topic(topic) or topic in own

    def _refuse_another_tag_filter(self, topic: str, old: str, new: str) -> None:
        """Refuse to change what the units of a queue mean once there are any."""
        if old != new and self._parts.store.has_held(topic):
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"attempt to update an unchangeable attribute. key: {TAG_FILTER}: topic {topic} "
                f"holds messages filtered by {old}; make a new topic with {new}, or delete this "
                "one first",
            )

    def _refuse_system(self, topic: str) -> None:
        if self._is_own(topic):
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"The topic[{topic}] is conflict with system topic.",
            )
