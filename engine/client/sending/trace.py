"""Writes traces of sent and consumed messages to the trace topic in the background.

Traces wait in a bounded queue; a background task sends them in batches as messages, under a
producer group of their own. Sends and listeners never wait for any of it: when traces come faster
than they leave, the newest are dropped and counted.

Invariant: a trace that cannot be written changes nothing for the message it is about. Traces are
written about answered sends only, and for messages whose broker has tracing on. Absent on purpose:
the text of a trace (`engine.protocol.trace`) and reading (`engine.admin.api.messages`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from engine.client.config import ProducerConfig
from engine.client.connection.connection import ClusterConnection
from engine.client.consuming.listeners import ListenerOutcome
from engine.client.sending.envelope import Envelope
from engine.client.sending.send_result import SendResult, SendStatus
from engine.client.sending.sender import Sender
from engine.foundation.errors import TidemarkError
from engine.foundation.limits import (
    TRACE_BATCH_MAX,
    TRACE_KEYS_BYTES_MAX,
    TRACE_RECORD_BYTES_MAX,
    TRACES_WAITING_MAX,
)
from engine.foundation.units import MINUTE_MS, SECOND_MS
from engine.protocol.command import RemotingCommand
from engine.protocol.message import Message, MessageExt
from engine.protocol.message_ids import UniqueIds
from engine.protocol.properties import PROPERTY_MSG_REGION, PROPERTY_TRACE_ON
from engine.protocol.trace import (
    ConsumedTrace,
    ConsumeEnd,
    ConsumingTrace,
    EndTransactionTrace,
    SentTrace,
    Trace,
    TracedKind,
    TransactionState,
    encode_trace,
    trace_keys,
)

_log = logging.getLogger(__name__)

FLUSH_MS = 5 * SECOND_MS
"""Traces that do not fill a batch leave after this long (fixed in RocketMQ)."""

DEFAULT_REGION = "DefaultRegion"
SEND_TIMEOUT_MS = 5 * SECOND_MS
LOST_LOG_EACH = 1000
"""One log line for so many dropped traces."""


class BegunCall(NamedTuple):
    """A listener's call under way."""

    traces: Sequence[ConsumingTrace]
    began_ms: int
    """Steady time."""


