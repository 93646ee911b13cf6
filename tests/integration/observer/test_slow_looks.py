"""Looks that take longer than their period are reported: in the log, the lake, to a Prometheus."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.observer.cluster_watch import ClusterWatch
from engine.observer.poll_metrics import LookTimes, pages_of
from engine.protocol.codes import RequestCode as Code
from tests.integration.broker.cluster import eventually
from tests.integration.observer.played_cluster import PlayedBroker, observing, played_cluster
from tests.integration.observer.test_brokers_that_misbehave import late_by, saying

PERIOD_MS = 1_000
LATE_S = 1.2


def slowed(broker: PlayedBroker) -> None:
    usual = broker.usual[Code.GET_BROKER_CONSUME_STATS]
    broker.answers[Code.GET_BROKER_CONSUME_STATS] = late_by(LATE_S, usual)


def figures_of(text: str) -> dict[tuple[str, str], float]:
    return {
        (sample.name.removeprefix("tidemark_observer_"), sample.labels["broker"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_that_looks_take_longer_than_their_period_is_reported_when_it_begins_and_when_it_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    slow, good = PlayedBroker("slow"), PlayedBroker("good")
    slowed(slow)
    async with (
        played_cluster(tmp_path, slow, good) as cluster,
        observing(cluster, period_ms=PERIOD_MS) as watch,
    ):

        def is_reported(broker: PlayedBroker) -> list[tuple[str, str]]:
            rows = cluster.reported(broker, "lifecycle")
            return [
                (row["kind"], row["detail"]) for row in rows if row["kind"].startswith("LOOKS_")
            ]

        async def is_there(count: int) -> bool:
            return len(is_reported(slow)) == count

        await eventually(lambda: is_there(1), "slow looks are reported", within_s=20)
        slow_looks = watch.times["c1", "slow"]
        assert (slow_looks.last_ms or 0) > PERIOD_MS
        assert slow_looks.slow == slow_looks.looks
        slow.answers.clear()
        await eventually(lambda: is_there(2), "that they are no more", within_s=20)
        assert not is_reported(good)
        assert not watch.times["c1", "good"].slow
    (began, begun_words), (ended, _) = is_reported(slow)
    assert (began, ended) == ("LOOKS_SLOW", "LOOKS_IN_TIME")
    assert re.fullmatch(r"a look took 1\d{3} ms, longer than its period of 1000 ms", begun_words)
    assert caplog.text.count("c1/slow: a look took") == 2


async def test_a_prometheus_gets_how_long_the_last_look_at_each_broker_took(
    tmp_path: Path,
) -> None:
    slow, good = PlayedBroker("slow"), PlayedBroker("good")
    slowed(slow)
    async with played_cluster(tmp_path, slow, good) as cluster:
        command = [str(Path(sys.executable).parent / "tidemark"), "observe"]
        command += ["-n", cluster.namesrv, "--home", str(tmp_path / "home"), "--period", "1"]
        process = await asyncio.create_subprocess_exec(
            *(*command, "--metrics-port", "0"), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        ready = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        address = ready.rpartition("metrics=")[2].strip()
        figures: dict[tuple[str, str], float] = {}

        async def are_reported() -> bool:
            async with httpx.AsyncClient(trust_env=False) as client:
                figures.update(figures_of((await client.get(address)).text))
            return figures.get(("slow_looks_total", "slow"), 0) > 1

        try:
            await eventually(are_reported, "looks are counted", within_s=30)
        finally:
            process.terminate()
            assert await process.wait() == 0
    assert figures["look_seconds", "slow"] > LATE_S
    assert figures["look_seconds", "good"] < figures["look_seconds", "slow"]
    assert figures["period_seconds", "good"] == 1
    assert figures["slow_looks_total", "slow"] == figures["looks_total", "slow"]
    assert figures["failed_looks_total", "slow"] == 0


def test_of_a_broker_that_was_never_looked_at_no_time_is_reported() -> None:
    times = {("c", "new"): LookTimes(10_000), ("c", "gone"): LookTimes(10_000)}
    times["c", "gone"].note(5_000, counts=False)
    figures = figures_of("".join(pages_of(times, series_max=10)))
    assert ("look_seconds", "new") not in figures
    assert figures["look_seconds", "gone"] == 5
    assert figures["failed_looks_total", "gone"] == 1
    assert figures["looks_total", "new"] == 0


async def is_known(watch: ClusterWatch) -> bool:
    """Is the broker watched?"""
    return ("c1", "one") in watch.times


async def has_looked(times: LookTimes, *, failed: int) -> bool:
    """Were there looks, and so many that failed?"""
    return times.looks > 0 and times.failed >= failed


async def test_looks_that_nobody_answered_leave_a_gap_that_is_reported_over_restarts_too(
    tmp_path: Path,
) -> None:
    broker = PlayedBroker("one")

    def missed() -> list[dict[str, Any]]:
        rows = cluster.reported(broker, "lifecycle")
        return [row for row in rows if row["kind"] == "LOOKS_MISSED"]

    async def is_reported(count: int) -> bool:
        return len(missed()) == count

    async with played_cluster(tmp_path, broker) as cluster:
        async with observing(cluster, period_ms=200) as watch:
            await eventually(lambda: is_known(watch), "the broker is watched")
            times = watch.times["c1", "one"]
            await eventually(lambda: has_looked(times, failed=0), "a look")
            broker.answers[Code.GET_BROKER_RUNTIME_INFO] = saying(b"nonsense")
            await eventually(lambda: has_looked(times, failed=3), "looks that fail")
            broker.answers.clear()
            await eventually(lambda: is_reported(1), "a gap", within_s=20)
        await asyncio.sleep(1.0)
        async with observing(cluster, period_ms=200):
            await eventually(lambda: is_reported(2), "the gap between two observers", within_s=20)
    first, second = missed()
    assert first["time_from"] < second["time_from"]
