"""A whole cluster on virtual time: faults drawn by seed, laws held throughout.

Run one seed by `make sim SEED=1234`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.seeds import seeded
from tests.simulation.cluster import BROKER, CONSUMERS, PRODUCER, QUEUES, TOPIC, SimCluster
from tests.simulation.history import (
    check_boots_raise_only_what_had_been_lowered,
    check_nothing_acknowledged_is_lost,
    check_offset_passes_nothing_unfinished,
    check_one_owner_per_queue,
    check_order_per_queue,
)
from tests.simulation.world import World, run_world

TROUBLE_S = 20.0
"""Virtual seconds in which faults are drawn; afterwards everything is healed."""
SETTLE_S = 90.0
"""Virtual seconds within which a healed cluster must have consumed everything."""
QUIET_S = 40.0
"""Virtual seconds after which things have settled: a connection cut by a partition is given up
after 15 s, heartbeats come each 2 s, queues are shared anew each 3 s."""


async def scenario(world: World) -> None:
    """Send through trouble, heal, settle; hold the laws at every step and at the end."""
    cluster = SimCluster(world)
    await cluster.start()
    async with asyncio.TaskGroup() as group:  # A law broken in the watch ends the run at once.
        watch = group.create_task(keep_watch(cluster))
        await play(cluster)
        watch.cancel()
    assert cluster.history.acked, "a run in which nothing was acknowledged proves nothing"


async def play(
    cluster: SimCluster, trouble: Callable[[SimCluster], Awaitable[None]] | None = None
) -> None:
    """The run itself, with faults of `make_trouble` or others, and the laws that hold at its
    end.
    """
    world = cluster.world
    sending = asyncio.ensure_future(send_through_trouble(cluster))
    await (trouble or make_trouble)(cluster)
    await heal(cluster)
    await sending
    await world.until("all consumed", lambda: not cluster.history.unseen(), within_s=SETTLE_S)
    queues = [(TOPIC, queue_id) for queue_id in range(QUEUES)]
    await world.until(
        "offsets at the end",
        lambda: sum(cluster.committed().values()) >= len(cluster.stored()),
        within_s=SETTLE_S,
    )
    await asyncio.sleep(QUIET_S)
    check_one_owner_per_queue(cluster.owners(), queues)
    stored = cluster.stored()
    check_nothing_acknowledged_is_lost(cluster.history, stored)
    check_order_per_queue(cluster.history, stored)
    check_boots_raise_only_what_had_been_lowered(cluster.reported_offsets())


async def keep_watch(cluster: SimCluster) -> None:
    """The law of the consume offset, ten times a virtual second."""
    while True:
        await asyncio.sleep(0.1)
        for queue_id, committed in cluster.committed().items():
            check_offset_passes_nothing_unfinished(cluster.history, (TOPIC, queue_id), committed)


async def send_through_trouble(cluster: SimCluster) -> None:
    """One message after the other, about ten a second."""
    number, end_s = 0, cluster.world.loop.time() + TROUBLE_S
    while cluster.world.loop.time() < end_s:
        await cluster.send(number)
        number += 1
        await asyncio.sleep(cluster.world.random.uniform(0.01, 0.2))


async def make_trouble(cluster: SimCluster) -> None:
    """A fault every few seconds, each repaired before the next one."""
    world = cluster.world
    world.network.loss_percent = world.random.choice((0, 1, 10))
    end_s = world.loop.time() + TROUBLE_S
    while world.loop.time() < end_s:
        await asyncio.sleep(world.random.uniform(0.5, 4.0))
        match world.random.choice(("kill broker", "power cut", "kill consumer", "partition")):
            case "kill broker":
                await crash_and_restart(cluster, BROKER, power_cut=False)
            case "power cut":
                await crash_and_restart(cluster, BROKER, power_cut=True)
            case "kill consumer":
                await crash_and_restart(cluster, world.random.choice(CONSUMERS), power_cut=False)
            case "partition":
                world.network.partition(BROKER, world.random.choice((PRODUCER, *CONSUMERS)))
                await asyncio.sleep(world.random.uniform(0.5, 5.0))
                world.network.heal()


async def crash_and_restart(cluster: SimCluster, host: str, *, power_cut: bool) -> None:
    """Down, a moment of darkness, up again."""
    cluster.crash(host, power_cut=power_cut)
    await asyncio.sleep(cluster.world.random.uniform(0.1, 3.0))
    await cluster.restart(host)


async def heal(cluster: SimCluster) -> None:
    """No more faults."""
    cluster.world.network.loss_percent = 0
    cluster.world.network.heal()


@seeded(25)
def test_nothing_acknowledged_is_lost_and_no_offset_passes_unfinished_work(seed: int) -> None:
    run_world(seed, scenario)


def test_the_same_seed_is_the_same_run() -> None:
    assert run_world(3, scenario).trace == run_world(3, scenario).trace
