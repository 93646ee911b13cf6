"""Row E3: messages that name their moment, as a client sends and recalls them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from engine.broker.config import BrokerConfig
from engine.broker.sending.timers import Handle, handle_in
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from tests.integration.broker.cluster import (
    TOPIC,
    Cluster,
    RawClient,
    broker_config,
    cluster,
    messages,
)

QUIET_S = 0.5
"""So much longer than it is due a message is waited for that must not appear."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def appeared(client: RawClient, count: int, offset: int = 0) -> list[tuple[bytes, int]]:
    """Bodies, and how late each was stored after its due time, in ms."""
    for _ in range(400):
        answer = await client.pull(offset, topic=TOPIC)
        if answer.code == ResponseCode.SUCCESS and len(messages(answer)) >= count:
            return [
                (one.body, one.store_timestamp_ms - int(one.properties["TIMER_DUE_MS"]))
                for one in messages(answer)
            ]
        await asyncio.sleep(0.02)
    raise AssertionError(f"fewer than {count} appeared: {answer.remark}")


async def end_of(client: RawClient) -> str:
    answer = await client.ask(RequestCode.GET_MAX_OFFSET, topic=TOPIC, queueId=0)
    return answer.fields["offset"]


async def recall(client: RawClient, handle: str, topic: str = TOPIC) -> RemotingCommand:
    return await client.ask(
        RequestCode.RECALL_MESSAGE, producerGroup="p", topic=topic, recallHandle=handle
    )


