"""Rows A4, C4, C7: kill -9 of a real broker under load, again and again: nothing acknowledged is
lost, queues keep their order, and no consume offset is beyond what was worked on.

The suite plays a few rounds; `make kill-loop` plays fifty and more, in both flush modes.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path

import pytest

from engine.foundation.errors import TidemarkError
from engine.protocol.codes import ResponseCode
from tests.integration.broker.cluster import TOPIC, RawClient, messages
from tests.integration.telemetry.killable_engine import KillableEngine
from tests.seeds import one_seed
from tests.simulation.history import (
    History,
    check_nothing_acknowledged_is_lost,
    check_offset_passes_nothing_unfinished,
    check_order_per_queue,
)

ROUNDS = int(os.environ.get("TIDEMARK_KILL_ROUNDS", "6"))
SEED = one_seed()
QUEUES = 3
SMALL = (
    *("--set", "mappedFileSizeCommitLog=65536", "--set", "mappedFileSizeConsumeQueue=2000"),
    *("--set", "maxHashSlotNum=500", "--set", "maxIndexNum=2000"),
    *("--set", "flushConsumerOffsetInterval=300", "--no-telemetry"),
)


async def send_for_ever(engine: KillableEngine, history: History, queue_id: int) -> None:
    """Numbered messages to one queue; one whose answer is lost is never sent again."""
    client = RawClient(engine.broker)
    number = 0
    try:
        while True:
            body = f"{queue_id}:{number}:".encode().ljust(number * 37 % 1500 + 12, b".")
            number += 1
            history.sent.append(body)
            try:
                answer = await client.send(body, queue_id=queue_id, timeout_ms=2000)
            except TidemarkError:
                await asyncio.sleep(0.02)
                continue
            if answer.code == ResponseCode.SUCCESS:
                history.ack(TOPIC, queue_id, int(answer.fields["queueOffset"]), body)
    finally:
        await client.close()


async def consume_for_ever(engine: KillableEngine, history: History, queue_id: int) -> None:
    """Go on at the committed offset, finish what comes, commit; begin anew after each kill."""
    client = RawClient(engine.broker)
    try:
        while True:
            try:
                await consume_until_it_dies(client, history, queue_id)
            except TidemarkError:
                await asyncio.sleep(0.02)
    finally:
        await client.close()


async def consume_until_it_dies(client: RawClient, history: History, queue_id: int) -> None:
    asked = await client.committed(queue_id=queue_id)
    offset = int(asked.fields["offset"]) if asked.code == ResponseCode.SUCCESS else 0
    check_offset_passes_nothing_unfinished(history, (TOPIC, queue_id), offset)
    while True:
        answer = await client.pull(offset, queue_id=queue_id, wait_ms=500)
        if answer.code != ResponseCode.SUCCESS:
            await asyncio.sleep(0.02)
            continue
        for message in messages(answer):
            place = (TOPIC, queue_id, message.queue_offset)
            assert message.queue_offset == offset, f"{offset} was asked for, {place} came"
            history.finish(place, message.body, "consumer")
            offset += 1
        await client.commit(offset, queue_id=queue_id)


async def everything_stored(engine: KillableEngine) -> dict[tuple[str, int, int], bytes]:
    """Every queue from its beginning, after the last recovery."""
    client = RawClient(engine.broker)
    stored: dict[tuple[str, int, int], bytes] = {}
    for queue_id in range(QUEUES):
        offset = 0
        while (answer := await client.pull(offset, queue_id=queue_id)).code == ResponseCode.SUCCESS:
            for message in messages(answer):
                stored[TOPIC, queue_id, message.queue_offset] = message.body
                offset = message.queue_offset + 1
    await client.close()
    return stored


@pytest.mark.timeout(60 + 20 * ROUNDS)
@pytest.mark.parametrize("flush", ["sync", pytest.param("async", marks=pytest.mark.slow)])
async def test_nothing_acknowledged_is_lost_over_many_kills(tmp_path: Path, flush: str) -> None:
    chance, history = random.Random(SEED), History()
    engine = KillableEngine(tmp_path)
    clients: list[asyncio.Task[None]] = []
    acked_before = 0
    for number in range(ROUNDS):
        await engine.start("--flush", flush, *SMALL)
        if not clients:
            await make_topic(engine)
            clients = [
                asyncio.create_task(work(engine, history, queue_id))
                for queue_id in range(QUEUES)
                for work in (send_for_ever, consume_for_ever)
            ]
        until = asyncio.get_running_loop().time() + chance.uniform(0.2, 1.2)
        while len(history.acked) == acked_before or asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.01)
            for client in clients:
                if client.done():
                    client.result()
        acked_before = len(history.acked)
        await engine.end(signal.SIGKILL)
        assert acked_before > number
    for client in clients:
        client.cancel()
    for outcome in await asyncio.gather(*clients, return_exceptions=True):
        assert isinstance(outcome, asyncio.CancelledError), outcome
    await engine.start("--flush", flush, *SMALL)
    stored = await everything_stored(engine)
    check_nothing_acknowledged_is_lost(history, stored)
    check_order_per_queue(history, stored)
    assert len(set(stored.values())) == len(stored), "one message at two places"
    assert set(stored.values()) <= set(history.sent), "a message nobody sent"
    await engine.end(signal.SIGTERM)


async def make_topic(engine: KillableEngine) -> None:
    client = RawClient(engine.broker)
    answer = await client.send(b"makes the topic", topic=TOPIC, queue_id=QUEUES)
    assert answer.code == ResponseCode.SUCCESS
    await client.close()
