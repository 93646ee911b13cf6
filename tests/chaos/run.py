"""Plays faults on a group while clients work, one after the other, and says how it went."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Final

from engine.protocol.codes import RequestCode
from engine.remoting.signing import Credentials
from engine.runtime import ClientTls
from tests.certificates import authority
from tests.chaos.clients import GROUP, JAVAS, OURS, QUEUES, TOPIC, GroupOffsets, Stage, working
from tests.chaos.faults import FAULTS, Victims, is_whole
from tests.chaos.java import GROUP as JAVA_GROUP
from tests.chaos.network import OWN, Network
from tests.chaos.record import Record, faults_of
from tests.integration.broker.broker_group import BrokerGroup, Place
from tests.integration.broker.cluster import RawClient, eventually, messages
from tests.integration.broker.test_a_group_over_kills import Offsets, check_logs

_log = logging.getLogger("chaos")

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
    ours_s: float
    """The longest time in it, until the group was whole again, without an answer to our senders."""
    javas_s: float
    """The same of Java's."""


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
        self.folder, self.network = folder, network
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
    def stage(self) -> Stage:
        """What clients know of it."""
        return Stage(self.folder, self.group.namesrvs, self.tls, ROOT)


@asynccontextmanager
async def asking(*readers: Offsets | GroupOffsets) -> AsyncIterator[None]:
    """Who asks for offsets, meanwhile."""
    tasks = [asyncio.create_task(one.work()) for one in readers]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in outcomes:
        assert isinstance(outcome, asyncio.CancelledError), outcome


async def stored_in(client: RawClient) -> dict[int, list[bytes]]:
    """Each queue from its begin."""
    stored: dict[int, list[bytes]] = {}
    for queue_id in range(QUEUES):
        found = stored[queue_id] = []
        while (
            answer := await client.pull(len(found), topic=TOPIC, group=GROUP, queue_id=queue_id)
        ).code == 0:
            found += [one.body for one in messages(answer)]
    return stored


async def play(folder: Path, network: Network, seconds: float, seed: int) -> Outcome:
    """Play faults for so long, each kind as often; what came of it."""
    record = Record(consumed={GROUP: Counter(), JAVA_GROUP: Counter()})
    chance, outcome = random.Random(seed), Outcome(record)
    cluster = Cluster(folder, network)
    group, offsets = cluster.group, Offsets(cluster.group)
    group_offsets = GroupOffsets(group)
    try:
        await group.start()
        client = cluster.client((await group.leader()).address)
        for topic, queues in ((TOPIC, QUEUES), (offsets.topic, 1)):
            await make_topic(client, topic, queues)
        await client.close()
        await group.named_leader(TOPIC)
        async with working(cluster.stage, record), asking(offsets, group_offsets):
            until_s, names = time.monotonic() + seconds, list[str]()
            while time.monotonic() < until_s:
                await asyncio.sleep(REST_S)
                if not names:
                    names = chance.sample(list(FAULTS), len(FAULTS))
                victims = Victims(group, network, chance, await group.leader())
                outcome.played.append(await played(names.pop(), victims, record))
        await group.settled()
        leader = await group.named_leader(TOPIC)
        client = cluster.client(leader.address)
        stored = await stored_in(client)
        await client.close()
    finally:
        await group.close()
    outcome.faults = [*faults_of(record, stored), *group_offsets.fallen]
    outcome.lost = [put.acknowledged_s for put in record.lost(stored)]
    outcome.offsets_answered = len(offsets.answers) + group_offsets.answers
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
    before_s = time.monotonic()
    await eventually(
        lambda: _all_answered(record, before_s), "sends go on", within_s=HEALED_WITHIN_S
    )
    end_s = time.monotonic()
    gaps_s = [record.longest_gap_s(keys, begin_s, end_s) for keys in (OURS, JAVAS)]
    done = Played(name, begin_s, end_s, *gaps_s)
    took = f"{done.ours_s:.2f} s without, Java's {done.javas_s:.2f} s"
    _log.info("%s: %s, whole after %.1f s", name, took, end_s - begin_s)
    return done


async def _all_answered(record: Record, since_s: float) -> bool:
    newest = reversed(record.acknowledged)
    keys = {key for _, key in takewhile(lambda one: one[0] > since_s, newest)}
    return len(keys) == QUEUES


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
