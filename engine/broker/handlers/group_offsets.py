"""Handles admin requests to inspect, reset, clone and delete a group's consume offsets.

Place in the walk: beside it. A reset reaches each reader with its next pull (server side, the
default), or is pushed to the members, who report the new offsets themselves (as older brokers do).

Invariant: whatever moves an offset here is a fact with path RESET, so that a fall is never without
a cause. Absent on purpose: clients' own reports (handlers/offset).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.groups.group_configs import GroupConfigs
from engine.broker.groups.members import ClientChannel
from engine.broker.groups.readers import QueueKey
from engine.broker.identity import BrokerNode
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.offsets.offset_facts import OffsetFacts
from engine.broker.removing.deletion import OffsetDeletion
from engine.broker.topics.topics import Topics
from engine.foundation.chunked_work import in_steps, stepped
from engine.foundation.errors import RequestRefused, TidemarkError
from engine.foundation.limits import MEMBER_ANSWER_MS
from engine.protocol import fastjson
from engine.protocol.bodies import encode_object_keyed
from engine.protocol.bodies_client import encode_consumer_status, member_offsets
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import (
    CloneGroupOffsetRequestHeader,
    ConsumerStatusRequestHeader,
    DeleteConsumerOffsetsRequestHeader,
    QueryCorrectionOffsetRequestHeader,
    ResetOffsetRequestHeader,
)
from engine.protocol.message import MessageQueue
from engine.remoting import Handlers, Peer, serves
from engine.store import MessageStore

JAVA_LONG_MAX = 2**63 - 1
"""RocketMQ's answer for a queue in which the compared group is behind all others."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class GroupOffsetHandlers(Handlers):
    """Orders and questions about the offsets of whole groups."""

    node: BrokerNode
    store: MessageStore
    topics: Topics
    group_configs: GroupConfigs
    groups: ConsumerGroups
    offsets: ConsumerOffsets
    facts: OffsetFacts
    deletion: OffsetDeletion

    @serves(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
    async def consumer_status(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223): what members hold in memory, asked by 221."""
        header = ConsumerStatusRequestHeader.decode(request.fields)
        group = self.groups.of(header.group)
        if group is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{header.group}]",
            )
        offsets_of: dict[str, Mapping[MessageQueue, int]] = {}
        for client_id in group.member_ids():
            if header.client_addr and header.client_addr != client_id:
                continue
            offsets = await _ask_member(group.members[client_id].channel, header)
            if offsets is not None:
                offsets_of[client_id] = offsets
        return request.respond(ResponseCode.SUCCESS, body=encode_consumer_status(offsets_of))

    @serves(RequestCode.CLONE_GROUP_OFFSET)
    def clone(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """CLONE_GROUP_OFFSET (314): another group begins where this one is, topic by topic."""
        header = CloneGroupOffsetRequestHeader.decode(request.fields)
        source, target = header.src_group, header.dest_group
        if self.group_configs.find(target) is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"Group {target} does not exist; create it before offsets are cloned to it",
            )
        topics = [header.topic] if header.topic else self.offsets.topics_of(source)
        members = self.groups.of(source)
        for topic in topics:
            if self.topics.find(topic) is None:
                _log.warning("clone of %s to %s: no topic %s here", source, target, topic)
                continue
            reads = members is None or not members.subscriptions or topic in members.subscriptions
            if not (header.offline or reads):
                _log.warning("clone of %s to %s: it does not read %s now", source, target, topic)
                continue
            for queue_id, offset in list(self.offsets.queues(source, topic).items()):
                previous = self.offsets.place(target, topic, queue_id, offset)
                self.facts.emit((target, topic, queue_id), offset, previous, path="RESET")
        return request.respond(ResponseCode.SUCCESS)

    @serves(RequestCode.QUERY_CORRECTION_OFFSET)
    async def correction(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """QUERY_CORRECTION_OFFSET (308): per queue the lowest offset of all groups of a topic but
        the filtered ones; the greatest number where the compared group is lower still.
        """
        header = QueryCorrectionOffsetRequestHeader.decode(request.fields)
        topic = header.topic
        filtered = {name.strip() for name in (header.filter_groups or "").split(",")}
        lowest: dict[int, int] = {}
        await in_steps(stepped(self._lowest(topic, filtered, lowest)))
        for queue_id, offset in self.offsets.queues(header.compare_group, topic).items():
            if lowest.get(queue_id, offset) > offset:
                lowest[queue_id] = JAVA_LONG_MAX
        body = fastjson.dumps({"correctionOffsets": {str(k): v for k, v in sorted(lowest.items())}})
        return request.respond(ResponseCode.SUCCESS, body=body)

    @serves(RequestCode.DELETE_CONSUMER_OFFSETS)
    async def delete(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """DELETE_CONSUMER_OFFSETS: those of a group on one topic; what is, or would be, deleted."""
        header = DeleteConsumerOffsetsRequestHeader.decode(request.fields)
        group, topic = header.group, header.topic
        self.deletion.check(group, topic)
        found = dict(self.offsets.queues(group, topic))
        if not header.dry_run:
            await self.deletion.delete(group, topic)
        name = self.node.config.broker_name
        table = {MessageQueue(topic, name, queue_id): one for queue_id, one in found.items()}
        body = encode_object_keyed("offsetTable", table)
        return request.respond(ResponseCode.SUCCESS, body=body)

    def _lowest(self, topic: str, filtered: set[str], lowest: dict[int, int]) -> Iterator[None]:
        """The lowest offset of each queue that is not gone, group by group."""
        for group in self.offsets.groups_on(topic):
            if group in filtered:
                continue
            for queue_id, offset in list(self.offsets.queues(group, topic).items()):
                if offset >= self.store.min_offset(topic, queue_id):
                    lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
                yield
            yield


async def _ask_member(
    channel: ClientChannel, header: ConsumerStatusRequestHeader
) -> dict[MessageQueue, int] | None:
    """One member's offsets of the topic; None when it does not answer, which is logged."""
    question = RemotingCommand.request(
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        {"topic": header.topic, "group": header.group},
    )
    try:
        answer = await channel.peer.invoke(question, timeout_ms=MEMBER_ANSWER_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, answer.remark or "no remark")
        return member_offsets(answer.body)
    except TidemarkError as error:
        _log.warning("%s does not report its offsets: %s", channel.client_id, error)
        return None


@dataclass(slots=True, kw_only=True, eq=False)
class OffsetResetHandlers(Handlers):
    """INVOKE_BROKER_TO_RESET_OFFSET."""

    node: BrokerNode
    store: MessageStore
    topics: Topics
    group_configs: GroupConfigs
    groups: ConsumerGroups
    offsets: ConsumerOffsets
    facts: OffsetFacts
    emit_marks: Callable[[Sequence[QueueKey]], None]

    @serves(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    def reset_offset(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """INVOKE_BROKER_TO_RESET_OFFSET (222)."""
        header = ResetOffsetRequestHeader.decode(request.fields)
        if self.node.config.use_server_side_reset_offset:
            moved = self._reset_here(header)
        else:
            moved = self._push(header)
        body = encode_object_keyed("offsetTable", moved)
        return request.respond(ResponseCode.SUCCESS, body=body)

    def _reset_here(self, header: ResetOffsetRequestHeader) -> dict[MessageQueue, int]:
        """Server side: the next pull of each queue answers OFFSET_RESET."""
        config = self.topics.require(header.topic)
        if header.queue_id >= config.read_queue_nums:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId={header.queue_id}: topic {header.topic} has {config.read_queue_nums} "
                "read queues",
            )
        if not self.group_configs.known(header.group):
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist"
            )
        queue_ids = range(config.read_queue_nums) if header.queue_id < 0 else [header.queue_id]
        targets = {queue_id: self._target(header, queue_id) for queue_id in queue_ids}
        moved: dict[MessageQueue, int] = {}
        for queue_id, offset in targets.items():
            previous = self.offsets.committed(header.group, header.topic, queue_id)
            if not header.is_force and previous is not None and offset > previous:
                continue  # Without force a reset only goes back.
            key = (header.group, header.topic, queue_id)
            previous = self.offsets.reset(*key, offset)
            self.facts.emit(key, offset, previous, path="RESET")
            moved[MessageQueue(header.topic, self.node.config.broker_name, queue_id)] = offset
        self.emit_marks([(header.group, header.topic, queue.queue_id) for queue in moved])
        return moved

    def _target(self, header: ResetOffsetRequestHeader, queue_id: int) -> int:
        store, topic = self.store, header.topic
        minimum, maximum = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        if header.queue_id >= 0 and header.offset is not None and header.offset >= 0:
            if not minimum <= header.offset <= maximum:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR,
                    f"Target offset {header.offset} not in consume queue range "
                    f"[{minimum}-{maximum}]: queue {queue_id} of {topic}",
                )
            return header.offset
        if header.timestamp_ms < 0:
            return maximum
        return store.offset_at_time(topic, queue_id, header.timestamp_ms)

    def _push(self, header: ResetOffsetRequestHeader) -> dict[MessageQueue, int]:
        """As older brokers do: members are sent the offsets (220) and report them themselves."""
        name = header.group
        config = self.topics.require(header.topic)
        group = self.groups.of(name)
        if group is None:
            raise RequestRefused(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {name} Topic: "
                f"{header.topic} Timestamp: {header.timestamp_ms}",
            )
        moved: dict[MessageQueue, int] = {}
        for queue_id in range(config.write_queue_nums):
            committed = self.offsets.committed(name, header.topic, queue_id)
            if committed is None:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR, f"THe consumer group <{name}> not exist"
                )
            offset = self._target(header, queue_id)
            if not header.is_force:
                offset = min(offset, committed)
            moved[MessageQueue(header.topic, self.node.config.broker_name, queue_id)] = offset
        for queue, offset in moved.items():
            self.offsets.expect_reset(name, header.topic, queue.queue_id, offset)
        for client_id in group.member_ids():
            channel = group.members[client_id].channel
            channel.peer.send(_pushed_reset(header, moved, channel.language))
        return moved


def _pushed_reset(
    header: ResetOffsetRequestHeader, offsets: Mapping[MessageQueue, int], language: str
) -> RemotingCommand:
    """RESET_CONSUMER_CLIENT_OFFSET (220), one-way; C++ clients read a list in place of a table."""
    if language == "CPP":
        listed = [
            {
                "topic": queue.topic,
                "brokerName": queue.broker_name,
                "queueId": queue.queue_id,
                "offset": offset,
            }
            for queue, offset in offsets.items()
        ]
        body = fastjson.dumps({"offsetTable": listed})
    else:
        body = encode_object_keyed("offsetTable", offsets)
    fields = {
        "topic": header.topic,
        "group": header.group,
        "timestamp": str(header.timestamp_ms),
        "isForce": "true" if header.is_force else "false",
    }
    command = RemotingCommand.request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body)
    command.mark_oneway()
    return command
