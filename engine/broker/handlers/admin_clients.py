"""Handles admin requests about clients: lists connections and relays queries to members.

Place in the walk: beside it. A question about a consumer's inside is forwarded to that consumer and
answered with its own words.

Invariant: nothing here changes a client's membership. Absent on purpose: heartbeats, progress, what
members are asked each few seconds (reporting/client_windows).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.groups.group_configs import GroupConfigs
from engine.broker.groups.members import Member
from engine.broker.groups.producer_groups import ProducerGroups
from engine.broker.identity import BrokerNode
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.topics.topics import Topics
from engine.broker.transactions.stored_messages import no_message, stored_record
from engine.broker.transactions.transactions import Transactions
from engine.foundation.chunked_work import in_steps, sorted_in_steps
from engine.foundation.errors import ProtocolError, RequestRefused, RequestTimedOut, TidemarkError
from engine.foundation.limits import LOOP_STEP_ENTRIES_MAX
from engine.protocol.bodies import (
    ClientConnection,
    ConsumerConnection,
    ProducerConnection,
    TopicList,
)
from engine.protocol.bodies_admin import (
    GroupSubscription,
    MessageRequestMode,
    ProducerInfo,
    ProducerTable,
)
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import (
    ConsumeMessageDirectlyRequestHeader,
    ConsumerRunningInfoRequestHeader,
    GroupRequestHeader,
    ProducerConnectionRequestHeader,
    QueryGroupsTopicsRequestHeader,
    QuerySubscriptionRequestHeader,
)
from engine.protocol.message_ids import parse_offset_message_id
from engine.protocol.names import is_retry_topic
from engine.remoting import Handlers, Peer, serves
from engine.runtime.clock import Clock
from engine.store import MessageStore

PULL_MODE = "PULL"


@dataclass(slots=True, kw_only=True, eq=False)
class ClientHandlers(Handlers):
    """Requests of tools about producers and consumers."""

    node: BrokerNode
    clock: Clock
    groups: ConsumerGroups
    producers: ProducerGroups
    offsets: ConsumerOffsets

    @serves(RequestCode.GET_CONSUMER_CONNECTION_LIST)
    def consumer_connections(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_CONSUMER_CONNECTION_LIST (203)."""
        name = GroupRequestHeader.decode(request.fields).consumer_group
        group = self.groups.of(name)
        if group is None:
            raise RequestRefused(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
            )
        body = ConsumerConnection(
            connection_set=_connections(group.members[one] for one in group.member_ids()),
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
            subscription_table=dict(sorted(group.subscriptions.items())),
        ).encode()
        return request.respond(ResponseCode.SUCCESS, body=body)

    @serves(RequestCode.GET_PRODUCER_CONNECTION_LIST)
    def producer_connections(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_PRODUCER_CONNECTION_LIST (204)."""
        name = ProducerConnectionRequestHeader.decode(request.fields).producer_group
        members = self.producers.members(name)
        if not members:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        body = ProducerConnection(connection_set=_connections(members)).encode()
        return request.respond(ResponseCode.SUCCESS, body=body)

    @serves(RequestCode.GET_ALL_PRODUCER_INFO)
    async def all_producers(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_PRODUCER_INFO (328)."""
        pieces: list[bytes] = []
        await in_steps(self._encoded_producers(pieces))
        return request.respond(ResponseCode.SUCCESS, body=b"".join(pieces))

    def _encoded_producers(self, pieces: list[bytes]) -> Iterator[None]:
        """Every group as it is when it has its turn, in steps of LOOP_STEP_ENTRIES_MAX producers
        or so.
        """
        producers = self.producers
        offset_ms = self.clock.now_ms() - self.clock.steady_ms()
        begin, end = ProducerTable().encode().split(b"{}")
        some: dict[str, list[ProducerInfo]] = {}
        count, comma = 0, b""
        pieces.append(begin + b"{")
        for group in (yield from sorted_in_steps(producers.all_names())):
            members = producers.members(group)
            some[group] = [
                ProducerInfo(
                    client_id=member.client_id,
                    remote_ip=f"/{member.channel.peer.address}",
                    language=member.channel.language,
                    version=member.channel.version,
                    last_update_timestamp_ms=member.last_heartbeat_ms + offset_ms,
                )
                for member in members
            ]
            count += 1 + len(members)
            if count >= LOOP_STEP_ENTRIES_MAX:
                pieces += (comma, _inside(some))
                some, count, comma = {}, 0, b","
                yield
        if some:
            pieces += (comma, _inside(some))
        pieces.append(b"}" + end)

    @serves(RequestCode.QUERY_TOPICS_BY_CONSUMER)
    def topics_of(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """QUERY_TOPICS_BY_CONSUMER (343): topics on which the group has offsets."""
        group = QueryGroupsTopicsRequestHeader.decode(request.fields).group
        topics = self.offsets.topics_of(group)
        body = TopicList(topics, self.node.address).encode()
        return request.respond(ResponseCode.SUCCESS, body=body)

    @serves(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER)
    def subscription_of(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """QUERY_SUBSCRIPTION_BY_CONSUMER (345): null when nobody of the group subscribes to it."""
        asked = QuerySubscriptionRequestHeader.decode(request.fields)
        group = self.groups.of(asked.group)
        subscription = None if group is None else group.subscriptions.get(asked.topic)
        body = GroupSubscription(asked.group, asked.topic, subscription).encode()
        return request.respond(ResponseCode.SUCCESS, body=body)

    @serves(RequestCode.SET_MESSAGE_REQUEST_MODE)
    def set_request_mode(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """SET_MESSAGE_REQUEST_MODE (401): pull is what every group does; pop there is not."""
        try:
            wanted = MessageRequestMode.decode(request.body)
        except ProtocolError as error:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
        if is_retry_topic(wanted.topic):
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode"
            )
        if wanted.mode != PULL_MODE:
            raise RequestRefused(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f"mode {wanted.mode} of group {wanted.consumer_group}: this broker is pulled from, "
                "set PULL",
            )
        return request.respond(ResponseCode.SUCCESS)


def _inside(table: dict[str, list[ProducerInfo]]) -> bytes:
    """The entries of a table, as they stand between its braces."""
    encoded = ProducerTable(table).encode()
    return encoded[encoded.index(b"{", 1) + 1 : -2]


def _connections(members: Iterable[Member]) -> list[ClientConnection]:
    return [
        ClientConnection(
            client_id=member.client_id,
            client_addr=member.channel.peer.address,
            language=member.channel.language,
            version=member.channel.version,
        )
        for member in members
    ]


FORWARD_TIMEOUT_MS = 10_000


@dataclass(slots=True, kw_only=True, eq=False)
class MemberRequestHandlers(Handlers):
    """Questions that are passed on to members."""

    node: BrokerNode
    topics: Topics
    group_configs: GroupConfigs
    groups: ConsumerGroups
    store: MessageStore
    transactions: Transactions

    @serves(RequestCode.GET_CONSUMER_RUNNING_INFO)
    async def running_info(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_CONSUMER_RUNNING_INFO (307): asked of the client, answered with its own words."""
        header = ConsumerRunningInfoRequestHeader.decode(request.fields)
        question = RemotingCommand.request(
            RequestCode.GET_CONSUMER_RUNNING_INFO, header.encode(), request.body
        )
        return await self._forwarded(
            request, question, group=header.consumer_group, client_id=header.client_id
        )

    @serves(RequestCode.CONSUME_MESSAGE_DIRECTLY)
    async def consume_directly(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """CONSUME_MESSAGE_DIRECTLY (309): a member is given a stored message to consume now."""
        header = ConsumeMessageDirectlyRequestHeader.decode(request.fields)
        header.broker_name = self.node.config.broker_name
        topic = self.topics.find(header.topic) if header.topic else None
        if topic is not None:
            header.topic_sys_flag = topic.topic_sys_flag
        if self.group_configs.known(header.consumer_group):
            header.group_sys_flag = 0
        try:
            _, physical_offset = parse_offset_message_id(header.msg_id or "")
        except TidemarkError as error:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
        record = stored_record(self.store, self.transactions, physical_offset)
        if record is None:
            raise no_message(physical_offset, f"no message {header.msg_id}")
        question = RemotingCommand.request(
            RequestCode.CONSUME_MESSAGE_DIRECTLY, header.encode(), record
        )
        return await self._forwarded(
            request, question, group=header.consumer_group, client_id=header.client_id or ""
        )

    async def _forwarded(
        self, request: RemotingCommand, question: RemotingCommand, *, group: str, client_id: str
    ) -> RemotingCommand:
        """What the member answers, or why it could not be asked."""
        found = self.groups.of(group)
        member = None if found is None else found.members.get(client_id)
        if member is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"
            )
        try:
            answer = await member.channel.peer.invoke(question, timeout_ms=FORWARD_TIMEOUT_MS)
        except RequestTimedOut as error:
            raise RequestRefused(
                ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client_id}>: {error}"
            ) from error
        except TidemarkError as error:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group}> <{client_id}>: {error}"
            ) from error
        return request.respond(answer.code, answer.remark, answer.fields, answer.body)
