"""A consumer's life with a broker, minute by minute on virtual time: what it reports when, what it
holds on to, what happens when parties stop, die and come back.

Feature rows: A5, A8, A9, A10, A11, B4, B6, B7, E1, E2.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest

from engine.client import (
    ConsumeConcurrentlyStatus,
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeOrderlyStatus,
    ConsumerConfig,
    MessageModel,
    PushConsumer,
)
from engine.client.consuming.listeners import ListenerAnswer
from engine.client.sending.queue_choice import select_by_index
from engine.foundation.errors import ConfigError
from engine.protocol.message import MessageExt, MessageQueue
from tests.asynchronous import run_by
from tests.integration.client.cluster_users import LATER, SUCCESS, Seen, in_order, text
from tests.integration.client.virtual_cluster import (
    GROUP,
    ONE,
    OTHER,
    Q0,
    TOPIC,
    VirtualCluster,
    on_virtual_cluster,
)

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


def config(**settings: object) -> ConsumerConfig:
    return ConsumerConfig(**({"consume_from_where": FIRST} | settings))  # type: ignore[arg-type]


async def send(cluster: VirtualCluster, *numbers: int, queue_id: int | None = None) -> None:
    for number in numbers:
        message = text(TOPIC, f"{number}")
        if queue_id is None:
            await cluster.producer.send(message)
        else:
            await cluster.producer.send(message, selector=select_by_index, argument=queue_id)


def numbers_of(seen: Seen) -> list[int]:
    return sorted(map(int, seen.bodies))


@run_by(on_virtual_cluster)
async def test_offsets_are_reported_by_timer_at_hand_over_and_at_shutdown(
    cluster: VirtualCluster,
) -> None:
    seen, other = Seen(), Seen()
    answered: list[tuple[MessageQueue, int]] = []
    one = await cluster.consume(
        *(ONE, seen),
        config(commit_acknowledged=True, piggyback_commit=False, persist_ms=60_000),
        on_commit_answered=lambda queue, offset: answered.append((queue, offset)),
    )
    await cluster.world.until("all queues", lambda: len(one.windows) == 5, within_s=30)
    await send(cluster, *range(8))
    await cluster.world.until("consumed", lambda: len(seen.messages) == 8, within_s=5)
    assert not cluster.facts.reports, "nothing is reported before the timer"
    await asyncio.sleep(16)
    assert {report.trigger for report in cluster.facts.reports} == {"TIMER"}
    assert cluster.committed() == {0: 2, 1: 2, 2: 2, 3: 2}

    await send(cluster, *range(8, 16))
    await cluster.world.until("consumed", lambda: len(seen.messages) == 16, within_s=5)
    await cluster.consume(OTHER, other, config())
    shared = lambda: sum(queue.topic == TOPIC for queue in one.windows) == 2  # noqa: E731
    await cluster.world.until("two queues less", shared, within_s=20)
    handed_over = [r for r in cluster.facts.reports if r.trigger == "HAND_OVER"]
    assert sorted((r.queue_id, r.offset) for r in handed_over) == [(2, 4), (3, 4)]

    await send(cluster, *range(16, 24))
    # A new member may read an offset before its last owner reported it: at least once.
    everything = lambda: len({*seen.bodies, *other.bodies}) == 24  # noqa: E731
    await cluster.world.until("the rest", everything, within_s=30)
    await cluster.leave(ONE, one)
    shut_down = [r for r in cluster.facts.reports if r.trigger == "SHUTDOWN"]
    assert shut_down
    reported = {
        (report.queue_id, report.offset)
        for report in cluster.facts.reports
        if report.client_id == one.client_id
    }
    assert {(q.queue_id, offset) for q, offset in answered if q.topic == TOPIC} == reported


@run_by(on_virtual_cluster)
async def test_a_frozen_head_holds_the_offset_while_its_successors_are_consumed(
    cluster: VirtualCluster,
) -> None:
    async def listener(
        messages: Sequence[MessageExt], _: ConsumeContext
    ) -> ConsumeConcurrentlyStatus:
        if messages[0].body == b"2":
            await asyncio.sleep(10**6)
        return SUCCESS

    await send(cluster, *range(6), queue_id=0)
    one = await cluster.consume(ONE, listener, config())
    await asyncio.sleep(60)

    info = await cluster.admin.groups.running_info(
        cluster.broker.address, GROUP, one.client_id, stacks=True
    )
    shown = info.mq_table[Q0]
    assert cluster.committed()[0] == 2
    assert (shown.held_ranges, shown.finished_count) == ([(2, 3)], 3)
    assert shown.processed_offset == 6
    assert shown.head_message_id is not None
    assert shown.head_since_ms is not None
    assert info.jstack is not None
    assert "test_consumer_lives" in info.jstack, "the stack says which line holds the head"

    began_s = cluster.world.loop.time()
    await cluster.leave(ONE, one)
    assert 5 <= cluster.world.loop.time() - began_s < 7, "stop waits, but not for ever"
    assert cluster.committed()[0] == 2

    again = Seen()
    await cluster.consume(ONE, again, config())
    await cluster.world.until("again", lambda: len(again.messages) == 4, within_s=30)
    assert numbers_of(again) == [2, 3, 4, 5], "finished successors come twice"


@run_by(on_virtual_cluster)
async def test_what_a_killed_consumer_had_not_reported_comes_to_the_next_one(
    cluster: VirtualCluster,
) -> None:
    one, other = Seen(), Seen()
    await cluster.consume(ONE, one, config(piggyback_commit=False))
    await cluster.consume(OTHER, other, config(rebalance_ms=3000))
    await asyncio.sleep(30)
    await send(cluster, *range(20))
    both = lambda: len(one.messages) + len(other.messages) == 20  # noqa: E731
    await cluster.world.until("consumed", both, within_s=5)
    mine = numbers_of(one)
    assert mine
    cluster.world.node(ONE).crash(power_cut=False)
    await cluster.world.until(
        "the other gets them too", lambda: len(other.messages) == 20, within_s=60
    )
    assert numbers_of(other) == list(range(20))
    await asyncio.sleep(30)
    assert sum(cluster.committed().values()) == 20


@run_by(on_virtual_cluster)
async def test_a_failed_message_waits_longer_each_time_and_ends_in_the_dead_letter_queue(
    cluster: VirtualCluster,
) -> None:
    tries: list[tuple[int, int]] = []

    def listener(messages: Sequence[MessageExt], _: ConsumeContext) -> ListenerAnswer:
        tries.append((messages[0].reconsume_times, round(cluster.world.loop.time())))
        return LATER

    await cluster.consume(ONE, listener, config(max_reconsume_times=3))
    await asyncio.sleep(30)
    await send(cluster, 1)
    await asyncio.sleep(200)
    waits = [later - earlier for (_, earlier), (_, later) in pairwise(tries)]
    assert [count for count, _ in tries] == [0, 1, 2, 3]
    assert waits == pytest.approx([10, 30, 60], abs=2)
    dead = MessageQueue(f"%DLQ%{GROUP}", "broker-a", 0)
    assert await cluster.admin.offsets.max_offset(dead) == 1


@run_by(on_virtual_cluster)
async def test_the_consumer_goes_on_after_its_broker_was_killed_and_restarted(
    cluster: VirtualCluster,
) -> None:
    seen = Seen()
    await cluster.consume(ONE, seen, config())
    await asyncio.sleep(25)
    await send(cluster, *range(8))
    await cluster.world.until("consumed", lambda: len(seen.messages) == 8, within_s=5)
    await asyncio.sleep(20)
    cluster.world.node("10.0.0.2").crash(power_cut=False)
    await asyncio.sleep(10)
    await cluster.start_broker()
    await asyncio.sleep(40)
    await send(cluster, *range(8, 12))
    await cluster.world.until("the rest", lambda: len(seen.messages) == 12, within_s=60)
    assert numbers_of(seen) == list(range(12))


@run_by(on_virtual_cluster)
async def test_an_offset_beyond_the_end_is_corrected_to_the_end(cluster: VirtualCluster) -> None:
    await send(cluster, *range(4), queue_id=0)
    cluster.broker.state.offsets.place(GROUP, TOPIC, 0, 1000)  # As a store of RocketMQ may say.
    seen = Seen()
    await cluster.consume(ONE, seen, config())
    await asyncio.sleep(30)
    await send(cluster, 4, 5, queue_id=0)
    await cluster.world.until("new ones", lambda: len(seen.messages) == 2, within_s=60)
    assert numbers_of(seen) == [4, 5]
    await asyncio.sleep(20)
    assert cluster.committed()[0] == 6


@run_by(on_virtual_cluster)
async def test_a_reset_makes_a_running_consumer_begin_again(cluster: VirtualCluster) -> None:
    seen = Seen()
    await cluster.consume(ONE, seen, config())
    await asyncio.sleep(25)
    await send(cluster, *range(4))
    await cluster.world.until("consumed", lambda: len(seen.messages) == 4, within_s=5)
    await asyncio.sleep(20)
    offsets = await cluster.admin.offsets.reset(GROUP, TOPIC, 1)
    assert [offsets[queue] for queue in sorted(offsets)] == [0, 0, 0, 0]
    await cluster.world.until("again", lambda: len(seen.messages) == 8, within_s=120)
    assert set(Counter(seen.bodies).values()) == {2}


@pytest.mark.parametrize("where", ConsumeFromWhere)
@run_by(on_virtual_cluster)
async def test_a_new_group_gets_a_young_topic_whole_wherever_it_wants_to_begin(
    cluster: VirtualCluster, *, where: ConsumeFromWhere
) -> None:
    """The broker answers "0" for a group without an offset while the queue's begin is at hand."""
    await send(cluster, 0, 1, queue_id=0)
    await asyncio.sleep(120)
    seen = Seen()
    await cluster.consume(ONE, seen, config(consume_from_where=where))
    await cluster.world.until("both", lambda: len(seen.messages) == 2, within_s=30)


