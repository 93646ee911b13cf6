"""The first pull of a queue that was taken up: when it comes, and where it begins.

Row B4.
"""

from __future__ import annotations

import asyncio

from engine.client.config import ConsumerConfig, MessageModel
from engine.client.consuming.first_pulls import FirstPulls
from engine.client.consuming.offset_store import ReadOffset
from engine.client.consuming.process_queue import ProcessQueue
from engine.foundation.errors import RequestTimedOut
from engine.protocol.message import MessageQueue
from engine.runtime import Runtime
from tests.asynchronous import run_by
from tests.simulation.world import World
from tests.unit.client.consuming_parts import Q0, Q1, Broker, group_state, in_virtual_time

OTHER_BROKER = MessageQueue("T", "broker-b", 0)


class SlowToFail(Broker):
    """A broker that a question waits three seconds for, in vain."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[MessageQueue] = []

    async def fetch(self, queue: MessageQueue) -> int | None:
        self.asked.append(queue)
        await asyncio.sleep(3)
        raise RequestTimedOut("no answer")


class Beginning:
    """A member whose rounds the test plays; what begins where, and when."""

    def __init__(self, runtime: Runtime, broker: Broker | None = None, **settings: object) -> None:
        self.broker = broker or Broker()
        config = ConsumerConfig(**settings)  # type: ignore[arg-type]
        self.state = group_state(self.broker, lambda _m, _c: None, config)
        self.round = 1
        self.asked_for = self.ended = 1
        self.may_answer = asyncio.Event()
        self.begun: list[tuple[MessageQueue, int, float]] = []
        self.runtime = runtime
        self.first_pulls = FirstPulls(self.state, runtime.clock, self, self._begin)
        self.task = asyncio.create_task(self.first_pulls.run())

    async def settled(self, taken_up_in: int) -> None:
        while self.ended <= taken_up_in < self.asked_for:
            await self.may_answer.wait()

    def _begin(self, queue: MessageQueue, window: ProcessQueue, offset: int) -> None:
        self.begun.append((queue, offset, round(asyncio.get_running_loop().time(), 2)))

    def take_up(self, queue: MessageQueue, first_offset: int) -> ProcessQueue:
        window = self.state.windows[queue] = ProcessQueue(self.runtime.clock.steady_ms())
        self.first_pulls.put(queue, window, first_offset)
        return window


@run_by(in_virtual_time)
async def test_a_queue_begins_where_its_last_owner_left_it_though_that_was_reported_late(
    world: World, runtime: Runtime
) -> None:
    member = Beginning(runtime)
    member.broker.offsets = {Q0: 20}
    assert await member.state.offsets.read(Q0, ReadOffset.READ_FROM_STORE) == 20
    member.take_up(Q0, 20)
    member.take_up(Q1, 7)
    await asyncio.sleep(0.4)
    assert not member.begun
    assert member.state.offsets.in_memory(Q0) is None, "it is not ours to report yet"
    member.broker.offsets = {Q0: 90}
    await asyncio.sleep(0.2)
    assert member.begun == [(Q0, 90, 0.5), (Q1, 7, 0.5)], "without an offset as it was found"
    assert member.state.offsets.in_memory(Q0) == 90
    member.task.cancel()


@run_by(in_virtual_time)
async def test_an_offset_that_was_stored_lower_meanwhile_wins_too(
    world: World, runtime: Runtime
) -> None:
    """The end of the queue was taken for its begin, before its first owner reported anything."""
    member = Beginning(runtime)
    member.take_up(Q0, 110)
    member.broker.offsets = {Q0: 104}
    await asyncio.sleep(1)
    assert member.begun == [(Q0, 104, 0.5)]
    member.task.cancel()


@run_by(in_virtual_time)
async def test_a_queue_waits_for_the_round_that_was_asked_for_since_and_may_be_gone_with_it(
    world: World, runtime: Runtime
) -> None:
    member = Beginning(runtime)
    given_away = member.take_up(Q0, 0)
    member.take_up(Q1, 0)
    member.asked_for = 4
    await asyncio.sleep(0.9)
    assert not member.begun
    given_away.dropped = True
    member.ended = 2
    member.may_answer.set()
    await asyncio.sleep(0.1)
    assert member.begun == [(Q1, 0, 0.9)], "though another round was asked for again"
    member.task.cancel()


@run_by(in_virtual_time)
async def test_a_round_that_does_not_end_is_not_waited_for_without_end(
    world: World, runtime: Runtime
) -> None:
    member = Beginning(runtime)
    queues = [MessageQueue("T", "broker-a", number) for number in range(100)]
    for queue in queues:
        member.take_up(queue, 0)
    member.asked_for = 2
    await asyncio.sleep(2.6)
    assert [queue for queue, _, _ in member.begun] == queues
    assert {at for _, _, at in member.begun} == {2.5}
    member.task.cancel()


@run_by(in_virtual_time)
async def test_a_broker_that_returns_no_offset_is_asked_once_a_round(
    world: World, runtime: Runtime
) -> None:
    broker = SlowToFail()
    member = Beginning(runtime, broker)
    for number in range(50):
        member.take_up(MessageQueue("T", "broker-a", number), 5)
    member.take_up(OTHER_BROKER, 9)
    await asyncio.sleep(7)
    assert broker.asked == [MessageQueue("T", "broker-a", 0), OTHER_BROKER]
    assert [offset for _, offset, _ in member.begun] == [5] * 50 + [9]
    member.task.cancel()


@run_by(in_virtual_time)
async def test_what_no_other_member_can_have_begins_where_it_was_found(
    world: World, runtime: Runtime
) -> None:
    for settings in ({"orderly": True}, {"message_model": MessageModel.BROADCASTING}):
        member = Beginning(runtime, **settings)
        member.state.offsets.update(Q0, 20, increase_only=False)
        member.broker.offsets = {Q0: 90}
        member.take_up(Q0, 20)
        await asyncio.sleep(0.6)
        assert [offset for _, offset, _ in member.begun] == [20]
        assert member.state.offsets.in_memory(Q0) == 20
        member.task.cancel()
