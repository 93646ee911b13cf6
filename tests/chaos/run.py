"""Plays faults on a group while clients work, one after the other, and says how it went."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
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
from engine.foundation.errors import TidemarkError
from engine.protocol.codes import RequestCode
from engine.protocol.message import Message, MessageExt, MessageQueue
from engine.remoting.signing import Credentials
from engine.runtime import ClientTls, system_runtime
from tests.certificates import authority
from tests.chaos.faults import FAULTS, Victims, is_whole
from tests.chaos.network import OWN, Network
from tests.chaos.record import Record, faults_of
from tests.integration.broker.broker_group import BROKER, BrokerGroup, Place
from tests.integration.broker.cluster import RawClient, eventually, messages
from tests.integration.broker.test_a_group_over_kills import Offsets, check_logs

_log = logging.getLogger("chaos")

TOPIC: Final = "chaos"
SENDERS: Final = 6
SEND_EACH_S: Final = 0.02
REST_S: Final = 1.0
HEALED_WITHIN_S: Final = 90
ROOT: Final = Credentials("chaos", "secret-of-chaos")
ACCESS: Final = """
[tls]
certificate = "{name}.pem"
key = "{name}.key"
clientAuthorities = "authority.pem"
authorities = "authority.pem"

[[accounts]]
accessKey = "{root.access_key}"
secretKey = "{root.secret_key}"
admin = true
"""


@dataclass(frozen=True, slots=True)
class Played:
    """A fault that was played."""

    name: str
    begin_s: float
    end_s: float
    gap_s: float
    """The longest time in it without an acknowledgement, until the group was whole again."""


@dataclass
class Outcome:
    """What a run found."""

    record: Record
    played: list[Played] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """What the group did that it may not."""
    offsets_answered: int = 0
    lost: list[float] = field(default_factory=list)
    """When what was lost had been acknowledged."""


class Cluster:
    """A group on hosts of its own, whose members prove to each other who they are."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.network = network
        issuer = authority(folder / "access")
        own = issuer.issue("clients", address=OWN)
        self.tls = ClientTls(str(issuer.certificate), str(own[0]), str(own[1]))
        places = []
        for number, host in enumerate(network.hosts):
            issuer.issue(f"host{number}", address=host.address)
            path = folder / "access" / f"host{number}.toml"
            path.touch(mode=0o600)
            path.write_text(ACCESS.format(name=f"host{number}", root=ROOT))
            options = ("--host", host.address, "--allow-remote", "--access", str(path))
            places.append(Place(host.address, host.enter, options))
        self.group = BrokerGroup(folder, places=places, client=self.client)

    def client(self, address: str) -> RawClient:
        """A client of one party."""
        return RawClient(address, credentials=ROOT, tls=self.tls)

    @property
    def config(self) -> ClientConfig:
        """Of producers and consumers, which are at their defaults otherwise."""
        return ClientConfig(namesrv_addresses=self.group.namesrvs, credentials=ROOT, tls=self.tls)


async def send_for_ever(producer: Producer, record: Record, key: int) -> None:
    """Each message until it is acknowledged, then the next one."""
    while True:
        put = record.begin(key)
        while put.queue_offset < 0:
            put.tries += 1
            try:
                sent = await producer.send(
                    Message(TOPIC, put.body), queue=MessageQueue(TOPIC, BROKER, key)
                )
            except TidemarkError:
                await asyncio.sleep(SEND_EACH_S)
                continue
            if sent.status.name == "SEND_OK":
                record.acknowledge(put, sent.queue_offset, time.monotonic())
        await asyncio.sleep(SEND_EACH_S)


