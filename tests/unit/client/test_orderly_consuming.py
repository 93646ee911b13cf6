"""Orderly listeners: one batch of a queue at a time, under a lock, in order also after failures.

Feature rows: B7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from engine.client.config import ConsumerConfig
from engine.client.connection.owned_tasks import OwnedTasks
from engine.client.consuming.listeners import ConsumeContext, ConsumeOrderlyStatus, ListenerAnswer
from engine.client.consuming.orderly_service import OrderlyService
from engine.client.consuming.process_queue import ProcessQueue
from engine.client.consuming.queue_locks import QueueLocks
from engine.protocol.message import MessageExt
from engine.runtime import Runtime
from tests.asynchronous import run_by
from tests.simulation.world import World
from tests.unit.client.consuming_parts import (
    Q0,
    Q1,
    Broker,
    group_state,
    in_virtual_time,
    window_of,
)
from tests.unit.client.messages import message_at

SUCCESS = ConsumeOrderlyStatus.SUCCESS
SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


class Consumer:
    """An orderly service with its locks and a listener of the test's."""

    def __init__(
        self,
        runtime: Runtime,
        listener: Callable[[Sequence[MessageExt], ConsumeContext], object],
        **settings: object,
    ) -> None:
        config = ConsumerConfig(orderly=True, **settings)  # type: ignore[arg-type]
        self.runtime = runtime
        self.broker = Broker()
        self.state = group_state(self.broker, listener, config)  # type: ignore[arg-type]
        self.tasks = OwnedTasks("test")
        self.locks = QueueLocks(self.state, runtime.clock, self.broker)
        self.given_up: list[int] = []
        self.service = OrderlyService(
            self.state,
            runtime.clock,
            self.tasks,
            lock_queue=self.locks.lock,
            give_up=self._give_up,
        )
        self.service.start()

    async def _give_up(self, message: MessageExt) -> bool:
        self.given_up.append(message.queue_offset)
        return True

    def pull(
        self, offsets: Sequence[int], queue: object = Q0, *, locked: bool = True
    ) -> ProcessQueue:
        assert queue in (Q0, Q1)
        window = window_of(self.state, queue, [message_at(offset) for offset in offsets])  # type: ignore[arg-type]
        window.locked = locked
        window.last_lock_ms = self.runtime.clock.steady_ms()
        self.service.submit(queue, window)  # type: ignore[arg-type]
        return window


@run_by(in_virtual_time)
async def test_a_queue_has_one_batch_at_work_and_keeps_its_order(
    world: World, runtime: Runtime
) -> None:
    at_work = 0
    seen: list[int] = []

    async def listener(messages: Sequence[MessageExt], _: ConsumeContext) -> ListenerAnswer:
        nonlocal at_work
        at_work += 1
        assert at_work == 1
        await asyncio.sleep(0.5)
        seen.extend(m.queue_offset for m in messages)
        at_work -= 1
        return SUCCESS

    consumer = Consumer(runtime, listener, consume_batch_max=2)
    window = consumer.pull(range(5))
    await world.until("all consumed", lambda: window.count == 0, within_s=10)
    assert seen == [0, 1, 2, 3, 4]
    assert consumer.state.offsets.in_memory(Q0) == 5
    await consumer.tasks.close()


@run_by(in_virtual_time)
async def test_two_queues_are_consumed_side_by_side(world: World, runtime: Runtime) -> None:
    async def listener(_m: Sequence[MessageExt], _c: ConsumeContext) -> ListenerAnswer:
        await asyncio.sleep(1)
        return SUCCESS

    consumer = Consumer(runtime, listener)
    windows = [consumer.pull(range(5), Q0), consumer.pull(range(5), Q1)]
    await world.until("both", lambda: all(window.count == 0 for window in windows), within_s=5.5)
    await consumer.tasks.close()


