"""Pulling: what is asked for next, what is passed over, and when the consumer waits.

Feature rows: A5, B3, D3.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from engine.client.config import ConsumerConfig
from engine.client.consuming.consume_stats import FlowControl
from engine.client.consuming.group_state import Subscription
from engine.client.consuming.process_queue import ProcessQueue
from engine.client.consuming.pulling import (
    OnPulled,
    Puller,
    PullHooks,
    PullQuestion,
    PullResult,
    PullStatus,
)
from engine.foundation.errors import RequestRefused, RequestTimedOut, TidemarkError
from engine.protocol.codes import ResponseCode
from engine.protocol.message import MessageExt, MessageQueue
from engine.runtime import Runtime
from tests.asynchronous import run_by
from tests.simulation.world import World
from tests.unit.client.consuming_parts import (
    Q0,
    Q1,
    Broker,
    group_state,
    in_virtual_time,
    subscription,
)
from tests.unit.client.messages import message_at

HELD_S = 15
RETRY_QUEUE = MessageQueue("%RETRY%g", "broker-a", 0)


class Pulls:
    """A puller whose broker answers by a script, then holds every pull for 15 s."""

    def __init__(self, runtime: Runtime, **settings: object) -> None:
        config = ConsumerConfig(first_pull_delay_ms=0, **settings)  # type: ignore[arg-type]
        self.runtime = runtime
        self.state = group_state(Broker(), lambda _m, _c: None, config)
        self.answers: deque[PullResult | TidemarkError] = deque()
        self.asked: list[tuple[int, int | None, float]] = []
        self.looks: list[int] = []
        """Offsets of pulls that asked for no message."""
        self.arrived: list[MessageExt] = []
        self.illegal: list[MessageQueue] = []
        self.answered: list[tuple[MessageQueue, int]] = []
        self.window = ProcessQueue(runtime.clock.now_ms())
        self.window.locked = True
        self.state.windows[Q0] = self.window
        self.puller = self._puller()

    def _puller(self) -> Puller:
        return Puller(
            self.state,
            self.runtime.clock,
            self,
            PullHooks(
                self._on_messages,
                self._on_illegal,
                lambda queue, offset: self.answered.append((queue, offset)),
            ),
        )

    def begin_pull(self, question: PullQuestion, on_pulled: OnPulled) -> None:
        loop = asyncio.get_running_loop()
        if question.is_look:
            self.looks.append(question.queue_offset)
        else:
            asked = question.queue_offset, question.commit_offset, round(loop.time(), 2)
            self.asked.append(asked)
        wait_s = 0 if self.answers else HELD_S
        loop.call_later(wait_s, self._answer, question.queue_offset, on_pulled)

    def _answer(self, offset: int, on_pulled: OnPulled) -> None:
        nothing = PullResult(PullStatus.NO_NEW_MESSAGE, offset, [])
        on_pulled(self.answers.popleft() if self.answers else nothing)

    def _on_messages(
        self, messages: list[MessageExt], queue: MessageQueue, window: ProcessQueue
    ) -> None:
        self.arrived += messages
        window.put(messages)

    def _on_illegal(self, queue: MessageQueue) -> None:
        assert self.window.dropped
        self.illegal.append(queue)

    def found(self, next_begin: int, *messages: MessageExt) -> None:
        self.answers.append(PullResult(PullStatus.FOUND, next_begin, list(messages)))

    def take_up(self, first: int = 0, queue: MessageQueue = Q0) -> None:
        self.puller.take_up(queue, self.window, first)

    async def run_for(self, seconds: float, first: int = 0, queue: MessageQueue = Q0) -> None:
        """What one life of the puller asks in so many seconds."""
        self.puller = self._puller()
        self.take_up(first, queue)
        task = asyncio.get_running_loop().create_task(self.puller.run())
        await asyncio.sleep(seconds)
        task.cancel()


def tagged(offset: int, tag: str | None) -> MessageExt:
    return message_at(offset, properties={"TAGS": tag} if tag else {})


def pulling(story: Callable[[Pulls], Awaitable[None]], **settings: object) -> None:
    """The stage: a puller of one queue in virtual time, whose broker answers by a script."""

    async def lived(world: World, runtime: Runtime) -> None:
        await story(Pulls(runtime, **settings))

    in_virtual_time(lived)


@run_by(pulling)
async def test_each_pull_begins_where_the_last_answer_said(pulls: Pulls) -> None:
    pulls.found(12, message_at(10), message_at(11))
    pulls.answers.append(PullResult(PullStatus.NO_MATCHED_MESSAGE, 40, []))
    await pulls.run_for(1, first=10)
    assert [asked[0] for asked in pulls.asked] == [10, 12, 40]
    assert [m.queue_offset for m in pulls.arrived] == [10, 11]


@run_by(pulling)
async def test_only_exact_tags_pass_and_an_untagged_message_never_does(pulls: Pulls) -> None:
    listener = pulls.state.subscriptions["T"].listener
    pulls.state.subscriptions["T"] = Subscription(subscription("T", "AaAa"), listener)
    pulls.found(4, *(tagged(n, tag) for n, tag in enumerate(["AaAa", "BBBB", None, "A"])))
    await pulls.run_for(1)
    assert [m.queue_offset for m in pulls.arrived] == [0]
    assert pulls.window.filtered_count == 3


@run_by(pulling)
async def test_filtered_messages_are_passed_over_once_nothing_is_held(pulls: Pulls) -> None:
    listener = pulls.state.subscriptions["T"].listener
    pulls.state.subscriptions["T"] = Subscription(subscription("T", "A"), listener)
    pulls.found(1, tagged(0, "A"))
    pulls.found(3, tagged(1, "B"), tagged(2, "B"))
    pulls.found(5, tagged(3, "B"), tagged(4, "B"))
    await pulls.run_for(1)
    assert pulls.state.offsets.in_memory(Q0) is None, "offset 0 is not finished"
    pulls.window.remove([0], 0)
    pulls.found(7, tagged(5, "B"), tagged(6, "B"))
    await pulls.run_for(1, first=5)
    assert pulls.state.offsets.in_memory(Q0) == 7


@run_by(pulling)
async def test_a_retried_message_gets_its_first_topic_back(pulls: Pulls) -> None:
    pulls.state.subscriptions["%RETRY%g"] = Subscription(subscription("%RETRY%g", "*"), None)
    retried = message_at(0, topic="%RETRY%g", properties={"RETRY_TOPIC": "T"})
    pulls.found(1, retried)
    await pulls.run_for(1, queue=RETRY_QUEUE)
    assert [m.topic for m in pulls.arrived] == ["T"]


@run_by(pulling)
async def test_the_consume_offset_travels_with_the_pull_and_its_answer_is_returned(
    pulls: Pulls,
) -> None:
    pulls.state.offsets.update(Q0, 9, increase_only=True)
    pulls.found(12, message_at(11))
    await pulls.run_for(1, first=11)
    assert [asked[1] for asked in pulls.asked] == [9, 9]
    assert pulls.answered == [(Q0, 9)]


@run_by(pulling, piggyback_commit=False)
async def test_without_piggyback_nothing_is_reported_by_pulls(pulls: Pulls) -> None:
    pulls.state.offsets.update(Q0, 9, increase_only=True)
    pulls.found(12, message_at(11))
    await pulls.run_for(1, first=11)
    assert [asked[1] for asked in pulls.asked] == [None, None]
    assert not pulls.answered


@run_by(pulling, queue_messages_max=3)
async def test_pulling_pauses_while_too_much_is_held_and_goes_on_by_itself(pulls: Pulls) -> None:
    pulls.window.put([message_at(offset) for offset in range(4)])
    pulls.take_up(4)
    task = asyncio.get_running_loop().create_task(pulls.puller.run())
    await asyncio.sleep(5)
    assert not pulls.asked
    pulls.window.remove([0], 0)
    await asyncio.sleep(0.06)
    assert len(pulls.asked) == 1
    task.cancel()


@run_by(pulling)
async def test_offsets_that_a_filter_passes_over_do_not_pause_pulling(pulls: Pulls) -> None:
    pulls.window.put([message_at(0), message_at(5001)])
    await pulls.run_for(1)
    assert pulls.asked, "a crash would bring one message beside the first again"


@run_by(pulling, queue_span_max=100)
async def test_a_queue_that_rests_asks_now_and_then_whether_it_goes_on_elsewhere(
    pulls: Pulls,
) -> None:
    pulls.window.put([message_at(offset) for offset in range(102)])
    pulls.answers += [
        PullResult(PullStatus.FOUND, 103, [message_at(102)]),
        PullResult(PullStatus.OFFSET_ILLEGAL, 40, []),
    ]
    await pulls.run_for(9, first=102)
    assert pulls.looks == [102]
    assert (pulls.asked, pulls.arrived) == ([], []), "what was found is pulled later"
    await pulls.run_for(20, first=102)
    assert pulls.looks == [102, 102]
    assert pulls.illegal == [Q0]
    assert pulls.state.offsets.in_memory(Q0) == 40


@run_by(pulling, queue_span_max=100)
async def test_what_is_finished_beyond_an_unfinished_message_pauses_concurrent_pulling(
    pulls: Pulls,
) -> None:
    pulls.window.put([message_at(offset) for offset in range(102)])
    pulls.window.remove(range(1, 102), 0)
    await pulls.run_for(1, first=102)
    assert not pulls.asked, "a crash would bring all of them again"
    assert pulls.window.resting is FlowControl.SPAN
    pulls.window.remove([0], 0)
    await pulls.run_for(1, first=102)
    assert pulls.asked
    assert pulls.window.resting is None


@run_by(pulling, orderly=True, queue_span_max=3)
async def test_messages_given_up_behind_one_that_comes_again_pause_pulling_in_order(
    pulls: Pulls,
) -> None:
    pulls.window.put([message_at(offset) for offset in range(6)])
    for expected in (False, True):  # Of two batches of three the two behind the first are given up.
        batch = pulls.window.take(3, 0)
        pulls.window.consume_again(batch[:1])
        pulls.window.give_up_taken()
        pulls.asked.clear()
        await pulls.run_for(1, first=6)
        assert (not pulls.asked) == expected


@run_by(pulling, queue_span_max=100)
async def test_an_application_that_pauses_its_consumer_is_not_taken_for_flow_control(
    pulls: Pulls,
) -> None:
    pulls.window.put([message_at(offset) for offset in range(102)])
    await pulls.run_for(1)
    assert pulls.window.resting is FlowControl.SPAN
    pulls.state.paused = True
    await pulls.run_for(1)
    assert pulls.window.resting is None


@run_by(pulling, orderly=True)
async def test_a_wide_span_does_not_pause_pulling_in_order(pulls: Pulls) -> None:
    pulls.window.put([message_at(0), message_at(2001)])
    await pulls.run_for(1)
    assert pulls.asked


@run_by(pulling, queue_bytes_max=1000)
async def test_many_bytes_pause_pulling(pulls: Pulls) -> None:
    pulls.window.put([message_at(0, 600), message_at(1, 500)])
    await pulls.run_for(1)
    assert not pulls.asked


@run_by(pulling, topic_messages_max=10)
async def test_a_topics_limit_is_divided_by_the_queues_held(pulls: Pulls) -> None:
    pulls.state.windows[Q1] = ProcessQueue(0)
    pulls.window.put([message_at(offset) for offset in range(6)])
    await pulls.run_for(1)
    assert not pulls.asked
    del pulls.state.windows[Q1]
    await pulls.run_for(1)
    assert pulls.asked


@run_by(pulling, orderly=True)
async def test_an_ordered_queue_is_not_pulled_without_its_lock(pulls: Pulls) -> None:
    pulls.window.locked = False
    pulls.take_up()
    task = asyncio.get_running_loop().create_task(pulls.puller.run())
    await asyncio.sleep(10)
    assert not pulls.asked
    pulls.window.locked = True
    await asyncio.sleep(3)
    assert pulls.asked
    task.cancel()


@run_by(pulling)
async def test_a_paused_consumer_pulls_nothing(pulls: Pulls) -> None:
    pulls.state.paused = True
    pulls.take_up()
    task = asyncio.get_running_loop().create_task(pulls.puller.run())
    await asyncio.sleep(5)
    assert not pulls.asked
    pulls.state.paused = False
    await asyncio.sleep(1.1)
    assert pulls.asked
    task.cancel()


@run_by(pulling)
async def test_after_an_error_pulling_rests_a_second_and_less_when_the_broker_is_only_busy(
    pulls: Pulls,
) -> None:
    pulls.answers += [
        RequestTimedOut("no answer"),
        RequestRefused(ResponseCode.SUBSCRIPTION_NOT_EXIST, "who are you"),
        RequestRefused(ResponseCode.FLOW_CONTROL, "busy"),
    ]
    await pulls.run_for(5)
    assert [asked[2] for asked in pulls.asked] == [0, 1, 2, 2.02]
    assert [asked[0] for asked in pulls.asked] == [0, 0, 0, 0]


@run_by(pulling)
async def test_an_illegal_offset_drops_the_queue_and_freezes_the_brokers_correction(
    pulls: Pulls,
) -> None:
    pulls.answers.append(PullResult(PullStatus.OFFSET_ILLEGAL, 77, []))
    await pulls.run_for(1)
    assert pulls.illegal == [Q0]
    assert len(pulls.asked) == 1
    pulls.state.offsets.update(Q0, 500, increase_only=True)
    assert pulls.state.offsets.in_memory(Q0) == 77


@run_by(pulling)
async def test_an_answer_for_a_queue_given_away_meanwhile_is_not_kept(pulls: Pulls) -> None:
    pulls.take_up()
    task = asyncio.get_running_loop().create_task(pulls.puller.run())
    await asyncio.sleep(1)
    pulls.window.dropped = True
    pulls.found(1, message_at(0))
    await asyncio.sleep(HELD_S)
    assert not pulls.answers, "it was answered"
    assert len(pulls.asked) == 1, "nothing more is asked"
    task.cancel()


@run_by(pulling)
async def test_an_answer_that_comes_after_the_end_is_nobodys(pulls: Pulls) -> None:
    pulls.state.offsets.update(Q0, 9, increase_only=True)
    await pulls.run_for(1)
    pulls.found(1, message_at(0))
    await asyncio.sleep(HELD_S)
    assert not pulls.answers, "it was answered"
    assert not pulls.arrived
    assert not pulls.answered
    assert len(pulls.asked) == 1
