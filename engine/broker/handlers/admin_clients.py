"""Connection requests of tools: connected clients, their subscriptions and running info.

Place in the walk: beside it. A question about a consumer's inside is forwarded to that consumer and
answered with its own words.

Invariant: nothing here changes a client's membership. Absent on purpose: heartbeats, progress.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine.broker.bounded_work import in_steps
from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.groups.members import Member
from engine.broker.groups.producer_groups import ProducerGroups
from engine.broker.node import BrokerNode
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.foundation.errors import ProtocolError, RequestRefused
from engine.foundation.limits import LOOP_STEP_ENTRIES_MAX
from engine.foundation.long_lists import sorted_in_steps
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
    GroupRequestHeader,
    ProducerConnectionRequestHeader,
    QueryGroupsTopicsRequestHeader,
    QuerySubscriptionRequestHeader,
)
from engine.protocol.names import is_retry_topic
from engine.remoting import Handler, Peer
from engine.runtime.clock import Clock

PULL_MODE = "PULL"


class ClientHandlers:
    """Requests of tools about producers and consumers."""

    def __init__(
        self,
        *,
        node: BrokerNode,
        clock: Clock,
        groups: ConsumerGroups,
        producers: ProducerGroups,
        offsets: ConsumerOffsets,
    ) -> None:
        self._node = node
        self._clock = clock
        self._groups = groups
        self._producers = producers
        self._offsets = offsets

    def handlers(self) -> dict[int, Handler]:
        """Request code → handler."""
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics_of,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription_of,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_request_mode,
        }

    def consumer_connections(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_CONSUMER_CONNECTION_LIST (203)."""
        name = GroupRequestHeader.decode(request.fields).consumer_group
        group = self._groups.of(name)
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

    def producer_connections(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_PRODUCER_CONNECTION_LIST (204)."""
        name = ProducerConnectionRequestHeader.decode(request.fields).producer_group
        members = self._producers.members(name)
        if not members:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        body = ProducerConnection(connection_set=_connections(members)).encode()
        return request.respond(ResponseCode.SUCCESS, body=body)

    async def all_producers(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_PRODUCER_INFO (328)."""
        pieces: list[bytes] = []
        await in_steps(self._encoded_producers(pieces))
        return request.respond(ResponseCode.SUCCESS, body=b"".join(pieces))

    def _encoded_producers(self, pieces: list[bytes]) -> Iterator[None]:
        """Every group as it is when it has its turn, in steps of LOOP_STEP_ENTRIES_MAX producers
        or so.
        """
        producers = self._producers
        offset_ms = self._clock.now_ms() - self._clock.steady_ms()
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

    def topics_of(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """QUERY_TOPICS_BY_CONSUMER (343): topics on which the group has offsets."""
        group = QueryGroupsTopicsRequestHeader.decode(request.fields).group
        topics = self._offsets.topics_of(group)
        body = TopicList(topics, self._node.address).encode()
        return request.respond(ResponseCode.SUCCESS, body=body)

    def subscription_of(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """QUERY_SUBSCRIPTION_BY_CONSUMER (345): null when nobody of the group subscribes to it."""
        asked = QuerySubscriptionRequestHeader.decode(request.fields)
        group = self._groups.of(asked.group)
        subscription = None if group is None else group.subscriptions.get(asked.topic)
        body = GroupSubscription(asked.group, asked.topic, subscription).encode()
        return request.respond(ResponseCode.SUCCESS, body=body)

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