@run_by(in_virtual_time)
async def test_a_failed_batch_holds_its_queue_until_it_succeeds(
    world: World, runtime: Runtime
) -> None:
    tries: list[tuple[int, int]] = []

    def listener(messages: Sequence[MessageExt], context: ConsumeContext) -> ListenerAnswer:
        tries.append((messages[0].queue_offset, round(runtime.clock.steady_ms() / 1000)))
        if messages[0].queue_offset == 1 and messages[0].reconsume_times < 2:
            context.suspend_queue_ms = 3000
            return SUSPEND
        return SUCCESS

    consumer = Consumer(runtime, listener)
    window = consumer.pull([0, 1, 2])
    await world.until("all consumed", lambda: window.count == 0, within_s=30)
    assert tries == [(0, 0), (1, 0), (1, 3), (1, 6), (2, 6)]
    await consumer.tasks.close()


@run_by(in_virtual_time)
async def test_a_message_that_failed_too_often_is_given_up_and_the_queue_goes_on(
    world: World, runtime: Runtime
) -> None:
    def listener(messages: Sequence[MessageExt], _: ConsumeContext) -> ListenerAnswer:
        return SUSPEND if messages[0].queue_offset == 1 else SUCCESS

    consumer = Consumer(runtime, listener, max_reconsume_times=2)
    window = consumer.pull([0, 1, 2])
    await world.until("all left", lambda: window.count == 0, within_s=30)
    assert consumer.given_up == [1]
    assert consumer.state.offsets.in_memory(Q0) == 3
    await consumer.tasks.close()


@run_by(in_virtual_time)
async def test_what_a_batch_gives_up_is_given_up_once_while_the_rest_of_it_comes_again(
    world: World, runtime: Runtime
) -> None:
    seen: list[list[int]] = []

    def listener(messages: Sequence[MessageExt], context: ConsumeContext) -> ListenerAnswer:
        seen.append([m.queue_offset for m in messages])
        context.suspend_queue_ms = 100
        return SUSPEND if len(seen) < 4 else SUCCESS

    consumer = Consumer(runtime, listener, max_reconsume_times=3, consume_batch_max=3)
    window = window_of(consumer.state, Q0, [message_at(offset) for offset in range(5)])
    window.locked, window.last_lock_ms = True, runtime.clock.steady_ms()
    window._messages[1].reconsume_times = 3
    window._messages[2].reconsume_times = 2
    consumer.service.submit(Q0, window)
    await world.until("given up", lambda: consumer.given_up == [1, 2], within_s=30)
    assert consumer.state.offsets.in_memory(Q0) == 0, "the first waits: nothing is safe yet"
    await world.until("all left", lambda: window.count == 0, within_s=30)
    assert consumer.given_up == [1, 2], "each once"
    assert seen == [[0, 1, 2], [0, 2, 3], [0, 3, 4], [0, 3, 4]]
    assert consumer.state.offsets.in_memory(Q0) == 5
    assert (window.held_bytes, window.finished_count) == (0, 0)
    await consumer.tasks.close()


@run_by(in_virtual_time)
async def test_what_is_given_up_at_the_front_is_safe_to_report_at_once(
    world: World, runtime: Runtime
) -> None:
    def listener(messages: Sequence[MessageExt], _: ConsumeContext) -> ListenerAnswer:
        return SUSPEND if messages[0].queue_offset == 0 else SUCCESS

    consumer = Consumer(runtime, listener, max_reconsume_times=3, consume_batch_max=2)
    window = window_of(consumer.state, Q0, [message_at(offset) for offset in range(2)])
    window.locked, window.last_lock_ms = True, runtime.clock.steady_ms()
    window._messages[0].reconsume_times = 3
    consumer.service.submit(Q0, window)
    await world.until("given up", lambda: consumer.given_up == [0], within_s=30)
    assert consumer.state.offsets.in_memory(Q0) == 1
    await world.until("all left", lambda: window.count == 0, within_s=30)
    assert consumer.state.offsets.in_memory(Q0) == 2
    await consumer.tasks.close()


