"""The senders and consumers of a run, ours and RocketMQ's, that write down what they do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from engine.client import (
    ClientConfig,
    ConsumeConcurrentlyStatus,
    ConsumeContext,
    ConsumeFromWhere,
    ConsumerConfig,
    Producer,
    ProducerConfig,
    PushConsumer,
)
from engine.foundation.errors import ClusterError, TidemarkError
from engine.protocol.codes import ResponseCode
from engine.protocol.message import Message, MessageExt, MessageQueue
from engine.remoting.signing import Credentials
from engine.runtime import ClientTls, system_runtime
from tests.asynchronous import meanwhile
from tests.chaos.java import GROUP as JAVA_GROUP
from tests.chaos.java import java_clients
from tests.chaos.record import Record
from tests.integration.broker.broker_group import BROKER, BrokerGroup
from tests.integration.broker.cluster import RawClient, eventually

TOPIC: Final = "chaos"
GROUP: Final = "chaos-ours"
OURS: Final = range(6)
"""Keys of our senders."""
JAVAS: Final = range(6, 8)
"""Keys of Java's."""
QUEUES: Final = len(OURS) + len(JAVAS)
SEND_EACH_S: Final = 0.02
DELIVERED_WITHIN_S: Final = 60
ASK_EACH_S: Final = 0.2


@dataclass
class GroupOffsets:
    """Asks what the groups of consumers have committed, and sees that it never falls."""

    group: BrokerGroup
    answers: int = 0
    known: dict[tuple[str, int], int] = field(default_factory=dict)
    fallen: list[str] = field(default_factory=list)

    async def work(self) -> None:
        """Without end, at whoever leads."""
        while True:
            with suppress(TidemarkError):
                address = await self.group.master_named(self.group.namesrvs[0], TOPIC)
                if address is not None:
                    client = self.group.client(address)
                    try:
                        while True:
                            await self._ask(client)
                            await asyncio.sleep(ASK_EACH_S)
                    finally:
                        await client.close()
            await asyncio.sleep(ASK_EACH_S)

    async def _ask(self, client: RawClient) -> None:
        """All of them, once. Raises TidemarkError."""
        for group in (GROUP, JAVA_GROUP):
            for queue_id in range(QUEUES):
                least = self.known.get((group, queue_id), 0)
                answer = await client.committed(topic=TOPIC, group=group, queue_id=queue_id)
                if answer.code == ResponseCode.QUERY_NOT_FOUND and not least:
                    continue
                if answer.code != ResponseCode.SUCCESS:
                    raise ClusterError(f"{answer.code}: {answer.remark}")
                found = int(answer.fields["offset"])
                if found < least:
                    self.fallen.append(f"{group}, queue {queue_id}: offset {least}, then {found}")
                self.known[group, queue_id] = found
                self.answers += 1


@dataclass(frozen=True)
class Stage:
    """What clients need to know of the servers."""

    folder: Path
    namesrvs: tuple[str, ...]
    tls: ClientTls | None
    account: Credentials | None

    @property
    def config(self) -> ClientConfig:
        """Of producers and consumers, which are at their defaults otherwise."""
        return ClientConfig(namesrv_addresses=self.namesrvs, credentials=self.account, tls=self.tls)


async def send_for_ever(producer: Producer, record: Record, key: int) -> None:
    """Each message until it is acknowledged, then the next one."""
    while True:
        put = record.begin(key)
        message = Message(TOPIC, put.body)
        while put.queue_offset < 0:
            put.tries += 1
            try:
                sent = await producer.send(message, queue=MessageQueue(TOPIC, BROKER, key))
            except TidemarkError:
                await asyncio.sleep(SEND_EACH_S)
                continue
            if sent.status.name == "SEND_OK":
                record.acknowledge(key, sent.queue_offset, sent.message_id, time.monotonic())
        await asyncio.sleep(SEND_EACH_S)


@asynccontextmanager
async def _consuming(stage: Stage, record: Record) -> AsyncIterator[None]:
    def listen(
        messages: Sequence[MessageExt], _context: ConsumeContext
    ) -> ConsumeConcurrentlyStatus:
        for one in messages:
            message_id = one.message_id
            record.consume(GROUP, one.queue_id, one.queue_offset, message_id, bytes(one.body))
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    settings = ConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer = PushConsumer(system_runtime(), stage.config, GROUP, consumer=settings)
    consumer.subscribe(TOPIC, "*", listen)
    await consumer.start()
    try:
        yield
    finally:
        await consumer.stop()


@asynccontextmanager
async def _sending(stage: Stage, record: Record) -> AsyncIterator[None]:
    producer = Producer(system_runtime(), stage.config, "chaos-p", producer=ProducerConfig())
    await producer.start()
    try:
        async with meanwhile(send_for_ever(producer, record, key) for key in OURS):
            yield
    finally:
        await producer.stop()


@asynccontextmanager
async def working(stage: Stage, record: Record, *, may_lose: bool = False) -> AsyncIterator[None]:
    """Senders and consumers of both kinds, meanwhile; in the end all is delivered, if none of it
    may be lost.
    """

    async def is_delivered() -> bool:
        java.check()
        return next(record.undelivered(), None) is None

    async with AsyncExitStack() as stack:
        java = await stack.enter_async_context(
            java_clients(
                stage.folder / "java",
                record,
                stage.namesrvs,
                tls=stage.tls,
                account=stage.account,
                words=(TOPIC, BROKER, str(round(SEND_EACH_S * 1000)), *map(str, JAVAS)),
            )
        )
        await stack.enter_async_context(_consuming(stage, record))
        async with _sending(stage, record):
            yield
        await java.stop_sending()
        if not may_lose:
            await eventually(is_delivered, "all is delivered", within_s=DELIVERED_WITHIN_S)
