"""Messages that wait: delay levels, retries after a failure, dead letters."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.header_fields import INT32_MAX
from engine.protocol.message import MessageExt
from engine.runtime import system_runtime
from pipelines.marts.duplicate_risk_windows import MART as RISKS
from tests.failing_disk import FailingDisk
from tests.integration.broker.cluster import (
    GROUP,
    TOPIC,
    RawClient,
    broker_config,
    cluster,
    messages,
)
from tests.integration.broker.spooled import picked, spooled
from tests.pipelines.marts.literal_facts import computed, facts, only

RETRY, DLQ = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"


async def next_of(client: RawClient, topic: str, offset: int) -> MessageExt:
    """The message at `offset` of the topic's only queue, waited for."""
    while True:
        pulled = await client.pull(offset, topic=topic, wait_ms=15_000)
        if pulled.code == ResponseCode.SUCCESS:
            return messages(pulled)[0]


async def send_back(
    client: RawClient, message: MessageExt, *, level: int = 0, times_max: int = 16
) -> RemotingCommand:
    return await client.ask(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        offset=message.physical_offset,
        group=GROUP,
        delayLevel=level,
        originMsgId=message.message_id,
        originTopic=message.topic,
        maxReconsumeTimes=times_max,
    )


async def test_a_delayed_message_appears_at_its_topic_when_its_time_has_come(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path, delay_levels_ms=(100, 700))) as running:
        client = running.client()
        sent = await client.send(b"later", queue_id=3, DELAY=2, TAGS="TagA")
        assert sent.code == ResponseCode.SUCCESS
        assert (await client.pull(0, queue_id=3)).code == ResponseCode.PULL_NOT_FOUND
        pulled = await client.pull(0, queue_id=3, wait_ms=15_000, subscription="TagA")
        (message,) = messages(pulled)
        assert message.body == b"later"
        assert message.properties["REAL_TOPIC"] == TOPIC
        waited_ms = int(time.time() * 1000) - message.born_timestamp_ms
        assert waited_ms >= 700


