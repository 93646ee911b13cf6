"""Row C11: three message stores replicate one log, through kills, power cuts and partitions.

What was acknowledged is in the log of whoever leads at the end, in order, and the logs are the same
byte for byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from engine.broker.replicating.raft_log import RaftLog
from engine.raft.events import ProposeMembers
from engine.raft.members import Members, node_id
from tests.seeds import seeded
from tests.simulation.raft_nodes import ReplicatedStore
from tests.simulation.world import World, run_world
from tests.simulation.world.disk import VirtualDisk
from tests.store_support import messages_of

HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
FAULTS = 6


class Cluster:
    """The three, and a client."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.stores = {host: ReplicatedStore(host, HOSTS) for host in HOSTS}
        self.next_number = 0

    def boot(self, host: str) -> None:
        node = self.world.node(host)
        store = self.stores[host]
        asyncio.get_running_loop().create_task(self._life(node.boot(store.live)))

    async def _life(self, life: Awaitable[None]) -> None:
        with suppress(asyncio.CancelledError):
            await life

    def leaders(self) -> list[ReplicatedStore]:
        return [
            store
            for store in self.stores.values()
            if self.world.node(store.host).up
            and store.node is not None
            and store.node.state.refusal() is None
        ]

    async def put_for_ever(self) -> None:
        while True:
            for store in self.leaders():
                for _ in range(self.world.random.randint(0, 4)):
                    if store.put(self.next_number):
                        self.next_number += 1
            await asyncio.sleep(self.world.random.uniform(0.001, 0.1))

    async def fault(self) -> None:
        """A kill, a power cut, a partition, a disk that hangs or is full; mostly the leader's."""
        choice = self.world.random
        leaders = self.leaders()
        host = leaders[0].host if leaders and choice.random() < 0.6 else choice.choice(HOSTS)
        kind, disk = choice.random(), self.world.node(host).disk
        if kind < 0.15:
            disk.still_until_s = asyncio.get_running_loop().time() + choice.uniform(0.5, 4)
            return
        if kind < 0.3:
            disk.free_bytes = choice.randint(0, 2000)
            await asyncio.sleep(choice.uniform(0.5, 4))
            disk.free_bytes = None
            return
        if kind < 0.55:
            for other in HOSTS:
                if other != host:
                    self.world.network.partition(host, other)
            await asyncio.sleep(choice.uniform(0.5, 5))
            self.world.network.heal()
            return
        self.world.node(host).crash(power_cut=choice.random() < 0.7)
        await asyncio.sleep(choice.uniform(0.1, 4))
        self.boot(host)

    def is_level(self) -> bool:
        leaders = self.leaders()
        nodes = [store.node for store in self.stores.values()]
        states = [node.state for node in nodes if node is not None]
        if len(leaders) != 1 or len(states) < len(HOSTS):
            return False
        assert leaders[0].node is not None
        last = leaders[0].node.state.log.last
        return all(
            state.log.last == last and state.visible == last.index and state.term == states[0].term
            for state in states
        )

    async def change_members(self, wanted: Callable[[Members], Members]) -> None:
        """Ask whoever leads, until it is so."""

        def is_done() -> bool:
            for store in self.leaders():
                assert store.node is not None
                state = store.node.state
                if state.members == wanted(state.members) and state.is_member_change_committed:
                    return True
                if state.is_member_change_committed:
                    store.node.happen(ProposeMembers(wanted(state.members)))
            return False

        await self.world.until("the members have changed", is_done, within_s=20)