@asynccontextmanager
async def working(cluster: Cluster, record: Record, offsets: Offsets) -> AsyncIterator[None]:
    """Senders, a reader that reports offsets by hand, and a consumer, meanwhile."""

    def listen(
        messages: Sequence[MessageExt], _context: ConsumeContext
    ) -> ConsumeConcurrentlyStatus:
        for one in messages:
            record.consume(one.queue_id, one.queue_offset, bytes(one.body))
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    runtime = system_runtime()
    settings = ConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer = PushConsumer(runtime, cluster.config, "chaos-group", consumer=settings)
    consumer.subscribe(TOPIC, "*", listen)
    producer = Producer(runtime, cluster.config, "chaos-p", producer=ProducerConfig())
    await producer.start()
    await consumer.start()
    senders = [asyncio.create_task(send_for_ever(producer, record, key)) for key in range(SENDERS)]
    reader = asyncio.create_task(offsets.work())
    try:
        yield
        for task in (*senders, reader):
            task.cancel()
        for outcome in await asyncio.gather(*senders, reader, return_exceptions=True):
            assert isinstance(outcome, asyncio.CancelledError), outcome
        await eventually(lambda: _all_consumed(record), "all is delivered", within_s=60)
    finally:
        for task in (*senders, reader):
            task.cancel()
        await consumer.stop()
        await producer.stop()


async def _all_consumed(record: Record) -> bool:
    return all(
        record.consumed[put.body]
        for puts in record.puts.values()
        for put in puts
        if put.queue_offset >= 0
    )


async def stored_in(client: RawClient) -> dict[int, list[bytes]]:
    """Each queue from its begin."""
    stored: dict[int, list[bytes]] = {}
    for queue_id in range(SENDERS):
        found = stored[queue_id] = []
        while (
            answer := await client.pull(
                len(found), topic=TOPIC, group="chaos-group", queue_id=queue_id
            )
        ).code == 0:
            found += [one.body for one in messages(answer)]
    return stored


async def play(folder: Path, network: Network, seconds: float, seed: int) -> Outcome:
    """Play faults for so long, each kind as often; what came of it."""
    chance, outcome = random.Random(seed), Outcome(Record())
    cluster = Cluster(folder, network)
    group, offsets = cluster.group, Offsets(cluster.group)
    try:
        await group.start()
        client = cluster.client((await group.leader()).address)
        for topic, queues in ((TOPIC, SENDERS), (offsets.topic, 1)):
            await make_topic(client, topic, queues)
        await client.close()
        await group.named_leader(TOPIC)
        async with working(cluster, outcome.record, offsets):
            until_s, names = time.monotonic() + seconds, list[str]()
            while time.monotonic() < until_s:
                await asyncio.sleep(REST_S)
                if not names:
                    names = chance.sample(list(FAULTS), len(FAULTS))
                victims = Victims(group, network, chance, await group.leader())
                outcome.played.append(await played(names.pop(), victims, outcome.record))
        await group.settled()
        leader = await group.named_leader(TOPIC)
        client = cluster.client(leader.address)
        stored = await stored_in(client)
        await client.close()
    finally:
        await group.close()
    outcome.faults = faults_of(outcome.record, stored)
    outcome.lost = [put.acknowledged_s for put in outcome.record.lost(stored)]
    outcome.offsets_answered = len(offsets.answers)
    try:
        check_logs(group.members)
    except AssertionError as error:
        outcome.faults.append(str(error))
    return outcome


async def played(name: str, victims: Victims, record: Record) -> Played:
    """One fault, and the time until the group was whole again."""
    begin_s = time.monotonic()
    await FAULTS[name][1](victims)
    await eventually(
        lambda: is_whole(victims.group), f"whole after {name}", within_s=HEALED_WITHIN_S
    )
    before = len(record.acknowledged_s)
    await eventually(
        lambda: _are_more(record, before + SENDERS), "sends go on", within_s=HEALED_WITHIN_S
    )
    end_s = time.monotonic()
    done = Played(name, begin_s, end_s, record.longest_gap_s(begin_s, end_s))
    _log.info("%s: %.2f s without, whole after %.1f s", name, done.gap_s, end_s - begin_s)
    return done


async def _are_more(record: Record, count: int) -> bool:
    return len(record.acknowledged_s) >= count


async def make_topic(client: RawClient, topic: str, queues: int) -> None:
    answer = await client.ask(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        topic=topic,
        defaultTopic="TBW102",
        readQueueNums=queues,
        writeQueueNums=queues,
        perm=6,
        topicFilterType="SINGLE_TAG",
        topicSysFlag=0,
        order=False,
    )
    assert answer.code == 0, answer
