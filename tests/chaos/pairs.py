"""A master and its slave under faults; whoever operates them promotes and rebuilds by command.

The operator is quick: the order is given as soon as the fault has begun.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from engine.admin import Admin
from engine.foundation.errors import TidemarkError
from engine.runtime import system_runtime
from tests.chaos.clients import GROUP, QUEUES, TOPIC, working
from tests.chaos.faults import BEHIND_BYTES_MAX, HOLD_S
from tests.chaos.java import GROUP as JAVA_GROUP
from tests.chaos.network import Host
from tests.chaos.record import Record, copies_too_many, faults_of
from tests.chaos.run import REST_S, Outcome, make_topic, played, stored_in
from tests.chaos.site import SETTINGS, Site
from tests.integration.broker.broker_group import BROKER, Copies, Member
from tests.integration.broker.cluster import eventually
from tests.integration.telemetry.killable_engine import free_port

LONELY_S: Final = (1.0, 2.0)
PROMOTED_WITHIN_S: Final = 30


class Pair(Copies):
    """Both begin; the first one is the master."""

    def __init__(self, site: Site, folder: Path, mode: str) -> None:
        places = site.places(folder)
        super().__init__(folder, places[3:], site.client)
        roles = ((f"brokerRole={mode}",), ("brokerRole=SLAVE", "brokerId=1"))
        namesrv = f"namesrvAddr={';'.join(self.namesrvs)}"
        self.members = [
            Member(
                *(folder, number, places[number], *role, namesrv, *SETTINGS),
                *(f"haListenPort={free_port()}", "slaveTimeout=1500"),
                client=site.client,
            )
            for number, role in enumerate(roles)
        ]


@dataclass
class Operated:
    """A pair, whoever leads now, and who gives orders."""

    pair: Pair
    site: Site
    mode: str
    chance: random.Random
    admin: Admin
    master: Member
    cut: int = 0
    """Messages that were cut by a rebuild, which reported them."""
    said: list[str] = field(default_factory=list)

    @property
    def slave(self) -> Member:
        return next(one for one in self.pair.members if one is not self.master)

    def host(self, member: Member) -> Host:
        return self.site.network.hosts[self.pair.members.index(member)]

    async def hold(self) -> None:
        await asyncio.sleep(self.chance.uniform(*HOLD_S))

    async def promote(self) -> None:
        """As `tidemark admin replica promote --yes`, until it is done."""

        async def is_done() -> bool:
            try:
                plan = await self.admin.replicas.plan(BROKER, broker_role=self.mode, copies=2)
                await self.admin.replicas.promote(plan)
            except TidemarkError as error:
                self.said.append(str(error))
                return False
            return True

        await eventually(is_done, "the slave is promoted", within_s=PROMOTED_WITHIN_S)

    async def is_whole(self) -> bool:
        """Does one lead, and does the other follow it closely? Who is DIVERGED is rebuilt."""
        found = {one.address: await one.state() for one in self.pair.members}
        by_role = {state.role: (at, state) for at, state in found.items() if state is not None}
        if by_role.keys() != {"MASTER", "SLAVE"}:
            return False
        (_, master), (at, slave) = by_role["MASTER"], by_role["SLAVE"]
        if slave.following == "DIVERGED":
            with suppress(TidemarkError):
                preview = await self.admin.replicas.cut(at)
                self.cut += (await self.admin.replicas.cut(at, at=preview.begin)).messages
            return False
        behind = abs(master.log_end - slave.log_end)
        return slave.following == "FOLLOWING" and behind <= BEHIND_BYTES_MAX


async def master_killed(on: Operated) -> None:
    await on.master.kill()
    await on.hold()
    await _back(on.master)


async def master_killed_and_replaced(on: Operated) -> None:
    await on.master.kill()
    await on.promote()
    await on.hold()
    await _back(on.master)


async def lonely_master_killed_and_replaced(on: Operated) -> None:
    on.site.network.part(on.host(on.master), [on.host(on.slave)])
    await asyncio.sleep(on.chance.uniform(*LONELY_S))
    await on.master.kill()
    on.site.network.heal()
    await on.promote()
    await on.hold()
    await _back(on.master)


async def master_stopped_and_replaced(on: Operated) -> None:
    on.master.pause()
    await on.promote()
    await on.hold()
    on.master.resume()


async def slave_killed(on: Operated) -> None:
    await on.slave.kill()
    await on.hold()
    await _back(on.slave)


async def slave_stopped(on: Operated) -> None:
    on.slave.pause()
    await on.hold()
    on.slave.resume()


async def both_killed(on: Operated) -> None:
    await asyncio.gather(on.master.kill(), on.slave.kill())
    await on.hold()
    await _back(on.master)
    await _back(on.slave)


async def apart(on: Operated) -> None:
    on.site.network.part(on.host(on.master), [on.host(on.slave)])
    await on.hold()
    on.site.network.heal()


async def _back(member: Member) -> None:
    await member.begin()
    await member.ready()


FAULTS: Final[dict[str, tuple[str, Callable[[Operated], Awaitable[None]]]]] = {
    "master killed": ("SIGKILL; it comes back", master_killed),
    "master killed, slave promoted": (
        "the killed one comes back as a slave",
        master_killed_and_replaced,
    ),
    "master alone, then killed, slave promoted": (
        "1 to 2 s without a packet to the slave before",
        lonely_master_killed_and_replaced,
    ),
    "master stopped, slave promoted": (
        "SIGSTOP, then SIGCONT: it becomes a slave",
        master_stopped_and_replaced,
    ),
    "slave killed": ("SIGKILL; it comes back", slave_killed),
    "slave stopped": ("SIGSTOP, then SIGCONT", slave_stopped),
    "both killed": ("SIGKILL of both; they come back", both_killed),
    "apart": ("no packet between master and slave", apart),
}
"""By name: what it is, and how it is done."""


async def play_pair(site: Site, mode: str, seconds: float, seed: int) -> Outcome:
    """Play faults on a pair for so long, each kind as often; `mode`: SYNC_MASTER, ASYNC_MASTER."""
    record = Record(consumed={GROUP: Counter(), JAVA_GROUP: Counter()})
    chance, outcome = random.Random(seed), Outcome(record)
    folder = site.folder / mode.lower()
    folder.mkdir()
    pair, loses = Pair(site, folder, mode), mode == "ASYNC_MASTER"
    stage = site.stage(folder, pair.namesrvs)
    try:
        await pair.start()
        async with Admin(system_runtime(), stage.config) as admin:
            on = Operated(pair, site, mode, chance, admin, pair.members[0])
            await eventually(on.is_whole, "the slave follows", within_s=30)
            client = site.client(on.master.address)
            await make_topic(client, TOPIC, QUEUES)
            await client.close()
            await pair.named_leader(TOPIC)
            async with working(stage, record, may_lose=loses):
                until_s, names = time.monotonic() + seconds, list[str]()
                while time.monotonic() < until_s:
                    await asyncio.sleep(REST_S)
                    names = names or chance.sample(list(FAULTS), len(FAULTS))
                    name, on.master = names.pop(), await pair.leader()
                    fault = partial(FAULTS[name][1], on)
                    outcome.played.append(await played(name, fault, on.is_whole, record))
        client = site.client((await pair.leader()).address)
        stored = await stored_in(client)
        await client.close()
    except (AssertionError, TimeoutError) as error:
        outcome.faults.append(f"ended early: {error!r}")
        return outcome
    finally:
        await pair.close()
    outcome.lost = [put.acknowledged_s for put in record.lost(stored)]
    outcome.faults = copies_too_many(record, stored) if loses else faults_of(record, stored)
    if len(outcome.lost) > on.cut:
        outcome.faults.append(f"{len(outcome.lost)} are lost, rebuilds reported {on.cut}")
    outcome.cut = on.cut
    return outcome
