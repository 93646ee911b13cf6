"""Sends messages of one group: picks a queue, fills the request, tries again elsewhere (first
steps of the walk).

Ways of sending and what each promises:
  send      waits for the answer. A result means stored; an error means refused, or unknown
            (RequestTimedOut, ConnectionLost): sending the message again may store it twice.
  one-way   promises nothing; the message may be lost without a word.
  with a queue or selector: as send, but never tried elsewhere: only that queue is right.

Invariant: a message object carries one UNIQ_KEY from its first try on, so its copies can be told
for what they are. Absent on purpose: life cycle and callbacks, which `producer` adds. Source:
spec rocketmq.md, section 9 (D1).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from engine.client.config import ProducerConfig
from engine.client.connection import ClusterConnection
from engine.client.queue_selectors import MessageQueueSelector
from engine.client.send_result import SendResult, deserves_retry, status_of
from engine.client.wire_fields import number, wire_fields
from engine.foundation.errors import (
    ConfigError,
    LocalProtocolError,
    RequestRefused,
    RequestTimedOut,
    Unreachable,
)
from engine.foundation.limits import BATCH_MESSAGES_MAX
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.message import (
    PROPERTY_DELAY,
    PROPERTY_MAX_RECONSUME_TIMES,
    PROPERTY_RECONSUME_TIME,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT,
    Message,
    MessageQueue,
    compress,
    encode_batch,
    encode_properties,
)
from engine.protocol.message_ids import UniqueIds
from engine.protocol.names import AUTO_CREATE_TOPIC, RETRY_PREFIX, check_topic

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Envelope:
    """What goes over the wire for one message or batch, the same for every try."""

    topic: str
    body: bytes
    properties: dict[str, str]
    flag: int
    sys_flag: int
    is_batch: bool
    message_id: str


def _at(queues: Sequence[MessageQueue], turn: int) -> str:
    """Broker of the queue at a turn of the circle."""
    return queues[turn % len(queues)].broker_name


class Sender:
    """Sends for one producer group over a shared connection."""

    def __init__(self, connection: ClusterConnection, group: str, config: ProducerConfig) -> None:
        self._connection = connection
        self._group = group
        self._config = config
        runtime = connection.runtime
        self._clock = runtime.clock
        self._ids = UniqueIds(
            connection.ip, runtime.entropy.process_id(), runtime.entropy.below(1 << 32)
        )
        self._entropy = runtime.entropy
        self._turns: dict[str, int] = {}
        """Where each topic's circle stands; one for all topics would starve queues of topics that are
        sent to in turns."""

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
        """Send and wait for the answer; see the module for what it means. `same_broker` keeps
        retries on one broker.

        Raises RequestRefused, Unreachable, LocalProtocolError (the message itself is wrong).
        """
        envelope = self._envelope(message)
        deadline_ms = self._clock.steady_ms() + (timeout_ms or self._config.send_timeout_ms)
        if queue is not None or selector is not None:
            chosen = await self._given_queue(message, queue, selector, argument)
            return await self._try(envelope, chosen, deadline_ms)
        return await self._try_around(envelope, deadline_ms, same_broker=same_broker)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send several messages of one topic as one request: all are stored in one queue, or none
        is.
        """
        envelope = self._batch_envelope(messages)
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
        envelope = self._envelope(message)
        if queue is not None or selector is not None:
            chosen = await self._given_queue(message, queue, selector, argument)
        else:
            chosen = self._next_queue(await self._queues(message.topic), avoid=None)
        address = await self._address(chosen)
        await self._connection.rpc.invoke_oneway(address, self._request(envelope, chosen))

    # Choosing a queue.

    async def _queues(self, topic: str) -> list[MessageQueue]:
        queues = await self._connection.routes.writable_queues(
            topic, default_queue_count=self._config.default_topic_queue_count
        )
        if not queues:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST, f"no broker takes messages of topic {topic}"
            )
        return queues

    async def _given_queue(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: MessageQueueSelector | None,
        argument: object,
    ) -> MessageQueue:
        if queue is not None and selector is not None:
            raise ConfigError("selector", selector, "either a queue or a selector, not both")
        if queue is None:
            assert selector is not None
            queue = selector(await self._queues(message.topic), message, argument)
        if queue.topic != message.topic:
            raise LocalProtocolError(
                f"{queue} is not a queue of the message's topic {message.topic}"
            )
        return queue

    def _next_queue(self, queues: Sequence[MessageQueue], *, avoid: str | None) -> MessageQueue:
        """The next one round the circle, on another broker than `avoid` if there is one."""
        topic = queues[0].topic
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._entropy.below(len(queues))
        others = (step for step in range(1, len(queues) + 1) if _at(queues, turn + step) != avoid)
        turn += next(others, 1)
        self._turns[topic] = turn
        return queues[turn % len(queues)]

    async def _address(self, queue: MessageQueue) -> str:
        address = self._connection.routes.master_address(queue.broker_name)
        if address is None:
            await self._connection.routes.refresh(queue.topic)
            address = self._connection.routes.master_address(queue.broker_name)
        if address is None:
            raise RequestRefused(
                ResponseCode.SERVICE_NOT_AVAILABLE, f"broker {queue.broker_name} has no master"
            )
        return address

    # Trying.

    async def _try_around(
        self, envelope: _Envelope, deadline_ms: int, *, same_broker: bool
    ) -> SendResult:
        """Try up to 1 + retry_times queues within the deadline; the last error passes."""
        failed_broker: str | None = None
        tries_left = 1 + self._config.retry_times
        while True:
            queues = await self._queues(envelope.topic)
            if same_broker and failed_broker is not None:
                queues = [q for q in queues if q.broker_name == failed_broker] or queues
            avoid = None if same_broker else failed_broker
            queue = self._next_queue(queues, avoid=avoid)
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
            except Unreachable as error:
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
            failed_broker = queue.broker_name

    async def _try(self, envelope: _Envelope, queue: MessageQueue, deadline_ms: int) -> SendResult:
        address = await self._address(queue)
        timeout_ms = deadline_ms - self._clock.steady_ms()
        if timeout_ms <= 0:
            raise RequestTimedOut(f"{envelope.message_id} was not sent to {queue} in time")
        answer = await self._connection.rpc.invoke(
            address, self._request(envelope, queue), timeout_ms=timeout_ms
        )
        status = status_of(answer.code, answer.remark)
        stored_in = MessageQueue(
            envelope.topic, queue.broker_name, number(answer.fields, "queueId")
        )
        return SendResult(
            status,
            envelope.message_id,
            answer.fields.get("msgId", ""),
            stored_in,
            number(answer.fields, "queueOffset"),
        )

    # Filling the request.

    def _envelope(self, message: Message) -> _Envelope:
        check_topic(message.topic)
        self._check_body(message)
        message_id = self._give_id(message)
        body, sys_flag = message.body, 0
        if len(body) > self._config.compress_over_bytes:
            body, sys_flag = compress(body, level=self._config.compress_level)
        return _Envelope(
            message.topic,
            body,
            {PROPERTY_WAIT: "true", **message.properties},
            message.flag,
            sys_flag,
            is_batch=False,
            message_id=message_id,
        )

    def _batch_envelope(self, messages: Sequence[Message]) -> _Envelope:
        if not 0 < len(messages) <= BATCH_MESSAGES_MAX:
            raise LocalProtocolError(
                f"a batch has 1 to {BATCH_MESSAGES_MAX} messages, this one {len(messages)}"
            )
        first = messages[0]
        check_topic(first.topic)
        if first.topic.startswith(RETRY_PREFIX):
            raise LocalProtocolError(f"messages of {first.topic} cannot be sent as a batch")
        for message in messages:
            self._check_body(message)
            if message.topic != first.topic:
                raise LocalProtocolError(
                    f"a batch is of one topic, this one of {first.topic} and {message.topic}"
                )
            if message.properties.get(PROPERTY_WAIT, "true") != first.properties.get(
                PROPERTY_WAIT, "true"
            ):
                raise LocalProtocolError("messages of a batch wait for storing alike (WAIT)")
            for name in (PROPERTY_DELAY, "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS"):
                if name in message.properties:
                    raise LocalProtocolError(f"a batch is delivered at once, this one has {name}")
            message.properties.setdefault(PROPERTY_WAIT, "true")
        ids = [self._give_id(message) for message in messages]
        body = bytes(encode_batch(messages))
        if len(body) > self._config.body_bytes_max:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the batch has {len(body)} bytes, at most {self._config.body_bytes_max} are sent;"
                " split it",
            )
        properties = {PROPERTY_WAIT: first.properties[PROPERTY_WAIT]}
        return _Envelope(
            first.topic, body, properties, 0, 0, is_batch=True, message_id=",".join(ids)
        )

    def _check_body(self, message: Message) -> None:
        if not message.body:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "the message body is empty")
        if len(message.body) > self._config.body_bytes_max:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message body has {len(message.body)} bytes,"
                f" at most {self._config.body_bytes_max} are sent",
            )

    def _give_id(self, message: Message) -> str:
        """The message's UNIQ_KEY, made at its first send and kept ever after."""
        held = message.properties.get(PROPERTY_UNIQ_KEY)
        if held is None:
            held = self._ids.next(self._clock.now_ms())
            message.properties[PROPERTY_UNIQ_KEY] = held
        return held

    def _request(self, envelope: _Envelope, queue: MessageQueue) -> RemotingCommand:
        properties = dict(envelope.properties)
        reconsume_times, max_reconsume_times = 0, None
        if envelope.topic.startswith(RETRY_PREFIX):
            reconsume_times = int(properties.pop(PROPERTY_RECONSUME_TIME, "0"))
            limit = properties.pop(PROPERTY_MAX_RECONSUME_TIMES, None)
            max_reconsume_times = None if limit is None else int(limit)
        fields = wire_fields(  # The letters of SEND_MESSAGE_V2.
            a=self._group,
            b=envelope.topic,
            c=AUTO_CREATE_TOPIC,
            d=self._config.default_topic_queue_count,
            e=queue.queue_id,
            f=envelope.sys_flag,
            g=self._clock.now_ms(),
            h=envelope.flag,
            i=encode_properties(properties),
            j=reconsume_times,
            k=False,
            l=max_reconsume_times,
            m=envelope.is_batch,
            n=queue.broker_name,
        )
        code = RequestCode.SEND_BATCH_MESSAGE if envelope.is_batch else RequestCode.SEND_MESSAGE_V2
        return RemotingCommand.request(code, fields, envelope.body)