async def lost_disk(world: World) -> None:
    """A host gets a new disk, and its log from where the leader's begins: as somebody else."""
    cluster = Cluster(world)
    for host in HOSTS:
        cluster.boot(host)
    await world.until("somebody leads", lambda: bool(cluster.leaders()), within_s=10)
    client = asyncio.get_running_loop().create_task(cluster.put_for_ever())
    await asyncio.sleep(8)
    host = world.random.choice(HOSTS)
    world.node(host).crash(power_cut=True)
    world.node(host).disk = VirtualDisk(world, host)
    lost = cluster.stores[host]
    lost.node = None
    await world.until("somebody leads again", lambda: bool(cluster.leaders()), within_s=20)
    for store in cluster.stores.values():
        if store.host != host:
            await world.node(store.host).run(store.forget_begin())
    cluster.boot(host)
    await world.until("it has started", lambda: lost.node is not None, within_s=5)
    assert lost.node is not None
    old, new = node_id(host, "0"), lost.node.state.node
    assert old != new
    await cluster.change_members(
        lambda members: Members(tuple(each for each in members.voters if each != old))
    )
    await cluster.change_members(
        lambda members: Members(members.voters, (new,)) if new not in members.all else members
    )
    await cluster.change_members(
        lambda members: Members((*(each for each in members.voters if each != new), new))
    )
    world.node(next(each for each in HOSTS if each != host)).crash(power_cut=True)
    await world.until("it votes", lambda: bool(cluster.leaders()), within_s=20)
    await asyncio.sleep(2)
    client.cancel()
    down = next(each for each in HOSTS if not world.node(each).up)
    cluster.boot(down)
    await world.until("all have the same log", cluster.is_level, within_s=20)
    await asyncio.sleep(0.5)
    assert lost.store.physical_min > 0, "it got no files"
    check(cluster)


async def story(world: World) -> None:
    cluster = Cluster(world)
    for host in HOSTS:
        cluster.boot(host)
    await world.until("somebody leads", lambda: bool(cluster.leaders()), within_s=10)
    client = asyncio.get_running_loop().create_task(cluster.put_for_ever())
    for _ in range(FAULTS):
        await asyncio.sleep(world.random.uniform(0.2, 4))
        await cluster.fault()
    await world.until("somebody leads again", lambda: bool(cluster.leaders()), within_s=20)
    await asyncio.sleep(1)
    client.cancel()
    await world.until("all have the same log", cluster.is_level, within_s=20)
    await asyncio.sleep(0.5)
    check(cluster)


def check(cluster: Cluster) -> None:
    """The same bytes everywhere; what was acknowledged is among them, in order, once."""
    stores = [each.store for each in cluster.stores.values()]
    begin = max(store.physical_min for store in stores)
    logs = [RaftLog(store).read(begin, store.physical_max) for store in stores]
    assert logs[0] == logs[1] == logs[2]
    found = [int(message.properties["UNIQ_KEY"]) for message in messages_of(stores[0])]
    assert len(set(found)) == len(found)
    acknowledged = [number for each in cluster.stores.values() for number in each.acknowledged]
    assert len(acknowledged) > 20
    missing = sorted(number for number in set(acknowledged) - set(found) if number >= found[0])
    assert not missing, f"acknowledged and lost: {missing}"
    assert found == sorted(found)


@seeded(3)
def test_three_stores_keep_what_they_acknowledged(seed: int) -> None:
    run_world(seed, story)


@seeded(1)
def test_a_host_that_lost_its_disk_comes_back_as_somebody_else(seed: int) -> None:
    run_world(seed, lost_disk)


async def full_disks(world: World) -> None:
    """Nobody can save a vote; when there is room, somebody leads."""
    cluster = Cluster(world)
    for host in HOSTS:
        cluster.boot(host)
    stores = cluster.stores.values()
    await world.until("all have started", lambda: all(each.node for each in stores), within_s=2)
    for host in HOSTS:
        world.node(host).disk.free_bytes = 0
    await asyncio.sleep(5)
    assert all(each.node is not None and not each.node.state.has_failed for each in stores)
    assert not cluster.leaders()
    for host in HOSTS:
        world.node(host).disk.free_bytes = None
    await world.until("somebody leads", lambda: bool(cluster.leaders()), within_s=10)


def test_a_group_whose_disks_were_full_elects_a_leader() -> None:
    run_world(1, full_disks)