@run_by(on_virtual_cluster)
async def test_an_orderly_group_hands_queues_over_without_reordering_or_repeating(
    cluster: VirtualCluster,
) -> None:
    order: dict[int, list[int]] = {}
    at_work: Counter[int] = Counter()

    async def listener(
        messages: Sequence[MessageExt], context: ConsumeContext
    ) -> ConsumeOrderlyStatus:
        queue_id = context.queue.queue_id
        at_work[queue_id] += 1
        assert at_work[queue_id] == 1, "two members consume one queue"
        await asyncio.sleep(0.1)
        order.setdefault(queue_id, []).append(int(messages[0].body))
        at_work[queue_id] -= 1
        return ConsumeOrderlyStatus.SUCCESS

    orderly = config(orderly=True, rebalance_ms=3000)
    await cluster.consume(ONE, listener, orderly)
    for queue_id in range(4):
        await send(cluster, *range(100), queue_id=queue_id)
    await asyncio.sleep(5)
    other = await cluster.consume(OTHER, listener, orderly)
    await cluster.world.until("shared", lambda: len(other.windows) >= 2, within_s=60)
    await asyncio.sleep(3)
    await cluster.leave(OTHER, other)
    await cluster.world.until(
        "all consumed",
        lambda: sum(map(len, order.values())) >= 400,
        within_s=200,
    )
    assert order == {queue_id: list(range(100)) for queue_id in range(4)}