async def test_a_failed_message_comes_back_in_the_retry_topic_with_its_identity(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.heartbeat()
        await client.send(b"hard", UNIQ_KEY="U1", TAGS="TagA")
        first = await next_of(client, TOPIC, 0)
        assert (await send_back(client, first)).code == ResponseCode.SUCCESS
        second = await next_of(client, RETRY, 0)
        assert (second.body, second.reconsume_times) == (b"hard", 1)
        assert second.properties["UNIQ_KEY"] == "U1"
        assert second.properties["RETRY_TOPIC"] == TOPIC
        assert second.properties["ORIGIN_MESSAGE_ID"] == first.offset_message_id
        assert (await send_back(client, second)).code == ResponseCode.SUCCESS
        third = await next_of(client, RETRY, 1)
        assert third.reconsume_times == 2
        assert third.properties["ORIGIN_MESSAGE_ID"] == first.offset_message_id


async def test_a_message_that_failed_too_often_ends_in_the_dead_letters_and_every_step_is_reported(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.heartbeat()
        await client.send(b"fine")
        await client.send(b"poison", UNIQ_KEY="U1")
        first = await next_of(client, TOPIC, 1)
        await send_back(client, first, times_max=1)
        second = await next_of(client, RETRY, 0)
        await send_back(client, second, times_max=1)
        dead = await next_of(client, DLQ, 0)
        assert (dead.body, dead.reconsume_times) == (b"poison", 2)
        assert dead.properties["DLQ_ORIGIN_TOPIC"] == TOPIC
    flow = spooled(tmp_path / "store", "retry_dlq_flow")
    columns = (
        "step",
        "reconsume_times",
        "delay_ms",
        "message_id",
        "origin_topic",
        "origin_queue_id",
        "origin_offset",
    )
    assert [picked(row, *columns) for row in flow] == [
        ("SENT_BACK", 1, None, "U1", TOPIC, 0, 1),
        ("SCHEDULED", 1, 600, "U1", TOPIC, 0, 1),
        ("DELIVERED", 1, 600, "U1", TOPIC, 0, 1),
        ("SENT_BACK", 2, None, "U1", TOPIC, 0, 1),
        ("DEAD_LETTERED", 2, None, "U1", TOPIC, 0, 1),
    ]
    assert flow[-1]["reason"] == "1 retry failed"
    risks, _ = computed(RISKS, {"retry_dlq_flow": facts("retry_dlq_flow", *map(as_fact, flow))})
    columns = ("cause", "outcome", "topic", "queue_id", "from_offset", "to_offset", "message_id")
    assert only(risks, *columns) == [("SEND_BACK", "CONFIRMED", TOPIC, 0, 1, 2, "U1")]


def as_fact(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the spool as a literal fact, without what only the spool's own order says."""
    return {name: value for name, value in row.items() if value is not None}


async def test_an_origin_that_is_gone_or_another_message_is_unknown(tmp_path: Path) -> None:
    """A client may name any record, and write any topic and key into its copy."""
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.heartbeat()
        await client.send(b"first", UNIQ_KEY="U1")
        await client.send(b"second", UNIQ_KEY="U2")
        first, second = [await next_of(client, TOPIC, at) for at in range(2)]
        names_another = {"ORIGIN_MESSAGE_ID": second.offset_message_id, "RETRY_TOPIC": TOPIC}
        elsewhere = {"ORIGIN_MESSAGE_ID": first.offset_message_id, "RETRY_TOPIC": "elsewhere"}
        key_alone = {"ORIGIN_MESSAGE_ID": "U1", "RETRY_TOPIC": TOPIC}
        here = {"ORIGIN_MESSAGE_ID": first.offset_message_id, "RETRY_TOPIC": TOPIC}
        origin_of = running.broker.services.sending.origins.origin_of
        for properties in (names_another, elsewhere, key_alone):
            assert origin_of({"UNIQ_KEY": "U1", **properties}) == (None, None), properties
        assert origin_of({"UNIQ_KEY": "U1", **here}) == (0, 0)
        assert origin_of(here) == origin_of({}) == (None, None)
        await running.client().ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=TOPIC)
        assert origin_of({"UNIQ_KEY": "U1", **here}) == (None, None)


async def test_a_negative_level_buries_a_message_at_once(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.heartbeat()
        await client.send(b"poison")
        await send_back(client, await next_of(client, TOPIC, 0), level=-1)
        assert (await next_of(client, DLQ, 0)).body == b"poison"


async def test_an_asked_level_is_taken_and_one_too_high_is_the_highest(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path, delay_levels_ms=(100, 200, 300))) as running:
        client = running.client()
        await client.heartbeat()
        await client.send(b"hard")
        message = await next_of(client, TOPIC, 0)
        await send_back(client, message, level=1)
        await send_back(client, message, level=99)
        await next_of(client, RETRY, 0)
        await next_of(client, RETRY, 1)
    flow = spooled(tmp_path / "store", "retry_dlq_flow")
    assert [row["delay_ms"] for row in flow if row["step"] == "SCHEDULED"] == [100, 300]
    assert [row["delay_ms"] for row in flow if row["step"] == "DELIVERED"] == [100, 300]


async def test_a_client_that_resends_a_failed_message_itself_goes_by_the_same_limit(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.heartbeat()
        await client.send(b"again", topic=RETRY, reconsumeTimes=2, maxReconsumeTimes=3)
        await client.send(b"dead", topic=RETRY, reconsumeTimes=4, maxReconsumeTimes=3)
        assert (await next_of(client, RETRY, 0)).body == b"again"
        assert (await next_of(client, DLQ, 0)).body == b"dead"


async def test_what_an_orderly_consumer_gives_up_is_dead_at_once(tmp_path: Path) -> None:
    """Row E2: whatever its count, as RocketMQ 5.5 has it; a re-drive goes through all the same."""
    config = broker_config(tmp_path)
    async with cluster(config) as running:
        client = running.client()
        await client.heartbeat()
        body = {
            "consumerGroup": GROUP,
            "clientId": client.client_id,
            "mqSet": [{"topic": TOPIC, "brokerName": "broker-a", "queueId": 0}],
        }
        await client.send(b"makes the topic")
        await client.ask(RequestCode.LOCK_BATCH_MQ, json.dumps(body).encode())
        for times_max in (3, 0):
            given_up = {"reconsumeTimes": times_max, "maxReconsumeTimes": times_max}
            await client.send(b"dead", topic=RETRY, DELAY=6, REDRIVEN_FROM="an-id", **given_up)
        await client.send(b"redriven", topic=RETRY, REDRIVEN_FROM="an-id")
        assert (await next_of(client, RETRY, 0)).body == b"redriven"
        await client.ask(RequestCode.UNLOCK_BATCH_MQ, json.dumps(body).encode())
        await client.send(b"again", topic=RETRY, reconsumeTimes=3, maxReconsumeTimes=3)
        assert (await next_of(client, RETRY, 1)).body == b"again"
    async with cluster(config) as running:
        dead = messages(await running.client().pull(0, topic=DLQ))
        assert [one.reconsume_times for one in dead] == [3, 0]
    flow = spooled(tmp_path / "store", "retry_dlq_flow")
    assert [picked(row, "step", "reason") for row in flow][:4] == [
        ("SENT_BACK", "sent by the consumer itself"),
        ("DEAD_LETTERED", "given up by a consumer in order"),
    ] * 2


async def test_what_a_broker_may_not_write_is_refused_and_no_step_of_a_message(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.heartbeat()
        await client.send(b"hard")
        message = await next_of(client, TOPIC, 0)
        retry = running.broker.state.topics.find(RETRY)
        assert retry is not None
        retry.perm = 4
        for times_max in (16, 0):
            refused = await send_back(client, message, times_max=times_max)
            assert refused.code == ResponseCode.NO_PERMISSION
            assert f"the topic[{RETRY}] sending message is forbidden" in (refused.remark or "")
        retry.perm = 6
        await client.ask(RequestCode.UPDATE_BROKER_CONFIG, b"brokerPermission=4\n")
        refused = await send_back(client, message)
        assert refused.code == ResponseCode.NO_PERMISSION
        assert "brokerPermission 4 has no write bit" in (refused.remark or "")
        await client.ask(RequestCode.UPDATE_BROKER_CONFIG, b"brokerPermission=6\n")
        assert (await send_back(client, message)).code == ResponseCode.SUCCESS
        await next_of(client, RETRY, 0)
    flow = spooled(tmp_path / "store", "retry_dlq_flow")
    assert [row["step"] for row in flow] == ["SENT_BACK", "SCHEDULED", "DELIVERED"]


async def test_what_the_disk_has_no_room_for_is_refused_and_no_step_of_a_message(
    tmp_path: Path,
) -> None:
    disk = FailingDisk()
    config = broker_config(tmp_path, log_bytes=64 * 1024)
    async with cluster(config, replace(system_runtime(), disk=disk)) as running:
        client = running.client()
        await client.heartbeat()
        await client.send(bytes(8192))
        message = await next_of(client, TOPIC, 0)
        disk.free_bytes = 0
        sent = [await client.send(bytes(4096)) for _ in range(40)]
        assert sent[-1].code == ResponseCode.SERVICE_NOT_AVAILABLE
        refused = await send_back(client, message)
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "no space left" in (refused.remark or "")
        disk.free_bytes = None
        assert (await send_back(client, message)).code == ResponseCode.SUCCESS
        await next_of(client, RETRY, 0)
    flow = spooled(tmp_path / "store", "retry_dlq_flow")
    assert [row["step"] for row in flow] == ["SENT_BACK", "SCHEDULED", "DELIVERED"]


async def test_a_message_at_the_end_of_its_count_of_tries_is_reported_with_a_count_that_is_one(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.heartbeat()
        sent = await client.send(reconsumeTimes=INT32_MAX)
        back = await client.ask(
            RequestCode.CONSUMER_SEND_MSG_BACK,
            group=GROUP,
            offset=int(sent.fields["msgId"][16:], 16),
            delayLevel=1,
        )
        assert back.code == ResponseCode.SUCCESS, back.remark
    flow = spooled(tmp_path / "store", "retry_dlq_flow")
    assert {row["step"] for row in flow} == {"SENT_BACK", "DEAD_LETTERED"}
    assert {row["reconsume_times"] for row in flow} == {INT32_MAX}


async def test_waiting_messages_survive_a_restart_and_are_delivered_once_after_a_clean_stop(
    tmp_path: Path,
) -> None:
    config = broker_config(tmp_path, delay_levels_ms=(100, 1500))
    async with cluster(config) as running:
        client = running.client()
        await client.send(b"early", DELAY=1)
        assert (await next_of(client, TOPIC, 0)).body == b"early"
        await client.send(b"late", DELAY=2)
    async with cluster(config) as running:
        client = running.client()
        late = await next_of(client, TOPIC, 1)
        assert late.body == b"late", "the early one is not delivered again"
