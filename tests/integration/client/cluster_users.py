"""Producers and consumers as the tests use them: quick timers, listeners that remember, waiting
with a deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from engine.client import (
    ClientConfig,
    ConsumeConcurrentlyStatus,
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeOrderlyStatus,
    ConsumerConfig,
    MessageSelector,
    Producer,
    ProducerConfig,
    PushConsumer,
)
from engine.client.consuming.listeners import ListenerAnswer, MessageListener
from engine.protocol.message import Message, MessageExt, MessageQueue
from engine.runtime import Runtime, system_runtime

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER


async def eventually(
    condition: Callable[[], object] | Callable[[], Awaitable[object]],
    what: str,
    *,
    within_s: float = 30,
) -> None:
    """Wait until `condition` holds; fail, saying `what` did not happen, after `within_s`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while True:
        held = condition()
        if isinstance(held, Awaitable):
            held = await held
        if held:
            return
        assert loop.time() < deadline, f"not within {within_s} s: {what}"
        await asyncio.sleep(0.02)


def client_config(name_server: str, **settings: object) -> ClientConfig:
    """A client of one name server, with quick route polls."""
    defaults = {"route_poll_ms": 1000, "heartbeat_ms": 5000}
    return ClientConfig(namesrv_addresses=(name_server,), **(defaults | settings))  # type: ignore[arg-type]


def consumer_config(**settings: object) -> ConsumerConfig:
    """A consumer that begins at the beginning, with quick rebalances and reports."""
    defaults: dict[str, object] = {
        "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        "rebalance_ms": 2000,
        "rebalance_retry_ms": 200,
        "first_pull_delay_ms": 100,
        "persist_first_ms": 500,
        "persist_ms": 500,
    }
    return ConsumerConfig(**(defaults | settings))  # type: ignore[arg-type]


@dataclass
class Seen:
    """A listener that remembers what it was given, and answers what `answer` says."""

    answer: Callable[[MessageExt, ConsumeContext], ListenerAnswer] = lambda _m, _c: SUCCESS
    messages: list[MessageExt] = field(default_factory=list)

    async def __call__(
        self, messages: Sequence[MessageExt], context: ConsumeContext
    ) -> ListenerAnswer:
        self.messages += messages
        return self.answer(messages[-1], context)

    @property
    def bodies(self) -> list[str]:
        """The bodies in the order of their arrival."""
        return [bytes(message.body).decode() for message in self.messages]


def in_order(_message: MessageExt, _context: ConsumeContext) -> ConsumeOrderlyStatus:
    """The answer of an orderly listener that is content."""
    return ConsumeOrderlyStatus.SUCCESS


@asynccontextmanager
async def producing(
    name_server: str, group: str, *, runtime: Runtime | None = None, **settings: object
) -> AsyncIterator[Producer]:
    """A running producer."""
    producer = Producer(
        runtime or system_runtime(),
        client_config(name_server),
        group,
        producer=ProducerConfig(**settings),  # type: ignore[arg-type]
    )
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def consuming(
    name_server: str,
    group: str,
    subscriptions: dict[str, MessageListener],
    *,
    expression: str | MessageSelector = "*",
    config: ConsumerConfig | None = None,
    on_commit_answered: Callable[[MessageQueue, int], None] | None = None,
    runtime: Runtime | None = None,
    client: ClientConfig | None = None,
) -> AsyncIterator[PushConsumer]:
    """A running push consumer of some topics."""
    consumer = PushConsumer(
        runtime or system_runtime(),
        client or client_config(name_server),
        group,
        consumer=config or consumer_config(),
        on_commit_answered=on_commit_answered,
    )
    for topic, listener in subscriptions.items():
        consumer.subscribe(topic, expression, listener)
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


def text(topic: str, body: str, **properties: str) -> Message:
    """A message with a text body; properties by name, such as TAGS."""
    return Message(topic, body.encode(), dict(properties))