def recalling(folder: Path) -> BrokerConfig:
    return broker_config(folder, recall_message_enable=True)


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELAY_MS": 250},
        {"TIMER_DELAY_SEC": 1},
        {"TIMER_DELAY_SEC": 1, "TIMER_DELAY_MS": 60_000, "TIMER_DELIVER_MS": 1},
        {"TIMER_DELAY_MS": 250, "TIMER_DELIVER_MS": 10**14},
    ],
)
async def test_a_message_appears_after_the_delay_that_counts_and_not_before(
    tmp_path: Path, properties: dict[str, int]
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        sent_ms = now_ms()
        assert (await client.send(b"a", **properties)).code == ResponseCode.SUCCESS
        ((body, late_ms),) = await appeared(client, 1)
        delay_ms = properties.get("TIMER_DELAY_SEC", 0) * 1000 or properties["TIMER_DELAY_MS"]
        assert body == b"a"
        assert late_ms >= 0
        assert now_ms() - sent_ms >= delay_ms


async def test_a_message_for_a_moment_that_has_passed_appears_at_once(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        answer = await client.send(b"a", TIMER_DELIVER_MS=now_ms() - 5)
        assert "recallHandle" not in answer.fields
        assert await end_of(client) == "1"


async def test_a_delay_level_counts_before_a_timer(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        answer = await client.send(b"a", DELAY=1, TIMER_DELAY_SEC=3600)
        assert "recallHandle" not in answer.fields
        for _ in range(400):
            if await end_of(client) == "1":
                break
            await asyncio.sleep(0.05)
        assert await end_of(client) == "1"


async def test_a_copy_of_a_message_that_has_waited_appears_at_once(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.send(b"a", TIMER_DELAY_MS=100)
        await appeared(client, 1)
        (message,) = messages(await client.pull(0))
        text = "".join(f"{name}\x01{value}\x02" for name, value in message.properties.items())
        answer = await client.send(b"copy", properties=text)
        assert "recallHandle" not in answer.fields
        assert await end_of(client) == "2"


async def test_what_a_client_says_of_deliveries_is_not_believed(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.send(b"waits", TIMER_DELAY_MS=700)
        forged = f"{10**15},{0},{10**15}"
        await client.send(b"forged", TIMER_MARK=forged)
        for mark in (forged, "1,999999999", "1," + "9" * 5_000):
            properties = f"TIMER_MARK\x01{mark}\x02"
            await client.send(b"reply", code=RequestCode.SEND_REPLY_MESSAGE, properties=properties)
        stored = messages(await client.pull(0))
        assert len(stored) == 4
        assert not any("TIMER_MARK" in message.properties for message in stored)
        ((body, _),) = await appeared(client, 1, offset=4)
        assert body == b"waits"


@pytest.mark.parametrize("value", ["soon", "-1", "1.5", "9" * 30, str(10**17)])
async def test_a_moment_that_is_none_is_refused_by_its_name(tmp_path: Path, value: str) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        answer = await running.client().send(b"a", TIMER_DELIVER_MS=value)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert f"property TIMER_DELIVER_MS: {value[:40]!r}" in str(answer.remark)


async def test_timers_that_are_switched_off_are_refused(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path, timer_wheel_enable=False)) as running:
        answer = await running.client().send(b"a", TIMER_DELAY_SEC=1)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "accurate timer message is not enabled, timerWheelEnable=false" in str(answer.remark)


async def test_a_recalled_message_does_not_appear(tmp_path: Path) -> None:
    async with cluster(recalling(tmp_path)) as running:
        client = running.client()
        due_ms = now_ms() + 1200
        sent = await client.send(b"a", TIMER_DELIVER_MS=due_ms, UNIQ_KEY="KEY-A")
        await client.send(b"b", TIMER_DELIVER_MS=due_ms, UNIQ_KEY="KEY-B")
        handle = sent.fields["recallHandle"]
        assert handle_in(handle).at_ms == (due_ms - 1) // 1000 * 1000 + 1
        answer = await recall(client, handle)
        assert (answer.code, answer.fields["msgId"]) == (ResponseCode.SUCCESS, "KEY-A")
        await appeared(client, 1)
        await asyncio.sleep(QUIET_S)
        assert [body for body, _ in await appeared(client, 1)] == [b"b"]


async def test_a_recall_after_a_kill_cancels_what_was_sent_before_it(tmp_path: Path) -> None:
    due_ms = now_ms() + 2500
    async with cluster(recalling(tmp_path)) as running:
        sent = await running.client().send(b"a", TIMER_DELIVER_MS=due_ms)
        await running.client().send(b"b", TIMER_DELIVER_MS=due_ms)
    async with cluster(recalling(tmp_path)) as running:
        client = running.client()
        assert (await recall(client, sent.fields["recallHandle"])).code == ResponseCode.SUCCESS
        assert [body for body, _ in await appeared(client, 1)] == [b"b"]
        await asyncio.sleep(QUIET_S)
        assert await end_of(client) == "1"


async def refused(running: Cluster, handle: str, topic: str = TOPIC) -> tuple[int, str]:
    answer = await recall(running.client(), handle, topic)
    return answer.code, str(answer.remark)


async def test_a_recall_that_cannot_be_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with cluster(recalling(tmp_path)) as running:
        name = running.broker.state.node.config.broker_name
        await running.client().send(b"a")
        await running.client().make_topic("another")
        good = Handle(TOPIC, name, now_ms() + 60_000, "KEY")
        for handle, topic, code, why in (
            ("?", TOPIC, ResponseCode.ILLEGAL_OPERATION, "'?' is no recall handle"),
            (good.to_text(), "no-such", ResponseCode.TOPIC_NOT_EXIST, "no-such"),
            (good.to_text(), "another", ResponseCode.ILLEGAL_OPERATION, "topic not match"),
            (
                good._replace(broker_name="b").to_text(),
                TOPIC,
                ResponseCode.ILLEGAL_OPERATION,
                "broker not match",
            ),
            (
                good._replace(at_ms=now_ms() - 1).to_text(),
                TOPIC,
                ResponseCode.ILLEGAL_OPERATION,
                "timestamp invalid: the message is due by",
            ),
        ):
            answered, remark = await refused(running, handle, topic)
            assert answered == code, remark
            assert why in remark


async def test_recalls_are_forbidden_unless_they_are_switched_on(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        sent = await running.client().send(b"a", TIMER_DELAY_SEC=60)
        code, remark = await refused(running, sent.fields["recallHandle"])
        assert code == ResponseCode.NO_PERMISSION
        assert "recallMessageEnable=false" in remark
