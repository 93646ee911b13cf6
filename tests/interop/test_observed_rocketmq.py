"""The observer finds from a real Apache RocketMQ's answers what stands still on it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.admin import admin_at
from engine.client import ConsumeContext
from engine.client.config import MessageModel
from engine.foundation.errors import TidemarkError
from engine.protocol.message import Message, MessageExt
from pipelines.base.settings import Evaluation
from pipelines.marts.declared import steps
from tests.integration.broker.spooled import picked, spooled
from tests.integration.client.cluster_users import (
    LATER,
    SUCCESS,
    client_config,
    consumer_config,
    consuming,
    eventually,
    producing,
)
from tests.interop.real_rocketmq import RealRocketMQ
from tests.pipelines.partition import bronze_of, run
from tests.shipped_alerts import fired

TOPIC, GROUPS = "observed-orders", ("observed-quick", "observed-stuck")
WATCHED_S = 45
"""Longer than a head may stand still before it is reported."""


@contextmanager
def observer(
    cluster: RealRocketMQ, folder: Path, *, ships: bool = True, period_s: int = 2
) -> Iterator[None]:
    """`tidemark observe`, with a shipper if asked for, until the end."""
    words = ["observe", "-n", cluster.name_server, "--period", str(period_s)]
    words += ["--home", str(folder / "home")]
    words += ["--lake", str(folder / "lake")] if ships else []
    command = [str(Path(sys.executable).parent / "tidemark"), *words]
    with (folder / "observer.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(60)
    assert code == 0, (folder / "observer.log").read_text()


async def played(cluster: RealRocketMQ, folder: Path) -> None:
    """Ten messages a second come; one group finishes them, the other's listener never returns."""
    never = asyncio.Event()

    async def quick(_messages: Sequence[MessageExt], _context: ConsumeContext) -> Any:
        return SUCCESS

    async def stuck(_messages: Sequence[MessageExt], _context: ConsumeContext) -> Any:
        await never.wait()
        return SUCCESS

    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(producing(cluster.name_server, "observed"))
        await eventually(lambda: _sent(producer), "the broker makes the topic")
        for group, listener in zip(GROUPS, (quick, stuck), strict=True):
            await stack.enter_async_context(
                consuming(
                    cluster.name_server,
                    group,
                    {TOPIC: listener},
                    config=consumer_config(stop_wait_ms=100),
                    client=client_config(cluster.name_server, client_ip="127.0.0.1"),
                )
            )
        with observer(cluster, folder):
            for _ in range(10 * WATCHED_S):
                await producer.send(Message(TOPIC, b"order"))
                await asyncio.sleep(0.1)
        never.set()


async def _sent(producer: Any, topic: str = TOPIC) -> bool:
    try:
        await producer.send(Message(topic, b"first"))
    except TidemarkError:
        return False
    return True


@pytest.mark.timeout(240)
async def test_a_stuck_listener_of_a_foreign_cluster_is_found(
    apache_rocketmq: RealRocketMQ, tmp_path: Path
) -> None:
    await played(apache_rocketmq, tmp_path)
    check_that_the_stuck_one_is_found(tmp_path)


def check_that_the_stuck_one_is_found(folder: Path) -> None:
    """What `played` was is in the lake, and nothing else is."""
    bronze = bronze_of(folder / "lake")
    (emitter,) = set(bronze["group_watermarks"]["emitter"].to_pylist())
    assert emitter == "DefaultCluster/broker-a/observer"
    lifecycle = bronze["lifecycle"].to_pylist()
    assert {"BOOT", "OBSERVED", "SNAPSHOT"} <= {row["kind"] for row in lifecycle}
    gold = run(steps(), bronze, Evaluation())
    newest = {row["group"]: row for row in gold["group_state"]}
    assert newest[GROUPS[0]]["state"] == "OK"
    assert newest[GROUPS[1]]["state"] == "STALLED"
    assert newest[GROUPS[1]]["lag_messages"] == pytest.approx(10 * WATCHED_S, rel=0.3)
    windows = [row for row in gold["stalled_windows"] if row["group"] == GROUPS[1]]
    assert {row["kind"] for row in windows} == {"FROZEN_HEAD"}
    assert {row["head_offset"] for row in windows} == {0}
    assert not [row for row in gold["stalled_windows"] if row["group"] == GROUPS[0]]
    assert {one for one in fired(gold) if one[1] in GROUPS} == {("QueueFrozen", GROUPS[1])}
    lags = [
        row for row in gold["consumer_lag"] if row["group"] == GROUPS[1] and row["lag_messages"]
    ]
    assert {row["provenance"] for row in lags} == {"OBSERVED"}
    assert {row["error_ms"] for row in lags} == {2_000}
    assert max(row["time_lag_ms"] for row in lags) >= 1000 * WATCHED_S * 0.8


