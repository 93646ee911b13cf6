"""Row F2: unmodified Java executors of XXL-Job work with our client and server.

Our client sends them requests, and they report to an admin that stands on our server.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from demo.rocketmq import SMALL, Installation
from pipelines.scheduler.wire.addresses import Address
from pipelines.scheduler.wire.client import ExecutorClient
from pipelines.scheduler.wire.messages import Blocking
from provision import jars, java
from tests.integration.scheduler.parties import (
    LOG_TIME_MS,
    PATIENCE_S,
    TOKEN,
    Party,
    client_of,
    receiving_admin,
)

OLDEST, *NEWER = jars.XXL_JOB
"""The suite plays the newest one under a whole centre: test_java_under_our_centre."""

SOURCE = Path(__file__).parent / "java_xxl" / "JobExecutor.java"


@asynccontextmanager
async def java_executor(version: str, folder: Path, admin: str) -> AsyncIterator[str]:
    """A Java executor; what it would say when it is ready. It has gone by the end, orderly."""
    java_home = java.find(with_compiler=True)
    jar_set = jars.XXL_JOB[version]
    wrong = jars.faults(jars.read_pins(jar_set.pins), jar_set.folder)
    assert java_home is not None, java.missing(with_compiler=True)
    assert not wrong, f"run `make setup`: {wrong[0]}"
    Installation(java_home, jar_set.folder).compile([SOURCE], folder / "classes")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *(java_home / "bin" / "java", *SMALL, "-cp", f"{folder / 'classes'}:{jar_set.folder}/*"),
        *("JobExecutor", admin, TOKEN, str(port), folder / "logs"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdin is not None
    try:
        yield f"executor=http://127.0.0.1:{port}/"
        process.stdin.close()
        async with asyncio.timeout(PATIENCE_S):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize(
    "version", [OLDEST, *(pytest.param(one, marks=pytest.mark.slow) for one in NEWER)]
)
async def test_a_java_executor_does_what_it_is_asked_and_reports_how_it_ended(
    version: str, tmp_path: Path
) -> None:
    async with receiving_admin() as admin:
        async with java_executor(version, tmp_path, admin.url) as said:
            await admin.until(lambda admin: admin.registered)
            assert admin.registered[0].app == "java-sample"
            assert admin.registered[0].address == said.removeprefix("executor=")
            Address.parse(admin.registered[0].address)
            async with client_of(said) as party:
                assert (await party.client.beat()).is_success
                await a_stranger_is_refused(party)
                for log_id, expected in ((1, "p1"), (2, "fail"), (3, "boom")):
                    shard = {"shard_index": 1, "shard_total": 3, "fire_time_ms": LOG_TIME_MS}
                    assert (await party.run(log_id, parameters=expected, **shard)).is_success
                assert (await admin.result_of(1)).code == 200
                assert (await admin.result_of(2)).message == "bad"
                assert "IllegalStateException: boom" in (await admin.result_of(3)).message
                page = await party.log_with(1, "finish")
                assert "hello p1 shard 1/3" in page.text
                assert page.to_line >= 3
                assert not (await party.log(1, 99)).text
                missing = await party.run(4, "missing", job_id=8)
                assert missing.message == "job handler [missing] not found."
                await runs_block_are_killed_and_time_out(party)
                assert "job running, killed" in (await admin.result_of(5)).message
                assert "in the job queue, killed" in (await admin.result_of(6)).message
                assert (await admin.result_of(8)).code == 502
                assert {one.log_time_ms for one in admin.results} == {LOG_TIME_MS}
        assert admin.removed == admin.registered[:1]


async def a_stranger_is_refused(party: Party) -> None:
    stranger = ExecutorClient(party.caller, party.at, token="wrong")
    assert "token is wrong" in (await stranger.beat()).message


async def runs_block_are_killed_and_time_out(party: Party) -> None:
    """Run 5 at work, 6 waits, 7 refused; both killed; 8 too long."""
    assert (await party.run(5, parameters="sleep60000")).is_success
    await party.log_with(5, "hello")
    assert (await party.run(6, parameters="sleep60000")).is_success
    assert "is running or has trigger queue" in (await party.client.idle_beat(7)).message
    discarded = await party.run(7, blocking=Blocking.DISCARD_LATER)
    assert "Discard Later" in discarded.message
    assert (await party.client.kill(7)).is_success
    assert (await party.client.kill(999)).is_success
    assert (await party.run(8, job_id=9, parameters="sleep60000", timeout_s=1)).is_success
