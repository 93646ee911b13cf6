"""Thousands of requests of every code, with fields, properties and bodies drawn at random from what
is right, odd and hostile: each gets an answer in words, none an internal error, and the broker
comes up again over whatever they left.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from pathlib import Path
from random import Random
from struct import pack
from typing import Any

import msgspec
import pytest

from engine.foundation.errors import RequestTimedOut
from engine.protocol import headers, headers_admin, headers_client, properties
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from tests.integration.broker.cluster import Cluster, broker_config, cluster
from tests.seeds import one_seed

SEED = one_seed()
REQUESTS = int(os.environ.get("TIDEMARK_REQUESTS", "2500"))
UNDER_WAY = 64
HELD_MS = 200
INTERNAL_ERROR = re.compile(r"^\w*(Error|Exception|Exit): ")

FIELDS = sorted(
    {
        name
        for room in (headers, headers_admin, headers_client)
        for kind in vars(room).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
        for name in kind.__struct_encode_fields__
    }
)
PROPERTIES = [
    *sorted(value for name, value in vars(properties).items() if name.startswith("PROPERTY_")),
    "TIMER_DELAY_SEC",
    "TIMER_DELIVER_MS",
]
NUMBER_PROPERTIES = [
    *("DELAY", "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS"),
    *("TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET", "REAL_QID", "INNER_NUM"),
]
NUMBERS = [
    *("0", "0", "0", "1", "2", "4", "5", "8", "17", "100", "-1", "65535"),
    *(str(2**31 - 1), str(-(2**31)), str(2**31), str(2**63 - 1), str(-(2**63)), "9" * 30),
    *(
        "9" * 5000,
        "9" * 5000,
        "",
        " 1",
        "+1",
        "1.5",
        "1e3",
        "1_0",
        "0x10",
        "٣",
        "²",
        "x",
        "true",
        "\U0001f600",
    ),
]
TOPICS = [
    *("orders", "orders", "orders", "payments", "%RETRY%orders-group", "%DLQ%orders-group"),
    *("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TBW102"),
    *("RMQ_SYS_TRACE_TOPIC", "TID_MARK_DISCARDED", "broker-a", "", "a" * 300, "../x", "a b", "ü"),
]
GROUPS = [
    *("orders-group", "orders-group", "audit", "TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS"),
    *("", "g" * 300, "a/b", "g@h", "ü"),
]
WORDS = ["*", "TagA||TagB", "a > 1", "((((", "TAG", "SQL92", "true", "false", "k1", "F" * 32, "12"]
BODY_FIELDS = [
    *("clientID", "producerDataSet", "consumerDataSet", "groupName", "consumeType", "messageModel"),
    *("consumeFromWhere", "subscriptionDataSet", "topic", "subString", "subVersion", "tagsSet"),
    *("consumerGroup", "clientId", "mqSet", "brokerName", "queueId", "topicName", "perm", "order"),
    *("readQueueNums", "writeQueueNums", "attributes", "retryMaxTimes", "offsetTable", "codeSet"),
    *("topicConfigTable", "dataVersion", "counter", "expressionType", "consumeEnable"),
]
OFTEN = (
    *(RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE),
    *(RequestCode.PULL_MESSAGE, RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.END_TRANSACTION),
    *(RequestCode.HEART_BEAT, RequestCode.UPDATE_CONSUMER_OFFSET),
)
HALF = "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01k1\x02"


class Draw:
    """Requests by chance."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)

    def request(self) -> RemotingCommand:
        if self.chance.random() < 0.3:
            return self.send()
        code = self.chance.choice(OFTEN if self.chance.random() < 0.4 else list(RequestCode))
        count = self.chance.randrange(len(FIELDS))
        fields = {name: self.value(name) for name in self.chance.sample(FIELDS, count)}
        if self.chance.random() < 0.6:
            fields |= {"topic": self.chance.choice(TOPICS), "queueId": "0", "queueOffset": "0"}
        fields["suspendTimeoutMillis"] = str(HELD_MS)
        return RemotingCommand.request(code, fields, self.body())

    def send(self) -> RemotingCommand:
        """A send that is right but for its topic, its properties and its kind."""
        names = zip("abcdefghij", ["p", "orders", "TBW102", *"4001000"], strict=True)
        fields = dict(names) | {"i": self.properties(), "f": self.chance.choice(["0", "4", "8"])}
        if self.chance.random() < 0.3:
            fields["b"] = self.chance.choice(TOPICS)
        if self.chance.random() < 0.3:
            fields |= {"f": "4", "i": fields["i"] + HALF}
        return RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, fields, self.body())

    def value(self, name: str) -> str:
        low = name.lower()
        if "propert" in low:
            return self.properties()
        likely = TOPICS if "topic" in low else GROUPS if "group" in low else NUMBERS
        return self.chance.choice(likely if self.chance.random() < 0.9 else NUMBERS + WORDS)

    def properties(self) -> str:
        return "".join(map(self.property, range(self.chance.randrange(5))))[:32_000]

    def property(self, _: int) -> str:
        names, values = PROPERTIES, TOPICS + GROUPS + WORDS + NUMBERS
        if self.chance.random() < 0.5:
            names, values = NUMBER_PROPERTIES, NUMBERS
        end = self.chance.choice(("\x02", "\x02", "\x02", "", "\x01x\x02", "\0\x02"))
        return f"{self.chance.choice(names)}\x01{self.chance.choice(values)}{end}"

    def body(self) -> bytes:
        draw = self.chance.random()
        if draw < 0.4:
            return b"hello"
        if draw < 0.7:
            return json.dumps({name: self.json(1) for name in self.names(4)}).encode()
        if draw < 0.9:
            return b"".join(self.batch_entry() for _ in range(self.chance.randrange(4)))
        return self.chance.randbytes(self.chance.randrange(100))

    def json(self, depth: int) -> Any:
        draw = self.chance.random()
        if depth > 3 or draw < 0.4:
            odd: list[Any] = [0, -1, 2**31, -(2**63), 10**25, 1.5, True, None, "", "CLUSTERING"]
            return self.chance.choice([*odd, *TOPICS, *GROUPS])
        if draw < 0.6:
            return [self.json(depth + 1) for _ in range(self.chance.randrange(4))]
        return {name: self.json(depth + 1) for name in self.names(5)}

    def names(self, count: int) -> list[str]:
        return self.chance.sample(BODY_FIELDS, self.chance.randrange(count + 1))

    def batch_entry(self) -> bytes:
        body, properties = b"b" * self.chance.randrange(9), self.properties().encode()
        size = 22 + len(body) + len(properties) + self.chance.choice([0, 0, 0, 1, -1])
        head = pack(">iiiii", size, 0, 0, 0, len(body))
        return head + body + pack(">h", len(properties)) + properties


