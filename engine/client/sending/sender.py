"""Sends one producer group's messages and retries failed sends on other brokers.

Place in the walk: the first steps; `queue_choice` picks the queue of each try.

Ways of sending and what each promises:
  send      at least once, when it returns: a result means stored. An error means refused (not
            stored) or unknown (RequestTimedOut, ConnectionLost): sending the message again may
            store it twice, on a topic with broker-side deduplication it does not.
  batch     as send, all messages or none.
  one-way   at most once: the message may be lost without a word.
  with a queue or selector: as send, but never tried elsewhere: only that queue is right.

All tries of one send share its time-out.

Invariant: a message object carries one UNIQ_KEY from its first try on, so its copies can be
recognised; where the topic's broker stores each message once, or with `resend_to_same_broker`, a
message whose outcome on a broker is unknown goes to no other one, for only that broker would know
it again. Absent on purpose: life cycle and callbacks, which `producer` adds. Rows D1 and D2.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from engine.client.config import ProducerConfig
from engine.client.connection.connection import ClusterConnection, is_from_no_master
from engine.client.sending.envelope import Envelope, Envelopes
from engine.client.sending.queue_choice import LatencyFaults, MessageQueueSelector, QueueChoice
from engine.client.sending.send_result import SendResult, deserves_retry, status_of
from engine.foundation.errors import (
    ConnectFailed,
    RequestRefused,
    RequestTimedOut,
    TidemarkError,
    Unreachable,
)
from engine.foundation.limits import UNKNOWN_SENDS_MAX
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import SendMessageResponseHeader
from engine.protocol.message import Message, MessageQueue
from engine.protocol.message_ids import UniqueIds

_log = logging.getLogger(__name__)


class SendTracer(Protocol):
    """Notes sends for the message trace; must neither raise nor wait."""

    def sent(
        self, envelope: Envelope, result: SendResult, answer: RemotingCommand, *, cost_ms: int
    ) -> None:
        """A broker stored the message after `cost_ms`, and answered this."""
        ...


class Sender:
    """Sends for one producer group over a shared connection."""

    def __init__(
        self,
        connection: ClusterConnection,
        group: str,
        config: ProducerConfig,
        *,
        tracer: SendTracer | None = None,
    ) -> None:
        self._connection = connection
        self._config = config
        self._tracer = tracer
        self._faults = LatencyFaults() if config.send_latency_fault_enable else None
        self._unknown: dict[str, str] = {}
        """Messages that a broker may have stored without saying so, and that broker's name."""
        runtime = connection.runtime
        self._clock = runtime.clock
        ids = UniqueIds(connection.ip, runtime.entropy.process_id(), runtime.entropy.below(1 << 32))
        self._envelopes = Envelopes(group, config, lambda: ids.next(self._clock.now_ms()))
        self._choice = QueueChoice(
            connection.routes,
            runtime.clock,
            runtime.entropy,
            self._faults,
            default_queue_count=config.default_topic_queue_count,
        )

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
        same_broker: bool = False,
    ) -> SendResult:
        """Send and wait for the answer; see the module for what it means.

        `same_broker` keeps retries on one broker.

        Raises RequestRefused, Unreachable, LocalProtocolError (the message itself is wrong).
        """
        envelope = self._envelopes.of_message(message)
        deadline_ms = self._clock.steady_ms() + (timeout_ms or self._config.send_timeout_ms)
        if queue is not None or selector is not None:
            chosen = await self._choice.given(message, queue, selector, argument)
            return await self._try(envelope, chosen, deadline_ms)
        return await self._try_around(envelope, deadline_ms, same_broker=same_broker)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send messages of one topic as one request: all are stored in one queue, or none is."""
        envelope = self._envelopes.of_batch(messages)
        deadline_ms = self._clock.steady_ms() + (timeout_ms or self._config.send_timeout_ms)
        if queue is not None:
            return await self._try(envelope, queue, deadline_ms)
        return await self._try_around(envelope, deadline_ms, same_broker=False)

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        argument: object = None,
    ) -> None:
        """Send and forget."""
        envelope = self._envelopes.of_message(message)
        if queue is not None or selector is not None:
            chosen = await self._choice.given(message, queue, selector, argument)
        else:
            chosen = self._choice.next(await self._choice.writable(message.topic), avoid=None)
        address = await self._connection.routes.find_master(chosen)
        await self._connection.invoke_oneway(
            address, envelope.request(chosen, self._clock.now_ms())
        )

    # Trying.

    async def _try_around(
        self, envelope: Envelope, deadline_ms: int, *, same_broker: bool
    ) -> SendResult:
        """Try up to 1 + retry_times queues within the deadline.

        The last error passes, unless an earlier try says more: that the message is stored, though
        not as well as was wished, or that it may be.
        """
        earlier: list[SendResult | Unreachable] = []
        try:
            return await self._try_some(envelope, deadline_ms, earlier, same_broker=same_broker)
        except (RequestRefused, Unreachable) as error:
            doubt: Unreachable | None = None
            for one in earlier:
                if isinstance(one, SendResult):
                    return one
                doubt = one
            if doubt is not None and isinstance(error, RequestRefused | ConnectFailed):
                raise doubt from error
            raise

    async def _try_some(
        self,
        envelope: Envelope,
        deadline_ms: int,
        earlier: list[SendResult | Unreachable],
        *,
        same_broker: bool,
    ) -> SendResult:
        failed_broker: str | None = None
        tries_left = 1 + self._config.retry_times
        while True:
            queue = await self._queue_for(envelope, failed_broker, same_broker=same_broker)
            tries_left -= 1
            may_try_again = tries_left > 0
            try:
                result = await self._try(envelope, queue, deadline_ms)
            except RequestRefused as error:
                if error.code == ResponseCode.TOPIC_NOT_EXIST:
                    await self._connection.routes.refresh(envelope.topic)
                if not may_try_again or not deserves_retry(error):
                    raise
                _log.warning(
                    "%s refused by %s, trying again: %s", envelope.message_id, queue, error
                )
                if is_from_no_master(RequestCode.SEND_MESSAGE, error.code):
                    with suppress(TidemarkError):  # Without a new route there may be another queue.
                        await self._connection.routes.refresh(envelope.topic)
            except Unreachable as error:
                if not isinstance(error, ConnectFailed):
                    earlier.append(error)
                if not may_try_again or self._clock.steady_ms() >= deadline_ms:
                    raise
                _log.warning(
                    "%s not sent to %s, trying again: %s", envelope.message_id, queue, error
                )
                await self._connection.routes.refresh(envelope.topic)
            else:
                another = self._config.retry_another_broker_when_not_stored_ok
                if result.status.value == "SEND_OK" or not another or not may_try_again:
                    return result
                earlier.append(result)
                if self._connection.routes.stores_once(envelope.topic, queue.broker_name):
                    self._keep_to(envelope, queue.broker_name)  # It knows the message again.
            failed_broker = queue.broker_name

    async def _queue_for(
        self, envelope: Envelope, failed_broker: str | None, *, same_broker: bool
    ) -> MessageQueue:
        """The queue of the next try.

        Raises RequestRefused when the one broker that may be asked has no queue of the topic now.
        """
        queues = await self._choice.writable(envelope.topic)
        ids = envelope.message_id.split(",")  # Of a batch: any of them may be sent again alone.
        holder = next((self._unknown[one] for one in ids if one in self._unknown), None)
        if holder is not None:
            queues = [queue for queue in queues if queue.broker_name == holder]
            if not queues:
                raise RequestRefused(
                    ResponseCode.SERVICE_NOT_AVAILABLE,
                    f"{envelope.message_id} may be stored on {holder}, to which no route leads "
                    "now; another broker would store it twice. Send it again later",
                )
            return self._choice.next(queues, avoid=None)
        if same_broker and failed_broker is not None:
            queues = [q for q in queues if q.broker_name == failed_broker] or queues
        return self._choice.next(queues, avoid=None if same_broker else failed_broker)

    async def _try(self, envelope: Envelope, queue: MessageQueue, deadline_ms: int) -> SendResult:
        address = await self._connection.routes.find_master(queue)
        began_ms = self._clock.steady_ms()
        if began_ms >= deadline_ms:
            raise RequestTimedOut(f"{envelope.message_id} was not sent to {queue} in time")
        request = envelope.request(queue, self._clock.now_ms())
        try:
            answer = await self._connection.invoke(
                address, request, timeout_ms=deadline_ms - began_ms
            )
        except Unreachable as error:
            self._note_unanswered(envelope, queue.broker_name, error)
            raise
        cost_ms = self._clock.steady_ms() - began_ms
        try:
            status = status_of(answer.code, answer.remark)
        except RequestRefused:
            if self._faults is not None:
                self._faults.refused(queue.broker_name, now_ms=began_ms + cost_ms)
            raise
        if self._faults is not None:
            self._faults.answered(queue.broker_name, cost_ms, now_ms=began_ms + cost_ms)
        for one in envelope.message_id.split(",") if self._unknown else ():
            self._unknown.pop(one, None)
        stored = SendMessageResponseHeader.decode(answer.fields)
        result = SendResult(
            status,
            envelope.message_id,
            stored.msg_id,
            MessageQueue(envelope.topic, queue.broker_name, stored.queue_id),
            stored.queue_offset,
        )
        if self._tracer is not None:
            self._tracer.sent(envelope, result, answer, cost_ms=cost_ms)
        return result

    def _note_unanswered(self, envelope: Envelope, broker_name: str, error: Unreachable) -> None:
        if self._faults is not None:
            self._faults.unanswered(broker_name, now_ms=self._clock.steady_ms())
        is_known_again = self._connection.routes.stores_once(envelope.topic, broker_name)
        stays = is_known_again or self._config.resend_to_same_broker
        if stays and not isinstance(error, ConnectFailed):
            self._keep_to(envelope, broker_name)

    def _keep_to(self, envelope: Envelope, broker_name: str) -> None:
        """Send it to no other broker, until this one answers."""
        self._unknown.update(dict.fromkeys(envelope.message_id.split(","), broker_name))
        while len(self._unknown) > UNKNOWN_SENDS_MAX:
            del self._unknown[next(iter(self._unknown))]
