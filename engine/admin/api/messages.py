"""Message administration: look-up by id or key, traces, test sends and direct consumption.

Absent on purpose: a producer's heartbeats and its choice of a queue; the caller names the queue.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final

from engine.admin.api.requests import AdminRequests
from engine.client.config import ProducerConfig
from engine.client.sending.send_result import SendResult
from engine.client.sending.sender import Sender
from engine.foundation.errors import RemoteProtocolError, RequestRefused
from engine.protocol.bodies import ConsumeMessageDirectlyResult
from engine.protocol.bodies_client import SUBSCRIBE_ALL, TAG_EXPRESSION
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.compression import inflate_bodies
from engine.protocol.headers import (
    ConsumeMessageDirectlyRequestHeader,
    PullMessageRequestHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
)
from engine.protocol.message import Message, MessageExt, MessageQueue
from engine.protocol.message_ids import parse_offset_message_id
from engine.protocol.message_record import decode_record, decode_records
from engine.protocol.names import TRACE_TOPIC, PullSysFlag
from engine.protocol.trace import (
    ConsumedTrace,
    ConsumingTrace,
    EndTransactionTrace,
    SentTrace,
    Trace,
    decode_traces,
)

QUERY_MESSAGES_MAX = 64
"""Messages of one broker that a query by key is answered with (RocketMQ: maxMsgsNumBatch)."""

TOOLS_GROUP = "TOOLS_CONSUMER"
"""Group in whose name RocketMQ's tools read; every broker knows it."""
TOOLS_PRODUCER = "TIDEMARK_ADMIN"
"""Producer group of what an operator sends."""
NO_MESSAGES = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
"""Answers to a pull that found nothing at the offset."""

_log = logging.getLogger(__name__)


class FoundMessages(list[MessageExt]):
    """What a query by key found."""

    def __init__(self, messages: Iterable[MessageExt] = (), *, is_cut: bool = False) -> None:
        """`is_cut`: a broker did not return all it has; older ones may have the key as well."""
        super().__init__(messages)
        self.is_cut = is_cut


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedStep:
    """One trace as a step of its message; None is what that kind of trace lacks."""

    step: str
    """sent, consuming, consumed or transaction ended."""
    time_ms: int | None
    """The client's clock, when the step began (sent, consuming) or was over."""
    group: str | None
    cost_ms: int | None = None
    success: bool | None = None
    keys: str | None = None
    topic: str | None = None
    store_host: str | None = None
    retry_times: int | None = None
    outcome: str | None = None
    """How a listener's call ended, or what a transaction's producer decided."""


SHARED: Final = tuple(one.name for one in fields(TracedStep) if one.name not in {"step", "outcome"})
"""What a step takes over from its trace, if that has it."""


@dataclass(frozen=True, slots=True)
class TimedSend:
    """A stored message, and how long its answer took."""

    result: SendResult
    cost_ms: int


