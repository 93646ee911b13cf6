"""Properties that stand for numbers may hold any text: a broker takes what is no number, also one
longer than Python converts, serves on, and comes up again over the log that holds it.

Feature rows: D4 (a wish for time), E1 (delays).
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.message import Message
from engine.protocol.properties import whole_number
from tests.integration.broker.cluster import (
    GROUP,
    TOPIC,
    RawClient,
    bodies,
    broker_config,
    cluster,
    eventually,
)
from tests.integration.broker.transactor import COMMIT, Transactor
from tests.integration.telemetry.killable_engine import KillableEngine

TOO_LONG = "9" * 5000
HALF = "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01{key}\x02"
WISH = "CHECK_IMMUNITY_TIME_IN_SECONDS\x01{word}\x02"


@pytest.mark.parametrize("word", [TOO_LONG, "9" * 19, "²", "٣", "-1", "+1", "1.5", "x", ""])
def test_what_is_no_number_counts_as_none(word: str) -> None:
    assert whole_number(word, -7) == -7
    assert whole_number(word.encode(), -7) == -7
    message = Message("t", b"b", {"DELAY": word})
    assert message.delay_level == (-1 if word == "-1" else 0)


async def test_a_broker_lives_through_numbers_that_are_none_and_starts_again(
    tmp_path: Path,
) -> None:
    engine = KillableEngine(tmp_path, "--lake", "none")
    await engine.start()
    client = RawClient(engine.broker)
    producer = Transactor(client)
    try:
        for number, word in enumerate((TOO_LONG, "²", "9" * 19)):
            key = f"half {number}"
            half = await producer.begin(
                key, properties=HALF.format(key=key) + WISH.format(word=word)
            )
            assert half.queue_offset == number
            delays = f"DELAY\x01{word}\x02"
            sent = await client.send(b"now", properties=delays)
            assert sent.code == ResponseCode.SUCCESS, "no number is no delay"
            sent = await client.send(b"soon", properties=f"{delays}DELAY\x011\x02")
            assert sent.code == ResponseCode.SUCCESS, "the last value counts"

        async def all_came() -> bool:
            answer = await client.pull(0)
            found = bodies(answer) if answer.code == ResponseCode.SUCCESS else []
            return sorted(found) == [b"now"] * 3 + [b"soon"] * 3

        await eventually(all_came, "the delayed ones as well")
        await engine.end(signal.SIGKILL)
        await engine.start()
        ended = await producer.end(half, COMMIT, fromTransactionCheck=True)  # However late.
        assert ended.code == ResponseCode.SUCCESS
        assert await all_came() is False, "one more: the committed one"
        beat = b'{"clientID":"c","heartbeatFingerprint":' + TOO_LONG.encode() + b"}"
        refused = await client.ask(RequestCode.HEART_BEAT, beat)
        assert "Integer value out of range" in str(refused.remark)
    finally:
        await client.close()
        await engine.end(signal.SIGKILL)
    assert "Traceback" not in engine.log.read_text()


@pytest.mark.parametrize("number", [10**30, 2**63, -(2**63) - 1])
async def test_a_heartbeat_with_a_number_beyond_64_bits_is_refused_and_the_broker_lives(
    tmp_path: Path, number: int
) -> None:
    """Such a version of a selector was taken, and no table that holds it could be written."""
    config = broker_config(tmp_path, enable_property_filter=True)
    async with cluster(config) as running:
        client = running.client("teller")
        await client.send()
        wanted = {"topic": TOPIC, "subString": "a = 1", "expressionType": "SQL92"}
        for field in ("subVersion", "codeSet"):
            body = wanted | {field: [number] if field == "codeSet" else number}
            data = {
                "clientID": client.client_id,
                "consumerDataSet": [{"groupName": GROUP, "subscriptionDataSet": [body]}],
            }
            refused = await client.ask(RequestCode.HEART_BEAT, json.dumps(data).encode())
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert "64 bits" in (refused.remark or "")
        asked = await client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup=GROUP)
        assert asked.code != ResponseCode.SUCCESS, "nothing of it counts"
        running.broker.state.changes.of_settings()
        await running.broker.services.persistence.save_settings()
        assert (await client.send(b"alive")).code == ResponseCode.SUCCESS
