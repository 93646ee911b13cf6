"""A recreated topic is a new life, whatever its clients remember of the last one.

Four groups read a topic, ours and stubborn ones, while it is deleted and made again, groups lose
their offsets, queues are taken away and given back, the broker stops, dies, or finds its store
emptied, members come, go and die, and the network between a member and the broker is cut. After
each of these all is healed, and within QUIET_S every group must have processed every acknowledged
message of the present life.

Run one seed by `make sim SEED=1234`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.seeds import seeded
from tests.simulation.cluster import BROKER
from tests.simulation.lives_cluster import GROUP_OF, GROUPS, HOSTS, QUEUES, LivesCluster
from tests.simulation.world import World, run_world

SPELLS = 2
TROUBLES = 5
QUIET_S = 120.0
"""The longest ways: a lock of a dead member runs out after 60 s, then a rebalance comes within 20 s
and a pull; a 4.x client waits 3 s, 10 s and for a rebalance until it begins a new life.
"""


async def scenario(world: World) -> None:
    """Trouble, then quiet, twice; the laws at the end of each."""
    cluster = LivesCluster(world)
    world.trace_event("plays", "", cluster.described().encode())
    await cluster.start()
    watch = asyncio.ensure_future(cluster.watch_progress())
    await asyncio.sleep(world.random.uniform(0.0, 40.0))
    await cluster.make_topic()
    for spell in range(1, SPELLS + 1):
        await trouble(cluster)
        await settle(cluster, spell)
    watch.cancel()
    try:
        cluster.ledger.check()
    except AssertionError as error:
        raise AssertionError(f"{cluster.described()}\n{error}") from None


async def trouble(cluster: LivesCluster) -> None:
    """One thing after the other befalls the cluster, under a producer that goes on."""
    chance = cluster.world.random
    befalls: dict[str, Callable[[LivesCluster], Awaitable[None]]] = {
        "made again": makes_it_again,
        "group deleted": deletes_a_group,
        "queues taken": takes_queues_for_a_while,
        "broker restarted": restarts_the_broker,
        "store emptied": empties_the_store,
        "member replaced": replaces_a_member,
        "member cut off": cuts_a_member_off,
    }
    ended = asyncio.Event()
    sending = asyncio.ensure_future(send_in_bursts(cluster, ended))
    names = [*befalls, "made again", "made again", "member replaced", "member cut off"]
    for _ in range(TROUBLES):
        await asyncio.sleep(chance.choice((0.2, 2.0, 6.0, 25.0)))
        name = chance.choice(names)
        cluster.ledger.note(name)
        await befalls[name](cluster)
    ended.set()
    await sending


async def settle(cluster: LivesCluster, spell: int) -> None:
    """All is whole again; a little is sent, and then it is quiet."""
    cluster.world.network.heal()
    for host in GROUP_OF:
        if not cluster.node(host).up:
            await cluster.start_member(host)
    if cluster.ledger.present is None:
        await cluster.make_topic()
    await cluster.send_many(cluster.world.random.choice((0, 1, 5, 30)))
    await asyncio.sleep(QUIET_S)
    for group, bodies in cluster.ledger.missing().items():
        count = len(cluster.ledger.lives[-1].bound)
        how = f"spell {spell}, {group}: {len(bodies)} of {count}, from {bodies[0]!r} on"
        cluster.ledger.break_law("a group misses messages", how)
    cluster.look_at_commits()


async def send_in_bursts(cluster: LivesCluster, ended: asyncio.Event) -> None:
    """Nothing for a while, or many at once."""
    chance = cluster.world.random
    while not ended.is_set():
        await cluster.send_many(chance.choice((1, 1, 3, 20)))
        await asyncio.sleep(chance.choice((0.1, 1.0, 5.0, 15.0)))


async def makes_it_again(cluster: LivesCluster) -> None:
    """At once, or long after; with a burst behind it or without. Sometimes a group was sent to the
    end of the earlier life before.
    """
    chance = cluster.world.random
    if cluster.ledger.present is not None:
        group = chance.choice((*GROUPS, *[None] * 8))
        if group is not None:
            cluster.ledger.end()
            await cluster.reset_to_the_end(group)
        await cluster.delete_topic()
        await asyncio.sleep(chance.choice((0.0, 0.0, 0.5, 4.0, 40.0)))
    await cluster.make_topic()
    await cluster.send_many(chance.choice((0, 0, 2, 10, 40)))


async def deletes_a_group(cluster: LivesCluster) -> None:
    await cluster.delete_group(cluster.world.random.choice(GROUPS))


async def takes_queues_for_a_while(cluster: LivesCluster) -> None:
    if cluster.ledger.present is None:
        return
    await cluster.take_queues(1)
    await asyncio.sleep(cluster.world.random.choice((0.0, 3.0, 40.0)))
    await cluster.take_queues(QUEUES)


async def restarts_the_broker(cluster: LivesCluster) -> None:
    if cluster.world.random.random() < 0.5:
        await cluster.stop_broker()
    else:
        cluster.crash(BROKER, power_cut=False)
    await asyncio.sleep(cluster.world.random.choice((0.1, 2.0, 20.0)))
    await cluster.start_broker()


async def empties_the_store(cluster: LivesCluster) -> None:
    chance = cluster.world.random
    await cluster.empty_store(keeps_settings=chance.random() < 0.3)
    if cluster.ledger.present is None:
        await asyncio.sleep(chance.choice((0.0, 2.0, 20.0)))
        await cluster.make_topic()
    await cluster.send_many(chance.choice((0, 2, 10, 40)))


async def replaces_a_member(cluster: LivesCluster) -> None:
    """One of two: the other goes on, so the group is never without a member."""
    chance = cluster.world.random
    host = chance.choice(HOSTS[chance.choice(GROUPS)])
    if chance.random() < 0.4:
        await cluster.stop_member(host)
    else:
        cluster.kill_member(host, power_cut=chance.random() < 0.3)
    await asyncio.sleep(chance.choice((0.0, 2.0, 30.0)))
    await cluster.start_member(host)


async def cuts_a_member_off(cluster: LivesCluster) -> None:
    """It is back by itself, while other things happen; all others are as well then."""
    chance, network = cluster.world.random, cluster.world.network
    network.partition(BROKER, chance.choice(tuple(GROUP_OF)))
    cluster.world.loop.call_later(chance.choice((1.0, 10.0, 40.0)), network.heal)


@seeded(4)
def test_every_group_gets_all_of_the_present_life(seed: int) -> None:
    run_world(seed, scenario)