@run_by(on_virtual_cluster)
async def test_a_broadcast_consumer_goes_on_from_its_own_file(cluster: VirtualCluster) -> None:
    broadcast = config(message_model=MessageModel.BROADCASTING, local_offset_directory="/off")
    before, after, fresh = Seen(), Seen(), Seen()
    await send(cluster, *range(4))
    one = await cluster.consume(ONE, before, broadcast)
    await cluster.world.until("consumed", lambda: len(before.messages) == 4, within_s=30)
    await cluster.leave(ONE, one)
    await send(cluster, *range(4, 8))
    again = await cluster.consume(ONE, after, broadcast)
    await cluster.world.until("the rest", lambda: len(after.messages) == 4, within_s=30)
    assert numbers_of(after) == [4, 5, 6, 7]
    assert cluster.committed() == {}, "the broker keeps no offsets of broadcasting"
    await cluster.leave(ONE, again)
    await cluster.consume(OTHER, fresh, broadcast)
    await cluster.world.until("everything", lambda: len(fresh.messages) == 8, within_s=30)


@run_by(on_virtual_cluster)
async def test_a_topic_subscribed_while_running_is_read_and_one_unsubscribed_no_more(
    cluster: VirtualCluster,
) -> None:
    tide, moon = Seen(), Seen()
    consumer = await cluster.consume(ONE, tide, config(rebalance_ms=2000))
    await cluster.admin.topics.create(cluster.broker.address, "moon", write_queues=2)
    consumer.subscribe("moon", "*", moon)
    await asyncio.sleep(10)
    await cluster.producer.send(text("moon", "1"))
    await cluster.world.until("the new topic", lambda: len(moon.messages) == 1, within_s=30)
    consumer.unsubscribe("moon")
    await asyncio.sleep(10)
    assert {queue.topic for queue in consumer.windows} == {TOPIC, f"%RETRY%{GROUP}"}


