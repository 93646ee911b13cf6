"""Row D4, and A5 for transactions, on a broker process that is killed and started again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.protocol.codes import ResponseCode
from tests.integration.broker.cluster import TOPIC, RawClient, eventually
from tests.integration.broker.spooled import picked, spooled
from tests.integration.broker.test_restarts import engine, refusal, talk
from tests.integration.broker.transactor import (
    COMMIT,
    HALF_TOPIC,
    INTERNAL_GROUP,
    OP_TOPIC,
    ROLLBACK,
    Half,
    Transactor,
    kept,
)

NEVER = ("transactionCheckInterval=600000", "transactionTimeOut=600000")
NO_OPS = ("transactionOpBatchInterval=500000", *NEVER)
"""Nothing is asked, and op messages are not written by themselves."""
OFTEN = (
    *("transactionOpBatchInterval=50", "transactionTimeOut=300", "transactionCheckInterval=100"),
    *("flushCommitLogLeastPages=0", "flushIntervalCommitLog=50"),
)


def settings(*words: str) -> list[str]:
    return [part for word in words for part in ("--set", word)]


class Lives:
    """What a producer does in each life of its broker."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.halves: dict[str, Half] = {}

    async def topic_is_saved(self) -> bool:
        topics = self.store / "config" / "topics.json"
        return topics.exists() and f'"{TOPIC}"' in topics.read_text()

    async def before(self, client: RawClient) -> None:
        producer = Transactor(client)
        for key in ("committed", "answered", "rolled-back", "open"):
            self.halves[key] = await producer.begin(key)
        assert await kept(client) == [], "nobody sees half of anything"
        assert (
            await producer.end(self.halves["rolled-back"], ROLLBACK)
        ).code == ResponseCode.SUCCESS
        # An answered rollback is written down at once; of these two only the commits are there.
        await producer.end_oneway(self.halves["committed"], COMMIT)
        assert (await producer.end(self.halves["answered"], COMMIT)).code == ResponseCode.SUCCESS

        async def both() -> bool:
            return len(await kept(client)) == 2

        await eventually(both, "commits")
        await eventually(self.topic_is_saved, "the table of topics on disk")

    async def after(self, client: RawClient) -> None:
        producer = Transactor(client)
        await producer.register()
        copy, message, fields = await producer.question()
        assert (copy.key, message.body, message.topic) == ("open", b"open", TOPIC)
        assert copy.queue_offset > self.halves["open"].queue_offset, "it is put again at the tail"
        assert fields["topic"] == HALF_TOPIC
        assert fields["bname"] == "broker-a"
        await producer.end_oneway(copy, COMMIT, fromTransactionCheck=True)
        again = [
            await producer.end(self.halves[key], COMMIT)
            for key in ("committed", "answered", "open")
        ]
        assert [answer.code for answer in again] == [ResponseCode.SUCCESS] * 3
        refused = await producer.end(self.halves["rolled-back"], COMMIT)
        assert refused.code == ResponseCode.TRANSACTION_FAILED
        assert "rolled back" in str(refused.remark)

        async def passed() -> bool:
            answer = await client.committed(topic=HALF_TOPIC, group=INTERNAL_GROUP)
            last = max(one.queue_offset for one, _, _ in producer.asked())
            return answer.fields.get("offset") == str(last + 1)

        await eventually(passed, "progress over all of them")
        assert [one.body for one in await kept(client)] == [b"committed", b"answered", b"open"]
        assert {half.key for half, _, _ in producer.asked()} == {"open"}

    async def at_last(self, client: RawClient) -> None:
        producer = Transactor(client)
        await producer.register()
        await producer.begin("new")
        half, _, _ = await producer.question()
        assert half.key == "new", "the settled ones are not asked about again"
        assert len(await kept(client)) == 3


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_after_a_kill_ended_transactions_stay_ended_and_open_ones_are_asked_about(
    tmp_path: Path, flush: str
) -> None:
    store = tmp_path / "store"
    lives = Lives(store)
    with engine(store, "--flush", flush, *settings(*NO_OPS)) as (process, address):
        talk(address, lives.before)
        process.kill()
        process.wait(30)
    with engine(store, "--flush", flush, *settings(*OFTEN)) as (process, address):
        talk(address, lives.after)
        process.kill()
        process.wait(30)
    rows = [row for row in spooled(store, "consume_offsets") if row["path"] == "TRANSACTION"]
    assert {picked(row, "group", "accepted") for row in rows} == {(INTERNAL_GROUP, True)}
    for topic in (HALF_TOPIC, OP_TOPIC):
        moves = [row["offset"] for row in rows if row["topic"] == topic]
        assert moves == sorted(moves), f"{topic} goes forward"
        assert moves, f"{topic} goes"
    with engine(store, "--flush", flush, *settings(*OFTEN)) as (process, address):
        talk(address, lives.at_last)
        process.terminate()
        assert process.wait(30) == 0
    table = json.loads((store / "config" / "consumerOffset.json").read_text())["offsetTable"]
    assert table[f"{HALF_TOPIC}@{INTERNAL_GROUP}"]["0"] >= 5


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("transactionTimeOut=3000",), "more than transactionOpBatchInterval (3000 ms)"),
        (("transactionTimeOut=900", "transactionOpBatchInterval=1000"), "transactionTimeOut='900'"),
        (("transactionCheckMax=0",), "transactionCheckMax"),
        (("transactionOpMsgMaxSize=5",), "32 to 4194304 bytes"),
    ],
)
def test_settings_that_would_ask_about_what_has_just_ended_are_refused(
    tmp_path: Path, words: tuple[str, ...], complaint: str
) -> None:
    store = str(tmp_path / "store")
    said = refusal("broker", "--store", store, "--port", "0", *settings(*words))
    assert complaint.replace("'", "") in said.replace("'", "")
