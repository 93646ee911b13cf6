"""The same clients and faults with Apache RocketMQ's own group, DLedger, as the control.

It takes no certificates and no accounts here; it answers when two of three nodes have a message in
memory, of which SIGKILL takes nothing. Offsets of consumers, which it does not replicate with the
log, are not asked for, and logs are not compared.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Final

from demo.rocketmq import BROKER as JAVA_BROKER
from demo.rocketmq import (
    NAME_SERVER,
    Installation,
    broker_properties,
    configure,
    find_installation,
)
from tests.chaos.clients import GROUP, QUEUES, TOPIC, Stage, working
from tests.chaos.faults import FAULTS, Victims
from tests.chaos.java import GROUP as JAVA_GROUP
from tests.chaos.network import Host
from tests.chaos.record import Record, faults_of
from tests.chaos.run import REST_S, Outcome, make_topic, played, stored_in
from tests.chaos.site import Site
from tests.integration.broker.broker_group import BROKER, Copies, Member, Party
from tests.integration.broker.cluster import RawClient, eventually
from tests.integration.telemetry.killable_engine import free_port

READY_S: Final = 90
COPIED_S: Final = 15
"""By then slaves have a new topic."""
KINDS: Final = (
    *("leader killed", "follower killed", "majority killed", "all killed"),
    *("leader stopped", "follower stopped", "leader apart", "leader not heard"),
    *("follower apart", "leader alone", "leader slow", "leader's link late", "leader's link lossy"),
)
"""Faults that need nothing of the brokers but to be processes."""


async def _ready(party: Party, line_begin: bytes) -> None:
    """Wait for the line; whatever comes later is thrown away."""
    assert party.process is not None
    output = party.process.stdout
    assert output is not None
    async with asyncio.timeout(READY_S):
        while not (line := await output.readline()).startswith(line_begin):
            assert line, f"it ended: {party.log.read_text()}"


class JavaServer(Party):
    """A name server of RocketMQ's."""

    def __init__(self, installation: Installation, folder: Path, host: Host) -> None:
        port = free_port()
        self.address = f"{host.address}:{port}"
        configure(folder, NAME_SERVER, {"listenPort": str(port)})
        command = installation.party_command(NAME_SERVER, folder)
        super().__init__(folder / "errors.txt", *host.enter, *command)

    async def ready(self) -> None:
        """See `Party`."""
        await _ready(self, NAME_SERVER.ready.encode())


class JavaMember(Member):
    """A broker of RocketMQ's."""

    def __init__(
        self, installation: Installation, folder: Path, host: Host, port: int, **own: str
    ) -> None:
        self.address = f"{host.address}:{port}"
        properties = broker_properties(own["namesrvAddr"], port, folder / "store")
        addresses = {"brokerIP1": host.address, "brokerIP2": host.address}
        configure(folder, JAVA_BROKER, properties | addresses | own)
        command = installation.party_command(JAVA_BROKER, folder)
        Party.__init__(self, folder / "errors.txt", *host.enter, *command)

    async def ready(self) -> None:
        """See `Party`."""
        await _ready(self, JAVA_BROKER.ready.encode())


class DLedger(Copies):
    """A group of three."""

    def __init__(self, site: Site, folder: Path) -> None:
        super().__init__(folder, (), RawClient)
        installation, hosts = find_installation(), site.network.hosts
        servers = [JavaServer(installation, folder / host.address, host) for host in hosts[3:]]
        self.name_servers = list(servers)
        self.namesrvs = tuple(one.address for one in servers)
        peers = [f"n{number}-{host.address}:{free_port()}" for number, host in enumerate(hosts[:3])]
        common = {
            "enableDLegerCommitLog": "true",
            "dLegerGroup": BROKER,
            "dLegerPeers": ";".join(peers),
            "sendMessageThreadPoolNums": "4",
            "namesrvAddr": ";".join(self.namesrvs),
        }
        self.members = [
            JavaMember(
                *(installation, folder / f"n{number}", host, free_port()),
                **common,
                dLegerSelfId=f"n{number}",
            )
            for number, host in enumerate(hosts[:3])
        ]

    async def leader(self, *, within_s: float = 60) -> Member:
        """Whom both name servers name."""
        found: list[Member] = []

        async def is_named() -> bool:
            named = {await self.master_named(one, "TBW102") for one in self.namesrvs}
            found[:] = [one for one in self.members if named == {one.address}]
            return bool(found)

        await eventually(is_named, "both name servers name one leader", within_s=within_s)
        return found[0]

    async def is_whole(self) -> bool:
        """Do all run, and is one of them named?"""
        named = {await self.master_named(one, TOPIC) for one in self.namesrvs}
        return all(one.is_running for one in self.members) and len(named - {None}) == 1


async def play_control(site: Site, seconds: float, seed: int) -> Outcome:
    """Play faults for so long, each kind as often."""
    record = Record(consumed={GROUP: Counter(), JAVA_GROUP: Counter()})
    chance, outcome = random.Random(seed), Outcome(record)
    folder = site.folder / "dledger"
    folder.mkdir()
    group = DLedger(site, folder)
    stage = Stage(folder, group.namesrvs, None, None)
    try:
        await group.start()
        client = RawClient((await group.leader()).address)
        await make_topic(client, TOPIC, QUEUES)
        await client.close()
        await asyncio.sleep(COPIED_S)
        async with working(stage, record):
            until_s, names = time.monotonic() + seconds, list[str]()
            while time.monotonic() < until_s:
                await asyncio.sleep(REST_S)
                names = names or chance.sample(KINDS, len(KINDS))
                name, victims = names.pop(), Victims(group, site, chance, await group.leader())
                fault = partial(FAULTS[name][1], victims)
                outcome.played.append(await played(name, fault, group.is_whole, record))
        client = RawClient((await group.leader()).address)
        stored = await stored_in(client)
        await client.close()
    except (AssertionError, TimeoutError) as error:
        outcome.faults.append(f"ended early: {error!r}")
        return outcome
    finally:
        await group.close()
    outcome.faults = faults_of(record, stored)
    outcome.lost = [put.acknowledged_s for put in record.lost(stored)]
    return outcome
