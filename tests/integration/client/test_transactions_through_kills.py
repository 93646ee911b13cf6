"""Row D4: a broker process killed again and again under our producer of transactions."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from engine.client import (
    ProducerConfig,
    TransactionProducer,
    TransactionState,
)
from engine.foundation.errors import TidemarkError
from engine.protocol.message import Message, MessageExt
from engine.runtime import system_runtime
from tests.integration.broker.cluster import RawClient, messages
from tests.integration.client.cluster_users import client_config, eventually
from tests.integration.telemetry.killable_engine import KillableEngine

TOPIC, QUEUES = "Accounts", 4
KILLS = 20
SENDERS = 6
QUICK = (
    *("--set", "transactionTimeOut=600", "--set", "transactionOpBatchInterval=500"),
    *("--set", "transactionCheckInterval=200", "--set", "transactionCheckMax=500"),
)


class Business:
    """Decides each transaction once and remembers it; half the decisions are sent at once."""

    def __init__(self, seed: int) -> None:
        self.choice = random.Random(seed)
        self.record: dict[bytes, TransactionState] = {}
        self.begun: list[bytes] = []

    async def execute(self, message: Message, _argument: object) -> TransactionState:
        await asyncio.sleep(self.choice.uniform(0, 0.3))
        state = self.choice.choice((TransactionState.COMMIT, TransactionState.ROLLBACK))
        self.record[message.body] = state
        return self.choice.choice((state, state, TransactionState.UNKNOWN))

    def check(self, message: MessageExt) -> TransactionState:
        return self.record.get(message.body, TransactionState.UNKNOWN)

    async def begin_until(self, done: asyncio.Event, producer: TransactionProducer) -> None:
        while not done.is_set():
            body = b"transaction %06d" % len(self.begun)
            self.begun.append(body)
            try:
                await producer.send_in_transaction(Message(TOPIC, body))
            except TidemarkError:
                await asyncio.sleep(0.05)  # The broker is being killed.

    def wanted(self) -> Counter[bytes]:
        """What has to appear; what was begun and never executed must not."""
        for body in self.begun:
            self.record.setdefault(body, TransactionState.ROLLBACK)
        return Counter(b for b, state in self.record.items() if state is TransactionState.COMMIT)


async def stored(client: RawClient) -> Counter[bytes]:
    """Every message of the topic, by body."""
    found: Counter[bytes] = Counter()
    for queue_id in range(QUEUES):
        offset = 0
        while (answer := await client.pull(offset, topic=TOPIC, queue_id=queue_id)).code == 0:
            found.update(message.body for message in messages(answer))
            offset = int(answer.fields["nextBeginOffset"])
    return found


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("flush", ["sync", "async"])
async def test_twenty_kills_lose_no_commit_double_none_and_show_no_rollback(
    tmp_path: Path, flush: str
) -> None:
    engine = KillableEngine(tmp_path)
    business = Business(seed=7)
    await engine.start("--flush", flush, *QUICK)
    producer = TransactionProducer(
        system_runtime(),
        client_config(engine.namesrv, heartbeat_ms=500, route_poll_ms=500),
        "accountants",
        execute=business.execute,
        check=business.check,
        producer=ProducerConfig(
            retry_times=0, send_timeout_ms=1000, default_topic_queue_count=QUEUES
        ),
    )
    await producer.start()
    done = asyncio.Event()
    sending = asyncio.gather(*(business.begin_until(done, producer) for _ in range(SENDERS)))
    for _ in range(KILLS):
        await asyncio.sleep(business.choice.uniform(0.3, 1.5))
        await engine.end(signal.SIGKILL)
        await engine.start("--flush", flush, *QUICK)
    done.set()
    await sending
    wanted, client = business.wanted(), RawClient(engine.broker)

    async def all_ended() -> bool:
        return await stored(client) == wanted

    await eventually(all_ended, "every transaction at its end", within_s=60)
    await client.close()
    await producer.stop()
    assert await engine.end(signal.SIGTERM) == 0
    assert len(wanted) > KILLS, "a run without commits proves nothing"
