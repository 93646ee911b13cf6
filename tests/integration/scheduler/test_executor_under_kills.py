"""Row F2: an executor as its own process, killed: no result is lost, none invented."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine.foundation.errors import Unreachable
from pipelines.scheduler.executor.run_files import CUT_OFF, NEVER_BEGUN
from pipelines.scheduler.executor.serving import TOKEN_VARIABLE
from tests.integration.scheduler.parties import (
    MODULE,
    PATIENCE_S,
    TOKEN,
    Party,
    client_of,
    is_alive,
    receiving_admin,
    until,
)

ROOT = Path(__file__).parents[3]
COMMAND = Path(sys.prefix) / "bin" / "tidemark"
KILLS = 20


@asynccontextmanager
async def executor_process(
    home: Path, admin: str, *options: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, Party]]:
    """`tidemark executor`, ended by SIGTERM unless it is dead before."""
    process = await asyncio.create_subprocess_exec(
        *(COMMAND, "executor", "--admin", admin, "--app", "tests", "--module", MODULE),
        *("--home", home, "--port", "0", *options),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {TOKEN_VARIABLE: TOKEN},
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            ready = (await process.stdout.readline()).decode()
        async with client_of(ready) as party:
            yield process, party
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def test_after_kill_9_what_had_finished_is_delivered_and_what_had_not_is_named(
    tmp_path: Path,
) -> None:
    place = tmp_path / "marks"
    async with receiving_admin() as gone:
        port = int(gone.url.split(":")[2].split("/", maxsplit=1)[0])
    async with executor_process(tmp_path / "x", gone.url) as (process, executor):
        await executor.run(1, "shows-the-environment", job_id=1)
        await executor.log_with(1, "ends")
        for log_id in (2, 3):
            await executor.run(log_id, "marks-and-waits", parameters=str(place))
        await until(place.exists)
        children = children_of(process.pid)
        assert len(children) == 1, "the idle one was taken"
        process.kill()
        await process.wait()
    await until(lambda: not any(map(is_alive, children)))
    place.with_suffix(".go").touch()
    async with (
        receiving_admin(port=port) as admin,
        executor_process(tmp_path / "x", admin.url) as (process, executor),
    ):
        results = {log_id: await admin.result_of(log_id) for log_id in (1, 2, 3)}
        assert (results[1].code, results[1].message) == (200, ""), "handlers do not see the token"
        assert (results[2].code, results[2].message) == (500, CUT_OFF)
        assert (results[3].code, results[3].message) == (500, NEVER_BEGUN)
        assert len((await executor.log(1)).text.splitlines()) == 2
        for log_id in (2, 3):
            again = await executor.run(log_id, "marks-and-waits", parameters=str(place))
            assert again.is_success, "a request that comes late is no new run"
        await executor.run(4, "marks-and-waits", parameters=str(place))
        await admin.result_of(4)
        await until(lambda: not list((tmp_path / "x" / "runs").iterdir()))
        process.terminate()
        assert await process.wait() == 0
    assert place.read_text() == "2\n4\n"


async def test_a_script_dies_with_its_executor(tmp_path: Path) -> None:
    """Else it would be at work beside the run that the centre starts in its place."""
    place = tmp_path / "pid"
    async with receiving_admin() as admin:
        async with executor_process(tmp_path / "x", admin.url, "--scripts") as (process, executor):
            source = f"echo $$ > {place}; exec sleep 600"
            await executor.run(1, "", glue_type="GLUE_SHELL", glue_source=source)
            await until(lambda: place.exists() and place.read_text().strip())
            process.kill()
            await process.wait()
        await until(lambda: not is_alive(int(place.read_text())))


@pytest.mark.slow
async def test_over_many_kills_each_accepted_run_has_one_result_and_success_means_done(
    tmp_path: Path,
) -> None:
    choice = random.Random(1)
    place = tmp_path / "marks"
    place.with_suffix(".go").touch()
    accepted, unknown, last = set(), set(), 0
    async with receiving_admin() as admin:
        for _ in range(KILLS):
            async with executor_process(tmp_path / "x", admin.url) as (process, executor):
                kill = asyncio.get_running_loop().call_later(choice.random(), process.kill)
                while process.returncode is None:
                    last += 1
                    job = choice.randrange(3)
                    try:
                        answer = await executor.run(
                            last, "marks-and-waits", job_id=job, parameters=str(place)
                        )
                    except Unreachable:
                        unknown.add(last)
                        break
                    assert answer.is_success
                    accepted.add(last)
                await process.wait()
                kill.cancel()
        async with executor_process(tmp_path / "x", admin.url):
            for log_id in accepted:
                await admin.result_of(log_id)
    codes: dict[int, set[tuple[int, str]]] = {}
    for result in admin.results:
        codes.setdefault(result.log_id, set()).add((result.code, result.message[:7]))
    done = Counter(int(line) for line in place.read_text().split())
    assert accepted <= codes.keys() <= accepted | unknown
    assert all(len(ended) == 1 for ended in codes.values()), (
        "delivered again only in the same words"
    )
    assert max(done.values()) == 1, "nothing has run twice"
    for log_id, ((code, _),) in codes.items():
        assert done[log_id] or code != 200, "success means that it was done"
    assert len(accepted) > KILLS


def children_of(pid: int) -> list[int]:
    """Its child processes now."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
