"""Retry queue that redelivers failed messages after set delays, such as 3, 10 and 60 s.

Place in the walk: around a listener. The consumer always acknowledges: a message that its listener
fails at is sent to the topic of the retry queue, for the moment of its next try. There the queue's
own consumer reads it when it is due, and sends it to its first topic with its count one higher.

    header              on its way back    in the first topic
    RETRY_QUEUE_TYPE    delayed            normal
    RETRY_QUEUE_COUNT   tries before       the same, and one
    RETRY_QUEUE_ORIGIN  first topic; tag and keys stay what they are
    RETRY_QUEUE_GROUP   whose listener failed: other groups pass the copy over
    RETRY_QUEUE_ID      UNIQ_KEY of the first message

After the last delay a message goes to the topic of what was given up, and comes no more.

Invariant: a message is acknowledged only when its copy is stored; so nothing is lost, whoever is
killed when, and what comes twice has the same UNIQ_KEY, made of RETRY_QUEUE_ID and count: a topic
with deduplication stores it once. Absent on purpose: order (a retried message leaves its queue),
and making topics.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from engine.client.config import ClientConfig, ConsumerConfig
from engine.client.consuming.listeners import (
    ConsumeConcurrentlyStatus,
    ConsumeContext,
    MessageListener,
    acknowledged_count,
    call_listener,
)
from engine.client.consuming.push_consumer import PushConsumer
from engine.client.producer import Producer
from engine.foundation.errors import ConfigError
from engine.foundation.units import SECOND_MS
from engine.protocol.message import Message, MessageExt
from engine.protocol.properties import (
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_UNIQ_KEY,
    whole_number,
)
from engine.runtime import Runtime

DELAYS_MS: Final = (3 * SECOND_MS, 10 * SECOND_MS, 60 * SECOND_MS)
TYPE, COUNT = "RETRY_QUEUE_TYPE", "RETRY_QUEUE_COUNT"
ORIGIN, GROUP, ID = "RETRY_QUEUE_ORIGIN", "RETRY_QUEUE_GROUP", "RETRY_QUEUE_ID"
DELAYED, NORMAL, GIVEN_UP = "delayed", "normal", "given-up"
GIVEN_UP_SUFFIX: Final = "-given-up"
_BROKERS_OWN: Final = ("TIMER_", "REAL_", "RETRY_QUEUE_", "MIN_OFFSET", "MAX_OFFSET")
_NOT_COPIED: Final = frozenset(
    ("DELAY", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "CONSUME_START_TIME", "WAIT", PROPERTY_UNIQ_KEY)
)

_log = logging.getLogger(__name__)


class RetryQueue:
    """One retry queue, and this process's member of its consumers."""

    def __init__(
        self,
        runtime: Runtime,
        config: ClientConfig,
        topic: str,
        *,
        delays_ms: Sequence[int] = DELAYS_MS,
        consumer: ConsumerConfig | None = None,
    ) -> None:
        """`topic` and `<topic>-given-up` are there, or brokers make topics by themselves."""
        if not delays_ms or min(delays_ms) < 1:
            raise ConfigError("delays_ms", list(delays_ms), "at least one, each of 1 ms or more")
        self.topic = topic
        self._delays_ms = tuple(delays_ms)
        group = f"{topic}-consumers"
        self._producer = Producer(runtime, _named(config, "retry-sends"), f"{topic}-producers")
        self._consumer = PushConsumer(
            runtime, _named(config, "retry-reads"), group, consumer=consumer
        )
        self._consumer.subscribe(topic, "*", self._send_on)

    async def start(self) -> None:
        """Begin to send what is due to where it belongs."""
        await self._producer.start()
        await self._consumer.start()

    async def stop(self) -> None:
        """Finish what is under way; what waits is sent on by other members, or the next start."""
        await self._consumer.stop()
        await self._producer.stop()

    def listener(self, group: str, listener: MessageListener) -> MessageListener:
        """The listener to subscribe with in place of this group's own, a concurrent one."""

        async def listen(
            messages: Sequence[MessageExt], context: ConsumeContext
        ) -> ConsumeConcurrentlyStatus:
            own = [one for one in messages if one.properties.get(GROUP, group) == group]
            if own:
                outcome = await call_listener(listener, own, context)
                done_count = acknowledged_count(outcome, context, len(own))
                context.ack_index = None
                for message in own[done_count:]:
                    await self.retry(group, message)
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

        return listen

    async def retry(self, group: str, message: MessageExt) -> bool:
        """Have the message come again by the schedule; False: it was given up, its tries are over.

        Raises what `Producer.send` raises: then it is not stored, and must not be acknowledged.
        """
        count = whole_number(message.properties.get(COUNT, "0"), 0)
        origin = message.properties.get(ORIGIN, message.topic)
        if count >= len(self._delays_ms):
            topic = self.topic + GIVEN_UP_SUFFIX
            _log.warning("%s of %s is given up after %d tries", message.message_id, origin, count)
            headers = {ORIGIN: origin, GROUP: group}
            await self._send(topic, message, GIVEN_UP, count=count, headers=headers)
            return False
        delay_ms = self._delays_ms[count]
        # RocketMQ 5.5 knows no milliseconds here.
        seconds, rest_ms = divmod(delay_ms, SECOND_MS)
        wait = (
            {PROPERTY_TIMER_DELAY_MS: str(delay_ms)}
            if rest_ms
            else {PROPERTY_TIMER_DELAY_SEC: str(seconds)}
        )
        headers = {ORIGIN: origin, GROUP: group} | wait
        await self._send(self.topic, message, DELAYED, count=count, headers=headers)
        return True

    async def _send_on(
        self, messages: Sequence[MessageExt], _context: ConsumeContext
    ) -> ConsumeConcurrentlyStatus:
        """What is due goes to its first topic."""
        for message in messages:
            said = message.properties
            origin = said.get(ORIGIN)
            if not origin:
                _log.error("%s in %s names no topic", message.message_id, self.topic)
                continue
            count = whole_number(said.get(COUNT, "0"), 0) + 1
            headers = {ORIGIN: origin, GROUP: said.get(GROUP, "")}
            await self._send(origin, message, NORMAL, count=count, headers=headers)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    async def _send(
        self, topic: str, of: MessageExt, kind: str, *, count: int, headers: dict[str, str]
    ) -> None:
        first_id = of.properties.get(ID, of.message_id)
        kept = {
            name: value
            for name, value in of.properties.items()
            if name not in _NOT_COPIED and not name.startswith(_BROKERS_OWN)
        }
        own = {TYPE: kind, COUNT: str(count), ID: first_id}
        own[PROPERTY_UNIQ_KEY] = f"{first_id}-{kind}-{count}"
        await self._producer.send(Message(topic, of.body, kept | own | headers))


def _named(config: ClientConfig, what: str) -> ClientConfig:
    """Two clients of one process need two names."""
    return replace(config, instance_name=f"{config.instance_name}-{what}")
