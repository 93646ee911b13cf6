"""Somebody sets the clock of a broker's machine by an hour: stamps follow, and nobody loses a
lease, a membership, a long poll or a figure by it.

Rows B1, B7, C7 and D1 under clock faults.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from engine.foundation.units import HOUR_MS
from engine.protocol.codes import RequestCode, ResponseCode
from engine.runtime import SystemClock, system_runtime
from tests.integration.broker.cluster import (
    GROUP,
    TOPIC,
    RawClient,
    broker_config,
    cluster,
    eventually,
    messages,
)
from tests.integration.broker.spooled import spooled

LOCK = {
    "consumerGroup": GROUP,
    "mqSet": [{"topic": TOPIC, "brokerName": "broker-a", "queueId": 0}],
}


class SetWall:
    """The machine's wall clock, set by so much."""

    def __init__(self) -> None:
        self.by_ms = 0

    def __call__(self) -> int:
        return time.time_ns() + self.by_ms * 1_000_000


async def locked(client: RawClient, client_id: str) -> int:
    """How many queues the client is granted."""
    body = json.dumps(LOCK | {"clientId": client_id}).encode()
    answer = await client.ask(RequestCode.LOCK_BATCH_MQ, body)
    return len(json.loads(answer.body)["lockOKMQSet"])


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
async def test_a_step_of_the_clock_takes_nothing_from_anybody(tmp_path: Path, step_ms: int) -> None:
    wall = SetWall()
    runtime = replace(system_runtime(), clock=SystemClock(wall))
    async with cluster(broker_config(tmp_path, housekeeping_interval_ms=200), runtime) as running:
        holder, rival = running.client("holder"), running.client("rival")
        await holder.heartbeat()
        assert (await holder.send(b"before")).code == ResponseCode.SUCCESS
        assert await locked(holder, "holder") == 1
        poll = asyncio.create_task(holder.pull(1, wait_ms=10_000))
        await asyncio.sleep(0.3)
        wall.by_ms = step_ms
        await asyncio.sleep(1.5)  # Longer than the rhythm of every check.
        assert not poll.done(), "a long poll waits its own time"
        assert await locked(rival, "rival") == 0, "the lease is the holder's"
        members = running.broker.state.groups.of(GROUP)
        assert members is not None
        assert len(members.members) == 1, "its heartbeat is as fresh as before"
        assert (await holder.send(b"behind")).code == ResponseCode.SUCCESS
        assert messages(await poll)[0].body == b"behind"
        for code in (RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_ALL_PRODUCER_INFO):
            assert (await holder.ask(code)).code == ResponseCode.SUCCESS
        stats = await holder.ask(
            RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey=TOPIC
        )
        assert stats.code == ResponseCode.SUCCESS
        first, second = messages(await holder.pull(0))
        apart_ms = second.store_timestamp_ms - first.store_timestamp_ms
        assert abs(apart_ms - max(0, step_ms)) < 60_000

        async def is_reported() -> bool:
            rows = spooled(tmp_path / "store", "lifecycle")
            return any(row["kind"] == "CLOCK_STEPPED" for row in rows)

        await eventually(is_reported, "the step is a row")
    (row,) = [r for r in spooled(tmp_path / "store", "lifecycle") if r["kind"] == "CLOCK_STEPPED"]
    assert ("forward" if step_ms > 0 else "back") in row["detail"]
    assert int(row["detail"].split()[-2]) == pytest.approx(HOUR_MS, abs=100)
    assert row["step_ms"] == pytest.approx(step_ms, abs=100)
