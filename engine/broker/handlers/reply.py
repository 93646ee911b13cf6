"""Handles SEND_REPLY_MESSAGE: stores each reply and pushes it to the requester.

Place in the walk: a consumer that answers a request sends its reply here; the producer that asked
has put its client id into the request's properties, and gets the reply over its own connection.

Invariant: the answer says whether the asker got the reply. The reply is stored as well, as RocketMQ
does by default (storeReplyMessageEnable), whether or not it could be pushed, and as any send is: by
the broker's permission, and as durable as the flush mode promises. The asker may take its time, so
the topic is judged again before the reply is stored. With accounts, a reply reaches only the
account that asked, from an account that could read the question; any other is refused, and not
stored. Absent on purpose: finding an asker on another broker; clients send replies to the broker
they were asked on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.broker.account_quotas import Shares
from engine.broker.groups.open_requests import Questions
from engine.broker.groups.producer_groups import ProducerGroups
from engine.broker.identity import BrokerNode
from engine.broker.sending.drafts import Drafts
from engine.broker.sending.durability import Durability
from engine.broker.sending.placement import Placement
from engine.broker.sending.target_queues import TargetQueues
from engine.broker.sending.timers import without_mark
from engine.foundation.errors import RequestRefused, TidemarkError
from engine.foundation.limits import (
    ACCOUNT_REPLIES_WAITING_BYTES_MAX,
    REPLIES_WAITING_BYTES_MAX,
    REPLY_WAITING_BYTES,
)
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.copy_room import fits_with_copies, without_room
from engine.protocol.headers import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
)
from engine.protocol.message_ids import offset_message_id
from engine.protocol.names import TRANSACTION_BITS
from engine.protocol.properties import (
    PROPERTY_CORRELATION_ID,
    PROPERTY_PUSH_REPLY_TIME,
    PROPERTY_REPLY_TO_CLIENT,
    PROPERTY_UNIQ_KEY,
    decode_properties,
    encode_properties,
)
from engine.remoting import Handlers, Peer, serves
from engine.remoting.accounts import Permission, topic_demand
from engine.remoting.dispatcher import HandlerResult
from engine.remoting.gate import Gate
from engine.runtime.clock import Clock
from engine.store import MessageDraft
from engine.store.record_reading import MULTI_TAGS

PUSH_TIMEOUT_MS = 10_000


@dataclass(slots=True, kw_only=True, eq=False)
class ReplyHandlers(Handlers):
    """Both spellings of a reply."""

    node: BrokerNode
    clock: Clock
    queues: TargetQueues
    drafts: Drafts
    placement: Placement
    durability: Durability
    producers: ProducerGroups
    gate: Gate
    questions: Questions
    _waiting: Shares = field(
        default_factory=lambda: Shares(
            REPLIES_WAITING_BYTES_MAX, ACCOUNT_REPLIES_WAITING_BYTES_MAX
        ),
        init=False,
    )
    """Bytes of replies that wait for their askers, by account or connection."""

    @serves(RequestCode.SEND_REPLY_MESSAGE)
    def send_reply(self, peer: Peer, request: RemotingCommand) -> HandlerResult:
        """SEND_REPLY_MESSAGE (324): long header names."""
        return self._reply(peer, request, SendMessageRequestHeader.decode(request.fields))

    @serves(RequestCode.SEND_REPLY_MESSAGE_V2)
    def send_reply_v2(self, peer: Peer, request: RemotingCommand) -> HandlerResult:
        """SEND_REPLY_MESSAGE_V2 (325): one-letter header names."""
        return self._reply(peer, request, SendMessageRequestHeader.decode_v2(request.fields))

    async def _reply(
        self, peer: Peer, request: RemotingCommand, header: SendMessageRequestHeader
    ) -> RemotingCommand | None:
        config = self.queues.reply_topic_for(header)
        queue_id = self.queues.reply_queue_for(header, config)
        self._check_lengths(request.body, header)
        self._check_asked(request, header)
        refused = await self._push_in_its_share(peer, request, header, queue_id)
        # Somebody may have changed or deleted it meanwhile.
        config = self.queues.reply_topic_for(header)
        queue_id = self.queues.queue_there(header.topic, queue_id)
        properties = decode_properties(header.properties or "")
        draft = MessageDraft(
            topic=header.topic,
            queue_id=queue_id,
            body=request.body,
            properties=without_mark(header.properties or "", properties),
            born_timestamp_ms=header.born_timestamp_ms,
            born_host=peer.address,
            store_host=self.node.address,
            flag=header.flag,
            sys_flag=header.sys_flag & ~(TRANSACTION_BITS | MULTI_TAGS),  # They are the broker's.
            reconsume_times=max(0, header.reconsume_times or 0),
        )
        key = properties.get(PROPERTY_UNIQ_KEY)
        unique_key = key or self.drafts.unique_key()
        put = self.placement.put(config, [draft], [unique_key], queue_id=queue_id)
        fields = SendMessageResponseHeader(
            msg_id=offset_message_id(self.node.address, put.puts[0].physical_offset),
            queue_id=put.queue_id,
            queue_offset=put.puts[0].queue_offset,
        ).encode()
        code = ResponseCode.SUCCESS if refused is None else ResponseCode.SYSTEM_ERROR
        response = request.respond(code, refused, fields)
        answer = self.durability.answer_put(peer, request, response, end_offset=put.end_offset)
        return answer if answer is None or isinstance(answer, RemotingCommand) else await answer

    def _check_asked(self, request: RemotingCommand, header: SendMessageRequestHeader) -> None:
        """Raise RequestRefused unless the client has asked what this account may have read.

        Without accounts everybody may reply to everybody, as in RocketMQ. A question is known at
        the broker it was sent to: a client whose reply another broker refuses tries the next one.
        """
        gate, properties = self.gate, decode_properties(header.properties or "")
        account = gate.account_of(request)
        asker = self.producers.find(properties.get(PROPERTY_REPLY_TO_CLIENT, ""))
        if account is None or asker is None:  # Whom nobody knows, nothing is pushed to.
            return
        correlation_id = properties.get(PROPERTY_CORRELATION_ID, "")
        topic = self.questions.topic_of(
            asker.channel.account or "", asker.client_id, correlation_id
        )
        if topic is None or not gate.may(account, topic_demand(topic, Permission.SUB)):
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"account {account} has no question to reply to: client {asker.client_id!r} has "
                f"asked none with CORRELATION_ID {correlation_id!r} at this broker, or in a topic "
                "the account may not read",
            )

    def _check_lengths(self, body: object, header: SendMessageRequestHeader) -> None:
        longest = self.node.config.store.max_message_bytes
        length = len(body) if isinstance(body, bytes | memoryview) else 0
        if length > longest:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the reply's body has {length} bytes, at most {longest} are allowed",
            )
        text = header.properties or ""
        length, properties = len(text.encode()), decode_properties(text)
        if not fits_with_copies(length, properties):
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the reply is illegal: {without_room(length, properties)}",
            )

    async def _push_in_its_share(
        self, peer: Peer, request: RemotingCommand, header: SendMessageRequestHeader, queue_id: int
    ) -> str | None:
        """As `_push`. Raises RequestRefused when too much waits for askers already."""
        sender = self.gate.account_of(request) or peer.address
        reply_bytes = REPLY_WAITING_BYTES + len(request.body) + len(header.properties or "")
        if excess := self._waiting.excess(sender, reply_bytes):
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY,
                f"too many replies wait for their askers: this one takes {reply_bytes} bytes, and "
                f"{excess}; try again",
            )
        self._waiting.add(sender, reply_bytes)
        try:
            return await self._push(peer, request, header, queue_id)
        finally:
            self._waiting.add(sender, -reply_bytes)

    async def _push(
        self, peer: Peer, request: RemotingCommand, header: SendMessageRequestHeader, queue_id: int
    ) -> str | None:
        """Give the reply to the asker; None when it has taken it, else why not."""
        properties = decode_properties(header.properties or "")
        asker = properties.get(PROPERTY_REPLY_TO_CLIENT)
        if asker is None:
            return f"reply message properties[{PROPERTY_REPLY_TO_CLIENT}] is null"
        member = self.producers.find(asker)
        if member is None:
            return f"push reply message fail, channel of <{asker}> not found."
        properties[PROPERTY_PUSH_REPLY_TIME] = str(self.clock.now_ms())
        pushed = ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=queue_id,
            sys_flag=header.sys_flag,
            born_timestamp_ms=header.born_timestamp_ms,
            flag=header.flag,
            properties=encode_properties(properties),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
            born_host=peer.address,
            store_host=self.node.address,
            store_timestamp_ms=self.clock.now_ms(),
        )
        question = RemotingCommand.request(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed.encode(), request.body
        )
        try:
            answer = await member.channel.peer.invoke(question, timeout_ms=PUSH_TIMEOUT_MS)
        except TidemarkError as error:
            return f"push reply message to {asker} fail: {error}"
        if answer.code != ResponseCode.SUCCESS:
            return f"push reply message to {asker} fail: {answer.code} {answer.remark}"
        return None
