"""Concurrent listeners: what counts as consumed, what goes back, what has to stay.

Feature rows: A7, A11.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from engine.client.config import ConsumerConfig, MessageModel
from engine.client.connection.owned_tasks import OwnedTasks
from engine.client.consuming.concurrent_service import ConcurrentService
from engine.client.consuming.listeners import (
    ConsumeConcurrentlyStatus,
    ConsumeContext,
    ListenerAnswer,
)
from engine.client.consuming.process_queue import ProcessQueue
from engine.protocol.message import MessageExt, MessageQueue
from engine.runtime import Runtime
from tests.asynchronous import run_by
from tests.simulation.world import World
from tests.unit.client.consuming_parts import Q0, Broker, group_state, in_virtual_time, window_of
from tests.unit.client.messages import message_at

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER


class Consumer:
    """A service with a listener of the test's, and the send-backs it asked for."""

    def __init__(
        self,
        runtime: Runtime,
        listener: Callable[[Sequence[MessageExt], ConsumeContext], object],
        *,
        send_back_works: bool = True,
        **settings: object,
    ) -> None:
        config = ConsumerConfig(**settings)  # type: ignore[arg-type]
        self.runtime = runtime
        self.state = group_state(Broker(), listener, config)  # type: ignore[arg-type]
        self.tasks = OwnedTasks("test")
        self.sent_back: list[tuple[int, int]] = []
        self.send_back_works = send_back_works
        self.service = ConcurrentService(self.state, runtime.clock, self.tasks, self._send_back)
        self.service.start()

    async def _send_back(self, message: MessageExt, level: int, queue: MessageQueue) -> bool:
        self.sent_back.append((message.queue_offset, level))
        return self.send_back_works

    def pull(self, offsets: Sequence[int], **message: object) -> ProcessQueue:
        messages = [message_at(offset, **message) for offset in offsets]  # type: ignore[arg-type]
        window = window_of(self.state, Q0, messages)
        self.service.submit(messages, window, Q0)
        return window

    @property
    def offset(self) -> int | None:
        return self.state.offsets.in_memory(Q0)


@run_by(in_virtual_time)
async def test_the_offset_waits_for_the_slowest_message(world: World, runtime: Runtime) -> None:
    async def listener(messages: Sequence[MessageExt], _: ConsumeContext) -> ListenerAnswer:
        await asyncio.sleep(10 if messages[0].queue_offset == 5 else 1)
        return SUCCESS

    consumer = Consumer(runtime, listener)
    window = consumer.pull([5, 6, 7])
    await asyncio.sleep(5)
    assert consumer.offset == 5
    assert window.finished_count == 2
    await asyncio.sleep(6)
    assert consumer.offset == 8
    await consumer.tasks.close()


@run_by(in_virtual_time)
async def test_no_more_listeners_than_allowed_work_at_once(world: World, runtime: Runtime) -> None:
    working, most = 0, 0

    async def listener(_m: Sequence[MessageExt], _c: ConsumeContext) -> ListenerAnswer:
        nonlocal working, most
        working += 1
        most = max(most, working)
        await asyncio.sleep(1)
        working -= 1
        return SUCCESS

    consumer = Consumer(runtime, listener, consume_concurrency=3)
    window = consumer.pull(range(10))
    await world.until("all consumed", lambda: window.count == 0, within_s=10)
    assert most == 3
    await consumer.tasks.close()


@run_by(in_virtual_time)
async def test_later_none_and_an_exception_all_send_the_message_back(
    world: World, runtime: Runtime
) -> None:
    def listener(messages: Sequence[MessageExt], _: ConsumeContext) -> ListenerAnswer:
        match messages[0].queue_offset:
            case 1:
                return LATER
            case 2:
                return None
            case 3:
                raise ValueError("the listener's own trouble")
        return SUCCESS

    consumer = Consumer(runtime, listener)
    window = consumer.pull([1, 2, 3, 4])
    await world.until("all left the window", lambda: window.count == 0, within_s=1)
    assert sorted(consumer.sent_back) == [(1, 0), (2, 0), (3, 0)]
    assert consumer.offset == 5
    await consumer.tasks.close()


@run_by(in_virtual_time)
async def test_a_batch_acknowledges_a_prefix_and_only_the_rest_is_sent_back(
    world: World, runtime: Runtime
) -> None:
    def listener(messages: Sequence[MessageExt], context: ConsumeContext) -> ListenerAnswer:
        context.ack_index = 1
        context.delay_level_when_next_consume = 4
        return SUCCESS

    consumer = Consumer(runtime, listener, consume_batch_max=4)
    window = consumer.pull([1, 2, 3, 4])
    await world.until("all left the window", lambda: window.count == 0, within_s=1)
    assert consumer.sent_back == [(3, 4), (4, 4)]
    await consumer.tasks.close()


