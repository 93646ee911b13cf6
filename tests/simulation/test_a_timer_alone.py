"""Row E3: a wheel in which next to nothing waits sleeps, in virtual time."""

from __future__ import annotations

import asyncio

from engine.delay import DelayService, TimeWheel
from engine.delay.wheel.timer_records import parked
from engine.runtime import Runtime
from engine.store import MessageStore
from engine.store.table_file import TableFile
from tests.simulation.world import World, run_world
from tests.store_support import Listener, bodies_of, draft, small_config

WAKE_UPS_MAX = 5
AFTER_MS = 500_000


def test_a_lone_message_in_500_s_causes_five_wake_ups_at_most() -> None:
    wake_ups = 0

    async def story(world: World) -> None:
        async def start(runtime: Runtime) -> None:
            nonlocal wake_ups
            listener = Listener()
            store = await MessageStore.open(runtime, small_config("/store"), listener)
            wheel = TimeWheel(
                runtime,
                store,
                folder="/store/delaylog",
                snapshot=TableFile(runtime, "/store/config/timerWheel.json", store.store_id),
                rocketmq_path="/store/config/timercheck",
                observer=listener,
            )
            await wheel.follow_log()
            store.start()
            service = DelayService(
                store, wheel, observer=listener, make_dead_letter_topic=lambda _: None
            )
            due_ms = runtime.clock.now_ms() + AFTER_MS
            store.put(parked(draft(b"alone"), due_ms))
            delivering = asyncio.create_task(service.run())
            sleep = wheel.wait

            async def counted() -> None:
                nonlocal wake_ups
                await sleep()
                wake_ups += 1

            wheel.wait = counted  # type: ignore[method-assign]
            await asyncio.sleep((AFTER_MS + 5_000) / 1000)
            assert bodies_of(store) == [b"alone"]
            delivering.cancel()
            await store.close()

        await world.node("10.0.0.1").boot(start)

    run_world(0, story)
    assert 1 <= wake_ups <= WAKE_UPS_MAX
