"""A reader of the facts in their order knows the state of the broker, after any fault.

Faults are kills, power cuts and full disks; topics and groups are deleted and made again, and
nothing is emitted about what stands still.
"""

from __future__ import annotations

import asyncio

from engine.broker.removing.deletion import Deletions
from engine.broker.state import BrokerState
from engine.protocol.bodies import TopicConfig
from tests.seeds import seeded
from tests.simulation.cluster import BROKER, SimCluster
from tests.simulation.emitted_state import ToldState, emitted_state
from tests.simulation.test_a_cluster_under_faults import crash_and_restart, play
from tests.simulation.world import World, run_world

SETTINGS = {"full_sample_interval_ms": 20_000}
TOLD_S = 4.0
"""Virtual seconds in which what has moved is emitted."""


def parts_of(cluster: SimCluster) -> BrokerState:
    assert cluster.broker is not None, "it is up"
    return cluster.broker.state


def deletions_of(cluster: SimCluster) -> Deletions:
    assert cluster.broker is not None, "it is up"
    return cluster.broker.services.deletions


def emitted_of(cluster: SimCluster) -> ToldState:
    return emitted_state(cluster.node(BROKER).runtime.disk, "/store/spool")


def check_emitted_is_what_is(cluster: SimCluster) -> None:
    """Every key, no other, and its marks."""
    emitted, state = emitted_of(cluster), parts_of(cluster)
    assert emitted.unknown_since is None, "a snapshot has ended since the last boot or loss"
    assert {key: ends for key, (_, ends) in emitted.queues.items()} == {
        key: state.store.max_offset(*key) for key in state.store.queues()
    }
    known = {
        (group, topic, queue_id)
        for topic, group in state.offsets.pairs()
        for queue_id in state.offsets.queues(group, topic)
    }
    known |= {key for key in emitted.pairs if key in state.readers}
    assert {key: marks[1:] for key, marks in emitted.pairs.items()} == {
        key: (
            state.offsets.committed(*key),
            None if (reading := state.readers.of(key)) is None else reading.pulled_offset,
            state.store.max_offset(*key[1:]),
        )
        for key in known
    }


async def through_faults(world: World) -> None:
    cluster = SimCluster(world, **SETTINGS)
    await cluster.start()
    await play(cluster)
    await asyncio.sleep(TOLD_S)
    check_emitted_is_what_is(cluster)
    assert emitted_of(cluster).snapshots >= 2


@seeded(8)
def test_a_reader_knows_what_the_broker_knows_after_all_kinds_of_faults(seed: int) -> None:
    run_world(seed, through_faults)


async def deleting(world: World) -> None:
    """Topics and groups come, are deleted, and come again; some of it over kills."""
    cluster = SimCluster(world, **SETTINGS)
    await cluster.start()
    chance = world.random
    for _ in range(25):
        state = parts_of(cluster)
        topic, group = f"t{chance.randrange(3)}", f"g{chance.randrange(3)}"
        match chance.choice(("commit", "commit", "commit", "topic", "group", "settings", "kill")):
            case "commit":
                if state.topics.find(topic) is None:
                    state.topics.put(TopicConfig(topic, 2, 2))
                state.offsets.commit(group, topic, chance.randrange(2), 0, now_ms=1)
                state.offsets.commit(group, topic, 0, chance.randrange(9), now_ms=1)
            case "topic":
                await deletions_of(cluster).delete_topic(topic)
            case "group":
                await deletions_of(cluster).delete_group(group)
            case "settings":
                state.group_configs.find(group)
            case "kill":
                await asyncio.sleep(1)  # The last change is on disk by then.
                await crash_and_restart(cluster, BROKER, power_cut=chance.random() < 0.5)
        await asyncio.sleep(chance.choice((0, 0.3, 3)))
    await asyncio.sleep(TOLD_S)
    await world.until("it is known", lambda: emitted_of(cluster).unknown_since is None, within_s=30)
    check_emitted_is_what_is(cluster)


@seeded(12)
def test_what_was_deleted_is_not_believed_in_and_what_was_made_again_is(seed: int) -> None:
    run_world(seed, deleting)


async def over_a_full_disk(world: World) -> None:
    cluster = SimCluster(world, full_sample_interval_ms=3_600_000)
    await cluster.start()
    await cluster.send(0)
    await world.until("consumed", lambda: sum(cluster.committed().values()) == 1, within_s=30)
    await asyncio.sleep(TOLD_S)
    check_emitted_is_what_is(cluster)
    state, snapshots = parts_of(cluster), emitted_of(cluster).snapshots
    state.topics.put(TopicConfig("t", 1, 1))
    disk = cluster.node(BROKER).disk
    disk.free_bytes = 3
    for offset in range(5):
        state.offsets.commit("g", "t", 0, offset, now_ms=1)
        await asyncio.sleep(1)
    disk.free_bytes = None
    await asyncio.sleep(TOLD_S)
    emitted = emitted_of(cluster)
    assert emitted.snapshots == snapshots + 1, "one more begins at once, though an hour is not over"
    check_emitted_is_what_is(cluster)


@seeded(3)
def test_after_lost_rows_a_snapshot_makes_the_reader_know_again(seed: int) -> None:
    run_world(seed, over_a_full_disk)
