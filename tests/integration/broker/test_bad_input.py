"""What a broker does with requests and bytes that are wrong: RocketMQ's code, a remark that says
what was wrong, and nobody else harmed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from tests.integration.broker.cluster import (
    GROUP,
    TOPIC,
    RawClient,
    bodies,
    broker_config,
    cluster,
    eventually,
)
from tests.integration.broker.spooled import spooled

MIB = 1 << 20
Ask = Callable[[RawClient], Awaitable[RemotingCommand]]

REFUSALS: list[tuple[str, Ask, ResponseCode, str]] = [
    (
        "an illegal topic",
        lambda client: client.send(topic="../etc"),
        ResponseCode.INVALID_PARAMETER,
        "'../etc'",
    ),
    (
        "a topic that is too long",
        lambda client: client.send(topic="t" * 128),
        ResponseCode.INVALID_PARAMETER,
        "128 characters",
    ),
    (
        "a topic of the broker's own",
        lambda client: client.send(topic="SCHEDULE_TOPIC_XXXX"),
        ResponseCode.NO_PERMISSION,
        "topic[SCHEDULE_TOPIC_XXXX] is forbidden",
    ),
    (
        "the topic of a group's tables",
        lambda client: client.send(topic="rmq_sys_group_tables"),
        ResponseCode.NO_PERMISSION,
        "topic[rmq_sys_group_tables] is forbidden",
    ),
    (
        "a body that is too long",
        lambda client: client.send(bytes(4 * MIB + 1)),
        ResponseCode.MESSAGE_ILLEGAL,
        "its body: 4194305 bytes, the limit is 4194304",
    ),
    (
        "properties that are too long",
        lambda client: client.send(KEYS="k" * 32_767),
        ResponseCode.MESSAGE_ILLEGAL,
        "dead letter and re-drive add, 35658 in all; the limit is 32767",
    ),
    (
        "a queue id out of range",
        lambda client: client.send(queue_id=4),
        ResponseCode.INVALID_PARAMETER,
        "queueId[4] is illegal",
    ),
    (
        "half of a transaction without the property that says so",
        lambda client: client.send(sysFlag=4),
        ResponseCode.MESSAGE_ILLEGAL,
        "property TRAN_MSG does not",
    ),
    (
        "a delay that is none",
        lambda client: client.send(TIMER_DELAY_SEC="5 s"),
        ResponseCode.MESSAGE_ILLEGAL,
        "TIMER_DELAY_SEC",
    ),
    (
        "a batch that is none",
        lambda client: client.ask(
            RequestCode.SEND_BATCH_MESSAGE,
            b"nonsense",
            **dict(zip("abcdefgh", ("p", TOPIC, "TBW102", 4, 0, 0, 7, 0), strict=True)),
        ),
        ResponseCode.MESSAGE_ILLEGAL,
        "batch",
    ),
    (
        "a header without a field",
        lambda client: client.ask(RequestCode.SEND_MESSAGE, b"x", topic=TOPIC),
        ResponseCode.SYSTEM_ERROR,
        "producerGroup",
    ),
    (
        "a pull of an unknown topic",
        lambda client: client.pull(0, topic="unknown"),
        ResponseCode.TOPIC_NOT_EXIST,
        "topic[unknown] not exist",
    ),
    (
        "a pull of a queue out of range",
        lambda client: client.pull(0, queue_id=4),
        ResponseCode.INVALID_PARAMETER,
        "queueId[4] is illegal",
    ),
    (
        "a pull for an illegal group",
        lambda client: client.pull(0, group="a/b"),
        ResponseCode.INVALID_PARAMETER,
        "'a/b'",
    ),
    (
        "a pull without a subscription",
        lambda client: client.pull(0, sysFlag=0),
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        f"group {GROUP} does not subscribe to {TOPIC}",
    ),
    (
        "a pull with an expression without tags",
        lambda client: client.pull(0, subscription="||"),
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        "||",
    ),
    (
        "a filter language nobody speaks here",
        lambda client: client.pull(0, expressionType="SQL92", subscription="a > 1"),
        ResponseCode.SYSTEM_ERROR,
        "SQL92",
    ),
    (
        "a negative offset",
        lambda client: client.commit(-1),
        ResponseCode.INVALID_PARAMETER,
        "commitOffset=-1",
    ),
    (
        "an offset on an unknown topic",
        lambda client: client.commit(1, topic="unknown"),
        ResponseCode.TOPIC_NOT_EXIST,
        "topic[unknown] not exist",
    ),
    (
        "a send-back of a place where no message begins",
        lambda client: client.ask(
            RequestCode.CONSUMER_SEND_MSG_BACK, offset=7, group=GROUP, delayLevel=0
        ),
        ResponseCode.SYSTEM_ERROR,
        "no message begins at physical offset 7",
    ),
    (
        "a topic with no queues",
        lambda client: client.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            topic="new",
            defaultTopic="TBW102",
            readQueueNums=0,
            writeQueueNums=4,
            perm=6,
            topicFilterType="SINGLE_TAG",
            order=False,
        ),
        ResponseCode.INVALID_PARAMETER,
        "readQueueNums=0 is not in 1 to",
    ),
    (
        "a code nobody knows",
        lambda client: client.ask(31_000),
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        "31000 not supported",
    ),
    (
        "a report for a queue out of range",
        lambda client: client.commit(1, queue_id=4),
        ResponseCode.INVALID_PARAMETER,
        f"queueId[4] is illegal: topic {TOPIC} has 4 queues",
    ),
    (
        "a group that is no object",
        lambda client: client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b"[]"),
        ResponseCode.INVALID_PARAMETER,
        "without groupName",
    ),
    (
        "an order lock of an illegal group",
        lambda client: client.ask(
            RequestCode.LOCK_BATCH_MQ, b'{"consumerGroup":"a/b","clientId":"c","mqSet":[]}'
        ),
        ResponseCode.INVALID_PARAMETER,
        "'a/b'",
    ),
    (
        "an order lock of a queue of an illegal topic",
        lambda client: client.ask(
            RequestCode.LOCK_BATCH_MQ,
            b'{"consumerGroup":"g","clientId":"c",'
            b'"mqSet":[{"topic":"../x","brokerName":"broker-a","queueId":0}]}',
        ),
        ResponseCode.INVALID_PARAMETER,
        "'../x'",
    ),
    (
        "a heartbeat of nobody",
        lambda client: client.ask(RequestCode.HEART_BEAT, b'{"clientID":" "}'),
        ResponseCode.SYSTEM_ERROR,
        "clientID of the heartbeat is blank",
    ),
    (
        "a heartbeat of an illegal producer group",
        lambda client: client.ask(
            RequestCode.HEART_BEAT, b'{"clientID":"c","producerDataSet":[{"groupName":"a b"}]}'
        ),
        ResponseCode.INVALID_PARAMETER,
        "producer group 'a b'",
    ),
    (
        "a heartbeat with a subscription to an illegal topic",
        lambda client: client.ask(
            RequestCode.HEART_BEAT,
            b'{"clientID":"c","consumerDataSet":[{"groupName":"g",'
            b'"subscriptionDataSet":[{"topic":"../x","subString":"*"}]}]}',
        ),
        ResponseCode.INVALID_PARAMETER,
        "'../x'",
    ),
    (
        "a topic with a permission nobody knows",
        lambda client: client.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            topic="new",
            defaultTopic="TBW102",
            readQueueNums=4,
            writeQueueNums=4,
            perm=99,
            topicFilterType="SINGLE_TAG",
            order=False,
        ),
        ResponseCode.INVALID_PARAMETER,
        "perm=99",
    ),
    (
        "a heartbeat that is no JSON",
        lambda client: client.ask(RequestCode.HEART_BEAT, b"{{{"),
        ResponseCode.SYSTEM_ERROR,
        "",
    ),
]


@pytest.mark.parametrize(
    ("ask", "code", "complaint"),
    [refusal[1:] for refusal in REFUSALS],
    ids=[refusal[0] for refusal in REFUSALS],
)
async def test_it_is_refused_by_its_code_and_hears_what_was_wrong(
    tmp_path: Path, ask: Ask, code: ResponseCode, complaint: str
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        assert (await client.send(b"fine")).code == ResponseCode.SUCCESS
        answer = await ask(client)
        assert answer.code == code, answer.remark
        assert complaint in (answer.remark or "")
        assert bodies(await client.pull(0)) == [b"fine"], "everything else goes on"


async def test_an_unknown_topic_is_refused_when_topics_are_not_made_on_demand(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path, auto_create_topic_enable=False)) as running:
        client = running.client()
        answer = await client.send(topic="unknown")
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert "topic[unknown] not exist" in (answer.remark or "")


async def test_an_unknown_group_is_refused_when_groups_are_not_made_on_demand(
    tmp_path: Path,
) -> None:
    config = broker_config(tmp_path, auto_create_subscription_group=False)
    async with cluster(config) as running:
        client = running.client()
        await client.send()
        answer = await client.pull(0, group="unknown")
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff\xff\x00\x00\x00\x00",
        b"\x7f\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00\x00\x08\x00\x00\x00\x04{{{{",
    ],
    ids=[
        "a negative length",
        "a huge length and no more",
        "another protocol",
        "a header that is no JSON",
    ],
)
async def test_malformed_bytes_end_their_connection_and_no_other(
    tmp_path: Path, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.send(b"fine")
        host, port = running.broker.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(garbage)
        assert await asyncio.wait_for(reader.read(), 10) == b"", "closed without an answer"
        writer.close()
        await writer.wait_closed()
        assert bodies(await client.pull(0)) == [b"fine"]

        async def is_logged() -> bool:
            lifecycle = spooled(tmp_path / "store", "lifecycle")
            return any(row["kind"] == "MALFORMED_CONNECTION" for row in lifecycle)

        await eventually(is_logged, "the malformed connection is logged")
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1, [record.getMessage() for record in warnings]
