"""Row D4: our broker refuses an END_TRANSACTION that does not fit, as Apache RocketMQ does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.protocol.codes import ResponseCode
from tests.integration.broker.cluster import RawClient, eventually
from tests.integration.broker.transactor import COMMIT, ROLLBACK, Half, Transactor, kept
from tests.interop.our_engine import OurEngine
from tests.interop.real_rocketmq import RealRocketMQ

TOPIC = "RefusedEnds"
BEYOND_THE_LOG = 1 << 40
NO_REMARK = "not set any response code"
"""RocketMQ 5.5's words for an answer that says nothing."""
LONGER_THAN_ANY_S = 2.1
"""Both brokers of these tests have a transactionTimeOut of at most 2000 ms."""


async def ends(broker: str) -> list[tuple[str, int, str]]:
    """What a broker answers to one end after the other: what was wrong, code, remark."""
    client = RawClient(broker)
    producer = Transactor(client)
    answers: list[tuple[str, int, str]] = []

    async def end(what: str, half: Half, how: int = COMMIT, **more: object) -> None:
        answer = await producer.end(half, how, topic=TOPIC, **more)
        answers.append((what, answer.code, answer.remark or ""))

    try:
        half = await producer.begin("half", topic=TOPIC)
        hasty = await producer.begin("hasty", topic=TOPIC, CHECK_IMMUNITY_TIME_IN_SECONDS=1)
        await asyncio.sleep(LONGER_THAN_ANY_S)  # Its time is measured by the broker's clock.
        await end("another group", half, producerGroup="another")
        await end("another queue offset", half, tranStateTableOffset=half.queue_offset + 1)
        await end("no such record", half, commitLogOffset=BEYOND_THE_LOG)
        await end("too late", hasty)
        await end("too late", hasty, ROLLBACK)
        await end("an answer to a question is never too late", hasty, fromTransactionCheck=True)
        await end("all right", half, ROLLBACK)
    finally:
        await client.close()
    return answers


@pytest.mark.timeout(180)  # The first test also waits for two JVMs to start.
def test_ends_are_judged_alike(engine_process: OurEngine, apache_rocketmq: RealRocketMQ) -> None:
    ours, theirs = (asyncio.run(ends(who.broker)) for who in (engine_process, apache_rocketmq))
    assert [answer[:2] for answer in ours] == [answer[:2] for answer in theirs]
    assert {code for _, code, _ in ours} == {
        ResponseCode.SUCCESS,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.ILLEGAL_OPERATION,
    }
    for (what, _, remark), (_, _, wanted) in zip(ours, theirs, strict=True):
        if wanted != NO_REMARK:
            assert remark.startswith(wanted), f"{what}: {remark!r} instead of {wanted!r}"


ASKED_TOPIC = "AskedEnds"
OWN_WORDS = ("TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES", "REAL_TOPIC", "REAL_QID")


async def words_of_asked(broker: str) -> dict[str, list[str]]:
    """What the broker's questions about two transactions, and the messages they committed, carry of
    its own words: one whose producer asked for time first, and one that did not.
    """
    client = RawClient(broker, "127.0.0.1@asked")
    producer = Transactor(client)
    found: dict[str, list[str]] = {}
    try:
        await producer.register()
        wishes: dict[str, dict[str, Any]] = {
            "asked": {},
            "patient": {"CHECK_IMMUNITY_TIME_IN_SECONDS": 1},
        }
        for key, wish in wishes.items():
            await producer.begin(key, topic=ASKED_TOPIC, **wish)
        asked = {}

        async def both() -> bool:
            for copy, body, _ in producer.asked():
                if copy.key in wishes:  # A real one asks about others' ended ones, too.
                    asked[copy.key] = copy, body
            return len(asked) == len(wishes)

        try:
            await eventually(both, "both are asked about", within_s=60)
        except AssertionError as error:
            raise AssertionError(f"{broker} asked about {sorted(asked)} alone") from error
        for key, (copy, body) in asked.items():
            found[f"question about {key}"] = [w for w in OWN_WORDS if w in body.properties]
            await producer.end_oneway(copy, COMMIT, topic=ASKED_TOPIC, fromTransactionCheck=True)

        async def came() -> bool:
            for message in await kept(client, ASKED_TOPIC):
                words = [w for w in OWN_WORDS if w in message.properties]
                found[f"committed {message.uniq_key}"] = words
            return len(found) == 4

        await eventually(came, "both messages", within_s=60)
    finally:
        await client.close()
    return found


@pytest.mark.timeout(240)  # The first test also waits for two JVMs to start.
def test_asked_transactions_carry_the_same_words_of_the_broker(
    engine_process: OurEngine, apache_rocketmq: RealRocketMQ
) -> None:
    ours, theirs = (
        asyncio.run(words_of_asked(who.broker)) for who in (engine_process, apache_rocketmq)
    )
    assert ours == theirs
