"""Rows A4, A5, A8 and B1: our broker answers about offsets and members as RocketMQ does.

The same requests go to a real RocketMQ 5.5 and to our broker. The answers are the same, but for
those listed with their reason.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from typing import Any

import pytest
from typer.testing import CliRunner

from engine.protocol.codes import RequestCode as R
from engine.protocol.command import RemotingCommand
from engine.protocol.fastjson import loads
from tests.integration.broker.cluster import RawClient, eventually, messages
from tests.interop.our_engine import OurEngine
from tests.interop.real_rocketmq import RealRocketMQ
from tidemark import app

TOPIC, GROUP, OTHER = "asked_offsets", "asked-offsets", "asked-offsets-clone"
DIFFERENT = {
    "commit beyond the end": "an error, for who waits hears that it does not count",
    "query what was committed": "RocketMQ stores an offset beyond the end; we refuse it: it can "
    "only be of another life of the topic",
    "commit for a group there is not": "refused by RocketMQ; we make it, as heartbeats do",
    "commit a negative offset": "stored by RocketMQ, refused by us: it would hide every message",
    "commit for a queue there is not": "stored by RocketMQ, refused by us",
    "reset a queue there is not": "done by RocketMQ, refused by us",
    "reset to one behind the end": "done by RocketMQ, refused by us: nothing is there",
    "delete the offsets of one topic": "RocketMQ's brokers do not know the request",
    "reset forward without force": "RocketMQ's brokers of 5.x pass over isForce; we heed it",
}
"""Where we differ on purpose."""

Said = dict[str, tuple[Any, ...]]


def heard(answer: RemotingCommand) -> tuple[Any, ...]:
    """What of an answer must be the same: code, the fields about offsets and heartbeats, body."""
    wanted = ("offset", "nextBeginOffset", "minOffset", "maxOffset", "timestamp")
    fields = {name: answer.fields[name] for name in wanted if name in answer.fields}
    fields |= {name: value for name, value in answer.fields.items() if name.startswith("IS_SU")}
    body: Any = None
    if bytes(answer.body[:1]) == b"{":
        table = loads(answer.body)
        body = table.get("offsetTable") or table.get("correctionOffsets")
        body = {str(key): value for key, value in (body or {}).items()}
    elif answer.body:
        body = [message.queue_offset for message in messages(answer)]
    return int(answer.code), fields, body


def beat(client: RawClient, fingerprint: int, *, leaves_out: bool) -> Awaitable[RemotingCommand]:
    """A heartbeat of version 2."""
    subscription = {"topic": TOPIC, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1}
    consumer = {
        "groupName": GROUP,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [] if leaves_out else [subscription | {"expressionType": "TAG"}],
    }
    data = {"clientID": client.client_id, "producerDataSet": [], "consumerDataSet": [consumer]}
    data |= {"heartbeatFingerprint": fingerprint, "withoutSub": leaves_out}
    return client.ask(R.HEART_BEAT, json.dumps(data).encode())


def query(client: RawClient, queue_id: int, **more: object) -> Awaitable[RemotingCommand]:
    asked = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": queue_id}
    return client.ask(R.QUERY_CONSUMER_OFFSET, **(asked | more))


def first_store_time(client: RawClient, **more: object) -> Awaitable[RemotingCommand]:
    return client.ask(R.GET_EARLIEST_MSG_STORETIME, **({"topic": TOPIC, "queueId": 0} | more))


def commit(client: RawClient, offset: int, queue_id: int = 0) -> Awaitable[RemotingCommand]:
    return client.commit(offset, topic=TOPIC, group=GROUP, queue_id=queue_id)


def reset(client: RawClient, **more: object) -> Awaitable[RemotingCommand]:
    header = {"topic": TOPIC, "group": GROUP, "timestamp": 0, "isForce": True, "queueId": -1}
    return client.ask(R.INVOKE_BROKER_TO_RESET_OFFSET, **(header | more))


def pull(client: RawClient, offset: int, queue_id: int = 0) -> Awaitable[RemotingCommand]:
    return client.pull(offset, topic=TOPIC, group=GROUP, queue_id=queue_id)


async def ask_everything(broker: str) -> Said:
    """The requests, one after the other, and what was answered."""
    one, two = RawClient(broker, "c1"), RawClient(broker, "c2")
    for number in range(5):
        await one.send(f"{number}".encode(), topic=TOPIC, queue_id=0)

    async def visible() -> bool:
        answer = await one.ask(R.GET_MAX_OFFSET, topic=TOPIC, queueId=0)
        return answer.fields.get("offset") == "5"

    await eventually(visible, "five messages")
    said: Said = {}
    clone = {"srcGroup": GROUP, "destGroup": OTHER, "topic": TOPIC, "offline": True}
    correct = {"filterGroups": "noise", "compareGroup": GROUP, "topic": TOPIC}
    for name, request in (
        ("first store time of an empty queue", lambda: first_store_time(one, queueId=2)),
        ("first store time of no queue", lambda: first_store_time(one, queueId=77)),
        ("first store time of no topic", lambda: first_store_time(one, topic="asked_nowhere")),
        ("query a queue that is empty", lambda: query(one, 2)),
        ("query a young queue", lambda: query(one, 0)),
        ("query without zero", lambda: query(one, 0, setZeroIfNotFound=False)),
        ("heartbeat of version 1", lambda: one.heartbeat(GROUP, (TOPIC,))),
        ("version 2 after version 1", lambda: beat(one, 7, leaves_out=False)),
        ("version 2 without subscription", lambda: beat(one, 7, leaves_out=True)),
        ("another member's fingerprint", lambda: beat(two, 8, leaves_out=False)),
        ("the first one's again, left out", lambda: beat(one, 7, leaves_out=True)),
        ("and in full", lambda: beat(one, 7, leaves_out=False)),
        ("pull before any commit", lambda: pull(one, 0)),
        ("commit", lambda: commit(one, 4)),
        ("commit beyond the end", lambda: commit(one, 99, 3)),
        ("query what was committed", lambda: query(one, 3)),
        ("commit for a topic there is not", lambda: one.commit(1, topic="asked_no", group=GROUP)),
        ("reset an unknown topic", lambda: reset(one, topic="asked_nowhere")),
        ("reset an unknown group", lambda: reset(one, group="asked-nobody")),
        ("reset far beyond the end", lambda: reset(one, queueId=0, offset=7)),
        ("reset", lambda: reset(one, queueId=0, offset=2)),
        ("query while it waits", lambda: query(one, 0)),
        ("commit while it waits", lambda: commit(one, 5)),
        ("the pull that is answered", lambda: pull(one, 4)),
        ("commit afterwards", lambda: commit(one, 3)),
        ("reset all to the beginning", lambda: reset(one)),
        ("clone", lambda: one.ask(R.CLONE_GROUP_OFFSET, **clone)),
        ("query the clone", lambda: query(one, 0, consumerGroup=OTHER)),
        ("correction", lambda: one.ask(R.QUERY_CORRECTION_OFFSET, **correct)),
        ("take the reset", lambda: pull(one, 0)),
        ("pull from the beginning", lambda: pull(one, 0)),
        ("pull at the end", lambda: pull(one, 5)),
        ("pull one behind the end", lambda: pull(one, 6)),
        ("pull far beyond the end", lambda: pull(one, 50)),
        ("take the reset of an empty queue", lambda: pull(one, 0, 2)),
        ("pull an empty queue", lambda: pull(one, 0, 2)),
        ("pull an empty queue further on", lambda: pull(one, 3, 2)),
        ("members of nobody", lambda: one.ask(R.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="x-x")),
        ("commit for a group there is not", lambda: one.commit(1, topic=TOPIC, group="asked-new")),
        ("commit a negative offset", lambda: commit(one, -5)),
        ("commit for a queue there is not", lambda: commit(one, 1, 77)),
        ("reset a queue there is not", lambda: reset(one, queueId=9)),
        ("reset to one behind the end", lambda: reset(one, queueId=0, offset=6)),
        (
            "delete the offsets of one topic",
            lambda: one.ask(R.DELETE_CONSUMER_OFFSETS, group=OTHER, topic=TOPIC),
        ),
        ("reset forward without force", lambda: reset(one, timestamp=-1, isForce=False)),
    ):
        said[name] = heard(await request())
    await one.close()
    await two.close()
    return said


@pytest.mark.timeout(180)
def test_requests_about_offsets_are_answered_as_a_real_broker_answers_them(
    apache_rocketmq: RealRocketMQ, engine_process: OurEngine
) -> None:
    real = asyncio.run(ask_everything(apache_rocketmq.broker))
    ours = asyncio.run(ask_everything(engine_process.broker))
    different = {name: (real[name], ours[name]) for name in real if real[name] != ours[name]}
    assert list(different) == list(DIFFERENT), different


def test_offsets_of_one_topic_are_not_deleted_on_a_real_broker_and_the_answer_says_why(
    apache_rocketmq: RealRocketMQ,
) -> None:
    words = ("offset", "delete", GROUP, TOPIC, "--dry-run", "-n", apache_rocketmq.name_server)
    answer = CliRunner().invoke(app, ["admin", *words])
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert "delete all offsets of a group, or none" in answer.stderr
