"""Row C11: every class of fault hits every role of a group in every phase, and all comes right.

A story brings the group into a phase, waits until a node has the role, and strikes. Then everything
is healed, and the three hold the same, and what was promised.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from engine.foundation.errors import TidemarkError
from tests.seeds import seeded
from tests.simulation.broker_group import HOSTS, PEERS, TOPIC, BrokerGroup, GroupClient, check
from tests.simulation.fault_cells import (
    CELLS,
    ELSEWHERE,
    MUST,
    ROLES,
    Cell,
    Fault,
    Phase,
    Role,
    table,
    unmet,
    why_not,
)
from tests.simulation.world import World, run_world

LOOK_S = 0.0003
TRIES = 12
WAIT_S = 6
"""How long it may take a group to come to a phase."""
WIDE = b"w" * 6000
"""Three of them fill a file of the log."""


class Striker:
    """Brings faults to where they are wanted."""

    def __init__(self, group: BrokerGroup, client: GroupClient, phase: Phase) -> None:
        self.group = group
        self.client = client
        self.phase = phase
        self._world = group.world
        self._is_near = asyncio.Event()
        """May the group come to the phase any moment?"""
        self._ways: dict[Phase, Callable[[], Awaitable[None]]] = {
            Phase.ELECTION: self._elect,
            Phase.STEADY: self._rest,
            Phase.CATCH_UP: self._leave_behind,
            Phase.MEMBERS: self._change_members,
            Phase.HAND_OVER: self._hand_over,
        }

    async def strike(self, fault: Fault, role: Role) -> None:
        """Have the fault hit a node that has the role in the phase, and heal all."""
        for _ in range(TRIES):
            before = CELLS[Cell(fault, role, self.phase)]
            self._is_near.clear()
            way = asyncio.ensure_future(self._ways[self.phase]())
            near = asyncio.ensure_future(self._is_near.wait())
            await asyncio.wait((near, way), return_when=asyncio.FIRST_COMPLETED)
            near.cancel()
            assert self._is_near.is_set(), f"the group does not come to {self.phase.value}: {way}"
            host = await self._found(role)
            if host is not None:
                await self.hit(fault, host)
            await self.heal(way)
            if CELLS[Cell(fault, role, self.phase)] > before:
                return
        raise AssertionError(f"no {role.value} at {self.phase.value} within {TRIES} tries")

    async def _found(self, role: Role) -> str | None:
        end_s = self._world.loop.time() + WAIT_S
        while self._world.loop.time() < end_s:
            if self.group.phase() is self.phase:
                for host in HOSTS:
                    if self.group.role(host) is role:
                        return host
            await asyncio.sleep(LOOK_S)
        return None

    async def hit(self, fault: Fault, host: str) -> None:
        group, length_s = self.group, self._world.random.uniform(0.5, 2.5)
        match fault:
            case Fault.KILL | Fault.POWER_CUT:
                group.crash(host, power_cut=fault is Fault.POWER_CUT)
            case Fault.CUT_OFF:
                group.cut_off(host)
            case Fault.HUNG_DISK:
                group.hang_disk(host, length_s)
            case Fault.CLOCK_AHEAD:
                group.set_clock(host, 10_000)
        await asyncio.sleep(length_s)

    async def heal(self, way: asyncio.Future[None] | None = None) -> None:
        """Everybody is up, in the group, and level; `way`: by which it came to the phase."""
        group, world = self.group, self._world
        world.network.heal()
        for host in HOSTS:
            group.set_clock(host, 0)
            group.boot(host)
        if way is not None:  # What it ordered may have gone with who was to do it.
            await asyncio.gather(way, return_exceptions=True)
        await group.leader()
        for peer in PEERS:
            await group.order("ADD", peer)
        await world.until("all have the same log", group.is_level, within_s=60)
        assert not group.ends
        await self.sent()

    async def end(self, answers_min: int) -> None:
        """All three hold the same, and what was promised, but for what retention took."""
        group = self.group
        await self._world.until("all have the same log", group.is_level, within_s=60)
        if self.phase is Phase.CATCH_UP:
            self.client.acknowledged = self.client.acknowledged[-1:]
        check(group, self.client, answers_min=answers_min)

    async def sent(self) -> None:
        """A message, acknowledged; connections of before a fault are found to be dead."""
        while True:
            self.client.ask_only(await self.group.leader())
            with suppress(TidemarkError):
                await self.client.do(self.client.send())
                return

    # ---- phases -----------------------------------------------------------------------------

    async def _rest(self) -> None:
        self._is_near.set()

    async def _elect(self) -> None:
        self._is_near.set()
        self.group.crash(await self.group.leader(), power_cut=False)

    async def _hand_over(self) -> None:
        self._is_near.set()
        await self.group.order("TRANSFER", "")

    async def _change_members(self) -> None:
        leader = await self.group.leader()
        peer = next(PEERS[HOSTS.index(host)] for host in HOSTS if host != leader)
        await self.group.order("REMOVE", peer)
        self._is_near.set()
        await self.group.order("ADD", peer)

    async def _leave_behind(self) -> None:
        """One comes back when the others' logs have no more what it lacks."""
        group, leader = self.group, await self.group.leader()
        late = next(host for host in HOSTS if host != leader)
        group.cut_off(late)
        begin = group.brokers[leader].state.store.physical_max
        for _ in range(8):
            await self.client.do(self.client.put_into(TOPIC, WIDE + b"%d" % self.client.answers))
        await self.client.do(self.client.report(self.client.committed + 1))
        others = [host for host in HOSTS if host != late]
        for host in others:
            await self._forget_below(begin, host)
        await asyncio.sleep(6)  # Their groups hear of it.
        self._is_near.set()
        self._world.network.heal()

    async def _forget_below(self, begin: int, host: str) -> None:
        """Retention takes what is old, once the tables, which have changed, are saved."""
        state = self.group.brokers[host].state
        end_s = self._world.loop.time() + 30
        while state.store.physical_min <= begin:
            assert self._world.loop.time() < end_s, f"{host} deletes nothing"
            await asyncio.sleep(1)
            work = state.store.retention.run(state.clock.wall_ms(), by_hand=True)
            await self._world.node(host).run(work)


