"""Handles send requests (SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE).

Place in the walk: between the remoting server and `message_store.put`. The answer leaves when the
message is as safe as the store's flush mode promises.

Invariant: a message is stored or refused, and a refusal says which value broke which rule; what is
not durable in time is answered FLUSH_DISK_TIMEOUT, for it may well be stored.
Absent on purpose: arbitrary delays, which this broker refuses by RocketMQ's codes; what becomes of
a half message after it was put (half_queue, handlers/transaction); recognising a resend, which
`sending/placement` does on topics that ask for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from engine.broker.groups.open_requests import QuestionNotes
from engine.broker.identity import BrokerNode
from engine.broker.sending.drafts import REGION, Drafts
from engine.broker.sending.durability import Durability
from engine.broker.sending.placement import Placement, Put
from engine.broker.sending.retry_copies import TOLD_TOPICS, RetryCopies
from engine.broker.sending.target_queues import TargetQueues
from engine.broker.sending.timers import without_mark
from engine.broker.stats.broker_stats import DELAY, FIFO, NORMAL, TRANSACTION, BrokerStats
from engine.broker.transactions.half_queue import HalfQueue
from engine.foundation.chunked_work import in_steps, stepped
from engine.foundation.errors import RemoteProtocolError, RequestRefused
from engine.foundation.limits import COPY_ROOM_BYTES, DEDUPLICATED_BATCH_MAX
from engine.protocol.bodies import TopicConfig
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.copy_room import room_needed
from engine.protocol.dead_letters import DISCARDS_TOPIC
from engine.protocol.headers import SendMessageRequestHeader
from engine.protocol.message_batch import BatchEntry, entries_of
from engine.protocol.message_ids import offset_message_id
from engine.protocol.names import DLQ_PREFIX, RETRY_PREFIX, TRANSACTION_BITS, is_system_topic
from engine.protocol.properties import (
    PROPERTY_DELAY,
    PROPERTY_MSG_REGION,
    PROPERTY_REPLY_TO_CLIENT,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TIMER_MARK,
    PROPERTY_TRACE_ON,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_WAIT,
    TIMERS,
    decode_properties,
)
from engine.remoting import Handlers, Peer, serves
from engine.remoting.dispatcher import HandlerResult
from engine.store import BatchDraft

STEP_ROOM_BYTES = 512
"""Room in a file, beside that for properties, which further copies of a failed message's copy may
need: its topic and its hosts may be longer.
"""
_MARKS = frozenset((*TIMERS, PROPERTY_DELAY, PROPERTY_TIMER_MARK, PROPERTY_TRANSACTION_PREPARED))
"""Properties of messages that are not simply stored."""


class _Batch(NamedTuple):
    """A batch on its way into the store."""

    peer: Peer
    request: RemotingCommand
    header: SendMessageRequestHeader
    config: TopicConfig
    """The topic as it was when the messages were checked."""
    queue_id: int
    encoded: BatchDraft
    unique_keys: list[str]


class _LongBatch(NamedTuple):
    """A batch that takes more than one step to encode, of which the first was done."""

    batch: _Batch
    steps: Iterator[None]


class _Line:
    """Sends of one connection behind its long batch, itself among them, in their order."""

    __slots__ = ("count", "turn")

    def __init__(self) -> None:
        self.turn = asyncio.Lock()  # Whoever waits first has it first.
        self.count = 0


@dataclass(slots=True, kw_only=True, eq=False)
class SendHandlers(Handlers):
    """The three ways of sending."""

    node: BrokerNode
    queues: TargetQueues
    drafts: Drafts
    placement: Placement
    durability: Durability
    half_queue: HalfQueue
    retry_copies: RetryCopies
    stats: BrokerStats
    questions: QuestionNotes
    _host_of_ids: str = field(default="", init=False)
    """How the broker's offset message ids begin; they differ in their last 16 digits only."""
    _encoding: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """Of the long batches that wait to be encoded only one takes memory for it."""
    _lines: dict[Peer, _Line] = field(default_factory=dict, init=False)
    """Of connections with a long batch under way."""

    def __post_init__(self) -> None:
        """What the broker adds to each message; consumers write no traces without the last two."""

    @serves(RequestCode.SEND_MESSAGE)
    def send(self, peer: Peer, request: RemotingCommand) -> HandlerResult:
        """SEND_MESSAGE (10): long header names."""
        header = SendMessageRequestHeader.decode(request.fields)
        return self._in_order(peer, request, header, is_batch=header.batch)

    @serves(RequestCode.SEND_MESSAGE_V2)
    def send_v2(self, peer: Peer, request: RemotingCommand) -> HandlerResult:
        """SEND_MESSAGE_V2 (310): one-letter header names."""
        header = SendMessageRequestHeader.decode_v2(request.fields)
        return self._in_order(peer, request, header, is_batch=header.batch)

    @serves(RequestCode.SEND_BATCH_MESSAGE)
    def send_batch(self, peer: Peer, request: RemotingCommand) -> HandlerResult:
        """SEND_BATCH_MESSAGE (320): several messages of one topic for one queue."""
        header = SendMessageRequestHeader.decode_v2(request.fields)
        return self._in_order(peer, request, header, is_batch=True)

    def _in_order(
        self,
        peer: Peer,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        *,
        is_batch: bool,  # The C++ library sends batches under the code of single messages.
    ) -> HandlerResult:
        """Put it now, or behind the long batch that came on the connection before it."""
        begin = partial(self._send_batch if is_batch else self._send, peer, request, header)
        line, long = self._lines.get(peer), None
        if line is None:
            begun = begin()
            if not isinstance(begun, _LongBatch):
                return begun
            line, long = _Line(), begun
            self._lines[peer] = line
        line.count += 1
        return self._in_line(peer, line, begin, long)

    async def _in_line(
        self,
        peer: Peer,
        line: _Line,
        begin: Callable[[], HandlerResult | _LongBatch],
        long: _LongBatch | None,
    ) -> RemotingCommand | None:
        try:
            async with line.turn:
                result = begin() if long is None else long
                if isinstance(result, _LongBatch):
                    result = await self._put_long_batch(result)
        finally:
            line.count -= 1
            if not line.count:
                del self._lines[peer]
        if result is None or isinstance(result, RemotingCommand):
            return result
        return await result  # For stable storage, which all of the line wait for together.

    def _send_batch(
        self, peer: Peer, request: RemotingCommand, header: SendMessageRequestHeader
    ) -> HandlerResult | _LongBatch:
        config = self.queues.topic_for(header)
        queue_id = self.queues.queue_for(header, config)
        self.drafts.check_body(len(request.body))
        if header.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"batch to {header.topic}: retries are sent one by one",
            )
        if header.sys_flag & TRANSACTION_BITS:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL, "a batch cannot hold messages of a transaction"
            )
        encoded = self.placement.new_batch()
        batch = _Batch(peer, request, header, config, queue_id, encoded, [])
        steps = stepped(self._encoded(batch))
        for _ in steps:  # It has more than one.
            return _LongBatch(batch, steps)
        return self._answer_batch(batch, self._put_batch(batch))

    async def _put_long_batch(self, long: _LongBatch) -> HandlerResult:
        """A batch of ten thousand messages: they are encoded in many steps of the event loop, one
        such batch at a time, and put in one. What was asked of the topic is asked again then.
        """
        batch, steps = long
        while True:
            async with self._encoding:
                await in_steps(steps)
                if self.queues.topic_for(batch.header) is batch.config:
                    put = self._put_batch(batch)
                    await asyncio.sleep(0)  # An answer that names so many takes as long as the put.
                    return self._answer_batch(batch, put)
            # Somebody has changed it meanwhile.
            again = self._send_batch(batch.peer, batch.request, batch.header)
            if not isinstance(again, _LongBatch):
                return again
            batch, steps = again

    def _encoded(self, batch: _Batch) -> Iterator[None]:
        """Check and encode the messages, one after the other."""
        header, config = batch.header, batch.config
        shared = self.drafts.draft(batch.peer, header, batch.queue_id, body=b"", properties="")
        shared.sys_flag |= self.placement.flags_of(config)
        for entry in _batch_of(batch.request):
            text = entry.properties_text
            properties = decode_properties(text)
            if not _MARKS.isdisjoint(properties):
                self._refuse_in_batch(properties)
                text = without_mark(text, properties)
            draft = copy(shared)
            draft.flag, draft.body = entry.flag, entry.body
            draft.properties, key = self.drafts.stored_properties(text, properties, header)
            batch.encoded.add(draft)
            batch.unique_keys.append(key)
            yield
        if not batch.unique_keys:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "the batch holds no message")
        if self.placement.is_once(config) and len(batch.encoded) > DEDUPLICATED_BATCH_MAX:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the batch holds {len(batch.encoded)} messages; topic {config.topic_name} looks "
                f"for each among those it has stored, {DEDUPLICATED_BATCH_MAX} at once: send it in "
                "parts",
            )

    def _put_batch(self, batch: _Batch) -> Put:
        config, keys, queue_id = batch.config, batch.unique_keys, batch.queue_id
        if self.placement.is_once(config):
            put = self.placement.put(config, batch.encoded.drafts, keys, queue_id=queue_id)
        else:
            put = self.placement.put_batch(batch.encoded, queue_id=queue_id)
        size_bytes = sum([one.size_bytes for one in put.puts])
        self.stats.put(config.topic_name, NORMAL, len(put.puts), size_bytes)
        return put

    def _answer_batch(self, batch: _Batch, put: Put) -> HandlerResult:
        waits = decode_properties(batch.header.properties or "").get(PROPERTY_WAIT) != "false"
        return self._answer(
            batch.peer, batch.request, put, unique_key=",".join(batch.unique_keys), waits=waits
        )

    def _send(
        self, peer: Peer, request: RemotingCommand, header: SendMessageRequestHeader
    ) -> HandlerResult:
        config = self.queues.topic_for(header)
        queue_id = self.queues.queue_for(header, config)
        properties = decode_properties(header.properties or "")
        text = header.properties or ""
        half, is_marked = False, not _MARKS.isdisjoint(properties)
        if is_marked:
            text = without_mark(text, properties)
        if is_marked or header.sys_flag & TRANSACTION_BITS:
            half = self._is_half(header, properties)
        self.drafts.check_body(len(request.body))
        text, unique_key = self.drafts.stored_properties(text, properties, header)
        draft = self.drafts.draft(peer, header, queue_id, body=request.body, properties=text)
        draft.sys_flag &= ~TRANSACTION_BITS
        is_step = header.topic.startswith(TOLD_TOPICS)
        why_buried = None
        if is_step and header.topic != DISCARDS_TOPIC:
            why_buried = self.retry_copies.why_buried(draft, header, properties)
        level = self.drafts.delay_level(properties) if is_marked and not why_buried else 0
        due_ms = None
        if level:
            draft = self.drafts.parked(draft, level)
        elif is_marked and not why_buried:
            due_ms = self.drafts.timers.due_ms(properties)
            draft = draft if due_ms is None else self.drafts.timers.park(draft, due_ms)
        put_one = self.half_queue.put_half if half else None
        put = self.placement.put(
            config,
            [draft],
            [unique_key],
            queue_id=queue_id,
            put_one=put_one,
            room_bytes=STEP_ROOM_BYTES + room_needed(properties) if is_step else COPY_ROOM_BYTES,
        )
        if is_step:
            self.retry_copies.report(header, properties, delay_level=level, why_buried=why_buried)
        kind = FIFO if PROPERTY_SHARDING_KEY in properties else NORMAL
        if half or level or due_ms is not None:
            kind = TRANSACTION if half else DELAY
        handle = None
        if due_ms is not None:
            self.drafts.timers.announce(draft, put.puts[0].physical_offset)
            handle = self.drafts.timers.handle(header.topic, due_ms, unique_key)
        self.stats.put(config.topic_name, kind, 1, put.puts[0].size_bytes)
        if PROPERTY_REPLY_TO_CLIENT in properties:
            self.questions.note(request, header.topic, properties)
        # A step of a failed message has its WAIT from the send-back before it, not from a producer.
        waits = is_step or properties.get(PROPERTY_WAIT) != "false"
        return self._answer(peer, request, put, unique_key=unique_key, waits=waits, handle=handle)

    def _is_half(self, header: SendMessageRequestHeader, properties: dict[str, str]) -> bool:
        """Does the send begin a transaction? Raises RequestRefused for one that must not."""
        delayed = bool(properties.get(PROPERTY_DELAY))
        if not _says_half(properties):
            if header.sys_flag & TRANSACTION_BITS:
                raise RequestRefused(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"sysFlag {header.sys_flag} speaks of a transaction, property "
                    f"{PROPERTY_TRANSACTION_PREPARED} does not: set both or none",
                )
            return False
        if header.reconsume_times and delayed:
            return False  # Clients before 4.6.1 leave the property in what they send back.
        if self.node.config.reject_transaction_message:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self.node.config.host}] sending transaction message is forbidden",
            )
        if delayed or any(name in properties for name in TIMERS):
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                "a message of a transaction cannot be delayed: it appears when it is committed",
            )
        topic = header.topic
        if is_system_topic(topic) or topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"sending messages of a transaction to topic[{topic}] is forbidden: the broker "
                "owns it",
            )
        return True

    @staticmethod
    def _refuse_in_batch(properties: dict[str, str]) -> None:
        """Refuse what is not simply stored: the messages of a batch become visible together."""
        if properties.get(PROPERTY_DELAY) or any(name in properties for name in TIMERS):
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL, "a batch cannot hold delayed messages"
            )
        if _says_half(properties):
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL, "a batch cannot hold messages of a transaction"
            )

    def _answer(
        self,
        peer: Peer,
        request: RemotingCommand,
        put: Put,
        *,
        unique_key: str,
        waits: bool,
        handle: str | None = None,
    ) -> HandlerResult:
        if not self._host_of_ids:
            self._host_of_ids = offset_message_id(self.node.address, 0)[:-16]
        host = self._host_of_ids
        first = put.puts[0]
        fields = {  # SendMessageResponseHeader, word for word: building it takes longer.
            "msgId": ",".join([f"{host}{one.physical_offset:016X}" for one in put.puts]),
            "queueId": str(put.queue_id),
            "queueOffset": str(first.queue_offset),
            "transactionId": unique_key,
            PROPERTY_MSG_REGION: REGION,
            PROPERTY_TRACE_ON: "true",
        }
        if handle is not None:
            fields["recallHandle"] = handle
        response = request.respond(ResponseCode.SUCCESS, fields=fields)
        end_offset = put.end_offset if waits else None
        return self.durability.answer_put(
            peer, request, response, end_offset=end_offset, term=put.term
        )


def _says_half(properties: dict[str, str]) -> bool:
    """Is the message marked as the beginning of a transaction?"""
    return properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true"


def _batch_of(request: RemotingCommand) -> Iterator[BatchEntry]:
    """Flag, body and property string of each message. Raises RequestRefused."""
    try:
        yield from entries_of(request.body)
    except RemoteProtocolError as error:
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