@pytest.mark.timeout(60)
async def test_the_rows_of_one_look_are_what_the_admin_tool_says(
    apache_rocketmq: RealRocketMQ, tmp_path: Path
) -> None:
    await check_that_all_ends_are_reported(apache_rocketmq, tmp_path)


async def check_that_all_ends_are_reported(cluster: RealRocketMQ, tmp_path: Path) -> None:
    """All queues of all topics that the broker lists, with their ends."""
    with observer(cluster, tmp_path):
        spool = tmp_path / "home" / "DefaultCluster" / "broker-a" / "observer" / "spool"
        await eventually(lambda: any(spool.glob("*")), "the observer's first look")
        await asyncio.sleep(3)  # More than one look.
    address, known = cluster.broker, dict[tuple[str, int], int]()
    async with admin_at(cluster.name_server) as admin:
        for topic in await admin.topics.configs_at(address):
            for queue, one in (await admin.topics.status_at(address, topic)).items():
                known[topic, queue.queue_id] = one.max_offset
    reported = bronze_of(tmp_path / "lake")["queue_watermarks"].to_pylist()
    newest = {(row["topic"], row["queue_id"]): row["max_offset"] for row in reported}
    assert newest.keys() == known.keys()
    assert {key for key in known if newest[key] > known[key]} == set()


FAILING, BROADCAST = "observed-failing", "observed-broadcast"


@pytest.mark.timeout(120)
async def test_retries_dead_letters_rewinds_and_broadcasts_of_a_foreign_cluster_are_reported(
    apache_rocketmq: RealRocketMQ, tmp_path: Path
) -> None:
    await check_that_failures_are_reported(apache_rocketmq, tmp_path)


async def check_that_failures_are_reported(cluster: RealRocketMQ, tmp_path: Path) -> None:
    """A poison message is tried once more after ten seconds and is a dead letter then; its group is
    set back afterwards. Another group is one of broadcasts.
    """
    topic, name_server = "observed-poison", cluster.name_server

    async def fail(_messages: Sequence[MessageExt], _context: ConsumeContext) -> Any:
        return LATER

    async def hear(_messages: Sequence[MessageExt], _context: ConsumeContext) -> Any:
        return SUCCESS

    home = tmp_path / "home" / "DefaultCluster" / "broker-a" / "observer"

    def steps() -> list[str]:
        return [row["step"] for row in spooled(home, "retry_dlq_flow")]

    async with AsyncExitStack() as stack, admin_at(name_server) as admin:
        producer = await stack.enter_async_context(producing(name_server, "observed"))
        await eventually(lambda: _sent(producer, topic), "the broker makes the topic")
        stack.enter_context(observer(cluster, tmp_path, ships=False))
        await eventually((home / "spool").exists, "the observer's first look")
        async with (
            consuming(
                name_server,
                FAILING,
                {topic: fail},
                config=consumer_config(max_reconsume_times=1, stop_wait_ms=100),
            ),
            consuming(
                name_server,
                BROADCAST,
                {topic: hear},
                config=consumer_config(
                    message_model=MessageModel.BROADCASTING,
                    local_offset_directory=str(tmp_path / "offsets"),
                ),
            ),
        ):
            await eventually(lambda: "DEAD_LETTERED" in steps(), "the dead letter", within_s=60)
        offsets = await admin.groups.consume_stats(FAILING, topic)
        (queue,) = [one for one, progress in offsets.items() if progress.consumer_offset == 1]
        await admin.offsets.commit(FAILING, queue, 0)  # A 4.9 resets no single queue.
        await eventually(lambda: spooled(home, "consume_offsets"), "the fall is reported")
    # Which of the two copies is seen first is a matter of turns.
    tried, dead = ["SENT_BACK", "SCHEDULED", "DELIVERED"], ["SENT_BACK", "DEAD_LETTERED"]
    assert steps() in (tried + dead, dead + tried)
    reported = spooled(home, "retry_dlq_flow")
    assert {picked(row, "group", "origin_topic") for row in reported} == {(FAILING, topic)}
    assert len({row["message_id"] for row in reported}) == 1
    (fall,) = spooled(home, "consume_offsets")
    assert picked(fall, "group", "offset", "previous_offset") == (FAILING, 0, 1)
    marks = [row for row in spooled(home, "group_watermarks") if row["group"] == BROADCAST]
    assert {picked(row, "topic", "committed", "message_model") for row in marks} == {
        (topic, None, "BROADCASTING")
    }