class Tracer:
    """The traces of one producer or consumer."""

    def __init__(
        self,
        connection: ClusterConnection,
        group: str,
        role: str,
        *,
        consume_timeout_ms: int = 15 * MINUTE_MS,
    ) -> None:
        """`role` is PRODUCE or CONSUME; it is part of the trace producer's group. A listener's call
        that takes longer than `consume_timeout_ms` is traced as one that timed out.
        """
        self._consume_timeout_ms = consume_timeout_ms
        config, runtime = connection.config, connection.runtime
        self._connection = connection
        self._group = group
        self._topic = config.trace_topic
        self._batch_max = min(config.trace_batch_max, TRACE_BATCH_MAX)
        self._clock = runtime.clock
        self._ids = UniqueIds(
            connection.ip, runtime.entropy.process_id(), runtime.entropy.below(1 << 32)
        )
        self._sender = Sender(
            connection,
            f"_INNER_TRACE_PRODUCER-{group}-{role}-1",
            ProducerConfig(send_timeout_ms=SEND_TIMEOUT_MS),
        )
        self._waiting: deque[Trace] = deque()
        self._wake = asyncio.Event()
        self.lost_count = 0
        """Traces that were dropped, or could not be written."""

    # What is traced.

    def sent(
        self, envelope: Envelope, result: SendResult, answer: RemotingCommand, *, cost_ms: int
    ) -> None:
        """See `SendTracer.sent`."""
        if answer.fields.get(PROPERTY_TRACE_ON) == "false":
            return
        broker = self._connection.routes.master_address(result.queue.broker_name)
        self._append(
            SentTrace(
                time_ms=self._clock.now_ms() - cost_ms,
                region=answer.fields.get(PROPERTY_MSG_REGION, DEFAULT_REGION),
                group=self._group,
                topic=envelope.topic,
                message_id=result.message_id,
                tags=envelope.tags,
                keys=envelope.keys,
                store_host=broker or "",
                body_bytes=len(envelope.body),
                cost_ms=cost_ms,
                kind=envelope.kind,
                offset_message_id=result.offset_message_id,
                success=result.status is SendStatus.SEND_OK,
            )
        )

    def consuming(self, messages: Sequence[MessageExt]) -> BegunCall:
        """A listener is given these; hand the answer to `consumed` when its call has ended."""
        now_ms = self._clock.now_ms()
        request_id = self._ids.next(now_ms)
        traces = [
            ConsumingTrace(
                time_ms=now_ms,
                region=message.properties.get(PROPERTY_MSG_REGION),
                group=self._group,
                request_id=request_id,
                message_id=message.message_id,
                retry_times=message.reconsume_times,
                keys=message.keys,
            )
            for message in messages
            if message.properties.get(PROPERTY_TRACE_ON) != "false"
        ]
        for trace in traces:
            self._append(trace)
        return BegunCall(traces, self._clock.steady_ms())

    def consumed(self, begun: BegunCall, outcome: ListenerOutcome) -> None:
        """The call that `consuming` began has ended."""
        if not begun.traces:
            return
        spent_ms = self._clock.steady_ms() - begun.began_ms
        end = _end_of(outcome, timed_out=spent_ms >= self._consume_timeout_ms)
        for trace in begun.traces:
            self._append(
                ConsumedTrace(
                    request_id=trace.request_id,
                    message_id=trace.message_id,
                    cost_ms=spent_ms // len(begun.traces),
                    success=outcome.succeeded,
                    keys=trace.keys,
                    end=end,
                    time_ms=self._clock.now_ms(),
                    group=self._group,
                )
            )

    def ended_transaction(
        self,
        message: Message | MessageExt,
        state: TransactionState,
        *,
        message_id: str,
        store_host: str,
        from_check: bool,
    ) -> None:
        """A transaction's producer reports its decision to the broker `store_host`."""
        self._append(
            EndTransactionTrace(
                time_ms=self._clock.now_ms(),
                region=message.properties.get(PROPERTY_MSG_REGION, DEFAULT_REGION),
                group=self._group,
                topic=message.topic,
                message_id=message_id,
                tags=message.tags,
                keys=message.keys,
                store_host=store_host,
                kind=TracedKind.TRANSACTION_COMMIT,
                transaction_id=message_id,
                state=state,
                from_check=from_check,
            )
        )

    # Writing.

    async def run(self) -> None:
        """Write full batches at once and the rest each FLUSH_MS, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(FLUSH_MS / SECOND_MS):
                    await self._wake.wait()
            except TimeoutError:
                await self._write_batch()
            while len(self._waiting) >= self._batch_max:
                await self._write_batch()
            self._wake.clear()

    async def write_rest(self, wait_ms: int) -> None:
        """Write what waits, for at most `wait_ms`; when the client stops."""
        try:
            async with asyncio.timeout(wait_ms / SECOND_MS):
                while self._waiting:
                    await self._write_batch()
        except TimeoutError:
            self._lose(len(self._waiting), "the client stops")

    def _append(self, trace: Trace) -> None:
        if len(self._waiting) >= TRACES_WAITING_MAX:
            self._lose(1, f"{TRACES_WAITING_MAX} wait already")
            return
        self._waiting.append(trace)
        if len(self._waiting) >= self._batch_max:
            self._wake.set()

    async def _write_batch(self) -> None:
        """One record of as many traces as a batch may hold."""
        texts: list[str] = []
        keys: dict[str, None] = {}
        size_bytes = keys_bytes = 0
        while self._waiting and len(texts) < self._batch_max:
            text = encode_trace(self._waiting[0])
            own = [key for key in _keys_that_fit(self._waiting[0]) if key not in keys]
            size_bytes += len(text.encode())
            keys_bytes += _keys_bytes(own)
            if texts and (size_bytes > TRACE_RECORD_BYTES_MAX or keys_bytes > TRACE_KEYS_BYTES_MAX):
                break
            texts.append(text)
            keys.update(dict.fromkeys(own))
            self._waiting.popleft()
        if not texts:
            return
        message = Message(self._topic, "".join(texts).encode())
        message.keys = " ".join(keys)
        try:
            await self._sender.send(message)
        except TidemarkError as error:
            self._lose(len(texts), str(error))

    def _lose(self, count: int, why: str) -> None:
        if self.lost_count % LOST_LOG_EACH == 0 and count:
            _log.warning("%d traces of %s are lost: %s", count, self._group, why)
        self.lost_count += count


def _keys_that_fit(trace: Trace) -> list[str]:
    """What its record is to be found by, as far as one record has room for it: ids and keys are
    made by clients, and those of one message must not keep the others' traces from being written.
    """
    keys: list[str] = []
    room_bytes = TRACE_KEYS_BYTES_MAX
    for key in dict.fromkeys(trace_keys(trace)):
        key_bytes = _keys_bytes([key])
        if key_bytes <= room_bytes:
            keys.append(key)
            room_bytes -= key_bytes
    return keys


def _keys_bytes(keys: Sequence[str]) -> int:
    """In the KEYS of a record, each with the blank behind it."""
    return sum(len(key.encode()) + 1 for key in keys)


def _end_of(outcome: ListenerOutcome, *, timed_out: bool) -> ConsumeEnd:
    if outcome.error is not None:
        return ConsumeEnd.EXCEPTION
    if outcome.answer is None:
        return ConsumeEnd.RETURNED_NULL
    if timed_out:
        return ConsumeEnd.TIME_OUT
    return ConsumeEnd.SUCCESS if outcome.succeeded else ConsumeEnd.FAILED