@run_by(in_virtual_time)
async def test_a_message_nobody_takes_back_stays_and_comes_again_after_five_seconds(
    world: World, runtime: Runtime
) -> None:
    tries: list[tuple[int, int]] = []
    began_ms = runtime.clock.steady_ms()

    def listener(messages: Sequence[MessageExt], _: ConsumeContext) -> ListenerAnswer:
        after_ms = runtime.clock.steady_ms() - began_ms
        tries.append((messages[0].reconsume_times, round(after_ms / 1000)))
        return SUCCESS if messages[0].reconsume_times == 2 else LATER

    consumer = Consumer(runtime, listener, send_back_works=False)
    window = consumer.pull([9])
    await asyncio.sleep(7)
    assert consumer.offset == 9, "an unfinished message is never passed"
    await world.until("the third try", lambda: window.count == 0, within_s=20)
    assert tries == [(0, 0), (1, 5), (2, 10)]
    assert consumer.offset == 10
    await consumer.tasks.close()


@run_by(in_virtual_time)
async def test_a_broadcast_consumer_passes_over_a_failed_message(
    world: World, runtime: Runtime
) -> None:
    consumer = Consumer(runtime, lambda _m, _c: LATER, message_model=MessageModel.BROADCASTING)
    window = consumer.pull([1])
    await world.until("it is passed over", lambda: window.count == 0, within_s=1)
    assert consumer.sent_back == []
    assert consumer.offset == 2
    await consumer.tasks.close()


@run_by(in_virtual_time)
async def test_what_a_listener_finishes_after_its_queue_was_given_away_is_not_reported(
    world: World, runtime: Runtime
) -> None:
    async def listener(_m: Sequence[MessageExt], _c: ConsumeContext) -> ListenerAnswer:
        await asyncio.sleep(1)
        return SUCCESS

    consumer = Consumer(runtime, listener)
    window = consumer.pull([1, 2])
    await asyncio.sleep(0.5)
    window.dropped = True
    await asyncio.sleep(2)
    assert consumer.offset is None
    await consumer.tasks.close()


@run_by(in_virtual_time)
async def test_a_message_too_long_in_its_listener_is_sent_back_at_level_three(
    world: World, runtime: Runtime
) -> None:
    async def listener(messages: Sequence[MessageExt], _: ConsumeContext) -> ListenerAnswer:
        await asyncio.sleep(3600 if messages[0].queue_offset == 1 else 0)
        return SUCCESS

    consumer = Consumer(runtime, listener, consume_timeout_ms=60_000)
    window = consumer.pull([1, 2])
    await asyncio.sleep(59)
    assert consumer.sent_back == []
    assert consumer.offset == 1
    await world.until("the stuck one is sent back", lambda: window.count == 0, within_s=120)
    assert consumer.sent_back == [(1, 3)]
    assert consumer.offset == 3
    await consumer.tasks.close()


@run_by(in_virtual_time)
async def test_retried_messages_of_two_topics_are_not_mixed_in_one_batch(
    world: World, runtime: Runtime
) -> None:
    batches: list[list[str]] = []

    def listener(messages: Sequence[MessageExt], _: ConsumeContext) -> ListenerAnswer:
        batches.append([m.topic for m in messages])
        return SUCCESS

    consumer = Consumer(runtime, listener, consume_batch_max=8)
    consumer.state.subscriptions["U"] = consumer.state.subscriptions["T"]
    messages = [message_at(n, topic=topic) for n, topic in enumerate("TTUUT")]
    window = window_of(consumer.state, Q0, messages)
    consumer.service.submit(messages, window, Q0)
    await world.until("all consumed", lambda: window.count == 0, within_s=1)
    assert batches == [["T", "T"], ["U", "U"], ["T"]]
    await consumer.tasks.close()


@run_by(in_virtual_time)
async def test_stop_waits_for_listeners_at_work_but_not_for_ever(
    world: World, runtime: Runtime
) -> None:
    async def listener(messages: Sequence[MessageExt], _: ConsumeContext) -> ListenerAnswer:
        await asyncio.sleep(messages[0].queue_offset)
        return SUCCESS

    quick = Consumer(runtime, listener)
    quick.pull([2])
    await asyncio.sleep(0.1)
    assert await quick.service.stop(wait_ms=5000)
    assert quick.offset == 3
    await quick.tasks.close()

    slow = Consumer(runtime, listener)
    slow.pull([100])
    await asyncio.sleep(0.1)
    assert not await slow.service.stop(wait_ms=5000)
    assert slow.offset is None
    await slow.tasks.close()
