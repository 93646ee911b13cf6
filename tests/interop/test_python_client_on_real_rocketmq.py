"""Our client library as producer and consumer of a real Apache RocketMQ: the peer that tells us
what is right.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from engine.client import (
    Admin,
    ConsumeContext,
    ConsumeOrderlyStatus,
    MessageModel,
    SendResult,
    SendStatus,
)
from engine.client.queue_selectors import select_by_hash
from engine.foundation.errors import TidemarkError
from engine.protocol.message import MessageExt, MessageQueue
from engine.runtime import system_runtime
from tests.integration.client.cluster_users import (
    LATER,
    SUCCESS,
    Seen,
    client_config,
    consumer_config,
    consuming,
    eventually,
    in_order,
    producing,
    text,
)
from tests.interop.real_rocketmq import RealRocketMQ

pytestmark = pytest.mark.timeout(180)  # The first test also waits for two JVMs to start.


async def make_topic(cluster: RealRocketMQ, topic: str, queues: int = 4) -> None:
    """Create a topic and wait until the name server tells its route."""
    async with Admin(system_runtime(), client_config(cluster.name_server)) as admin:
        await admin.create_topic(cluster.broker, topic, read_queues=queues, write_queues=queues)

        async def is_known() -> bool:
            return await admin.topic_route(topic) is not None

        await eventually(is_known, f"a route of {topic}")


def test_messages_sent_in_every_way_are_consumed_once(apache_rocketmq: RealRocketMQ) -> None:
    async def story() -> None:
        topic, ns = "PyWays", apache_rocketmq.name_server
        await make_topic(apache_rocketmq, topic)
        seen = Seen()
        async with producing(ns, "py_ways") as producer, consuming(ns, "py_ways_c", {topic: seen}):
            waited = await producer.send(text(topic, "waited", KEYS="k1", TAGS="A"))
            assert waited.status is SendStatus.SEND_OK
            big = "long and compressible " * 1000
            await producer.send(text(topic, big))
            await producer.send_oneway(text(topic, "one-way"))
            answers: list[SendResult | TidemarkError] = []
            producer.send_async(text(topic, "called back"), answers.append)
            batch = await producer.send_batch([text(topic, f"batch {n}") for n in range(3)])
            picked = [
                await producer.send(
                    text(topic, f"picked {n}"), selector=select_by_hash, argument="order-7"
                )
                for n in range(3)
            ]

            assert len({result.queue for result in picked}) == 1
            assert len(batch.message_id.split(",")) == 3
            await eventually(lambda: answers, "the callback")
            assert isinstance(answers[0], SendResult)
            expected = ["waited", big, "one-way", "called back"]
            expected += [f"{kind} {n}" for kind in ("batch", "picked") for n in range(3)]
            await eventually(lambda: len(seen.messages) >= len(expected), "all messages")
            assert sorted(seen.bodies) == sorted(expected)
            first = next(m for m in seen.messages if m.body == b"waited")
            assert (first.keys, first.tags) == ("k1", "A")
            assert first.message_id == waited.message_id
            assert first.offset_message_id == waited.offset_message_id

    asyncio.run(story())


def test_an_orderly_consumer_sees_each_queue_in_order(apache_rocketmq: RealRocketMQ) -> None:
    async def story() -> None:
        topic, ns = "PyOrder", apache_rocketmq.name_server
        await make_topic(apache_rocketmq, topic)
        failures: Counter[str] = Counter()

        def fail_once(message: MessageExt, context: ConsumeContext) -> ConsumeOrderlyStatus:
            body = bytes(message.body).decode()
            if body == "a-3" and not failures[body]:
                failures[body] += 1
                context.suspend_queue_ms = 50
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
            return ConsumeOrderlyStatus.SUCCESS

        seen = Seen(fail_once)
        async with producing(ns, "py_order") as producer:
            for number in range(10):
                for key in "abc":
                    await producer.send(
                        text(topic, f"{key}-{number}"), selector=select_by_hash, argument=key
                    )
        config = consumer_config(orderly=True)
        async with consuming(ns, "py_order_c", {topic: seen}, config=config) as consumer:
            await eventually(lambda: len(seen.messages) >= 31, "all messages, one of them twice")
            held = [window for queue, window in consumer.windows.items() if queue.topic == topic]
            assert len(held) == 4
            assert all(window.locked for window in held)
        for key in "abc":
            numbers = [int(body[2:]) for body in seen.bodies if body[0] == key]
            expected = list(range(10))
            if key == "a":
                expected.insert(4, 3)
            assert numbers == expected

    asyncio.run(story())


def test_only_messages_with_a_wanted_tag_arrive(apache_rocketmq: RealRocketMQ) -> None:
    async def story() -> None:
        topic, ns = "PyTags", apache_rocketmq.name_server
        await make_topic(apache_rocketmq, topic, queues=1)
        async with producing(ns, "py_tags") as producer:
            for number, tag in enumerate(["A", "B", "C", "A", "AaAa", "BBBB", ""]):
                properties = {"TAGS": tag} if tag else {}
                await producer.send(text(topic, f"{number}", **properties))
        seen = Seen()
        async with consuming(
            *(ns, "py_tags_c", {topic: seen}),
            expression="A || AaAa",
            config=consumer_config(pull_suspend_ms=1000),
        ) as consumer:
            queue = MessageQueue(topic, "broker-a", 0)
            await eventually(lambda: consumer.offsets.in_memory(queue) == 7, "all is passed")
            # BBBB has the hash of AaAa: the broker lets it through, the client does not.
            assert sorted(seen.bodies) == ["0", "3", "4"]
            assert consumer.windows[queue].filtered_count == 1

    asyncio.run(story())


def test_a_failed_message_comes_again_through_the_retry_topic(
    apache_rocketmq: RealRocketMQ,
) -> None:
    async def story() -> None:
        topic, ns = "PyRetry", apache_rocketmq.name_server
        await make_topic(apache_rocketmq, topic)

        def first_time_later(message: MessageExt, context: ConsumeContext) -> object:
            context.delay_level_when_next_consume = 1
            return LATER if message.reconsume_times == 0 else SUCCESS

        seen = Seen(first_time_later)  # type: ignore[arg-type]
        async with (
            consuming(ns, "py_retry_c", {topic: seen}),
            producing(ns, "py_retry") as producer,
        ):
            sent = await producer.send(text(topic, "stubborn"))
            await eventually(lambda: len(seen.messages) == 2, "the second try", within_s=60)
        first, second = seen.messages
        assert second.reconsume_times == 1
        assert second.topic == topic, "the listener sees the topic it subscribed to"
        assert first.message_id == second.message_id == sent.message_id
        assert second.properties["ORIGIN_MESSAGE_ID"] in (
            sent.offset_message_id,
            sent.message_id,
        )

    asyncio.run(story())


def test_a_message_that_fails_too_often_ends_in_the_dead_letter_queue(
    apache_rocketmq: RealRocketMQ,
) -> None:
    async def story() -> None:
        topic, ns = "PyDead", apache_rocketmq.name_server
        await make_topic(apache_rocketmq, topic)
        seen = Seen(lambda _message, _context: LATER)
        async with producing(ns, "py_dead") as producer:
            sent = await producer.send(text(topic, "poison"))
        config = consumer_config(max_reconsume_times=0)
        async with (
            consuming(ns, "py_dead_c", {topic: seen}, config=config),
            Admin(system_runtime(), client_config(ns)) as admin,
        ):
            dead = MessageQueue("%DLQ%py_dead_c", "broker-a", 0)

            async def is_dead() -> bool:
                return await admin.topic_route(dead.topic) is not None

            await eventually(is_dead, "a dead-letter topic")

            async def holds_one() -> bool:
                return await admin.max_offset(dead) == 1

            await eventually(holds_one, "one dead message")
        assert [m.message_id for m in seen.messages] == [sent.message_id]

    asyncio.run(story())


def test_a_restarted_consumer_goes_on_where_it_stopped_and_lag_is_zero(
    apache_rocketmq: RealRocketMQ,
) -> None:
    async def story() -> None:
        topic, group, ns = "PyRestart", "py_restart_c", apache_rocketmq.name_server
        await make_topic(apache_rocketmq, topic)
        before, after = Seen(), Seen()
        async with producing(ns, "py_restart") as producer:
            async with consuming(ns, group, {topic: before}):
                for number in range(20):
                    await producer.send(text(topic, f"{number}"))
                await eventually(lambda: len(before.messages) == 20, "the first 20 messages")
            for number in range(20, 30):
                await producer.send(text(topic, f"{number}"))
            async with consuming(ns, group, {topic: after}):
                await eventually(lambda: len(after.messages) >= 10, "the next 10 messages")
        assert sorted(map(int, before.bodies)) == list(range(20))
        assert sorted(map(int, after.bodies)) == list(range(20, 30))

        async with Admin(system_runtime(), client_config(ns)) as admin:
            stats = await admin.consume_stats(group, topic)
        assert len(stats) == 4
        assert all(queue.topic == topic for queue in stats)
        assert [entry.lag for entry in stats.values()] == [0, 0, 0, 0]
        assert sum(entry.consumer_offset for entry in stats.values()) == 30

    asyncio.run(story())


def test_two_members_share_the_queues_and_one_takes_over_when_the_other_leaves(
    apache_rocketmq: RealRocketMQ,
) -> None:
    async def story() -> None:
        topic, group, ns = "PyShare", "py_share_c", apache_rocketmq.name_server
        await make_topic(apache_rocketmq, topic)
        one, other = Seen(), Seen()

        async with (
            producing(ns, "py_share") as producer,
            consuming(ns, group, {topic: one}) as first,
        ):

            def held(consumer: object) -> int:
                windows = consumer.windows  # type: ignore[attr-defined]
                return sum(1 for queue in windows if queue.topic == topic)

            await eventually(lambda: held(first) == 4, "the only member holds all queues")
            async with consuming(ns, group, {topic: other}) as second:
                await eventually(lambda: (held(first), held(second)) == (2, 2), "two queues each")
                assert not set(first.windows) & set(second.windows)
                for number in range(20):
                    await producer.send(text(topic, f"shared {number}"))
                await eventually(
                    lambda: len(one.messages) + len(other.messages) >= 20, "all shared messages"
                )
                assert one.messages
                assert other.messages
            await eventually(lambda: held(first) == 4, "the remaining member takes over")
            for number in range(4):
                await producer.send(text(topic, f"alone {number}"))
            await eventually(
                lambda: sum(body.startswith("alone") for body in one.bodies) == 4, "the rest"
            )
        assert len({*one.bodies, *other.bodies}) == 24

    asyncio.run(story())


def test_every_broadcast_consumer_gets_every_message(
    apache_rocketmq: RealRocketMQ, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def story() -> None:
        topic, ns = "PyBroadcast", apache_rocketmq.name_server
        await make_topic(apache_rocketmq, topic)
        one, other = Seen(), Seen()
        folders = [str(tmp_path_factory.mktemp("broadcast")) for _ in range(2)]
        configs = [
            consumer_config(message_model=MessageModel.BROADCASTING, local_offset_directory=folder)
            for folder in folders
        ]
        async with (
            producing(ns, "py_broadcast") as producer,
            consuming(ns, "py_broadcast_c", {topic: one}, config=configs[0]),
            consuming(ns, "py_broadcast_c", {topic: other}, config=configs[1]),
        ):
            for number in range(8):
                await producer.send(text(topic, f"{number}"))
            await eventually(lambda: len(one.messages) == 8, "all messages at the first")
            await eventually(lambda: len(other.messages) == 8, "all messages at the second")

    asyncio.run(story())


def test_rocketmq_shows_our_consumer_as_it_shows_its_own(apache_rocketmq: RealRocketMQ) -> None:
    async def story() -> None:
        topic, group, ns = "PyShown", "py_shown_c", apache_rocketmq.name_server
        await make_topic(apache_rocketmq, topic)
        seen = Seen(in_order)
        config = consumer_config(orderly=True)
        async with (
            consuming(ns, group, {topic: seen}, config=config) as consumer,
            Admin(system_runtime(), client_config(ns)) as admin,
        ):
            await eventually(lambda: len(consumer.windows) >= 4, "queues")
            connection = await admin.consumer_connections(apache_rocketmq.broker, group)
            assert [member.client_id for member in connection.connection_set] == [
                consumer.client_id
            ]
            info = await admin.consumer_running_info(
                apache_rocketmq.broker, group, consumer.client_id
            )
            assert info.properties["PROP_CONSUME_ORDERLY"] == "true"
            assert set(info.mq_table) == set(consumer.windows)

    asyncio.run(story())
