"""A broker under load and its shipper are killed again and again; its commits are in Delta as its
clients were answered.

The independent record is the clients' own: which commits they sent, and which of them were
answered. One client commits by plain requests, each offset once; another is a push consumer that
waits for the answer to each report.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine.client import (
    ClientConfig,
    ConsumeConcurrentlyStatus,
    ConsumeContext,
    ConsumeFromWhere,
    ConsumerConfig,
    Producer,
    PushConsumer,
)
from engine.foundation.errors import TidemarkError
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import PullMessageRequestHeader
from engine.protocol.message import Message, MessageExt, MessageQueue
from engine.protocol.names import PullSysFlag
from engine.remoting import RpcClient
from engine.runtime import system_runtime
from tests.amounts import kills
from tests.integration.telemetry.bronze_rows import Row, assert_exactly_once, read_all
from tests.integration.telemetry.killable_engine import KillableEngine

SEED = 20_260_302
TOPIC = "orders"
QUEUES = 4
BATCH = 40
DIRECT, WORKERS = "direct_committers", "workers"
EMITTER = "DefaultCluster/broker-a/0"

Commit = tuple[int, int]
"""(queue_id, offset)"""


@dataclass
class Record:
    """What the clients know of their own doing."""

    sent: set[Commit] = field(default_factory=set)
    answered: set[Commit] = field(default_factory=set)
    worker_answered: list[Commit] = field(default_factory=list)
    finished: set[Commit] = field(default_factory=set)
    stored: int = 0
    seconds: float = 0.0


async def commit_directly(engine: KillableEngine, record: Record, queue_id: int) -> None:
    """Commit 1, 2, 3, ... for one queue, each once; an offset without an answer stays unknown.

    Of messages that it has pulled in this life of the broker: no report counts beyond those.
    """
    client = RpcClient(system_runtime())
    offset = pulled = 0
    try:
        while True:
            try:
                while pulled <= offset or offset >= record.stored // (2 * QUEUES):
                    request = pull_from(queue_id, pulled)
                    answer = await client.invoke(engine.broker, request, timeout_ms=2000)
                    if int(answer.fields["nextBeginOffset"]) == pulled:
                        await asyncio.sleep(0.01)
                    pulled = int(answer.fields["nextBeginOffset"])
                offset += 1
                record.sent.add((queue_id, offset))
                answer = await client.invoke(
                    engine.broker, commit_of(queue_id, offset), timeout_ms=2000
                )
            except TidemarkError:
                pulled = 0
                await asyncio.sleep(0.05)
                continue
            if answer.code == ResponseCode.SUCCESS:
                record.answered.add((queue_id, offset))
            await asyncio.sleep(0.003)
    finally:
        await client.close()


def commit_of(queue_id: int, offset: int) -> RemotingCommand:
    """UPDATE_CONSUMER_OFFSET of the direct committers."""
    fields = {
        "consumerGroup": DIRECT,
        "topic": TOPIC,
        "queueId": str(queue_id),
        "commitOffset": str(offset),
    }
    return RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, fields)


def pull_from(queue_id: int, offset: int) -> RemotingCommand:
    """PULL_MESSAGE from this offset on."""
    header = PullMessageRequestHeader(
        consumer_group=DIRECT,
        topic=TOPIC,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=int(PullSysFlag.SUBSCRIPTION),
        commit_offset=0,
        suspend_timeout_ms=0,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
    )
    return RemotingCommand.request(RequestCode.PULL_MESSAGE, header.encode())


async def produce(producer: Producer, record: Record) -> None:
    """Batches, one after the other; what is answered counts."""
    while True:
        messages = [Message(TOPIC, b"x" * 100, {}) for _ in range(BATCH)]
        try:
            await producer.send_batch(messages, timeout_ms=2000)
        except TidemarkError:
            await asyncio.sleep(0.05)
            continue
        record.stored += BATCH
        await asyncio.sleep(0.01)


def worker(engine: KillableEngine, record: Record) -> PushConsumer:
    """A push consumer that remembers what it finished and which reports were answered."""

    def answered(queue: MessageQueue, offset: int) -> None:
        if queue.topic == TOPIC:
            record.worker_answered.append((queue.queue_id, offset))

    async def listen(
        messages: Sequence[MessageExt], context: ConsumeContext
    ) -> ConsumeConcurrentlyStatus:
        del context
        record.finished.update((message.queue_id, message.queue_offset) for message in messages)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer = PushConsumer(
        system_runtime(),
        client_config(engine),
        WORKERS,
        consumer=ConsumerConfig(
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            commit_acknowledged=True,
            piggyback_commit=False,
            consume_batch_max=BATCH,
            first_pull_delay_ms=50,
            pull_error_delay_ms=100,
            persist_first_ms=50,
            persist_ms=50,
            rebalance_ms=500,
            rebalance_retry_ms=100,
        ),
        on_commit_answered=answered,
    )
    consumer.subscribe(TOPIC, "*", listen)
    return consumer


def client_config(engine: KillableEngine) -> ClientConfig:
    return ClientConfig(
        namesrv_addresses=(engine.namesrv,),
        route_poll_ms=300,
        heartbeat_ms=500,
        request_timeout_ms=1000,
    )


async def kill_brokers(engine: KillableEngine, record: Record, kills: int) -> None:
    """So many lives that end by SIGKILL; the one after them goes on."""
    loop, choice = asyncio.get_running_loop(), random.Random(SEED)
    for _ in range(kills):
        began, stored = loop.time(), record.stored
        async with asyncio.timeout(60):
            while record.stored == stored:  # noqa: ASYNC110 - the broker is another process
                await asyncio.sleep(0.01)
        await asyncio.sleep(choice.uniform(0.1, 1.0))
        record.seconds += loop.time() - began
        assert await engine.end(signal.SIGKILL) == -signal.SIGKILL
        await engine.start()


async def play(engine: KillableEngine, record: Record, kills: int) -> int:
    """The whole run, to a clean stop of everything; how many shippers were killed."""
    await engine.start()
    over = asyncio.Event()
    shippers = asyncio.create_task(engine.kill_shippers(SEED + 1, kills, over))
    producer = Producer(system_runtime(), client_config(engine), "producers")
    await producer.start()
    consumer = worker(engine, record)
    loads = [asyncio.create_task(produce(producer, record))]
    try:
        async with asyncio.timeout(60):
            while not record.stored:  # noqa: ASYNC110 - the broker is another process
                await asyncio.sleep(0.01)
        await consumer.start()
        loads += [
            asyncio.create_task(commit_directly(engine, record, queue_id))
            for queue_id in range(QUEUES)
        ]
        await kill_brokers(engine, record, kills)
    finally:
        over.set()
        for load in loads:
            load.cancel()
        await asyncio.gather(*loads, return_exceptions=True)
        with suppress(TidemarkError):
            await consumer.stop()
        await producer.stop()
    assert await engine.end(signal.SIGTERM) == 0
    shipper_kills = await shippers
    last = await engine.start_shipper()
    last.terminate()
    async with asyncio.timeout(90):
        assert await last.wait() == 0
    return shipper_kills


@pytest.mark.timeout(300)
@kills(4, in_full=20)
def test_commits_are_in_delta_exactly_as_the_clients_were_answered(
    tmp_path: Path, kills: int
) -> None:
    engine, record = KillableEngine(tmp_path), Record()
    shipper_kills = asyncio.run(play(engine, record, kills))
    assert shipper_kills >= kills
    rows = read_all(engine.lake)
    assert_exactly_once(rows, EMITTER)
    boots = [row for row in rows["lifecycle"] if row["kind"] == "BOOT"]
    assert len(boots) == kills + 1
    commits = [row for row in rows["consume_offsets"] if row["topic"] == TOPIC]
    compare_direct([row for row in commits if row["group"] == DIRECT], record)
    assert len(record.answered) > 30 * kills
    compare_workers([row for row in commits if row["group"] == WORKERS], record)
    rate = record.stored / record.seconds
    assert rate >= 1000, f"{rate:.0f} messages/s: the kills must hit a busy broker"


def compare_direct(rows: list[Row], record: Record) -> None:
    """Every answered commit once; beyond them only commits that were sent and never answered."""
    found = [(row["queue_id"], row["offset"]) for row in rows]
    assert len(set(found)) == len(found), "none twice"
    assert record.answered <= set(found), "every answered one"
    assert set(found) <= record.sent, "none that nobody sent"
    odd = [
        row
        for row in rows
        if row["path"] != "COMMIT_RPC"
        or (not row["accepted"] and row["offset"] <= row["max_offset"])  # Not beyond the end.
    ]
    assert not odd, f"{len(odd)} of {len(rows)} are refused, or came another way: {odd[:3]}"
    check_chain(rows)


def compare_workers(rows: list[Row], record: Record) -> None:
    """Every answered report is there; none that the consumer could not have made.

    The same offset comes again only in another life of the broker, which had forgotten it.
    """
    found = {(row["queue_id"], row["offset"]) for row in rows}
    assert record.worker_answered
    assert set(record.worker_answered) <= found
    possible = {(queue_id, offset + 1) for queue_id, offset in record.finished}
    starts = {(queue_id, 0) for queue_id, _ in found}
    assert found <= possible | starts
    taken = [row for row in rows if row["accepted"]]  # Not before it says who it is, or pulls.
    per_life = [(row["broker_epoch"], row["queue_id"], row["offset"]) for row in taken]
    assert len(set(per_life)) == len(per_life), "once per life of the broker"
    check_chain(rows)


def check_chain(rows: list[Row]) -> None:
    """Within a life of the broker each row knows the one before it: nothing is missing between
    them."""
    stored: dict[tuple[int, int], int] = {}
    for row in rows:
        key = row["broker_epoch"], row["queue_id"]
        if key in stored:
            assert row["previous_offset"] == stored[key], row
        if row["accepted"]:
            stored[key] = row["offset"]
