"""Row D4: half messages, their ends, questions to producers, limits and refusals."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.names import HALF_GONE_REMARK
from engine.store import FlushDiskType
from tests.integration.broker.cluster import (
    TOPIC,
    Cluster,
    bodies,
    broker_config,
    cluster,
    eventually,
    messages,
)
from tests.integration.broker.transactor import (
    COMMIT,
    GIVEN_UP_TOPIC,
    GROUP,
    HALF_TOPIC,
    INTERNAL_GROUP,
    OP_TOPIC,
    ROLLBACK,
    UNKNOWN,
    Half,
    Transactor,
    kept,
)

QUICK = {
    "transaction_timeout_ms": 300,
    "transaction_check_interval_ms": 100,
    "transaction_op_batch_interval_ms": 50,
}
"""Half messages are asked about when they are 300 ms old."""


def progress(running: Cluster) -> tuple[int | None, int | None]:
    """Consume offsets of the internal group."""
    offsets = running.broker.state.offsets
    half = offsets.committed(INTERNAL_GROUP, HALF_TOPIC, 0)
    return half, offsets.committed(INTERNAL_GROUP, OP_TOPIC, 0)


async def test_a_committed_message_is_the_half_message_under_its_real_name(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path, **QUICK)) as running:
        producer = Transactor(running.client())
        first = await producer.begin("first", TAGS="a", KEYS="k", queue_id=2)
        half = await producer.begin("second", TAGS="a", KEYS="k", queue_id=2, flag=7)
        assert (first.queue_offset, half.queue_offset) == (0, 1), "places in the half queue"
        assert (await producer.end(half, COMMIT)).code == ResponseCode.SUCCESS
        (found,) = messages(await producer.client.pull(0, queue_id=2))
        assert (found.body, found.topic, found.queue_id, found.flag) == (b"second", TOPIC, 2, 7)
        assert found.sys_flag & 0xC == COMMIT
        assert found.prepared_transaction_offset == half.physical_offset
        assert found.queue_offset == 0
        asked_for = {"TAGS": "a", "KEYS": "k", "UNIQ_KEY": "second", "PGROUP": GROUP}
        added = {"TRAN_MSG": "true", "__transactionId__": "second"}
        assert found.properties.items() >= (asked_for | added).items()
        assert not {"REAL_TOPIC", "REAL_QID"} & found.properties.keys(), "as RocketMQ 5.5.0"


async def test_ending_it_again_costs_little_however_many_long_messages_have_its_key(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path, **QUICK)) as running:
        producer = Transactor(running.client())
        half = await producer.begin("key")
        assert (await producer.end(half, COMMIT)).code == ResponseCode.SUCCESS
        for _ in range(40):
            await producer.client.send(bytes(900_000), UNIQ_KEY="key")
        store, read = running.broker.state.store, list[int]()
        record_at = store.record_at
        store.record_at = lambda at: read.append(at) or record_at(at)  # type: ignore[func-returns-value,method-assign,assignment]

        async def forgotten() -> bool:
            return running.broker.state.transactions.was_committed(half.queue_offset) is None

        await eventually(forgotten, "how it ended is only in the log")
        assert (await producer.end(half, COMMIT)).code == ResponseCode.SUCCESS
        assert not read, "no body is looked at"


async def test_a_transaction_that_ended_is_not_asked_about_and_its_message_comes_once(
    tmp_path: Path,
) -> None:
    """RocketMQ 5.5 with intervals as short as these delivered one commit seven times."""
    settings = {
        "transaction_timeout_ms": 401,
        "transaction_op_batch_interval_ms": 400,
        "transaction_check_interval_ms": 10,
    }
    config = broker_config(tmp_path, flush=FlushDiskType.SYNC_FLUSH, **settings)
    async with cluster(config) as running:
        producer = Transactor(running.client())
        await producer.register()
        answered = 0
        keys = [f"t{number}" for number in range(30)]

        async def answer() -> int:
            for copy, _, _ in producer.asked()[answered:]:
                await producer.end_oneway(copy, COMMIT, fromTransactionCheck=True)
            return len(producer.asked())

        due = int(time.time() * 1000) - 10_000
        for key in keys:
            await producer.end_oneway(await producer.begin(key, bornTimestamp=due), COMMIT)
            answered = await answer()

        async def settled() -> bool:
            nonlocal answered
            answered = await answer()
            half, op = progress(running)
            return half == running.broker.state.store.max_offset(HALF_TOPIC, 0) and bool(op)

        await eventually(settled, "progress over all")
        assert [one.body.decode() for one in await kept(producer.client)] == keys


async def test_who_does_not_know_is_asked_again_and_given_up_with_a_record(tmp_path: Path) -> None:
    config = broker_config(tmp_path, **QUICK, transaction_check_max=3)
    async with cluster(config) as running:
        producer = Transactor(running.client())
        await producer.register()
        half = await producer.begin("lost")
        assert (await producer.end(half, UNKNOWN)).code == ResponseCode.SUCCESS
        for number in (1, 2, 3):
            copy, message, _ = await producer.question(number)
            assert message.properties["TRANSACTION_CHECK_TIMES"] == str(number)
            assert "TRAN_PREPARED_QUEUE_OFFSET" not in message.properties
            await producer.end_oneway(copy, UNKNOWN, fromTransactionCheck=True)

        async def recorded() -> bool:
            return bodies(await producer.client.pull(0, topic=GIVEN_UP_TOPIC)) == [b"lost"]

        await eventually(recorded, "the record of it")
        late = await producer.end(half, COMMIT)
        assert late.code == ResponseCode.TRANSACTION_FAILED
        assert len(producer.asked()) == 3
        assert await kept(producer.client) == []
        (record,) = await kept(producer.client, GIVEN_UP_TOPIC)
        resume = RequestCode.RESUME_CHECK_HALF_MESSAGE
        wrong = await producer.client.ask(resume, topic=TOPIC, msgId="00" * 16)
        assert "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed" in str(wrong.remark)
        again = await producer.client.ask(resume, topic=TOPIC, msgId=record.offset_message_id)
        assert again.code == ResponseCode.SUCCESS
        copy, message, _ = await producer.question(4)
        assert message.properties["TRANSACTION_CHECK_TIMES"] == "1", "it begins anew"
        await producer.end_oneway(copy, COMMIT, fromTransactionCheck=True)

        async def delivered() -> bool:
            return [one.body for one in await kept(producer.client)] == [b"lost"]

        await eventually(delivered, "the message, after all")


async def test_a_half_message_older_than_retention_is_given_up_without_a_question(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path, **QUICK)) as running:
        producer = Transactor(running.client())
        await producer.register()
        await producer.begin("old", bornTimestamp=1_600_000_000_000)

        async def recorded() -> bool:
            return bodies(await producer.client.pull(0, topic=GIVEN_UP_TOPIC)) == [b"old"]

        await eventually(recorded, "the record of it")
        assert producer.asked() == []


async def test_a_producer_that_asks_for_time_gets_it_and_must_keep_to_it(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path, **QUICK)) as running:
        producer = Transactor(running.client())
        await producer.register()
        patient = await producer.begin("patient", CHECK_IMMUNITY_TIME_IN_SECONDS=3600)
        hasty = await producer.begin("hasty", CHECK_IMMUNITY_TIME_IN_SECONDS=1)
        copy, message, _ = await producer.question()
        assert copy.key == "hasty"
        assert time.time() * 1000 - message.born_timestamp_ms > 1000
        assert message.properties["TRANSACTION_CHECK_TIMES"] == "1", "waiting is no question"
        late = await producer.end(hasty, COMMIT)
        assert late.code == ResponseCode.ILLEGAL_OPERATION
        assert "CHECK_IMMUNITY_TIME_IN_SECONDS=1" in str(late.remark)
        answer = await producer.end(copy, ROLLBACK, fromTransactionCheck=True)
        assert answer.code == ResponseCode.SUCCESS
        assert (await producer.end(patient, COMMIT)).code == ResponseCode.SUCCESS
        assert [one.body for one in await kept(producer.client)] == [b"patient"]


async def test_waiting_costs_the_log_nothing_until_settled_ones_wait_behind_it(
    tmp_path: Path,
) -> None:
    """A copy in each round would fill a disk with a few messages of 4 MB."""
    async with cluster(broker_config(tmp_path, **QUICK)) as running:
        producer, store = Transactor(running.client()), running.broker.state.store
        patient = await producer.begin("patient", CHECK_IMMUNITY_TIME_IN_SECONDS=3600)
        before = store.physical_max
        await asyncio.sleep(12 * QUICK["transaction_check_interval_ms"] / 1000)
        assert store.physical_max == before
        for number in range(8):
            await producer.end(await producer.begin(f"quick {number}"), ROLLBACK)
        running.broker.state.transactions.renewed_held = 8  # No round makes its copy amid them.

        async def passed() -> bool:
            return progress(running)[0] == 9

        await eventually(passed, "the progress passes all that is settled")
        half_end = store.max_offset(HALF_TOPIC, 0)
        assert half_end == 1 + 8 + 1, "one further copy"
        await asyncio.sleep(12 * QUICK["transaction_check_interval_ms"] / 1000)
        assert store.max_offset(HALF_TOPIC, 0) == half_end
        assert (await producer.end(patient, COMMIT)).code == ResponseCode.SUCCESS
        assert [one.body for one in await kept(producer.client)] == [b"patient"]


async def test_a_question_leaves_its_count_in_the_message_and_nothing_else(tmp_path: Path) -> None:
    """As RocketMQ 5.5.0 does; the name of the transaction is between the broker and its log."""
    async with cluster(broker_config(tmp_path, **QUICK)) as running:
        producer = Transactor(running.client())
        await producer.register()
        await producer.begin("asked twice")
        copy, asked_about, _ = await producer.question(2)
        assert "TRANSACTION_CHECK_TIMES" in asked_about.properties
        assert "TRAN_PREPARED_QUEUE_OFFSET" not in asked_about.properties
        ended = await producer.end(copy, COMMIT, fromTransactionCheck=True)
        assert ended.code == ResponseCode.SUCCESS
        (committed,) = await kept(producer.client)
        assert int(committed.properties["TRANSACTION_CHECK_TIMES"]) >= 2
        assert "TRAN_PREPARED_QUEUE_OFFSET" not in committed.properties


async def test_any_live_producer_of_the_group_is_asked_and_no_other(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path, **QUICK)) as running:
        gone = Transactor(running.client("127.0.0.1@gone"))
        stranger = Transactor(running.client("127.0.0.1@stranger"))
        heirs = [Transactor(running.client(f"127.0.0.1@heir{n}")) for n in (1, 2)]
        await stranger.register("another")
        await gone.register()
        await gone.begin("orphan")
        await gone.client.close()
        for heir in heirs:
            await heir.register()
            await heir.question()
        half, _, _ = heirs[0].asked()[-1]
        await heirs[0].end_oneway(half, COMMIT, fromTransactionCheck=True)

        async def delivered() -> bool:
            return [one.body for one in await kept(stranger.client)] == [b"orphan"]

        await eventually(delivered, "the message")
        assert stranger.asked() == []


REFUSED_ENDS: list[tuple[dict[str, object], ResponseCode, str]] = [
    ({"producerGroup": "another"}, ResponseCode.SYSTEM_ERROR, "The producer group wrong"),
    (
        {"tranStateTableOffset": 9},
        ResponseCode.SYSTEM_ERROR,
        "The transaction state table offset wrong",
    ),
    (
        {"commitLogOffset": 3},
        ResponseCode.SYSTEM_ERROR,
        "Find prepared transaction message failed",
    ),
    ({"commitLogOffset": -1}, ResponseCode.SYSTEM_ERROR, "Find prepared"),
    ({"commitOrRollback": 4}, ResponseCode.INVALID_PARAMETER, "commitOrRollback=4 is none of"),
    ({"tranStateTableOffset": "x"}, ResponseCode.SYSTEM_ERROR, "tranStateTableOffset"),
]


async def test_an_end_that_does_not_fit_its_half_message_changes_nothing(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        producer = Transactor(running.client())
        plain = await producer.client.send(b"plain", queue_id=1)
        half = await producer.begin("half")
        for wrong, code, sentence in REFUSED_ENDS:
            answer = await producer.end(half, COMMIT, **wrong)
            assert (answer.code, sentence in str(answer.remark)) == (code, True), answer.remark
        ordinary = Half("plain", 0, int(plain.fields["msgId"][16:], 16))
        answer = await producer.end(ordinary, COMMIT)
        assert "no message begins" in str(answer.remark)
        assert await kept(producer.client) == []
        assert (await producer.end(half, COMMIT)).code == ResponseCode.SUCCESS


REFUSED_BEGINNINGS: list[tuple[dict[str, object], ResponseCode, str]] = [
    ({"DELAY": 3}, ResponseCode.MESSAGE_ILLEGAL, "cannot be delayed"),
    ({"TIMER_DELAY_SEC": 3}, ResponseCode.MESSAGE_ILLEGAL, "cannot be delayed"),
    ({"topic": HALF_TOPIC}, ResponseCode.NO_PERMISSION, "the broker alone writes it"),
    ({"topic": GIVEN_UP_TOPIC}, ResponseCode.NO_PERMISSION, "the broker alone writes it"),
    ({"topic": "%RETRY%g"}, ResponseCode.NO_PERMISSION, "the broker owns it"),
    ({"topic": "TBW102"}, ResponseCode.NO_PERMISSION, "the broker owns it"),
    ({"TRAN_MSG": "false"}, ResponseCode.MESSAGE_ILLEGAL, "property TRAN_MSG does not"),
    ({"KEYS": "k" * 32_600}, ResponseCode.MESSAGE_ILLEGAL, "the limit is 32767"),
]


@pytest.mark.parametrize(("wrong", "code", "sentence"), REFUSED_BEGINNINGS)
async def test_what_cannot_be_half_of_a_transaction_is_refused(
    tmp_path: Path, wrong: dict[str, object], code: ResponseCode, sentence: str
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        answer = await Transactor(running.client()).try_begin("half", **wrong)
        assert (answer.code, sentence in str(answer.remark)) == (code, True), answer.remark
        assert running.broker.state.store.max_offset(HALF_TOPIC, 0) == 0


async def test_transactions_can_be_rejected_while_the_broker_runs(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        producer = Transactor(running.client())

        async def change(words: bytes) -> RemotingCommand:
            return await producer.client.ask(RequestCode.UPDATE_BROKER_CONFIG, words)

        refused = await change(b"transactionTimeOut=3000")
        assert "more than transactionOpBatchInterval (3000 ms)" in str(refused.remark)
        assert (await change(b"rejectTransactionMessage=true")).code == ResponseCode.SUCCESS
        answer = await producer.try_begin("late")
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "sending transaction message is forbidden" in str(answer.remark)


async def test_the_brokers_own_properties_cannot_be_set_by_a_client(tmp_path: Path) -> None:
    """Otherwise one producer could take another's transaction over by naming its offset."""
    async with cluster(broker_config(tmp_path)) as running:
        producer = Transactor(running.client())
        victim = await producer.begin("victim")
        thief = await producer.begin(
            "thief", TRAN_PREPARED_QUEUE_OFFSET=0, TRANSACTION_CHECK_TIMES=15
        )
        assert (await producer.end(thief, ROLLBACK)).code == ResponseCode.SUCCESS
        assert (await producer.end(victim, COMMIT)).code == ResponseCode.SUCCESS
        assert [one.body for one in await kept(producer.client)] == [b"victim"]


