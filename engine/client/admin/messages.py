"""Single messages: by id, by key; what clients traced of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from engine.client.admin.asking import Asking, place
from engine.client.stored_bodies import inflate_bodies
from engine.client.wire_fields import wire_fields
from engine.foundation.errors import RemoteProtocolError, RequestRefused
from engine.protocol.bodies_client import SUBSCRIBE_ALL, TAG_EXPRESSION
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import QueryMessageResponseHeader
from engine.protocol.message import MessageExt, MessageQueue
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
        """`is_cut`: a broker did not tell all it has; older ones may have the key as well."""
        super().__init__(messages)
        self.is_cut = is_cut


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedStep:
    """One trace as a step of its message; None is what that kind of trace does not tell."""

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


class MessageAdmin(Asking):
    """Questions about single messages."""

    async def view_message(self, offset_message_id: str) -> MessageExt:
        """The message a broker stored under this id. RequestRefused when it is gone."""
        address, physical_offset = parse_offset_message_id(offset_message_id)
        answer = await self._ask(
            address, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(physical_offset)}
        )
        message = decode_record(answer.body)
        inflate_bodies([message])
        return message

    async def message_traces(
        self, message_id: str, *, trace_topic: str = TRACE_TOPIC, begin_ms: int = 0
    ) -> list[Trace]:
        """What clients have traced of the message with this UNIQ_KEY, in the order written."""
        records = await self.query_messages(trace_topic, message_id, begin_ms=begin_ms)
        traces: list[Trace] = []
        for record in records:
            try:
                traces += decode_traces(bytes(record.body).decode())
            except (RemoteProtocolError, UnicodeDecodeError) as error:  # Anybody may write there.
                _log.warning("%s in %s is left out: %s", record.message_id, trace_topic, error)
        return [trace for trace in traces if trace.message_id == message_id]

    async def traced_steps(self, message_id: str, *, begin_ms: int = 0) -> list[TracedStep]:
        """The same traces as steps, in the order written."""
        return [
            step_of(trace) for trace in await self.message_traces(message_id, begin_ms=begin_ms)
        ]

    async def may_be_traced(self) -> bool:
        """Does a broker have the trace topic? Without it clients write no traces."""
        return bool(await self._brokers_of(TRACE_TOPIC))

    async def find_messages(self, topic: str, text: str) -> list[MessageExt]:
        """Messages of a topic that a text names: by UNIQ_KEY, else by the broker's id, else by key.

        A broker's id names an address. Only masters the name server knows are asked: a text that
        somebody typed must not choose whom this process connects to.
        """
        found = await self.query_messages(topic, text, is_unique_key=True)
        return found or await self._stored_as(text) or await self.query_messages(topic, text)

    async def _stored_as(self, text: str) -> list[MessageExt]:
        try:
            address, _ = parse_offset_message_id(text)
        except RemoteProtocolError:
            return []
        if address not in (await self.masters()).values():
            return []
        try:
            return [await self.view_message(text)]
        except RequestRefused:  # No message begins there: the text is a key that looks like an id.
            return []

    async def query_messages(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = 2**63 - 1,
        is_unique_key: bool = False,
        count_max: int = QUERY_MESSAGES_MAX,
    ) -> FoundMessages:
        """Messages with a key, or with a UNIQ_KEY, oldest first; the newest, where there are more.

        The index knows hashes, so keys are compared here.
        """
        found: list[MessageExt] = []
        is_cut = False
        for address in await self._brokers_of(topic):
            fields = wire_fields(
                topic=topic,
                key=key,
                maxNum=count_max,
                beginTimestamp=begin_ms,
                endTimestamp=end_ms,
                indexType="U" if is_unique_key else "K",
            )
            if is_unique_key:
                fields["_UNIQUE_KEY_QUERY"] = "true"
            try:
                answer = await self._ask(address, RequestCode.QUERY_MESSAGE, fields)
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

    async def messages_from(
        self, queue: MessageQueue, offset: int, *, count_max: int
    ) -> list[MessageExt]:
        """Messages of one queue from an offset on, as stored; fewer, or none, at its end."""
        fields = wire_fields(
            consumerGroup=TOOLS_GROUP,
            queueOffset=offset,
            maxMsgNums=count_max,
            sysFlag=int(PullSysFlag.SUBSCRIPTION),
            commitOffset=0,
            suspendTimeoutMillis=0,
            subscription=SUBSCRIBE_ALL,
            subVersion=0,
            expressionType=TAG_EXPRESSION,
            **place(queue),
        )
        request = RemotingCommand.request(RequestCode.PULL_MESSAGE, fields)
        answer = await self._connection.rpc.invoke(
            await self._master_of(queue),
            request,
            timeout_ms=self._connection.config.request_timeout_ms,
        )
        if answer.code in NO_MESSAGES:
            return []
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, answer.remark or "no remark")
        found = decode_records(answer.body)
        inflate_bodies(found)
        return found


def _has_key(message: MessageExt, topic: str, key: str, *, is_unique_key: bool) -> bool:
    if message.topic != topic:
        return False
    if is_unique_key:
        return message.properties.get("UNIQ_KEY") == key
    return key in message.properties.get("KEYS", "").split()


def step_of(trace: Trace) -> TracedStep:
    """A trace as a step of its message."""
    match trace:
        case SentTrace():
            return TracedStep(
                step="sent",
                time_ms=trace.time_ms,
                group=trace.group,
                cost_ms=trace.cost_ms,
                success=trace.success,
                keys=trace.keys,
                topic=trace.topic,
                store_host=trace.store_host,
            )
        case ConsumingTrace():
            return TracedStep(
                step="consuming",
                time_ms=trace.time_ms,
                group=trace.group,
                keys=trace.keys,
                retry_times=trace.retry_times,
            )
        case ConsumedTrace():
            return TracedStep(
                step="consumed",
                time_ms=trace.time_ms,
                group=trace.group,
                cost_ms=trace.cost_ms,
                success=trace.success,
                keys=trace.keys,
                outcome=trace.end.name,
            )
        case EndTransactionTrace():
            return TracedStep(
                step="transaction ended",
                time_ms=trace.time_ms,
                group=trace.group,
                keys=trace.keys,
                topic=trace.topic,
                store_host=trace.store_host,
                outcome=trace.state.value,
            )
