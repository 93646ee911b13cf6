"""Row D2 (a): on a topic with deduplication a message is stored once, whatever becomes of the
answers and of the broker; another body under the same id is refused.
"""

from __future__ import annotations

import asyncio
import signal
import tracemalloc
import zlib
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from engine.admin import Admin
from engine.broker.topics.topics import DEDUPLICATION
from engine.client import Producer, ProducerConfig
from engine.foundation.errors import RequestTimedOut
from engine.protocol.bodies import TopicConfig
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.message import Message
from engine.protocol.message_batch import encode_batch
from engine.protocol.names import DEDUPLICATION_FLAG
from engine.runtime import system_runtime
from tests.asynchronous import run_by
from tests.integration.broker.cluster import Cluster, RawClient, bodies, broker_config, cluster
from tests.integration.broker.spooled import spooled
from tests.integration.client.cluster_users import client_config, eventually
from tests.integration.client.lossy_link import lossy_link
from tests.integration.telemetry.killable_engine import KillableEngine

TOPIC = "paid"
ON = "+message.deduplication=true"


async def make_topic(engine: KillableEngine, topic: str = TOPIC, attributes: str = ON) -> None:
    async with Admin(system_runtime(), client_config(engine.namesrv)) as admin:
        await admin.topics.create(
            engine.broker, topic, read_queues=2, write_queues=2, attributes=attributes
        )

        async def is_known() -> bool:
            return await admin.topics.route(topic) is not None

        await eventually(is_known, f"a route of {topic}")
    topics = engine.store / "config" / "topics.json"
    await eventually(
        lambda: topics.exists() and f'"{topic}"' in topics.read_text(), "topics are saved"
    )


def with_engine(
    folder: Path, story: Callable[[KillableEngine, RawClient], Coroutine[Any, Any, None]]
) -> None:
    """Run `story` with an engine that can be killed, and a client of its broker."""

    async def run() -> None:
        engine = KillableEngine(folder)
        await engine.start()
        client = RawClient(engine.broker)
        try:
            await make_topic(engine)
            await story(engine, client)
        finally:
            await client.close()
            with suppress(ProcessLookupError):  # The story may have ended it.
                await engine.end(signal.SIGKILL)

    asyncio.run(run())


async def killed_and_started(engine: KillableEngine) -> None:
    """SIGKILL, then the next life on the same store."""
    await engine.end(signal.SIGKILL)
    await engine.start()


def place(answer: RemotingCommand) -> tuple[str, str, str]:
    """Where an answer says the message is."""
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer.fields["msgId"], answer.fields["queueId"], answer.fields["queueOffset"]


async def stored_bodies(client: RawClient, topic: str = TOPIC) -> list[bytes]:
    found = []
    for queue_id in range(2):
        answer = await client.pull(0, topic=topic, queue_id=queue_id)
        found += bodies(answer) if answer.code == ResponseCode.SUCCESS else []
    return found


async def send_batch(client: RawClient, messages: list[Message], queue_id: int) -> RemotingCommand:
    fields = {"a": "p", "b": TOPIC, "c": "TBW102", "d": 4, "e": queue_id, "f": 0}
    fields |= {"g": 1_700_000_000_000, "h": 0, "i": "", "j": 0, "k": "false", "m": "true"}
    return await client.ask(RequestCode.SEND_BATCH_MESSAGE, bytes(encode_batch(messages)), **fields)


@run_by(with_engine, "tmp_path")
async def test_a_resend_after_a_lost_answer_gets_the_first_place_and_one_copy_is_stored(
    engine: KillableEngine, client: RawClient
) -> None:
    async with lossy_link(engine.broker) as link:
        config = ProducerConfig(resend_to_same_broker=True, retry_times=0)
        client_settings = client_config(engine.namesrv, route_poll_ms=60_000)
        producer = Producer(system_runtime(), client_settings, "buyers", producer=config)
        await producer.start()
        known = await producer.send(Message(TOPIC, b"warm-up"))
        routes = producer._connection.routes
        routes._addresses[known.queue.broker_name][0] = link.address

        link.losing = True
        message = Message(TOPIC, b"pay 7")
        with pytest.raises(RequestTimedOut):
            await producer.send(message, timeout_ms=1000)
        assert link.lost_bytes, "the broker stored it and said so"
        link.losing = False
        again = await producer.send(message)
        third = await producer.send(message)
        assert again == third
        assert again.message_id == message.properties["UNIQ_KEY"]
        await producer.stop()
    assert sorted(await stored_bodies(client)) == [b"pay 7", b"warm-up"]


@run_by(with_engine, "tmp_path")
async def test_a_route_says_which_brokers_store_a_message_once(
    engine: KillableEngine, client: RawClient
) -> None:
    """And a tool that writes back what a route said does not make it a setting of the topic."""
    producer = Producer(system_runtime(), client_config(engine.namesrv), "buyers")
    await producer.start()
    routes = producer._connection.routes
    await client.send(b"x", topic="plain")
    for topic, once in ((TOPIC, True), ("plain", False)):
        broker = (await producer.send(Message(topic, b"x"))).queue.broker_name
        assert routes.stores_once(topic, broker) is once
    change = {"topic": TOPIC, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
    change |= {"topicFilterType": "SINGLE_TAG", "order": False, "defaultTopic": "TBW102"}
    for attributes, once in (("-message.deduplication", False), ("", False)):
        written = await client.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            **change | {"topicSysFlag": DEDUPLICATION_FLAG, "attributes": attributes},
        )
        assert written.code == ResponseCode.SUCCESS, written.remark
        await routes.refresh(TOPIC)
        assert routes.stores_once(TOPIC, broker) is once
    await producer.stop()


