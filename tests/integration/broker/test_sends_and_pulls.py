"""Messages over TCP: sent in three ways, pulled with and without waiting, found again by tools."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from engine.admin import Admin
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand, SerializeType
from engine.protocol.message import Message, MessageQueue
from engine.protocol.message_batch import encode_batch
from engine.runtime import system_runtime
from engine.store import FlushDiskType
from tests.integration.broker.cluster import (
    TOPIC,
    bodies,
    broker_config,
    cluster,
    eventually,
    messages,
)
from tests.integration.client.cluster_users import client_config


async def test_a_sent_message_is_pulled_as_it_was_sent(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        sent = await client.send(b"hello", queue_id=2, TAGS="TagA", KEYS="k1", UNIQ_KEY="U1")
        assert sent.code == ResponseCode.SUCCESS, sent.remark
        assert sent.fields["queueId"] == "2"
        assert sent.fields["queueOffset"] == "0"
        assert sent.fields["transactionId"] == "U1"
        pulled = await client.pull(0, queue_id=2)
        (message,) = messages(pulled)
        assert (pulled.code, pulled.remark) == (ResponseCode.SUCCESS, "FOUND")
        assert pulled.fields["nextBeginOffset"] == "1"
        assert (pulled.fields["minOffset"], pulled.fields["maxOffset"]) == ("0", "1")
        flags = pulled.fields["topicSysFlag"], pulled.fields["groupSysFlag"]
        assert flags == ("0", "0"), "every answer to a pull carries both"
        assert (message.topic, message.body) == (TOPIC, b"hello")
        assert (message.queue_id, message.queue_offset) == (2, 0)
        assert message.properties["TAGS"] == "TagA"
        assert message.properties["CLUSTER"] == "DefaultCluster"
        assert message.offset_message_id == sent.fields["msgId"]


async def test_the_short_names_of_version_two_and_binary_headers_mean_the_same(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        fields = dict(zip("abcdefghij", ("p", TOPIC, "TBW102", 4, 1, 0, 7, 0, "", 0), strict=True))
        request = RemotingCommand.request(
            RequestCode.SEND_MESSAGE_V2, {k: str(v) for k, v in fields.items()}, b"short"
        )
        request.serialize_type = SerializeType.ROCKETMQ
        sent = await client.rpc.invoke(client.address, request, timeout_ms=5000)
        assert sent.code == ResponseCode.SUCCESS, sent.remark
        assert sent.serialize_type is SerializeType.ROCKETMQ
        assert bodies(await client.pull(0, queue_id=1)) == [b"short"]


async def test_a_batch_is_stored_as_messages_with_consecutive_offsets(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.send(b"before")
        batch = encode_batch([Message(TOPIC, f"b{n}".encode()) for n in range(3)])
        fields = dict(
            zip("abcdefghim", ("p", TOPIC, "TBW102", 4, 0, 0, 7, 0, "", "true"), strict=True)
        )
        sent = await client.ask(RequestCode.SEND_BATCH_MESSAGE, batch, **fields)
        assert sent.code == ResponseCode.SUCCESS, sent.remark
        assert sent.fields["queueOffset"] == "1"
        assert len(sent.fields["msgId"].split(",")) == 3
        assert bodies(await client.pull(0)) == [b"before", b"b0", b"b1", b"b2"]


@pytest.mark.parametrize("reason", ["true", "1"])
@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
async def test_a_batch_is_a_batch_under_any_code_of_sending(
    tmp_path: Path, code: RequestCode, reason: str
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        batch = encode_batch([Message(TOPIC, b"b%d" % number) for number in range(3)])
        if code is RequestCode.SEND_MESSAGE:
            sent = await client.send(batch, batch=reason)
        else:
            fields = dict(
                zip("abcdefghim", ("p", TOPIC, "TBW102", 4, 0, 0, 7, 0, "", reason), strict=True)
            )
            sent = await client.ask(code, batch, **fields)
        assert sent.code == ResponseCode.SUCCESS, sent.remark
        assert bodies(await client.pull(0)) == [b"b0", b"b1", b"b2"]


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_a_waiting_pull_is_woken_by_the_message_it_waits_for(
    tmp_path: Path, flush: FlushDiskType
) -> None:
    async with cluster(broker_config(tmp_path, flush=flush)) as running:
        client, producer = running.client(), running.client("127.0.0.1@producer")
        await client.send(b"old", TAGS="TagA")
        waiting = asyncio.create_task(client.pull(1, wait_ms=15_000, subscription="TagB"))
        await producer.send(b"not wanted", TAGS="TagA")
        began_s = time.monotonic()
        await producer.send(b"wanted", TAGS="TagB")
        pulled = await waiting
        assert bodies(pulled) == [b"wanted"]
        assert pulled.fields["nextBeginOffset"] == "3"
        assert time.monotonic() - began_s < 4, "woken by its message, not by its deadline"


async def test_a_waiting_pull_by_sql92_is_woken_by_what_its_selector_matches(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path, enable_property_filter=True)) as running:
        client, producer = running.client(), running.client("127.0.0.1@producer")
        await client.send(b"old", N="9")
        asked = {"subscription": "N > 5", "expressionType": "SQL92"}
        waiting = asyncio.create_task(client.pull(1, wait_ms=15_000, **asked))

        async def held() -> bool:
            return running.broker.state.holds.count == 1

        await eventually(held, "the pull is held")
        await producer.send(b"not wanted", N="1")
        await producer.send(b"nor this")
        assert await held()
        await producer.send(b"wanted", N="7")
        pulled = await waiting
        assert bodies(pulled) == [b"wanted"]
        assert pulled.fields["nextBeginOffset"] == "4"


async def test_a_waiting_pull_is_answered_at_its_deadline_when_nothing_comes(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.send(b"old")
        pulled = await client.pull(1, wait_ms=300)
        assert pulled.code == ResponseCode.PULL_NOT_FOUND
        assert pulled.fields["nextBeginOffset"] == "1"


async def test_a_stopping_broker_answers_those_who_wait(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.send(b"old")
        waiting = asyncio.create_task(client.pull(1, wait_ms=60_000))

        async def held() -> bool:
            return running.broker.state.holds.count == 1

        await eventually(held, "the pull is held")
        await running.broker.stop()
        assert (await waiting).code == ResponseCode.PULL_NOT_FOUND


async def test_filtered_messages_are_stepped_over(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        for tag in ("TagA", "TagB", "TagA"):
            await client.send(tag.encode(), TAGS=tag)
        some = await client.pull(0, subscription="TagB || TagC")
        assert bodies(some) == [b"TagB"]
        assert some.fields["nextBeginOffset"] == "3"
        none = await client.pull(0, subscription="TagX")
        assert none.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert none.fields["nextBeginOffset"] == "3"


async def test_a_pull_beyond_the_end_is_answered_where_the_queue_ends(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.send(b"one")
        pulled = await client.pull(50)
        assert pulled.code == ResponseCode.PULL_OFFSET_MOVED
        assert (pulled.remark, pulled.fields["nextBeginOffset"]) == (
            "OFFSET_OVERFLOW_BADLY",
            "1",
        )


async def test_messages_are_found_by_key_unique_key_and_place(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.send(b"other", KEYS="k0", UNIQ_KEY="U0")
        sent = await client.send(b"mine", KEYS="k1 k2", UNIQ_KEY="U1")
        asked = {"topic": TOPIC, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 50}
        by_key = await client.ask(RequestCode.QUERY_MESSAGE, key="k2", **asked)
        assert bodies(by_key) == [b"mine"]
        by_unique_key = await client.ask(
            RequestCode.QUERY_MESSAGE, key="U1", _UNIQUE_KEY_QUERY=True, **asked
        )
        assert bodies(by_unique_key) == [b"mine"]
        offset = int(sent.fields["msgId"][-16:], 16)
        by_place = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=offset)
        assert bodies(by_place) == [b"mine"]
        missing = await client.ask(RequestCode.QUERY_MESSAGE, key="nowhere", **asked)
        assert missing.code == ResponseCode.QUERY_NOT_FOUND


async def test_queue_ends_and_times_are_reported(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        for body in (b"a", b"b", b"c"):
            await client.send(body)
        stored_ms = [message.store_timestamp_ms for message in messages(await client.pull(0))]
        queue = {"topic": TOPIC, "queueId": 0}
        latest = await client.ask(RequestCode.GET_MAX_OFFSET, **queue)
        first = await client.ask(RequestCode.GET_MIN_OFFSET, **queue)
        assert (latest.fields["offset"], first.fields["offset"]) == ("3", "0")
        at_start = await client.ask(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=stored_ms[0], **queue
        )
        after_all = await client.ask(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=stored_ms[-1] + 1, **queue
        )
        assert (at_start.fields["offset"], after_all.fields["offset"]) == ("0", "3")
        earliest = await client.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, **queue)
        assert earliest.fields["timestamp"] == str(stored_ms[0])
        for empty in ({"topic": TOPIC, "queueId": 1}, {"topic": "nowhere", "queueId": 0}):
            answer = await client.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, **empty)
            assert answer.code == ResponseCode.SUCCESS
            assert answer.fields["timestamp"] == "-1", "RocketMQ's word for no message"
        async with Admin(system_runtime(), client_config(running.name_server_address)) as admin:
            for queue_id, expected in ((0, stored_ms[0]), (1, None)):
                place = MessageQueue(TOPIC, running.broker.state.node.config.broker_name, queue_id)
                assert await admin.offsets.earliest_store_time(place) == expected


async def test_a_topic_made_by_its_first_message_has_the_queues_the_producer_wished(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path, default_topic_queue_nums=4)) as running:
        client, names = running.client(), running.of_name_server()
        await client.send(topic="few", defaultTopicQueueNums=2)
        await client.send(topic="many", defaultTopicQueueNums=64)
        few, many = (
            running.broker.state.topics.find("few"),
            running.broker.state.topics.find("many"),
        )
        assert few is not None
        assert many is not None
        assert (few.write_queue_nums, many.write_queue_nums) == (2, 4)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 10
        while (await names.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="few")).code:
            assert loop.time() < deadline, "the name server never heard of the topic"
            await asyncio.sleep(0.02)
