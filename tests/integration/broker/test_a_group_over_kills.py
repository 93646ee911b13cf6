"""Row C11: three brokers in a Raft group under steady sends and commits, their leader killed with
SIGKILL or stopped for a while: nothing acknowledged is lost, and no committed offset falls.

The suite plays a few rounds; TIDEMARK_KILL_ROUNDS asks for more.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine.client import ClientConfig, Producer, ProducerConfig
from engine.foundation.errors import TidemarkError
from engine.protocol.codes import ResponseCode
from engine.runtime import system_runtime
from tests.asynchronous import meanwhile
from tests.integration.broker.broker_group import BrokerGroup, Member
from tests.integration.broker.cluster import TOPIC, RawClient, eventually
from tests.integration.broker.test_kill_loop import QUEUES
from tests.integration.broker.test_kills_and_promotions import (
    more_acknowledged,
    send_for_ever,
    stored_at,
)
from tests.integration.broker.test_kills_of_master_and_slave import log_bytes
from tests.seeds import one_seed
from tests.simulation.history import (
    History,
    check_nothing_acknowledged_is_lost,
    check_order_per_queue,
)

ROUNDS = int(os.environ.get("TIDEMARK_KILL_ROUNDS", "3"))
SEED = one_seed()
SLEEP_S = 5
PUTS_ASKED_OF_A_SLEEPER = 5


@dataclass
class Offsets:
    """A reader that reports further offsets, asks for them, and notes what it was promised."""

    group: BrokerGroup
    topic: str = "offsets"
    committed: int = 0
    """The greatest one that was acknowledged, or answered."""
    stored: int = 0
    """Messages of the topic that are there for certain."""
    answers: list[int] = field(default_factory=list)

    async def work(self) -> None:
        """Without end, at whoever leads."""
        chance = random.Random(SEED)
        while True:
            with suppress(TidemarkError):
                address = await self.group.master_named(
                    chance.choice(self.group.namesrvs), self.topic
                )
                if address is not None:
                    await self._work_at(address)
            await asyncio.sleep(0.1)

    async def _work_at(self, address: str) -> None:
        client = self.group.client(address)
        try:
            while True:
                if (await client.send(topic=self.topic)).code != ResponseCode.SUCCESS:
                    return
                self.stored += 1
                answer = await client.commit(self.stored, topic=self.topic, timeout_ms=2000)
                if answer.code != ResponseCode.SUCCESS:
                    return
                self.committed = max(self.committed, self.stored)
                least = self.committed
                answer = await client.committed(topic=self.topic)
                if answer.code != ResponseCode.SUCCESS:
                    return
                self.answered(int(answer.fields["offset"]), least)
                await asyncio.sleep(0.05)
        finally:
            await client.close()

    async def are_answered(self) -> bool:
        return len(self.answers) > 0

    def answered(self, offset: int, least: int) -> None:
        assert offset >= least, f"offset {offset} is answered after {least} was promised"
        self.answers.append(offset)
        self.committed = max(self.committed, offset)


async def begin(group: BrokerGroup, offsets: Offsets) -> None:
    """Found it, with its topics and a message."""
    await group.start()
    client = RawClient((await group.leader()).address)
    for topic in ("made", offsets.topic):
        assert (await client.make_topic(topic)).code == ResponseCode.SUCCESS
    assert (await client.send(b"the first", queue_id=QUEUES)).code == ResponseCode.SUCCESS
    await client.close()


@asynccontextmanager
async def working(group: BrokerGroup, history: History, offsets: Offsets) -> AsyncIterator[None]:
    """Senders and a reader, meanwhile."""
    config = ClientConfig(namesrv_addresses=group.namesrvs)
    producer = Producer(system_runtime(), config, "producers", producer=ProducerConfig())
    await producer.start()
    senders = (send_for_ever(producer, history, one) for one in range(QUEUES))
    try:
        async with meanwhile([*senders, offsets.work()]):
            yield
    finally:
        await producer.stop()


async def kill_and_bring_back(group: BrokerGroup, history: History) -> None:
    """SIGKILL of the leader; another one leads, then it comes back."""
    leader = await group.leader()
    await leader.kill()
    await more_acknowledged(history)
    await leader.begin()
    await leader.ready()


async def put_to_sleep(group: BrokerGroup, history: History, offsets: Offsets) -> None:
    """The leader stops while it is asked; meanwhile another one leads. Awake, it answers nothing
    that was true before only.
    """
    leader = await group.leader()
    client = RawClient(leader.address)
    assert (await client.committed(topic=offsets.topic)).code == ResponseCode.SUCCESS
    leader.pause()
    puts = [
        asyncio.create_task(client.send(b"of a sleeper %d" % one, queue_id=QUEUES))
        for one in range(PUTS_ASKED_OF_A_SLEEPER)
    ]
    question = asyncio.create_task(client.committed(topic=offsets.topic))
    report = asyncio.create_task(client.commit(1, topic=offsets.topic))
    await asyncio.sleep(SLEEP_S)
    await more_acknowledged(history)
    assert await group.leader() is not leader
    before = offsets.committed
    leader.resume()
    for put in puts:
        assert (await put).code != ResponseCode.SUCCESS, "a former leader acknowledges"
    answer = await question
    if answer.code == ResponseCode.SUCCESS:
        offsets.answered(int(answer.fields["offset"]), before)
    assert (await report).code != ResponseCode.SUCCESS, "a former leader takes a report"
    await client.close()


def check_logs(members: list[Member]) -> None:
    logs = [log_bytes(one.store) for one in members]
    assert len(logs[0]) > 0
    assert logs[1] == logs[0], "the second log is another one"
    assert logs[2] == logs[0], "the third log is another one"


@pytest.mark.timeout(90 + 30 * ROUNDS)
async def test_a_group_loses_nothing_acknowledged_whoever_is_killed(tmp_path: Path) -> None:
    chance, history = random.Random(SEED), History()
    group = BrokerGroup(tmp_path)
    offsets = Offsets(group)
    try:
        await begin(group, offsets)
        async with working(group, history, offsets):
            await eventually(offsets.are_answered, "offsets are answered")
            for number in range(ROUNDS):
                await more_acknowledged(history)
                await asyncio.sleep(chance.uniform(0.0, 0.6))
                if number % 3 == 1:
                    await put_to_sleep(group, history, offsets)
                else:
                    await kill_and_bring_back(group, history)
            await more_acknowledged(history)
        await check_all_hold_the_same(group, history, offsets)
    finally:
        await group.close()


async def check_all_hold_the_same(group: BrokerGroup, history: History, offsets: Offsets) -> None:
    """After healing: every node, and whoever leads."""
    await group.settled()
    leader = await group.named_leader(TOPIC)
    await group.named_leader("made")
    stored = await stored_at(leader.address)
    check_nothing_acknowledged_is_lost(history, stored)
    check_order_per_queue(history, stored)
    assert len(set(stored.values())) == len(stored), "one message at two places"
    client = RawClient(leader.address)
    answer = await client.committed(topic=offsets.topic)
    await client.close()
    before = len(offsets.answers)
    assert before > 3 * ROUNDS, f"offsets were answered {before} times only"
    offsets.answered(int(answer.fields["offset"]), offsets.committed)
    await group.settled()
    check_logs(group.members)