@run_by(on_virtual_cluster)
async def test_a_new_expression_counts_for_the_next_messages_without_a_restart(
    cluster: VirtualCluster,
) -> None:
    seen = Seen()
    consumer = await cluster.consume(ONE, seen, config(), expression="A")
    await asyncio.sleep(25)
    for tag in "AB":
        await cluster.producer.send(text(TOPIC, f"first {tag}", TAGS=tag))
    await asyncio.sleep(20)
    consumer.subscribe(TOPIC, "B", seen)
    await asyncio.sleep(20)
    for tag in "AB":
        await cluster.producer.send(text(TOPIC, f"second {tag}", TAGS=tag))
    await asyncio.sleep(20)
    assert seen.bodies == ["first A", "second B"]


@run_by(on_virtual_cluster)
async def test_stop_ends_soon_though_the_broker_is_gone(cluster: VirtualCluster) -> None:
    consumer = await cluster.consume(ONE, Seen(), config(commit_acknowledged=True))
    await asyncio.sleep(25)
    await send(cluster, *range(8))
    await asyncio.sleep(5)
    cluster.world.network.partition(ONE, "10.0.0.2")
    began_s = cluster.world.loop.time()
    await cluster.leave(ONE, consumer)
    assert cluster.world.loop.time() - began_s < 10


@run_by(on_virtual_cluster)
async def test_pause_holds_new_messages_back_and_resume_lets_them_come(
    cluster: VirtualCluster,
) -> None:
    seen = Seen()
    consumer = await cluster.consume(ONE, seen, config())
    await asyncio.sleep(25)
    consumer.pause()
    await asyncio.sleep(20)  # Pulls that were held are answered by now.
    await send(cluster, *range(4))
    await asyncio.sleep(20)
    assert not seen.messages
    consumer.resume()
    await cluster.world.until("they come", lambda: len(seen.messages) == 4, within_s=5)


@run_by(on_virtual_cluster)
async def test_start_needs_a_subscription_and_both_start_and_stop_may_be_repeated(
    cluster: VirtualCluster,
) -> None:
    seen = Seen(in_order)
    consumer = await cluster.consume(ONE, seen, config(orderly=True))
    await consumer.start()
    await asyncio.sleep(25)
    await cluster.world.node(ONE).run(consumer.stop())
    await cluster.world.node(ONE).run(consumer.stop())
    assert not consumer.windows
    assert cluster.broker.state.groups.of(GROUP) is None or not (
        cluster.broker.state.groups.of(GROUP).members  # type: ignore[union-attr]
    )
    never = PushConsumer(cluster.world.node(ONE).runtime, cluster.client(), GROUP)
    await never.stop()
    with pytest.raises(ConfigError, match="at least one topic"):
        await never.start()


@run_by(on_virtual_cluster)
async def test_a_queue_whose_offset_the_broker_corrects_goes_on_there_within_seconds(
    cluster: VirtualCluster,
) -> None:
    await send(cluster, *range(3), queue_id=0)
    cluster.broker.state.offsets.place(GROUP, TOPIC, 0, 50)
    seen = Seen()
    one = await cluster.consume(ONE, seen, config(rebalance_ms=60_000))
    await cluster.world.until("corrected", lambda: cluster.committed().get(0) == 3, within_s=5)
    await cluster.world.until("taken up anew", lambda: len(one.windows) == 5, within_s=5)
    await send(cluster, 3, 4, queue_id=0)
    await cluster.world.until("consumed", lambda: numbers_of(seen) == [3, 4], within_s=5)


@run_by(on_virtual_cluster, queues=8)
async def test_members_that_start_together_consume_a_backlog_once(cluster: VirtualCluster) -> None:
    """Rounds are a second apart: who joins meanwhile is given queues that others have begun."""
    await send(cluster, *range(400))
    for gap_ms in (100, 300, 700):
        seen, members = Seen(), []
        for number in range(4):
            host = f"10.0.1.{gap_ms // 100}{number}"
            members.append((host, await cluster.consume(host, seen, config())))
            await asyncio.sleep(gap_ms / 1000)
        all_of_them = lambda: len(set(seen.bodies)) == 400  # noqa: B023, E731
        await cluster.world.until("all", all_of_them, within_s=30)
        await asyncio.sleep(3)
        assert len(seen.messages) == 400
        for host, member in members:
            await cluster.leave(host, member)
        for queue_id in range(8):
            await cluster.admin.offsets.commit(GROUP, MessageQueue(TOPIC, "broker-a", queue_id), 0)
