"""Topic requests of tools: create, change, delete, list and count.

Place in the walk: beside it. A change is in force when it is answered, and the name servers have
heard of a topic that was made; then it survives SIGKILL and a power cut.

Invariant: topics of the broker's own can be looked at, and neither changed nor deleted. Absent on
purpose: static topics; what attributes mean.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from engine.broker.bounded_work import in_steps
from engine.broker.removing.shrinking import Shrinking
from engine.broker.removing.topic_changes import TopicChanges
from engine.broker.removing.topics_and_groups import Deletions
from engine.broker.reporting.expired_dead_letters import ExpiredDeadLetters
from engine.broker.topics.attributes import without_force
from engine.foundation.errors import ProtocolError, RequestRefused
from engine.foundation.limits import BODY_ADMIN_ENTRIES_MAX
from engine.protocol.bodies import TopicConfig
from engine.protocol.bodies_admin import TopicConfigs
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import CreateTopicRequestHeader, TopicRequestHeader
from engine.protocol.names import DEDUPLICATION_FLAG, DLQ_PREFIX
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

    def __init__(
        self,
        *,
        changes: TopicChanges,
        shrinking: Shrinking,
        deletions: Deletions,
        expired: ExpiredDeadLetters,
        save_settings: Callable[[], Awaitable[None]],
        topics_registered: Callable[[], Awaitable[None]],
    ) -> None:
        self._changes = changes
        self._shrinking = shrinking
        self._deletions = deletions
        self._expired = expired
        self._save_settings = save_settings
        self._topics_registered = topics_registered

    def handlers(self) -> dict[int, Handler]:
        """Request code → handler."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.create,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.create_all,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
        }

    async def create(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_TOPIC (17); what it strands by force is the remark."""
        header = CreateTopicRequestHeader.decode(request.fields)
        self._changes.check_name(header.topic)
        config = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_sys_flag=header.topic_sys_flag & ~DEDUPLICATION_FLAG,  # From a route.
            order=header.order,
        )
        attributes, forced = without_force(header.attributes)
        look = await self._shrinking.look_before(config)
        stranded = self._shrinking.check(look, config, forced=forced or header.force is True)
        self._changes.take_attributes(config, attributes)
        self._changes.put_all([config])
        await self._save_settings()
        await self._topics_registered()
        return request.respond(ResponseCode.SUCCESS, stranded or None)

    async def create_all(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_TOPIC_LIST (18): none of them when one is refused."""
        try:
            configs = TopicConfigs.decode(request.body).topic_config_list
        except ProtocolError as error:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
        check_entries("topics", len(configs))
        looks = [await self._shrinking.look_before(config) for config in configs]
        checked = []
        for config, look in zip(configs, looks, strict=True):  # No step of others between them.
            self._changes.check_name(config.topic_name)
            words = ",".join(f"{key}={value}" for key, value in config.attributes.items())
            attributes, forced = without_force(words)
            self._shrinking.check(look, config, forced=forced)
            self._changes.take_attributes(config, attributes)
            checked.append(config)
        self._changes.put_all(checked)
        await self._save_settings()
        await self._topics_registered()
        return request.respond(ResponseCode.SUCCESS)

    async def delete(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """DELETE_TOPIC_IN_BROKER (215): the topic, its queues and everybody's offsets on it."""
        topic = TopicRequestHeader.decode(request.fields).topic
        self._changes.check_name(topic)
        if topic.startswith(DLQ_PREFIX):
            await in_steps(self._expired.emit_deleted(topic))
        await self._deletions.delete_topic(topic)
        await self._save_settings()
        return request.respond(ResponseCode.SUCCESS)