class MessageAdmin:
    """Questions about single messages, and orders that send one or have one consumed."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def view(self, offset_message_id: str) -> MessageExt:
        """The message a broker stored under this id. RequestRefused when it is gone."""
        address, physical_offset = parse_offset_message_id(offset_message_id)
        answer = await self._requests.ask(
            address, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(physical_offset)}
        )
        message = decode_record(answer.body)
        inflate_bodies([message])
        return message

    async def traces(
        self, message_id: str, *, trace_topic: str = TRACE_TOPIC, begin_ms: int = 0
    ) -> list[Trace]:
        """What clients have traced of the message with this UNIQ_KEY, in the order written."""
        records = await self.query(trace_topic, message_id, begin_ms=begin_ms)
        traces: list[Trace] = []
        for record in records:
            try:
                traces += decode_traces(bytes(record.body).decode())
            except (RemoteProtocolError, UnicodeDecodeError) as error:  # Anybody may write there.
                _log.warning("%s in %s is left out: %s", record.message_id, trace_topic, error)
        return [trace for trace in traces if trace.message_id == message_id]

    async def traced_steps(self, message_id: str, *, begin_ms: int = 0) -> list[TracedStep]:
        """The same traces as steps, in the order written."""
        return [step_of(trace) for trace in await self.traces(message_id, begin_ms=begin_ms)]

    async def may_be_traced(self) -> bool:
        """Does a broker have the trace topic? Without it clients write no traces."""
        return bool(await self._requests.brokers_of(TRACE_TOPIC))

    async def find(self, topic: str, text: str) -> list[MessageExt]:
        """Messages of a topic that a text names: by UNIQ_KEY, else by the broker's id, else by key.

        A broker's id names an address. Only masters the name server knows are asked: a text that
        somebody typed must not choose whom this process connects to.
        """
        found = await self.query(topic, text, is_unique_key=True)
        return found or await self._stored_as(text) or await self.query(topic, text)

    async def _stored_as(self, text: str) -> list[MessageExt]:
        try:
            address, _ = parse_offset_message_id(text)
        except RemoteProtocolError:
            return []
        if address not in (await self._requests.masters()).values():
            return []
        try:
            return [await self.view(text)]
        except RequestRefused:  # No message begins there: the text is a key that looks like an id.
            return []

    async def query(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = 2**63 - 1,
        is_unique_key: bool = False,
        count_max: int = QUERY_MESSAGES_MAX,
        address: str | None = None,
    ) -> FoundMessages:
        """Messages with a key, or with a UNIQ_KEY, oldest first; the newest, where there are more.
        Asked of the broker at `address`, else of all masters of the topic.

        The index knows hashes, so keys are compared here.
        """
        found: list[MessageExt] = []
        is_cut = False
        brokers = [address] if address else await self._requests.brokers_of(topic)
        for broker in brokers:
            fields = QueryMessageRequestHeader(
                topic=topic,
                key=key,
                max_num=count_max,
                begin_timestamp_ms=begin_ms,
                end_timestamp_ms=end_ms,
                unique_key_query=is_unique_key,
                index_type="U" if is_unique_key else "K",
            ).encode()
            try:
                answer = await self._requests.ask(broker, RequestCode.QUERY_MESSAGE, fields)
            except RequestRefused as error:
                if error.code == ResponseCode.QUERY_NOT_FOUND:
                    continue
                raise
            found += decode_records(answer.body)
            is_cut = is_cut or QueryMessageResponseHeader.decode(answer.fields).more_exist is True
        wanted = [m for m in found if _has_key(m, topic, key, is_unique_key=is_unique_key)]
        inflate_bodies(wanted)
        wanted.sort(key=lambda m: (m.store_timestamp_ms, m.store_host, m.physical_offset))
        return FoundMessages(wanted, is_cut=is_cut)

    async def read(
        self, queue: MessageQueue, offset: int, *, count_max: int, address: str | None = None
    ) -> list[MessageExt]:
        """Messages of one queue from an offset on, as stored; fewer, or none, at its end. Asked of
        the broker at `address`, else of the queue's master by its route.
        """
        fields = PullMessageRequestHeader(
            consumer_group=TOOLS_GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count_max,
            sys_flag=int(PullSysFlag.SUBSCRIPTION),
            commit_offset=0,
            suspend_timeout_ms=0,
            subscription=SUBSCRIBE_ALL,
            sub_version=0,
            expression_type=TAG_EXPRESSION,
            broker_name=queue.broker_name,
        ).encode()
        request = RemotingCommand.request(RequestCode.PULL_MESSAGE, fields)
        answer = await self._requests.connection.invoke(
            address or await self._requests.routes.find_master(queue),
            request,
            timeout_ms=self._requests.connection.config.request_timeout_ms,
        )
        if answer.code in NO_MESSAGES:
            return []
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, answer.remark or "no remark")
        found = decode_records(answer.body)
        inflate_bodies(found)
        return found

    async def send(self, message: Message, queue: MessageQueue) -> TimedSend:
        """Send to one queue and wait, without another try. Errors as `Sender.send` has them."""
        clock = self._requests.connection.runtime.clock
        sender = Sender(self._requests.connection, TOOLS_PRODUCER, ProducerConfig(retry_times=0))
        await self._requests.routes.find_master(queue)
        began_ms = clock.steady_ms()
        result = await sender.send(message, queue=queue)
        return TimedSend(result, clock.steady_ms() - began_ms)

    async def consume_directly(
        self, group: str, client_id: str, message: MessageExt
    ) -> ConsumeMessageDirectlyResult:
        """Have a member consume a stored message now, whatever its offsets; what it said. Asked
        through the broker that stores the message.
        """
        fields = ConsumeMessageDirectlyRequestHeader(
            consumer_group=group,
            client_id=client_id,
            msg_id=message.offset_message_id,
            topic=message.topic,
        ).encode()
        answer = await self._requests.ask(
            message.store_host, RequestCode.CONSUME_MESSAGE_DIRECTLY, fields
        )
        return ConsumeMessageDirectlyResult.decode(answer.body)


def _has_key(message: MessageExt, topic: str, key: str, *, is_unique_key: bool) -> bool:
    if message.topic != topic:
        return False
    if is_unique_key:
        return message.properties.get("UNIQ_KEY") == key
    return key in message.properties.get("KEYS", "").split()


def step_of(trace: Trace) -> TracedStep:
    """A trace as a step of its message: what both have under one name, and how it ended."""
    match trace:
        case SentTrace():
            step, outcome = "sent", None
        case ConsumingTrace():
            step, outcome = "consuming", None
        case ConsumedTrace():
            step, outcome = "consumed", trace.end.name
        case EndTransactionTrace():
            step, outcome = "transaction ended", trace.state.value
    known = {name: getattr(trace, name) for name in SHARED if hasattr(trace, name)}
    return TracedStep(step=step, outcome=outcome, **known)