async def test_on_a_topic_with_deduplication_a_resent_half_message_is_the_same_transaction(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        producer = Transactor(running.client())
        made = await producer.client.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            topic=TOPIC,
            defaultTopic="TBW102",
            perm=6,
            order=False,
            readQueueNums=1,
            writeQueueNums=1,
            topicFilterType="SINGLE_TAG",
            attributes="+message.deduplication=true",
        )
        assert made.code == ResponseCode.SUCCESS, made.remark
        first, resent = [await producer.begin("once") for _ in range(2)]
        assert first == resent
        for half in (first, resent):
            assert (await producer.end(half, COMMIT)).code == ResponseCode.SUCCESS
        assert await producer.begin("once") == first, "also after its end"
        assert [one.body for one in await kept(producer.client)] == [b"once"]


async def test_without_an_index_nobody_learns_how_an_old_transaction_ended(tmp_path: Path) -> None:
    config = broker_config(tmp_path, transaction_op_batch_interval_ms=100)
    config = replace(config, store=replace(config.store, message_index_enable=False))
    async with cluster(config) as running:
        producer = Transactor(running.client())
        half = await producer.begin("paid")
        assert (await producer.end(half, COMMIT)).code == ResponseCode.SUCCESS

        async def is_forgotten() -> bool:
            answer = await producer.end(half, ROLLBACK)
            assert answer.code != ResponseCode.SUCCESS, "it was committed"
            return (answer.remark or "").startswith(HALF_GONE_REMARK)

        await eventually(is_forgotten, "its end is not remembered any more")
        assert "how is not known any more" in str((await producer.end(half, COMMIT)).remark)
        assert [message.body for message in await kept(producer.client)] == [b"paid"]
