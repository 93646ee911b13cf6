"""The queue of pull requests: whose turn it is, who rests, and that nothing outlives its end.

Row B3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from engine.client.config import ConsumerConfig
from engine.client.consuming.process_queue import ProcessQueue
from engine.client.consuming.pull_service import PULLS_A_TURN, PullMessageService, PullRequest
from engine.client.consuming.pulling import (
    OnPulled,
    Puller,
    PullHooks,
    PullQuestion,
    PullResult,
    PullStatus,
)
from engine.protocol.message import MessageQueue
from engine.runtime import Runtime
from tests.asynchronous import run_by
from tests.simulation.world import World
from tests.unit.client.consuming_parts import Broker, group_state, in_virtual_time
from tests.unit.client.messages import message_at


def request(number: int) -> PullRequest:
    return PullRequest(MessageQueue("T", "broker-a", number), ProcessQueue(0), 0)


class Pulled:
    """What a service pulled, and when (seconds of the loop)."""

    def __init__(self) -> None:
        self.service = PullMessageService(self._pull)
        self.seen: list[tuple[int, float]] = []
        self.also: Callable[[PullRequest], None] = lambda _request: None
        self.task = asyncio.create_task(self.service.run())

    def _pull(self, one: PullRequest) -> None:
        self.seen.append((one.queue.queue_id, round(asyncio.get_running_loop().time(), 3)))
        self.also(one)

    @property
    def queues(self) -> list[int]:
        return [number for number, _ in self.seen]

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@run_by(in_virtual_time)
async def test_queues_are_pulled_in_the_order_in_which_they_were_put(
    world: World, runtime: Runtime
) -> None:
    pulled = Pulled()
    requests = [request(number) for number in range(200)]
    for one in requests:
        pulled.service.put(one)
    await asyncio.sleep(0.001)
    for one in reversed(requests):
        pulled.service.put(one)
    await asyncio.sleep(0.001)
    assert pulled.queues == [*range(200), *reversed(range(200))]
    await pulled.end()


@run_by(in_virtual_time)
async def test_those_that_rest_come_when_their_time_has_and_delay_nobody(
    world: World, runtime: Runtime
) -> None:
    pulled = Pulled()
    for number, after_ms in enumerate([3000, 50, 1000, 0, 50, 20, 0]):
        pulled.service.put(request(number), after_ms=after_ms)
    await asyncio.sleep(5)
    times = [(3, 0.0), (6, 0.0), (5, 0.02), (1, 0.05), (4, 0.05), (2, 1.0), (0, 3.0)]
    assert pulled.seen == times
    await pulled.end()


@run_by(in_virtual_time)
async def test_nothing_is_pulled_once_the_service_has_ended(world: World, runtime: Runtime) -> None:
    pulled = Pulled()
    pulled.service.put(request(0))
    await asyncio.sleep(1)
    for number, after_ms in enumerate([0, 10, 1000], 1):
        pulled.service.put(request(number), after_ms=after_ms)
    await pulled.end()
    assert pulled.service.ended
    pulled.service.put(request(4))
    pulled.service.put(request(5), after_ms=10)
    await asyncio.sleep(5)
    assert pulled.queues == [0]


@run_by(in_virtual_time)
async def test_a_queue_given_away_while_it_waits_or_rests_leaves_the_queue(
    world: World, runtime: Runtime
) -> None:
    pulled = Pulled()
    requests = [request(number) for number in range(4)]
    for one in requests:
        pulled.service.put(one, after_ms=one.queue.queue_id // 2 * 100)
    requests[0].window.dropped = requests[2].window.dropped = True
    await asyncio.sleep(1)
    assert pulled.queues == [1, 3]
    await pulled.end()


@run_by(in_virtual_time)
async def test_an_error_of_one_queue_does_not_stop_the_others(
    world: World, runtime: Runtime, *, caplog: pytest.LogCaptureFixture
) -> None:
    def stumble(one: PullRequest) -> None:
        if one.queue.queue_id == 1:
            raise ZeroDivisionError("a defect")

    pulled = Pulled()
    pulled.also = stumble
    for number in range(3):
        pulled.service.put(request(number))
    await asyncio.sleep(1)
    assert pulled.queues == [0, 1, 2]
    assert "queue_id=1) ended by an error" in caplog.text
    await pulled.end()


@run_by(in_virtual_time)
async def test_many_due_queues_leave_room_for_whatever_else_the_loop_has_to_do(
    world: World, runtime: Runtime
) -> None:
    pulled = Pulled()
    for number in range(10 * PULLS_A_TURN):
        pulled.service.put(request(number))
    counts: list[int] = []
    while not counts or counts[-1] < 10 * PULLS_A_TURN:
        await asyncio.sleep(0)
        counts.append(len(pulled.seen))
    at_once = max(late - early for early, late in zip([0, *counts], counts, strict=False))
    assert at_once <= 2 * PULLS_A_TURN, "a turn before this test's, and one after it"
    await pulled.end()


class Reading:
    """A puller of some queues whose broker answers each pull with the next message."""

    def __init__(self, runtime: Runtime, queues: int, **settings: object) -> None:
        config = ConsumerConfig(first_pull_delay_ms=0, **settings)  # type: ignore[arg-type]
        self.state = group_state(Broker(), lambda _m, _c: None, config)
        self.pulls = dict.fromkeys(range(queues), 0)
        hooks = PullHooks(self._on_messages, lambda _queue: None, None)
        self.puller = Puller(self.state, runtime.clock, self, hooks)
        for number in range(queues):
            queue = MessageQueue("T", "broker-a", number)
            window = self.state.windows[queue] = ProcessQueue(runtime.clock.steady_ms())
            self.puller.take_up(queue, window, 0)
        self.task = asyncio.create_task(self.puller.run())

    def begin_pull(self, question: PullQuestion, on_pulled: OnPulled) -> None:
        offset = question.queue_offset
        self.pulls[question.queue.queue_id] += 1
        answer = PullResult(PullStatus.FOUND, offset + 1, [message_at(offset)])
        asyncio.get_running_loop().call_later(0.01, on_pulled, answer)

    def _on_messages(self, messages: list[object], queue: MessageQueue, window: object) -> None:
        if queue.queue_id:  # The listener of all others is quick; that of queue 0 stands still.
            return
        self.state.windows[queue].put(messages)  # type: ignore[arg-type]


@run_by(in_virtual_time)
async def test_a_queue_whose_window_is_full_does_not_delay_the_others(
    world: World, runtime: Runtime
) -> None:
    reading = Reading(runtime, 4, queue_messages_max=5)
    await asyncio.sleep(2)
    assert reading.pulls[0] == 6, "the seventh would be too much"
    assert len({reading.pulls[number] for number in (1, 2, 3)}) == 1, "each has its turn"
    assert reading.pulls[1] > 190
    reading.task.cancel()


@run_by(in_virtual_time)
async def test_a_thousand_queues_are_pulled_by_one_task(world: World, runtime: Runtime) -> None:
    before = len(asyncio.all_tasks())
    reading = Reading(runtime, 1000)
    await asyncio.sleep(0.1)
    assert len(asyncio.all_tasks()) == before + 1
    assert min(reading.pulls.values()) >= 2
    reading.task.cancel()
