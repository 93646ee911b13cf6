"""Rebalance: what is ours is taken up at the right offset, what is not is reported and let go.

Feature rows: B4, B6, B7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from engine.client.config import ConsumerConfig, MessageModel
from engine.client.consuming.group_state import Subscription
from engine.client.consuming.process_queue import PULL_EXPIRY_MS, ProcessQueue
from engine.client.consuming.queue_locks import QueueLocks
from engine.client.consuming.rebalance import RebalanceHooks, Rebalancer
from engine.client.consuming.start_offset import StartOffsetAsk
from engine.foundation.errors import ConnectFailed
from engine.protocol.message import MessageQueue
from engine.runtime import Runtime
from tests.asynchronous import run_by
from tests.simulation.world import World
from tests.unit.client.consuming_parts import (
    ME,
    Q0,
    Q1,
    Q2,
    Q3,
    Broker,
    group_state,
    in_virtual_time,
    subscription,
)
from tests.unit.client.messages import message_at

YOU = "10.0.0.2@you"


class Member:
    """A rebalancer whose group and routes the test writes down."""

    def __init__(self, runtime: Runtime, **settings: object) -> None:
        self.broker = Broker()
        config = ConsumerConfig(**settings)  # type: ignore[arg-type]
        self.state = group_state(self.broker, lambda _m, _c: None, config)
        self.topics: dict[str, Sequence[MessageQueue] | None] = {"T": [Q3, Q1, Q0, Q2]}
        self.group: Sequence[str] | None = [ME]
        self.failing_topics: set[str] = set()
        self.taken_up: list[tuple[MessageQueue, int]] = []
        self.announced: list[tuple[str, int]] = []
        self.batch_at_work = False
        self.rounds = 0
        self.rebalancer = Rebalancer(
            self.state,
            runtime.clock,
            self,
            locks=QueueLocks(self.state, runtime.clock, self.broker),
            ask=StartOffsetAsk(self._max_offset, self._search_offset),
            consume_timestamp_ms=0,
            hooks=RebalanceHooks(self._on_taken_up, self._on_changed, self._batch_ended),
        )

    async def queues(self, topic: str) -> Sequence[MessageQueue] | None:
        self.rounds += 1
        if topic in self.failing_topics:
            raise ConnectFailed("no name server")
        return self.topics.get(topic)

    async def members(self, topic: str) -> Sequence[str] | None:
        return self.group

    async def _max_offset(self, queue: MessageQueue) -> int:
        return 100

    async def _search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        return 50

    def _on_taken_up(self, queue: MessageQueue, window: ProcessQueue, offset: int) -> None:
        self.taken_up.append((queue, offset))

    async def _on_changed(self, topic: str, held: int) -> None:
        self.announced.append((topic, held))

    async def _batch_ended(self, queue: MessageQueue, wait_ms: int) -> bool:
        return not self.batch_at_work


@run_by(in_virtual_time)
async def test_the_only_member_takes_up_every_queue_where_the_group_stopped(
    world: World, runtime: Runtime
) -> None:
    member = Member(runtime)
    member.broker.offsets = {Q1: 7}
    assert await member.rebalancer.rebalance()
    assert member.taken_up == [(Q0, 100), (Q1, 7), (Q2, 100), (Q3, 100)]
    assert member.announced == [("T", 4)]

    assert await member.rebalancer.rebalance()
    assert member.announced == [("T", 4)], "nothing changed, nothing is announced"


@run_by(in_virtual_time)
async def test_queues_go_to_a_joining_member_after_their_offsets_were_reported(
    world: World, runtime: Runtime
) -> None:
    member = Member(runtime)
    await member.rebalancer.rebalance()
    member.state.offsets.update(Q3, 120, increase_only=True)
    given_away = member.state.windows[Q3]

    member.group = [YOU, ME]
    assert await member.rebalancer.rebalance()

    assert sorted(member.state.windows) == [Q0, Q1]
    assert given_away.dropped
    assert ("commit HAND_OVER", (Q3, 120)) in member.broker.calls
    assert member.state.offsets.in_memory(Q3) is None
    assert member.announced[-1] == ("T", 2)


@run_by(in_virtual_time)
async def test_without_a_member_list_or_a_route_everything_stays(
    world: World, runtime: Runtime
) -> None:
    member = Member(runtime)
    await member.rebalancer.rebalance()
    for group, topics in ((None, {"T": [Q0]}), ([ME], {"T": None}), ([], {"T": [Q0]})):
        member.group, member.topics = group, topics  # type: ignore[assignment]
        assert not await member.rebalancer.rebalance()
        assert sorted(member.state.windows) == [Q0, Q1, Q2, Q3]


@run_by(in_virtual_time)
async def test_a_member_that_is_not_in_the_list_yet_holds_nothing(
    world: World, runtime: Runtime
) -> None:
    member = Member(runtime)
    member.group = [YOU]
    assert await member.rebalancer.rebalance()
    assert not member.state.windows


@run_by(in_virtual_time)
async def test_one_topics_failure_does_not_stop_the_others(world: World, runtime: Runtime) -> None:
    member = Member(runtime)
    other = MessageQueue("U", "broker-a", 0)
    member.state.subscriptions["U"] = Subscription(subscription("U", "*"), lambda _m, _c: None)
    member.topics["U"] = [other]
    member.failing_topics = {"T"}
    assert not await member.rebalancer.rebalance()
    assert list(member.state.windows) == [other]


@run_by(in_virtual_time)
async def test_queues_of_a_topic_no_longer_subscribed_are_dropped(
    world: World, runtime: Runtime
) -> None:
    member = Member(runtime)
    await member.rebalancer.rebalance()
    del member.state.subscriptions["T"]
    await member.rebalancer.rebalance()
    assert not member.state.windows


@run_by(in_virtual_time)
async def test_a_queue_whose_offset_cannot_be_read_waits_for_the_next_round(
    world: World, runtime: Runtime
) -> None:
    member = Member(runtime)
    member.broker.unreachable = True
    assert not await member.rebalancer.rebalance()
    assert not member.state.windows
    member.broker.unreachable = False
    assert await member.rebalancer.rebalance()
    assert len(member.state.windows) == 4


@run_by(in_virtual_time)
async def test_a_queue_that_was_not_pulled_for_two_minutes_is_taken_up_anew(
    world: World, runtime: Runtime
) -> None:
    member = Member(runtime)
    await member.rebalancer.rebalance()
    stuck = member.state.windows[Q0]
    for queue, window in member.state.windows.items():
        if queue != Q0:
            window.last_pull_ms += PULL_EXPIRY_MS + 1000
    await asyncio.sleep(PULL_EXPIRY_MS / 1000 + 1)
    await member.rebalancer.rebalance()
    assert stuck.dropped
    assert member.state.windows[Q0] is not stuck
    assert [queue for queue, _ in member.taken_up].count(Q0) == 2


@run_by(in_virtual_time)
async def test_an_ordered_queue_is_taken_up_only_with_its_lock(
    world: World, runtime: Runtime
) -> None:
    member = Member(runtime, orderly=True)
    member.broker.refused_locks = {Q1, Q2}
    assert not await member.rebalancer.rebalance()
    assert sorted(member.state.windows) == [Q0, Q3]
    assert all(window.locked for window in member.state.windows.values())


@run_by(in_virtual_time)
async def test_an_ordered_queue_is_kept_until_its_batch_ends_or_its_lock_is_old(
    world: World, runtime: Runtime
) -> None:
    member = Member(runtime, orderly=True)
    await member.rebalancer.rebalance()
    member.state.windows[Q0].put([message_at(5)])
    member.batch_at_work = True
    member.group = [YOU]

    await member.rebalancer.rebalance()
    assert len(member.state.windows) == 4, "a batch is at work: nothing is unlocked"
    assert all(window.dropped for window in member.state.windows.values())
    assert not [call for call in member.broker.calls if call[0] == "unlock"]

    await asyncio.sleep(21)
    await member.rebalancer.rebalance()
    assert not member.state.windows
    assert len([call for call in member.broker.calls if call[0] == "unlock"]) == 4


@run_by(in_virtual_time)
async def test_every_broadcast_member_takes_up_every_queue(world: World, runtime: Runtime) -> None:
    member = Member(runtime, message_model=MessageModel.BROADCASTING)
    member.group = None
    assert await member.rebalancer.rebalance()
    assert len(member.state.windows) == 4


@run_by(in_virtual_time)
async def test_a_notification_rebalances_at_once_and_a_failure_is_tried_again_after_a_second(
    world: World, runtime: Runtime
) -> None:
    member = Member(runtime)
    loop = asyncio.get_running_loop().create_task(member.rebalancer.run())
    await asyncio.sleep(19.5)
    assert not member.taken_up
    member.rebalancer.wake()
    await world.until("at once", lambda: len(member.state.windows) == 4, within_s=0.2)

    await asyncio.sleep(1.5)
    member.group = None
    member.rebalancer.wake()
    await asyncio.sleep(0.5)
    member.group = [YOU]
    await world.until("a second later", lambda: not member.state.windows, within_s=1.1)
    loop.cancel()


@run_by(in_virtual_time)
async def test_however_often_it_is_called_a_second_lies_between_two_rebalances(
    world: World, runtime: Runtime
) -> None:
    member = Member(runtime)
    loop = asyncio.get_running_loop().create_task(member.rebalancer.run())
    for _ in range(100):
        member.rebalancer.wake()
        await asyncio.sleep(0.1)
    assert 9 <= member.rounds <= 10
    member.group = [YOU]
    member.rebalancer.wake()
    await world.until("the last call counts", lambda: not member.state.windows, within_s=1.1)
    await asyncio.sleep(5)
    quiet_since = member.rounds
    await asyncio.sleep(10)
    assert member.rounds == quiet_since, "then the regular rhythm goes on"
    await asyncio.sleep(10)
    assert member.rounds == quiet_since + 1
    loop.cancel()


@run_by(in_virtual_time)
async def test_who_waits_for_a_round_that_was_asked_for_waits_for_one_however_often_it_is_called(
    world: World, runtime: Runtime
) -> None:
    member = Member(runtime)
    rounds = asyncio.create_task(member.rebalancer.run())
    member.rebalancer.wake()
    await world.until("all queues", lambda: len(member.state.windows) == 4, within_s=0.2)
    taken_up_in, began_s = member.rebalancer.round, world.loop.time()
    await member.rebalancer.settled(taken_up_in)
    assert world.loop.time() == began_s, "nobody has asked for a round since"

    async def call_on() -> None:
        while True:
            member.rebalancer.wake()
            await asyncio.sleep(0.1)

    calls = asyncio.create_task(call_on())
    await asyncio.sleep(0.1)
    await member.rebalancer.settled(taken_up_in)
    settled_s = world.loop.time()
    assert 0.8 < settled_s - began_s < 1.1
    await asyncio.sleep(0.15)
    await member.rebalancer.settled(taken_up_in)
    assert world.loop.time() < settled_s + 0.16, "one round has ended since, whatever follows"
    calls.cancel()
    rounds.cancel()
