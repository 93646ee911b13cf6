"""Row C5: over days of virtual time, old files go at the set hour, and never too early."""

from __future__ import annotations

import asyncio

from engine.foundation.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from engine.runtime import Runtime
from engine.store import MessageStore
from tests.simulation.world import World, run_world
from tests.store_support import Listener, draft, small_config

HOST = "10.0.0.1"
ROUND_MS = 10 * MINUTE_MS


async def watch_days(world: World, days: int) -> tuple[list[tuple[float, int]], list[int]]:
    """Fill some files at the start, then look each ten minutes: when did the log's start move?

    Returns (hours since the fill, hour of the day) of each move, and the files' ends.
    """
    moves: list[tuple[float, int]] = []
    ends: list[int] = []

    async def live(runtime: Runtime) -> None:
        config = small_config(
            "/store",
            clean_resource_interval_ms=MINUTE_MS,
            flush_interval_commit_log_ms=MINUTE_MS,
            flush_interval_consume_queue_ms=MINUTE_MS,
        )
        store = await MessageStore.open(runtime, config, Listener())
        store.start()
        filled_ms = runtime.clock.now_ms()
        for number in range(30):
            ends.append(store.put(draft(b"%d" % number + bytes(500))).end_offset)
            await asyncio.sleep(0)
        minimum = 0
        while runtime.clock.now_ms() < filled_ms + days * DAY_MS:
            await asyncio.sleep(ROUND_MS / SECOND_MS)
            now_ms = runtime.clock.now_ms()
            if store.physical_min > minimum:
                minimum = store.physical_min
                moves.append(((now_ms - filled_ms) / HOUR_MS, now_ms % DAY_MS // HOUR_MS))
                assert store.min_offset("TopicA", 0) > 0
        await store.close()

    await world.node(HOST).boot(live)
    world.node(HOST).end()
    return moves, ends


def test_aged_files_go_at_four_o_clock_after_72_hours_and_the_newest_stays() -> None:
    found: list[tuple[list[tuple[float, int]], list[int]]] = []

    async def scenario(world: World) -> None:
        found.append(await watch_days(world, 5))

    world = run_world(7, scenario)
    assert not world.failures, world.failures
    ((moves, ends),) = found
    assert len(moves) == 1, "all that were old enough went in one round of one night"
    age_hours, hour = moves[0]
    assert 72 <= age_hours <= 72 + 24 + 1
    assert hour == 4
    assert ends[-1] > 4096 * 3, "there were several files"


def test_files_are_as_old_as_they_are_after_a_clock_ten_days_ahead_was_set_right() -> None:
    async def scenario(world: World) -> None:
        node = world.node(HOST)
        node.set_by_ms = 10 * DAY_MS

        async def live(runtime: Runtime) -> None:
            config = small_config(
                "/store",
                clean_resource_interval_ms=MINUTE_MS,
                flush_interval_commit_log_ms=MINUTE_MS,
                flush_interval_consume_queue_ms=MINUTE_MS,
            )
            store = await MessageStore.open(runtime, config, Listener())
            store.start()
            store.put(draft(b"by the wrong time"))
            node.set_by_ms = 0
            for number in range(30):
                store.put(draft(b"%d" % number + bytes(500)))
                await asyncio.sleep(0)
            await asyncio.sleep(2 * DAY_MS / SECOND_MS)
            assert store.physical_min == 0, "two days old, whatever the stamps say"
            await asyncio.sleep(2 * DAY_MS / SECOND_MS)
            assert store.physical_min > 0, "and not kept for ever"
            await store.close()

        await node.boot(live)
        node.end()

    world = run_world(7, scenario)
    assert not world.failures, world.failures
