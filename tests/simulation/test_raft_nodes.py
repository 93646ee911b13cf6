"""Row C11: three message stores replicate one log, through kills, power cuts and partitions.

What was acknowledged is in the log of whoever leads at the end, in order, and the logs are the same
byte for byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress

from tests.seeds import seeded
from tests.simulation.raft_nodes import ReplicatedStore, StoreLog
from tests.simulation.world import World, run_world
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
        """A kill, a power cut or a partition, of anybody or of the leader."""
        choice = self.world.random
        leaders = self.leaders()
        host = leaders[0].host if leaders and choice.random() < 0.6 else choice.choice(HOSTS)
        if choice.random() < 0.35:
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
    logs = [StoreLog(store).read(0, store.physical_max) for store in stores]
    assert logs[0] == logs[1] == logs[2]
    found = [int(message.properties["UNIQ_KEY"]) for message in messages_of(stores[0])]
    assert len(set(found)) == len(found)
    acknowledged = [number for each in cluster.stores.values() for number in each.acknowledged]
    assert len(acknowledged) > 20
    missing = sorted(set(acknowledged) - set(found))
    assert not missing, f"acknowledged and lost: {missing}"
    assert found == sorted(found)


@seeded(4)
def test_three_stores_keep_what_they_acknowledged(seed: int) -> None:
    run_world(seed, story)