@run_by(in_virtual_time)
async def test_a_queue_without_a_fresh_lock_is_not_consumed_until_the_broker_grants_it(
    world: World, runtime: Runtime
) -> None:
    consumer = Consumer(runtime, lambda _m, _c: SUCCESS)
    consumer.broker.refused_locks = {Q0}
    window = consumer.pull([0], locked=False)
    await asyncio.sleep(10)
    assert window.count == 1
    consumer.broker.refused_locks = set()
    await world.until("the lock is granted", lambda: window.count == 0, within_s=10)
    assert window.locked
    await consumer.tasks.close()


@run_by(in_virtual_time)
async def test_an_old_lock_is_renewed_before_the_next_batch(world: World, runtime: Runtime) -> None:
    async def listener(_m: Sequence[MessageExt], _c: ConsumeContext) -> ListenerAnswer:
        await asyncio.sleep(31)
        return SUCCESS

    consumer = Consumer(runtime, listener)
    window = consumer.pull([0, 1])
    await world.until("both consumed", lambda: window.count == 0, within_s=120)
    assert consumer.broker.calls.count(("lock", (Q0,))) == 1
    await consumer.tasks.close()


@run_by(in_virtual_time)
async def test_a_batch_that_ends_while_its_queue_is_handed_over_is_still_reported_under_our_lock(
    world: World, runtime: Runtime
) -> None:
    async def listener(_m: Sequence[MessageExt], _c: ConsumeContext) -> ListenerAnswer:
        await asyncio.sleep(0.3)
        return SUCCESS

    consumer = Consumer(runtime, listener)
    window = consumer.pull([4, 5])
    await asyncio.sleep(0.1)
    window.dropped = True
    assert await consumer.service.batch_ended(Q0, wait_ms=500)
    assert consumer.state.offsets.in_memory(Q0) == 5
    assert window.count == 1, "no further batch begins"
    await consumer.tasks.close()


@run_by(in_virtual_time)
async def test_waiting_for_a_batch_ends_when_the_listener_takes_too_long(
    world: World, runtime: Runtime
) -> None:
    async def listener(_m: Sequence[MessageExt], _c: ConsumeContext) -> ListenerAnswer:
        await asyncio.sleep(60)
        return SUCCESS

    consumer = Consumer(runtime, listener)
    consumer.pull([4])
    await asyncio.sleep(0.1)
    assert not await consumer.service.batch_ended(Q0, wait_ms=500)
    await consumer.tasks.close()


@run_by(in_virtual_time)
async def test_locks_of_all_queues_are_renewed_with_one_request_and_let_go_at_the_end(
    world: World, runtime: Runtime
) -> None:
    consumer = Consumer(runtime, lambda _m, _c: SUCCESS)
    first, second = consumer.pull([], Q0), consumer.pull([], Q1)
    consumer.broker.refused_locks = {Q1}
    await asyncio.sleep(100)
    await consumer.locks.lock_all()
    assert (first.locked, second.locked) == (True, False)
    assert first.last_lock_ms == runtime.clock.steady_ms()
    await consumer.locks.unlock_all()
    assert consumer.broker.calls[-1] == ("unlock", (Q0, Q1))
    assert not first.locked
    await consumer.tasks.close()


@run_by(in_virtual_time)
async def test_locks_a_silent_broker_did_not_renew_run_out_by_themselves(
    world: World, runtime: Runtime
) -> None:
    consumer = Consumer(runtime, lambda _m, _c: SUCCESS)
    window = consumer.pull([], Q0)
    consumer.broker.unreachable = True
    assert not await consumer.locks.lock(Q0, window)
    await consumer.locks.lock_all()
    assert window.locked
    await asyncio.sleep(31)
    assert window.is_lock_expired(runtime.clock.now_ms())
    await consumer.tasks.close()