def story(phase: Phase) -> Callable[[World], Awaitable[None]]:
    async def play(world: World) -> None:
        group = BrokerGroup(world)
        await group.start()
        client = GroupClient(group)
        await client.start()
        striker = Striker(group, client, phase)
        await striker.heal()
        for role in ROLES[phase]:
            for fault in Fault:
                await striker.strike(fault, role)
        await striker.end(answers_min=len(Fault))

    return play


def founding(fault: Fault) -> Callable[[World], Awaitable[None]]:
    async def play(world: World) -> None:
        group = BrokerGroup(world)
        await group.start(first=HOSTS[:2])
        client = GroupClient(group)
        await client.start()
        striker = Striker(group, client, Phase.FOUNDING)
        await asyncio.sleep(world.random.uniform(0.3, 2))
        host = world.random.choice(HOSTS[:2])
        group.boot(HOSTS[2])
        await asyncio.sleep(world.random.uniform(0, 0.02))
        await striker.hit(fault, host)
        await striker.heal()
        await striker.end(answers_min=1)

    return play


@pytest.mark.parametrize("phase", list(Phase), ids=lambda phase: phase.name)
@seeded(1)
def test_every_fault_hits_every_role(seed: int, phase: Phase) -> None:
    before = Counter(CELLS)
    for play in map(founding, Fault) if phase is Phase.FOUNDING else (story(phase),):
        run_world(seed, play)
    met = CELLS - before
    missing = [f"{fault.value} of a {role.value}" for fault, role, _ in unmet(met, [phase])]
    assert not missing, f"at {phase.value} nothing was hit by {', '.join(missing)}"


def test_a_cell_is_demanded_or_somebody_says_why_not() -> None:
    for phase in Phase:
        for role in Role:
            assert (role in ROLES[phase]) is not bool(why_not(phase, role)), (phase, role)
    assert all(phase in Phase for phase, _ in ELSEWHERE)


def test_the_table_shows_what_was_not_met() -> None:
    cells = Counter(dict.fromkeys(MUST, 2))
    assert not unmet(cells)
    assert "!" not in table(cells)
    del cells[Cell(Fault.KILL, Role.LEADER, Phase.STEADY)]
    assert unmet(cells) == [Cell(Fault.KILL, Role.LEADER, Phase.STEADY)]
    row = next(
        one for one in table(cells).splitlines() if one.startswith("steady") and "leader" in one
    )
    assert row.split() == ["steady", "leader", "!", "2", "2", "2", "2"]
