"""Rows A4, C4, C7: nothing acknowledged is lost under set clocks and slow syncs.

Somebody sets the hosts' clocks forward and back by hours, and a sync takes the broker's disk
hundreds of milliseconds: all is consumed, store times never go back, and a slow disk refuses
nobody.
"""

from __future__ import annotations

import asyncio
from itertools import count

from engine.foundation.errors import TidemarkError
from engine.foundation.units import DAY_MS, HOUR_MS
from engine.protocol.message import Message
from engine.protocol.message_record import decode_records
from tests.seeds import seeded
from tests.simulation.cluster import BROKER, CONSUMERS, PRODUCER, QUEUES, TOPIC, SimCluster
from tests.simulation.test_a_cluster_under_faults import (
    TROUBLE_S,
    crash_and_restart,
    keep_watch,
    play,
)
from tests.simulation.world import World, run_world

STEPS_MS = (HOUR_MS, -HOUR_MS, DAY_MS, -DAY_MS, 300, -300)
SLOW_S = 0.5
"""The slowest sync. A send waits for the one under way, perhaps for a file that is made ahead, and
for its own; producers here are patient for 2 s.
"""


async def make_trouble(cluster: SimCluster) -> None:
    """Clocks are set, the disk is slow for a while; now and then the broker dies meanwhile, and
    lives on by the new time.
    """
    world = cluster.world
    end_s = world.loop.time() + TROUBLE_S
    while world.loop.time() < end_s:
        await asyncio.sleep(world.random.uniform(0.2, 2.0))
        host = world.random.choice((BROKER, BROKER, PRODUCER, *CONSUMERS))
        match world.random.choice(("clock", "clock", "slow disk", "kill", "power cut")):
            case "clock":
                cluster.node(host).set_by_ms += world.random.choice(STEPS_MS)
            case "slow disk":
                cluster.node(BROKER).disk.slow_s = world.random.uniform(0.2, SLOW_S)
                await asyncio.sleep(world.random.uniform(1.0, 5.0))
                cluster.node(BROKER).disk.slow_s = 0.0
            case "kill":
                await crash_and_restart(cluster, BROKER, power_cut=False)
            case "power cut":
                await crash_and_restart(cluster, BROKER, power_cut=True)


def store_times_in_log_order(cluster: SimCluster) -> list[int]:
    """Store times of the topic's messages, in the order in which the log holds them."""
    assert cluster.broker is not None
    store = cluster.broker.state.store
    found: list[tuple[int, int]] = []
    for queue_id in range(QUEUES):
        offset = store.min_offset(TOPIC, queue_id)
        while offset < store.max_offset(TOPIC, queue_id):
            got = store.get(TOPIC, queue_id, offset, max_count=32, max_bytes=1 << 20)
            found += [
                (message.physical_offset, message.store_timestamp_ms)
                for message in decode_records(got.body())
            ]
            offset = got.next_begin_offset
    return [time_ms for _, time_ms in sorted(found)]


async def set_clocks(world: World) -> None:
    cluster = SimCluster(world)
    await cluster.start()
    async with asyncio.TaskGroup() as group:
        watch = group.create_task(keep_watch(cluster))
        await play(cluster, make_trouble)
        watch.cancel()
    assert cluster.history.acked
    times = store_times_in_log_order(cluster)
    assert times == sorted(times), "a message is older than the one before it"


@seeded(12)
def test_nothing_is_lost_and_time_never_goes_back_while_clocks_are_set(seed: int) -> None:
    run_world(seed, set_clocks)


LEVELS_MS = (1000, 5000, 10_000)
LATE_MS = 2500
"""A tick, the grain of what is known of store times, and the syncs in between."""


async def delay_over_steps(world: World) -> None:
    """Delayed messages while the broker's clock is set by an hour, back and forth, and the broker
    restarts meanwhile: each waits as long as its level says by the true time.
    """
    cluster = SimCluster(world)
    await cluster.start()
    await cluster.send(0)  # Makes the topic.
    due_s: dict[bytes, float] = {}
    came_s: dict[bytes, float] = {}

    async def look() -> None:
        while True:
            await asyncio.sleep(0.1)
            if cluster.broker is not None:
                for body in cluster.stored().values():
                    came_s.setdefault(body, world.loop.time())

    async def send_delayed(number: int) -> None:
        level = world.random.randint(1, len(LEVELS_MS))
        assert cluster.producer is not None
        body, asked_s = b"", 0.0
        for attempt in count():  # A connection that a power cut left open takes a while to end.
            body, asked_s = b"level %d, %d.%d" % (level, number, attempt), world.loop.time()
            message = Message(TOPIC, body, {"DELAY": str(level)})
            try:
                await cluster.node(PRODUCER).run(cluster.producer.send(message, timeout_ms=2_000))
                break
            except TidemarkError:
                continue
        due_s[body] = asked_s + LEVELS_MS[level - 1] / 1000

    looking = asyncio.ensure_future(look())
    restarted_s = 0.0
    for number in range(60):
        if number == 30:
            await asyncio.sleep(1)  # The last step is on disk by then.
            cluster.crash(BROKER, power_cut=world.random.random() < 0.5)
            await asyncio.sleep(0.5)
            await cluster.restart(BROKER)
            restarted_s = world.loop.time()
            await asyncio.sleep(4)
        if world.random.random() < 0.4 and number not in (29, 30):
            cluster.node(BROKER).set_by_ms += world.random.choice((HOUR_MS, -HOUR_MS))
        await send_delayed(number)
        await asyncio.sleep(world.random.uniform(0.05, 0.6))
    await world.until("all came", lambda: set(due_s) <= set(came_s), within_s=30)
    looking.cancel()
    for body, due in due_s.items():
        late_ms = (came_s[body] - due) * 1000
        assert late_ms >= -150, f"{body!r} was early by {-late_ms} ms"
        over_restart = restarted_s > 0 and due - max(LEVELS_MS) / 1000 < restarted_s < came_s[body]
        allowed_ms = LATE_MS + (max(LEVELS_MS) if over_restart else 0)
        assert late_ms <= allowed_ms, f"{body!r} was late by {late_ms} ms"
    reported = cluster.reported("CLOCK_STEPPED")
    assert any("forward" in detail for detail in reported)
    assert any("back" in detail for detail in reported)


@seeded(6)
def test_delayed_messages_wait_by_the_true_time_while_the_clock_is_set(seed: int) -> None:
    run_world(seed, delay_over_steps)


async def sync_slowly(world: World) -> None:
    cluster = SimCluster(world)
    await cluster.start()
    await cluster.send(0)  # Makes the topic.
    assert len(cluster.history.acked) == 1
    cluster.node(BROKER).disk.slow_s = SLOW_S
    send_count = 200
    began_s = world.loop.time()
    await asyncio.gather(*(cluster.send(number) for number in range(1, send_count)))
    assert len(cluster.history.acked) == send_count, "every send is answered as safe"
    took_s = world.loop.time() - began_s
    assert took_s < 4 * SLOW_S, "one sync serves all who wait for it"
    await world.until("all consumed", lambda: not cluster.history.unseen(), within_s=30)
    for host in CONSUMERS:
        assert host in [owner for owner, queues in cluster.owners() if queues], "nobody is expired"


@seeded(3)
def test_a_slow_disk_makes_sends_wait_together_and_refuses_nobody(seed: int) -> None:
    run_world(seed, sync_slowly)