@run_by(with_engine, "tmp_path")
async def test_a_resend_after_the_broker_was_killed_gets_the_first_place(
    engine: KillableEngine, client: RawClient
) -> None:
    first = place(await client.send(b"pay 7", topic=TOPIC, queue_id=0, UNIQ_KEY="A1"))
    delayed = await client.send(b"later", topic=TOPIC, queue_id=1, UNIQ_KEY="A2", DELAY=18)
    packed = zlib.compress(b"long" * 2000)
    long = place(await client.send(packed, topic=TOPIC, sysFlag=0x301, UNIQ_KEY="A3"))
    await killed_and_started(engine)
    assert place(await client.send(b"pay 7", topic=TOPIC, queue_id=1, UNIQ_KEY="A1")) == first
    again = await client.send(packed, topic=TOPIC, sysFlag=0x301, UNIQ_KEY="A3")
    assert place(again) == long, "recognised as it was sent, compressed"
    again = await client.send(b"later", topic=TOPIC, queue_id=0, UNIQ_KEY="A2", DELAY=18)
    assert place(again) == place(delayed)
    assert await stored_bodies(client) == [b"pay 7", packed]

    other = await client.send(b"pay 8", topic=TOPIC, UNIQ_KEY="A1")
    assert other.code == ResponseCode.MESSAGE_ILLEGAL
    assert "an id of its own" in str(other.remark)
    assert await stored_bodies(client) == [b"pay 7", packed]

    await engine.end(signal.SIGTERM)
    reported = [
        row["detail"] for row in spooled(engine.store, "lifecycle") if row["kind"] == "RESENDS"
    ]
    assert reported == [
        (
            f"topic {TOPIC}: 3 resends answered with their first copy, "
            "1 refused for another body under the same UNIQ_KEY"
        )
    ]


@run_by(with_engine, "tmp_path")
async def test_without_the_attribute_and_for_retries_every_send_is_stored(
    engine: KillableEngine, client: RawClient
) -> None:
    await make_topic(engine, "plain", "")
    for _ in range(2):
        await client.send(b"twice", topic="plain", UNIQ_KEY="K")
    assert await stored_bodies(client, "plain") == [b"twice"] * 2

    await client.send(b"failed", topic=TOPIC, UNIQ_KEY="K")
    await client.send(b"failed", topic=TOPIC, UNIQ_KEY="K", ORIGIN_MESSAGE_ID="1")
    assert await stored_bodies(client) == [b"failed"] * 2, "a re-drive is a copy on purpose"

    await make_topic(engine, TOPIC, "+message.deduplication=false")
    await client.send(b"failed", topic=TOPIC, UNIQ_KEY="K")
    assert await stored_bodies(client) == [b"failed"] * 3


@run_by(with_engine, "tmp_path")
async def test_a_batch_is_answered_from_its_first_copies_and_only_what_is_missing_is_stored(
    engine: KillableEngine, client: RawClient
) -> None:
    batch = [Message(TOPIC, b"%d" % n, {"UNIQ_KEY": f"B{n}"}) for n in range(4)]
    torn = place(await send_batch(client, batch[:2], 1))
    await killed_and_started(engine)
    whole = place(await send_batch(client, batch, 0))
    ids = whole[0].split(",")
    assert (ids[:2], whole[1:]) == (torn[0].split(","), torn[1:])
    assert place(await send_batch(client, batch, 0)) == whole
    assert await stored_bodies(client) == [b"0", b"1", b"2", b"3"]

    two_bodies = [Message(TOPIC, body, {"UNIQ_KEY": "C"}) for body in (b"x", b"y")]
    refused = await send_batch(client, two_bodies, 0)
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert len(await stored_bodies(client)) == 4, "nothing of a refused batch is stored"
    same = [Message(TOPIC, b"z", {"UNIQ_KEY": "D"}) for _ in range(2)]
    first, second = place(await send_batch(client, same, 0))[0].split(",")
    assert first == second


async def test_reading_the_window_back_takes_no_memory_for_bodies(tmp_path: Path) -> None:
    config = broker_config(tmp_path, log_bytes=4 << 20)
    body = bytes(64 << 10)

    async def life(story: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
        async with cluster(config) as running:
            await story(running)

    async def send_many(running: Cluster) -> None:
        running.broker.state.topics.put(TopicConfig(TOPIC, attributes={DEDUPLICATION: "true"}))
        client = running.client()
        for number in range(400):
            await client.send(body, topic=TOPIC, UNIQ_KEY=f"K{number}")

    async def send_again(running: Cluster) -> None:
        assert tracemalloc.get_traced_memory()[1] < 10 << 20, "of 25 MiB of bodies"
        assert len(running.broker.state.deduplication) == 400
        answer = await running.client().send(body, topic=TOPIC, UNIQ_KEY="K0")
        assert answer.fields["queueOffset"] == "0"

    await life(send_many)
    tracemalloc.start()
    try:
        await life(send_again)
    finally:
        tracemalloc.stop()