async def ask_at_random(running: Cluster, draw: Draw) -> dict[int, int]:
    """Ask REQUESTS times; how many answers of each code there were."""
    client, places = running.client(), asyncio.Semaphore(UNDER_WAY)
    codes: dict[int, int] = {}

    async def one(request: RemotingCommand) -> None:
        async with places:
            try:
                answer = await client.rpc.invoke(client.address, request, timeout_ms=20_000)
            except RequestTimedOut:
                pytest.fail(f"no answer to code {request.code} with {request.fields}")
            codes[answer.code] = codes.get(answer.code, 0) + 1
            assert (answer.remark or "").isprintable(), answer.remark
            assert not INTERNAL_ERROR.match(answer.remark or ""), (
                f"{answer.remark} for code {request.code}: {request.fields} {request.body!r}"
            )

    async with asyncio.TaskGroup() as asking:
        for _ in range(REQUESTS):
            asking.create_task(one(draw.request()))
    return codes


async def test_no_request_however_odd_ends_in_an_internal_error_or_in_a_broker_that_cannot_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    draw = Draw(SEED)
    quick = {
        "transaction_op_batch_interval_ms": 50,
        "transaction_timeout_ms": 200,
        "transaction_check_interval_ms": 100,
    }

    async def life() -> None:
        async with cluster(broker_config(tmp_path, log_bytes=8 << 20, **quick)) as running:
            codes = await ask_at_random(running, draw)
            assert codes[ResponseCode.SUCCESS] > REQUESTS // 20, "some do what they say"
            assert len(codes) > 5, "and others are refused for more than one reason"
            answer = await running.client().send(b"fine", topic="left-alone")
            assert answer.code == ResponseCode.SUCCESS, answer.remark

    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            await life()
    assert not [record for record in caplog.records if record.exc_info], caplog.text
