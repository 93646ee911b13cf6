"""Row E3: a wheel in which next to nothing waits sleeps, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from engine.delay import DelayService, TimeWheel
from engine.delay.wheel.timer_records import parked
from engine.runtime import Runtime
from engine.store import MessageStore
from engine.store.table_file import TableFile
from tests.asynchronous import run_by
from tests.simulation.world import World, run_world
from tests.store_support import Listener, bodies_of, draft, small_config

WAKE_UPS_MAX = 5
AFTER_MS = 500_000


class CountedWheel(TimeWheel):
    """Knows how often it woke."""

    wake_ups = 0

    async def wait(self) -> None:
        await super().wait()
        self.wake_ups += 1


def on_a_node(play: Callable[[Runtime], Awaitable[None]]) -> None:
    async def scenario(world: World) -> None:
        await world.node("10.0.0.1").boot(play)

    run_world(0, scenario)


@run_by(on_a_node)
async def test_a_lone_message_in_500_s_causes_five_wake_ups_at_most(runtime: Runtime) -> None:
    listener = Listener()
    store = await MessageStore.open(runtime, small_config("/store"), listener)
    wheel = CountedWheel(
        runtime,
        store,
        folder="/store/delaylog",
        snapshot=TableFile(runtime, "/store/config/timerWheel.json", store.store_id),
        rocketmq_path="/store/config/timercheck",
        observer=listener,
    )
    await wheel.follow_log()
    store.start()
    service = DelayService(store, wheel, observer=listener, make_dead_letter_topic=lambda _: None)
    store.put(parked(draft(b"alone"), runtime.clock.now_ms() + AFTER_MS))
    delivering = asyncio.create_task(service.run())
    await asyncio.sleep((AFTER_MS + 5_000) / 1000)
    assert bodies_of(store) == [b"alone"]
    assert 1 <= wheel.wake_ups <= WAKE_UPS_MAX
    delivering.cancel()
    await store.close()
