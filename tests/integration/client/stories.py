"""What a client library does on any cluster, ours or Apache's: one story a behaviour.

Each story takes a cluster and an empty folder, makes a topic of its own and fails by an assert.
The tests of our engine and those of a real RocketMQ play the same stories, so that the two mean
the same by them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from engine.admin import Admin
from engine.admin.api.dead_letters import DeadLetter, DeadLetterQuery
from engine.client import (
    ConsumeContext,
    ConsumeOrderlyStatus,
    MessageModel,
    PushConsumer,
    SendResult,
    SendStatus,
    TransactionProducer,
    TransactionState,
)
from engine.client.sending.queue_choice import select_by_hash
from engine.foundation.errors import TidemarkError
from engine.protocol.message import Message, MessageExt, MessageQueue
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


class Cluster(Protocol):
    """A running cluster with one broker, `broker-a`."""

    @property
    def name_server(self) -> str:
        """host:port"""
        ...

    @property
    def broker(self) -> str:
        """host:port"""
        ...


Story = Callable[[Cluster, Path], Awaitable[None]]


async def make_topic(cluster: Cluster, topic: str, queues: int = 4) -> None:
    """Create a topic and wait until the name server has its route."""
    async with Admin(system_runtime(), client_config(cluster.name_server)) as admin:
        await admin.topics.create(cluster.broker, topic, read_queues=queues, write_queues=queues)

        async def is_known() -> bool:
            return await admin.topics.route(topic) is not None

        await eventually(is_known, f"a route of {topic}")


async def messages_sent_in_every_way_are_consumed_once(cluster: Cluster, folder: Path) -> None:
    topic, ns = "PyWays", cluster.name_server
    await make_topic(cluster, topic)
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


async def an_orderly_consumer_sees_each_queue_in_order(cluster: Cluster, folder: Path) -> None:
    topic, ns = "PyOrder", cluster.name_server
    await make_topic(cluster, topic)
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


async def a_failed_message_comes_again_through_the_retry_topic(
    cluster: Cluster, folder: Path
) -> None:
    topic, ns = "PyRetry", cluster.name_server
    await make_topic(cluster, topic)

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


async def a_message_that_fails_too_often_ends_in_the_dead_letter_queue(
    cluster: Cluster, folder: Path
) -> None:
    topic, ns = "PyDead", cluster.name_server
    await make_topic(cluster, topic)
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
            return await admin.topics.route(dead.topic) is not None

        await eventually(is_dead, "a dead-letter topic")

        async def holds_one() -> bool:
            return await admin.offsets.max_offset(dead) == 1

        await eventually(holds_one, "one dead message")
    assert [m.message_id for m in seen.messages] == [sent.message_id]


async def a_dead_letter_is_redriven_to_its_group_and_consumed(
    cluster: Cluster, folder: Path
) -> None:
    topic, group, ns = "PyRedrive", "py_redrive_c", cluster.name_server
    await make_topic(cluster, topic)
    fails = True
    seen = Seen(lambda _message, _context: LATER if fails else SUCCESS)
    async with producing(ns, "py_redrive") as producer:
        sent = await producer.send(text(topic, "late luck", KEYS="order-7"))
    config = consumer_config(max_reconsume_times=0)
    async with (
        consuming(ns, group, {topic: seen}, config=config),
        Admin(system_runtime(), client_config(ns)) as admin,
    ):
        letters: list[DeadLetter] = []

        async def is_dead() -> bool:
            letters[:] = await admin.dead_letters.find(group, DeadLetterQuery())
            return len(letters) == 1

        await eventually(is_dead, "a dead letter", within_s=60)
        fails = False
        await admin.dead_letters.redrive(letters[0], who="ada", why="fixed")
        await eventually(lambda: len(seen.messages) == 2, "it comes again", within_s=60)

        async def is_decided() -> bool:
            return await admin.dead_letters.find(group, DeadLetterQuery()) == []

        await eventually(is_decided, "nothing waits for a decision")
    first, again = seen.messages
    assert first.message_id == again.message_id == sent.message_id
    assert (again.topic, again.keys, again.reconsume_times) == (topic, "order-7", 0)


async def a_restarted_consumer_goes_on_where_it_stopped_and_lag_is_zero(
    cluster: Cluster, folder: Path
) -> None:
    topic, group, ns = "PyRestart", "py_restart_c", cluster.name_server
    await make_topic(cluster, topic)
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
        stats = await admin.groups.consume_stats(group, topic)
    assert len(stats) == 4
    assert all(queue.topic == topic for queue in stats)
    assert [entry.lag for entry in stats.values()] == [0, 0, 0, 0]
    assert sum(entry.consumer_offset for entry in stats.values()) == 30


async def two_members_share_the_queues_and_one_takes_over_when_the_other_leaves(
    cluster: Cluster, folder: Path
) -> None:
    topic, group, ns = "PyShare", "py_share_c", cluster.name_server
    await make_topic(cluster, topic)
    one, other = Seen(), Seen()

    async with (
        producing(ns, "py_share") as producer,
        consuming(ns, group, {topic: one}) as first,
    ):

        def held(consumer: PushConsumer) -> int:
            return sum(1 for queue in consumer.windows if queue.topic == topic)

        await eventually(lambda: held(first) == 4, "the only member holds all queues")
        async with consuming(ns, group, {topic: other}) as second:
            await eventually(
                lambda: (
                    (held(first), held(second)) == (2, 2)
                    and not set(first.windows) & set(second.windows)
                ),
                "two queues each, and none of both",
            )
            for number in range(20):
                await producer.send(text(topic, f"shared {number}"))
            await eventually(lambda: len({*one.bodies, *other.bodies}) == 20, "all shared messages")
            assert one.messages
            assert other.messages
        await eventually(lambda: held(first) == 4, "the remaining member takes over")
        for number in range(4):
            await producer.send(text(topic, f"alone {number}"))
        await eventually(
            lambda: len({body for body in one.bodies if body.startswith("alone")}) == 4, "the rest"
        )
    assert len({*one.bodies, *other.bodies}) == 24


async def every_broadcast_consumer_gets_every_message(cluster: Cluster, folder: Path) -> None:
    topic, ns = "PyBroadcast", cluster.name_server
    await make_topic(cluster, topic)
    one, other = Seen(), Seen()
    folders = [str(folder / name) for name in ("one", "other")]
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


async def a_broker_shows_our_consumer_to_whoever_asks(cluster: Cluster, folder: Path) -> None:
    topic, group, ns = "PyShown", "py_shown_c", cluster.name_server
    await make_topic(cluster, topic)
    seen = Seen(in_order)
    config = consumer_config(orderly=True)
    async with (
        consuming(ns, group, {topic: seen}, config=config) as consumer,
        Admin(system_runtime(), client_config(ns)) as admin,
    ):
        await eventually(lambda: len(consumer.windows) >= 4, "queues")
        connection = await admin.groups.connections(cluster.broker, group)
        assert [member.client_id for member in connection.connection_set] == [consumer.client_id]

        async def shown_as_held() -> bool:
            info = await admin.groups.running_info(cluster.broker, group, consumer.client_id)
            assert info.properties["PROP_CONSUME_ORDERLY"] == "true"
            return set(info.mq_table) == set(consumer.windows)

        # The retry topic's queue may be taken up between the answer and the look at the windows.
        await eventually(shown_as_held, "the windows the consumer holds are shown")


async def a_message_of_a_transaction_appears_when_it_is_committed(
    cluster: Cluster, folder: Path
) -> None:
    """Row D4: committed, rolled back, not known and then asked, by a producer with its own life."""
    topic, ns = "PyTransaction", cluster.name_server
    await make_topic(cluster, topic)
    seen, asked = Seen(), Counter[str]()
    answers = {"c": TransactionState.COMMIT, "r": TransactionState.ROLLBACK}

    def execute(message: Message, argument: object) -> TransactionState:
        assert argument == "its argument"
        if message.keys == "raises":
            raise OSError("planted")
        return answers.get(str(message.keys), TransactionState.UNKNOWN)

    async def check(message: MessageExt) -> TransactionState:
        assert (message.topic, message.uniq_key) == (topic, ids[message.body.decode()])
        body = message.body.decode()
        asked[body] += 1
        if body.startswith("later") and asked[body] < 2:
            return TransactionState.UNKNOWN
        return TransactionState.ROLLBACK if body.startswith("no") else TransactionState.COMMIT

    ids: dict[str, str | None] = {}
    producer = TransactionProducer(
        system_runtime(), client_config(ns), "py_transaction_p", execute=execute, check=check
    )
    await producer.start()
    async with consuming(ns, "py_transaction_c", {topic: seen}):
        wanted = []
        for number in range(5):
            for kind, keys in KINDS.items():
                body = f"{kind}#{number}"
                message = text(topic, body * 2000 if kind == "long" else body, KEYS=keys)
                ids[message.body.decode()] = None
                sent = await producer.send_in_transaction(message, "its argument")
                assert sent.half.status is SendStatus.SEND_OK
                ids[message.body.decode()] = sent.half.message_id
                if kind not in ("rolled back", "no"):
                    wanted.append(message.body.decode())
        await eventually(lambda: len(seen.bodies) >= len(wanted), "all that was committed")
        await producer.stop()
    assert sorted(seen.bodies) == sorted(wanted), "each once, and nothing else"
    assert not [body for body in asked if body.startswith(("committed", "rolled", "long"))]
    assert {asked[f"later#{number}"] for number in range(5)} == {2}
    assert all(message.sys_flag & 0xC == 0x8 for message in seen.messages)


KINDS = {
    "committed": "c",
    "rolled back": "r",
    "long": "c",
    "raises": "raises",
    "later": "u",
    "no": "u",
}
"""What becomes of a message in `a_message_of_a_transaction...` → its keys."""


STORIES: tuple[Story, ...] = (
    messages_sent_in_every_way_are_consumed_once,
    an_orderly_consumer_sees_each_queue_in_order,
    a_failed_message_comes_again_through_the_retry_topic,
    a_message_that_fails_too_often_ends_in_the_dead_letter_queue,
    a_dead_letter_is_redriven_to_its_group_and_consumed,
    a_restarted_consumer_goes_on_where_it_stopped_and_lag_is_zero,
    two_members_share_the_queues_and_one_takes_over_when_the_other_leaves,
    every_broadcast_consumer_gets_every_message,
    a_broker_shows_our_consumer_to_whoever_asks,
    a_message_of_a_transaction_appears_when_it_is_committed,
)
"""Every story."""
