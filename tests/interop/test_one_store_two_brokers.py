"""Rows C2, C3, C4: Apache RocketMQ 5.5 and our broker take turns on one store folder.

Messages, keys, consume offsets, topics and delayed messages that one has stored are there for the
other, in both directions, after a clean stop and after kill -9. A topic that our broker deleted and
made again has only its new life, and its readers are at its beginning. RocketMQ reads our sealed
tables of `config/`; what it writes in their place has no seal, and is no damage to us.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from engine.admin import Admin
from engine.client import ClientConfig
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.message import MessageExt, MessageQueue
from engine.protocol.message_record import decode_records
from engine.runtime import system_runtime
from engine.store.table_file import seal_of
from tests.integration.broker.cluster import RawClient, eventually, messages
from tests.interop.our_engine import our_engine
from tests.interop.real_rocketmq import real_rocketmq

SHAPE = {"mappedFileSizeCommitLog": "1048576", "mappedFileSizeConsumeQueue": "2000"}
THEIRS = SHAPE | {"timerWheelEnable": "false"}
"""Its timers move delay offsets, and we write a table anew only when we change it."""
OUR_SHAPE = [word for key, value in SHAPE.items() for word in ("--set", f"{key}={value}")]
TOPIC = "both-brokers"
ANEW, ANEW_READERS = "made-again", [f"reader-{number}" for number in range(40)]
PER_BROKER = 130  # More than one consume-queue file of 100 units.
DELAY_LEVEL = 3  # 10 s
TABLES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")
SHAPED, SHAPED_GROUP = "sealedTopic", "sealedGroup"


def talk(address: str, story: Callable[[RawClient], Awaitable[None]]) -> None:
    """Run a story with a client of the broker at `address`."""

    async def run() -> None:
        client = RawClient(address)
        try:
            await story(client)
        finally:
            await client.close()

    asyncio.run(run())


def names(who: str) -> list[str]:
    return [f"{who}-{number}" for number in range(PER_BROKER)]


async def write(client: RawClient, who: str) -> None:
    """Numbered messages with keys and tags, one that is delayed, and a consume offset."""
    for name in names(who):
        sent = await client.send(
            name.encode() + bytes(2000), topic=TOPIC, KEYS=f"{name} {who}", TAGS=who
        )
        assert sent.code == ResponseCode.SUCCESS, sent.remark
    delayed = await client.send(
        f"late-{who}".encode(), topic=TOPIC, queue_id=1, DELAY=str(DELAY_LEVEL), KEYS=f"late-{who}"
    )
    assert delayed.code == ResponseCode.SUCCESS, delayed.remark
    await client.heartbeat(topics=(TOPIC,))

    async def committed() -> bool:
        await client.commit(offset_of(who), topic=TOPIC)
        return (await client.committed(topic=TOPIC)).fields.get("offset") == str(offset_of(who))

    await eventually(committed, "the offset is stored")


def offset_of(who: str) -> int:
    return {"rocketmq": 77, "tidemark": 188}[who]


async def check(client: RawClient, before: list[str]) -> None:
    """Everything that was written in these turns is there."""
    expected = [name for who in before for name in names(who)]
    found: list[MessageExt] = []
    while len(found) < len(expected):
        answer = await client.pull(len(found), topic=TOPIC)
        assert answer.code == ResponseCode.SUCCESS, (len(found), answer.code, answer.remark)
        found += messages(answer)
    assert [message.body.rstrip(b"\0").decode() for message in found] == expected
    assert [message.queue_offset for message in found] == list(range(len(expected)))
    committed = await client.committed(topic=TOPIC)
    assert committed.fields["offset"] == str(offset_of(before[-1]))
    for who in before:
        for name in (f"{who}-0", f"{who}-{PER_BROKER - 1}"):
            (message,) = await by_key(client, name)
            assert message.properties["KEYS"].split()[0] == name
        assert len(await by_key(client, who)) == 32, "as many as one answer holds"
        by_offset = await client.ask(
            RequestCode.VIEW_MESSAGE_BY_ID, offset=found[0].physical_offset
        )
        assert by_offset.code == ResponseCode.SUCCESS

    async def delivered() -> bool:
        answer = await client.pull(0, topic=TOPIC, queue_id=1)
        bodies = [message.body for message in decode_records(answer.body)]
        return bodies == [f"late-{who}".encode() for who in before]

    await eventually(delivered, "delayed messages are delivered, once each", within_s=40)


async def make_again(client: RawClient) -> None:
    """A topic with readers is deleted and made again, with fewer messages than before."""
    await client.make_topic(ANEW)
    for number in range(10):
        assert (await client.send(b"old %d" % number, topic=ANEW)).code == ResponseCode.SUCCESS
    for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET):  # As who chooses does.
        await client.ask(code, topic=ANEW, queueId=0)
    for group in ANEW_READERS:
        await client.commit(7, topic=ANEW, group=group)
        assert (await client.committed(topic=ANEW, group=group)).fields["offset"] == "7"
    deleted = await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=ANEW)
    assert deleted.code == ResponseCode.SUCCESS, deleted.remark
    await client.make_topic(ANEW)
    for number in range(6):
        assert (await client.send(b"new %d" % number, topic=ANEW)).code == ResponseCode.SUCCESS


async def check_made_again(client: RawClient) -> None:
    """Its new life is there, and all of it is before its readers."""
    answer = await client.pull(0, topic=ANEW)
    assert [message.body for message in messages(answer)] == [b"new %d" % n for n in range(6)]
    for group in ANEW_READERS:
        stats = await client.ask(RequestCode.GET_CONSUME_STATS, consumerGroup=group, topic=ANEW)
        assert b'"consumerOffset":0' in stats.body, (group, stats.body)
        committed = await client.committed(topic=ANEW, group=group)
        assert committed.fields.get("offset") == "0", (group, committed.remark)
    end = await client.send(b"of another broker", topic=ANEW)
    assert end.fields["queueOffset"] == "6"


def admin_of(name_server: str) -> Admin:
    return Admin(system_runtime(), ClientConfig(namesrv_addresses=(name_server,)))


async def fill_tables(name_server: str, broker: str) -> None:
    """A topic, a group and an offset, none of them as they come by themselves."""
    async with admin_of(name_server) as admin:
        await admin.topics.create(broker, SHAPED, read_queues=3, write_queues=3)
        await admin.groups.put(broker, {"groupName": SHAPED_GROUP, "retryMaxTimes": 7})
    client = RawClient(broker)
    for number in range(5):
        await client.send(b"%d" % number, topic=SHAPED, queue_id=2)
    await client.commit(4, topic=SHAPED, group=SHAPED_GROUP, queue_id=2)
    await client.close()


async def check_tables(name_server: str, broker: str) -> None:
    """All of it is known."""
    async with admin_of(name_server) as admin:

        async def routed() -> bool:
            return await admin.topics.route(SHAPED) is not None

        await eventually(routed, "the name server knows the topic", within_s=60)
        config = (await admin.topics.configs(SHAPED))["broker-a"]
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (3, 3, 6)
        assert (await admin.groups.configs_at(broker))[SHAPED_GROUP]["retryMaxTimes"] == 7
        queue = MessageQueue(SHAPED, "broker-a", 2)
        assert await admin.offsets.consume_offset(SHAPED_GROUP, queue) == 4
        assert await admin.offsets.max_offset(queue) == 5


def sealed(store: Path) -> dict[str, bool]:
    """Table → has it a seal?"""
    found = {name: seal_of((store / "config" / name).read_bytes()) for name in TABLES}
    assert all(seal.fits for seal in found.values() if seal is not None)
    return {name: seal is not None for name, seal in found.items()}


async def by_key(client: RawClient, key: str) -> list[MessageExt]:
    answer = await client.ask(
        RequestCode.QUERY_MESSAGE,
        topic=TOPIC,
        key=key,
        maxNum=32,
        beginTimestamp=0,
        endTimestamp=1 << 60,
    )
    return messages(answer) if answer.code == ResponseCode.SUCCESS else []


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "clean",
    [
        pytest.param(True, id="clean stops"),
        pytest.param(False, id="kill -9", marks=pytest.mark.slow),
    ],
)
def test_each_goes_on_where_the_other_stopped(tmp_path: Path, clean: bool) -> None:
    store = tmp_path / "store"
    with real_rocketmq(tmp_path, THEIRS, clean_stop=clean) as rocketmq:
        talk(rocketmq.broker, lambda client: write(client, "rocketmq"))
        if not clean:
            wait_for_offset(store, "rocketmq")
    assert (store / "abort").exists() is not clean
    with our_engine(tmp_path, *OUR_SHAPE, killed=not clean) as ours:
        talk(ours.broker, lambda client: check(client, ["rocketmq"]))
        talk(ours.broker, make_again)
        asyncio.run(fill_tables(ours.name_server, ours.broker))
        asyncio.run(check_tables(ours.name_server, ours.broker))
        talk(ours.broker, lambda client: write(client, "tidemark"))
        if not clean:
            wait_for_offset(store, "tidemark")
    assert (store / "abort").exists() is not clean
    if clean:
        assert sealed(store) == dict.fromkeys(TABLES, True)
    with real_rocketmq(tmp_path, THEIRS, clean_stop=clean) as rocketmq:
        talk(rocketmq.broker, lambda client: check(client, ["rocketmq", "tidemark"]))
        talk(rocketmq.broker, check_made_again)
        asyncio.run(check_tables(rocketmq.name_server, rocketmq.broker))
    if clean:
        assert sealed(store)["consumerOffset.json"] is False, "RocketMQ wrote its own"
        with our_engine(tmp_path, *OUR_SHAPE, "--strict-store") as again:
            asyncio.run(check_tables(again.name_server, again.broker))
        said = (tmp_path / "engine.log").read_text()
        assert "damaged" not in said.lower(), said
        assert sealed(store)["consumerOffset.json"] is True, "and we ours"


def wait_for_offset(store: Path, who: str) -> None:
    """Offsets are persisted on a timer: a kill before it may lose them, and is meant not to."""

    async def persisted() -> bool:
        path = store / "config" / "consumerOffset.json"
        return path.exists() and f":{offset_of(who)}" in path.read_text().replace(" ", "")

    asyncio.run(eventually(persisted, "the offset is persisted", within_s=30))
