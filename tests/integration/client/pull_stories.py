"""Stories of consumers that ask for their messages themselves, on any cluster (rows A12, B5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.admin import Admin
from engine.client import ConsumeFromWhere, LitePullConfig, LitePullConsumer, PullConsumer
from engine.client.consuming.pulling import PullStatus
from engine.foundation.errors import ConfigError
from engine.protocol.message import MessageQueue
from engine.runtime import system_runtime
from tests.integration.client.cluster_users import client_config, eventually, producing, text
from tests.integration.client.stories import Cluster, Story, make_topic


def pull_config(**settings: Any) -> LitePullConfig:
    """A consumer that begins at the beginning, with quick rebalances, polls and reports."""
    defaults: dict[str, Any] = {
        "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        "rebalance_ms": 2000,
        "rebalance_retry_ms": 200,
        "persist_first_ms": 300,
        "persist_ms": 300,
        "pull_suspend_ms": 1000,
        "auto_commit": False,
    }
    return LitePullConfig(**(defaults | settings))


@asynccontextmanager
async def polling(
    cluster: Cluster,
    group: str,
    *,
    topic: str | None = None,
    queues: Sequence[MessageQueue] = (),
    expression: str = "*",
    **settings: Any,
) -> AsyncIterator[LitePullConsumer]:
    """A running lite pull consumer of a topic, or of queues."""
    consumer = LitePullConsumer(
        *(system_runtime(), client_config(cluster.name_server), group),
        consumer=pull_config(**settings),
    )
    if topic is not None:
        consumer.subscribe(topic, expression)
    else:
        await consumer.assign(queues, expression)
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def polled(consumer: LitePullConsumer, count: int) -> list[str]:
    """The bodies of the next `count` messages."""
    found: list[str] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            found += [bytes(m.body).decode() for m in await consumer.poll(1000)]
    return found


async def send_numbers(cluster: Cluster, queue: MessageQueue, numbers: range) -> None:
    async with producing(cluster.name_server, "py_pulled") as producer:
        for number in numbers:
            await producer.send(text(queue.topic, f"{number}"), queue=queue)


def numbers(*ranges: range) -> list[str]:
    return [f"{number}" for one in ranges for number in one]


async def an_assigned_queue_is_polled_from_wherever_one_seeks(
    cluster: Cluster, folder: Path
) -> None:
    topic, group = "PyAssign", "py_assign_c"
    await make_topic(cluster, topic, queues=2)
    queue, other = (MessageQueue(topic, "broker-a", number) for number in range(2))
    await send_numbers(cluster, queue, range(10))
    async with polling(cluster, group, queues=[queue], pull_batch_max=4) as consumer:
        assert consumer.assignment() == [queue]
        assert await consumer.fetch_queues(topic) == [queue, other]
        async with Admin(system_runtime(), client_config(cluster.name_server)) as admin:
            shown = await admin.groups.running_info(cluster.broker, group, consumer.client_id)
        assert shown.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        assert list(shown.mq_table) == [queue]
        assert await polled(consumer, 4) == numbers(range(4))
        await eventually(lambda: consumer._ready, "messages pulled ahead")
        await consumer.seek(queue, 8)
        assert await polled(consumer, 2) == numbers(range(8, 10)), "not those pulled ahead"
        await consumer.seek(queue, 4)
        assert await polled(consumer, 6) == numbers(range(4, 10))
        await consumer.seek_to_begin(queue)
        assert (await polled(consumer, 10))[0] == "0"
        at = await consumer.offset_for_timestamp(queue, 0)
        assert at == 0
        await consumer.seek_to_end(queue)
        await send_numbers(cluster, queue, range(10, 12))
        assert await polled(consumer, 2) == numbers(range(10, 12))

        with pytest.raises(ConfigError, match="min offset 0 to max offset 12"):
            await consumer.seek(queue, 13)
        with pytest.raises(ConfigError, match="one that is read here"):
            await consumer.seek(other, 0)
        with pytest.raises(ConfigError, match="either subscribe or assign"):
            consumer.subscribe(topic)

        await consumer.assign([other])
        await send_numbers(cluster, queue, range(12, 13))
        await send_numbers(cluster, other, range(50, 52))
        assert await polled(consumer, 2) == numbers(range(50, 52))
        assert consumer.assignment() == [other]


async def what_was_polled_and_committed_does_not_come_again(cluster: Cluster, folder: Path) -> None:
    topic, group = "PyCommit", "py_commit_c"
    await make_topic(cluster, topic, queues=1)
    queue = MessageQueue(topic, "broker-a", 0)
    await send_numbers(cluster, queue, range(8))
    async with polling(cluster, group, queues=[queue], pull_batch_max=4) as consumer:
        assert await polled(consumer, 4) == numbers(range(4))
        await consumer.commit()
        assert await consumer.committed(queue) == 4
        assert await polled(consumer, 4) == numbers(range(4, 8))
    async with polling(cluster, group, queues=[queue], auto_commit=True) as consumer:
        assert await consumer.committed(queue) == 4, "the second poll was not committed"
        assert await polled(consumer, 4) == numbers(range(4, 8))
        await consumer.commit({queue: 6})
    async with polling(cluster, group, queues=[queue]) as consumer:
        assert await polled(consumer, 2) == numbers(range(6, 8))

    async with polling(
        cluster, group, queues=[queue], auto_commit=True, auto_commit_ms=1000
    ) as consumer:
        assert await polled(consumer, 2) == numbers(range(6, 8))

        async def is_committed() -> bool:
            assert not await consumer.poll(100)
            return await consumer.committed(queue) == 8

        await eventually(is_committed, "a later poll commits the earlier one")


async def a_reset_of_the_group_is_followed_by_who_polls(cluster: Cluster, folder: Path) -> None:
    topic, group = "PyPollReset", "py_poll_reset_c"
    await make_topic(cluster, topic, queues=1)
    queue = MessageQueue(topic, "broker-a", 0)
    await send_numbers(cluster, queue, range(6))
    async with polling(cluster, group, topic=topic) as consumer:
        assert await polled(consumer, 6) == numbers(range(6))
        await consumer.commit()
        async with Admin(system_runtime(), client_config(cluster.name_server)) as admin:
            await admin.offsets.reset(group, topic, 0)
        assert await polled(consumer, 6) == numbers(range(6)), "all of it again"


async def a_paused_queue_brings_nothing_until_it_is_resumed(cluster: Cluster, folder: Path) -> None:
    topic, group = "PyPaused", "py_paused_c"
    await make_topic(cluster, topic, queues=1)
    queue = MessageQueue(topic, "broker-a", 0)
    async with polling(cluster, group, queues=[queue]) as consumer:
        await send_numbers(cluster, queue, range(1))
        assert await polled(consumer, 1) == ["0"]
        consumer.pause([queue])
        await consumer.seek_to_end(queue)  # The pull under way belongs to the time before.
        await send_numbers(cluster, queue, range(1, 3))
        assert await consumer.poll(1500) == []
        consumer.resume([queue])
        assert await polled(consumer, 2) == numbers(range(1, 3))


async def polling_members_share_a_topic_and_hand_over_what_they_committed(
    cluster: Cluster, folder: Path
) -> None:
    topic, group = "PyPollShare", "py_poll_share_c"
    await make_topic(cluster, topic, queues=4)
    queues = [MessageQueue(topic, "broker-a", number) for number in range(4)]
    for queue in queues:
        await send_numbers(cluster, queue, range(2))
    async with polling(cluster, group, topic=topic) as one:
        await eventually(lambda: one.assignment() == queues, "the only member reads all")
        assert sorted(await polled(one, 8)) == sorted(numbers(range(2)) * 4)
        await one.commit()
        async with polling(cluster, group, topic=topic) as two:
            await eventually(
                lambda: (len(one.assignment()), len(two.assignment())) == (2, 2), "two each"
            )
            first, second = sorted((one, two), key=lambda member: member.client_id)
            assert first.assignment() + second.assignment() == queues, "AVG: blocks"
            for queue in queues:
                await send_numbers(cluster, queue, range(2, 3))
            assert await polled(one, 2) == ["2", "2"]
            assert await polled(two, 2) == ["2", "2"]
            await two.commit()
        await eventually(lambda: one.assignment() == queues, "the remaining member takes over")
        for queue in queues:
            await send_numbers(cluster, queue, range(3, 4))
        assert await polled(one, 4) == ["3"] * 4


async def what_an_unsubscribed_topic_held_does_not_stop_the_others(
    cluster: Cluster, folder: Path
) -> None:
    topics = ("PyPollLeft", "PyPollKept")
    left, kept = (MessageQueue(topic, "broker-a", 0) for topic in topics)
    for queue in (left, kept):
        await make_topic(cluster, queue.topic, queues=1)
        await send_numbers(cluster, queue, range(12))
    async with polling(cluster, "py_left_c", topic=left.topic, held_messages_max=5) as consumer:
        await eventually(lambda: consumer._ready, "more held than allowed")
        consumer.unsubscribe(left.topic)
        consumer.subscribe(kept.topic)
        await eventually(lambda: consumer.assignment() == [kept], "only the other is read")
        assert await polled(consumer, 12) == numbers(range(12))
        with pytest.raises(ConfigError, match=r"offset=-1 is not allowed.*, 0 or more"):
            await consumer.commit({kept: -1})
        assert await consumer.committed(kept) != -1


async def a_poll_brings_only_messages_with_a_wanted_tag(cluster: Cluster, folder: Path) -> None:
    topic, ns = "PyPollTags", cluster.name_server
    await make_topic(cluster, topic, queues=1)
    async with producing(ns, "py_poll_tags") as producer:
        for number, tag in enumerate(["A", "B", "BBBB", "AaAa"]):
            await producer.send(text(topic, f"{number}", TAGS=tag))
    async with polling(cluster, "py_poll_tags_c", topic=topic, expression="A || AaAa") as consumer:
        assert await polled(consumer, 2) == ["0", "3"], "BBBB has the hash of AaAa"


async def a_pull_consumer_pulls_by_itself_and_leaves_its_offset_to_the_next(
    cluster: Cluster, folder: Path
) -> None:
    topic, group = "PyPull", "py_pull_c"
    await make_topic(cluster, topic, queues=1)
    queue = MessageQueue(topic, "broker-a", 0)
    await send_numbers(cluster, queue, range(5))
    config = pull_config(pull_batch_max=3)

    async def member() -> PullConsumer:
        client = client_config(cluster.name_server)
        consumer = PullConsumer(system_runtime(), client, group, consumer=config)
        consumer.register(topic)
        await consumer.start()
        return consumer

    one = await member()
    await eventually(lambda: one.queues_in_balance(topic) == [queue], "the queue is ours")
    found = await one.pull(queue, 0)
    assert [bytes(m.body) for m in found.messages] == [b"0", b"1", b"2"]
    assert (found.status, found.next_begin_offset) == (PullStatus.FOUND, 3)
    nothing = await one.pull(queue, 5)
    assert (nothing.status, nothing.messages) == (PullStatus.NO_NEW_MESSAGE, [])
    beyond = await one.pull(queue, 99)
    assert (beyond.status, beyond.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 5)
    assert (await one.pull(queue, 0, "no-such-tag")).messages == []
    assert (await one.min_offset(queue), await one.max_offset(queue)) == (0, 5)
    assert await one.fetch_consume_offset(queue) in (None, 0), "nothing moved by itself"
    one.update_consume_offset(queue, 3)
    await one.persist(queue)

    two = await member()
    members = [one, two]
    await eventually(
        lambda: sum(m.queues_in_balance(topic) == [queue] for m in members) == 1, "one has it"
    )
    with pytest.raises(ConfigError, match=r"offset=-4 is not allowed.*, 0 or more"):
        one.update_consume_offset(queue, -4)
    holder = next(m for m in members if m.queues_in_balance(topic))
    holder.update_consume_offset(queue, 4)
    other = two if holder is one else one
    await holder.stop()
    await eventually(lambda: other.queues_in_balance(topic) == [queue], "the other one takes it")
    assert await other.fetch_consume_offset(queue, from_store=True) == 4
    await other.stop()


PULL_STORIES: tuple[Story, ...] = (
    an_assigned_queue_is_polled_from_wherever_one_seeks,
    what_was_polled_and_committed_does_not_come_again,
    a_reset_of_the_group_is_followed_by_who_polls,
    a_paused_queue_brings_nothing_until_it_is_resumed,
    polling_members_share_a_topic_and_hand_over_what_they_committed,
    what_an_unsubscribed_topic_held_does_not_stop_the_others,
    a_poll_brings_only_messages_with_a_wanted_tag,
    a_pull_consumer_pulls_by_itself_and_leaves_its_offset_to_the_next,
)
"""Every story."""
