"""Passes requests of tools on to members of groups, and their answers back.

Place in the walk: beside it. A member is asked what it does, or to consume a message now. Absent on
purpose: what members are asked each few seconds (reporting/client_windows).
"""

from __future__ import annotations

from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.groups.group_configs import GroupConfigs
from engine.broker.node import BrokerNode
from engine.broker.topics.topics import Topics
from engine.broker.transactions.stored_messages import no_message, stored_record
from engine.broker.transactions.transactions import Transactions
from engine.foundation.errors import RequestRefused, RequestTimedOut, TidemarkError
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import (
    ConsumeMessageDirectlyRequestHeader,
    ConsumerRunningInfoRequestHeader,
)
from engine.protocol.message_ids import parse_offset_message_id
from engine.remoting import Handler, Peer
from engine.store import MessageStore

FORWARD_TIMEOUT_MS = 10_000


class MemberRequestHandlers:
    """Questions that are passed on to members."""

    def __init__(
        self,
        *,
        node: BrokerNode,
        topics: Topics,
        group_configs: GroupConfigs,
        groups: ConsumerGroups,
        store: MessageStore,
        transactions: Transactions,
    ) -> None:
        self._node = node
        self._topics = topics
        self._group_configs = group_configs
        self._groups = groups
        self._store = store
        self._transactions = transactions

    def handlers(self) -> dict[int, Handler]:
        """Request code → handler."""
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
        }

    async def running_info(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_CONSUMER_RUNNING_INFO (307): asked of the client, answered with its own words."""
        header = ConsumerRunningInfoRequestHeader.decode(request.fields)
        question = RemotingCommand.request(
            RequestCode.GET_CONSUMER_RUNNING_INFO, header.encode(), request.body
        )
        return await self._forwarded(
            request, question, group=header.consumer_group, client_id=header.client_id
        )

    async def consume_directly(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """CONSUME_MESSAGE_DIRECTLY (309): a member is given a stored message to consume now."""
        header = ConsumeMessageDirectlyRequestHeader.decode(request.fields)
        header.broker_name = self._node.config.broker_name
        topic = self._topics.find(header.topic) if header.topic else None
        if topic is not None:
            header.topic_sys_flag = topic.topic_sys_flag
        if self._group_configs.known(header.consumer_group):
            header.group_sys_flag = 0
        try:
            _, physical_offset = parse_offset_message_id(header.msg_id or "")
        except TidemarkError as error:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
        record = stored_record(self._store, self._transactions, physical_offset)
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
        found = self._groups.of(group)
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
