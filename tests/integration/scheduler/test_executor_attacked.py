"""Row F2: what handlers, disks and callers can do to an executor, and what it makes of it."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipelines.scheduler.wire.server import CONNECTIONS_MAX
from tests.integration.scheduler.parties import (
    LOG_TIME_MS,
    Admin,
    Party,
    executor_here,
    is_alive,
    receiving_admin,
    until,
)

MODULE = "tests.integration.scheduler.hostile_handlers"
DAY = datetime.fromtimestamp(LOG_TIME_MS / 1000, UTC).date().isoformat()


@asynccontextmanager
async def attacked(home: Path, **settings: object) -> AsyncIterator[tuple[Admin, Party]]:
    """One executor, whose children are taken again and again."""
    async with (
        receiving_admin() as admin,
        executor_here(home, admin.url, module=MODULE, **settings) as executor,
    ):
        yield admin, executor


async def one_more_is_right(admin: Admin, executor: Party, log_id: int = 1000) -> None:
    """Whatever was before, the next run has its own result."""
    await executor.run(log_id, "says-its-number", job_id=1)
    result = await admin.result_of(log_id)
    assert (result.code, result.message) == (200, f"run {log_id}")


async def test_a_fork_that_comes_back_answers_for_nobody(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (admin, executor):
        for log_id in (1, 2):
            await executor.run(log_id, "forks", job_id=1)
            result = await admin.result_of(log_id)
            assert (result.code, result.message) == (200, "the handler")
            await one_more_is_right(admin, executor, 1000 + log_id)


async def test_a_process_that_ends_ends_its_run_whatever_it_leaves_behind(tmp_path: Path) -> None:
    left = tmp_path / "pid"
    async with attacked(tmp_path / "x") as (admin, executor):
        await executor.run(1, "dies-and-leaves-a-fork", job_id=1, parameters=str(left))
        assert "ended with status 7" in (await admin.result_of(1)).message
        await until(lambda: not is_alive(int(left.read_text())))
        await one_more_is_right(admin, executor)


@pytest.mark.parametrize(
    "forged",
    [
        '{"code":200,"message":"forged"}\n',
        '{"code":200,"message":"forged"}\n' * 3,
        "no JSON\n",
        "[]\n",
        '{"log_id":1}\n',
        "half a li",
    ],
)
async def test_what_a_handler_forges_is_no_other_runs_result(tmp_path: Path, forged: str) -> None:
    async with attacked(tmp_path) as (admin, executor):
        await executor.run(1, "forges-answers", job_id=1, parameters=forged)
        assert (await admin.result_of(1)).message != "run 1000"
        await one_more_is_right(admin, executor)


@pytest.mark.parametrize("odd", ["zero", "text", "none", "huge"])
async def test_a_result_that_is_none_is_a_failure_that_an_admin_can_read(
    tmp_path: Path, odd: str
) -> None:
    async with attacked(tmp_path) as (admin, executor):
        await executor.run(1, "answers-oddly", job_id=1, parameters=odd)
        assert (await admin.result_of(1)).code == 500
        await one_more_is_right(admin, executor)


async def test_handlers_that_end_in_odd_ways_have_failed(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (admin, executor):
        for log_id, handler in enumerate(("closes-all", "raises-what-is-no-error"), start=1):
            await executor.run(log_id, handler, job_id=1)
            assert (await admin.result_of(log_id)).code == 500
        await one_more_is_right(admin, executor)


async def test_a_log_that_cannot_be_written_changes_no_result(tmp_path: Path) -> None:
    folder = tmp_path / "logs" / DAY
    folder.mkdir(parents=True)
    (folder / "1.log").symlink_to("/dev/full")
    async with attacked(tmp_path) as (admin, executor):
        await executor.run(1, "prints-much", job_id=1, parameters="2")
        result = await admin.result_of(1)
        assert (result.code, result.message) == (200, "all printed")
        await one_more_is_right(admin, executor)


async def test_logs_may_be_removed_at_any_time(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (admin, executor):
        await executor.run(1, "prints-much", job_id=1, parameters="1")
        await admin.result_of(1)
        shutil.rmtree(tmp_path / "logs")
        assert "not exists" in (await executor.log(1)).text
        await one_more_is_right(admin, executor)
        assert "ends" in (await executor.log_with(1000, "ends")).text


async def test_who_prints_without_an_end_fills_a_log_and_nothing_else(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (admin, executor):
        await executor.run(1, "prints-much", job_id=1, parameters="100")
        assert (await executor.client.beat()).is_success
        while not admin.results:
            assert (await executor.client.beat()).is_success
        assert (await admin.result_of(1)).message == "all printed"
        size = (tmp_path / "logs" / DAY / "1.log").stat().st_size
        assert 16 * 1024 * 1024 <= size < 16 * 1024 * 1024 + 1000


async def test_a_page_far_into_a_log_of_short_lines_costs_no_seconds(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (admin, executor):
        await executor.run(1, "prints-empty-lines", job_id=1)
        await admin.result_of(1)
        before_s = time.process_time()
        page = await executor.log(1, from_line=15_000_000)
        assert page.to_line > 15_000_000
        assert time.process_time() - before_s < 3.0, "measured: 0.3; a step a line costs five"


async def test_a_killed_run_leaves_no_process_even_in_a_session_of_its_own(tmp_path: Path) -> None:
    left = tmp_path / "pid"
    async with attacked(tmp_path / "x") as (admin, executor):
        await executor.run(1, "leaves-a-daemon", job_id=1, parameters=str(left))
        await until(left.exists)
        await executor.client.kill(1)
        assert "killed" in (await admin.result_of(1)).message
        await until(lambda: not is_alive(int(left.read_text())))
        await one_more_is_right(admin, executor)


async def test_what_waits_is_bounded_by_what_it_takes_and_given_free_when_it_ends(
    tmp_path: Path,
) -> None:
    source = "#" * (4 * 1024 * 1024)
    script = {"glue_type": "GLUE_SHELL", "glue_source": f"sleep 600\n{source[10:]}", "job_id": 1}
    async with attacked(tmp_path, scripts=True) as (admin, executor):
        answers = [await executor.run(log_id, "", **script) for log_id in range(1, 18)]
        assert [answer.is_success for answer in answers] == [True] * 16 + [False]
        assert answers[-1].message == "as many runs are here as may be"
        await executor.client.kill(1)
        for log_id in range(1, 17):
            await admin.result_of(log_id)
        assert (await executor.run(18, "", **script)).is_success


async def test_callers_who_connect_and_say_nothing_shut_nobody_out(tmp_path: Path) -> None:
    """Many more than may be there: the silent ones make room, and whoever asks is answered."""
    async with attacked(tmp_path) as (_, executor):
        silent = []
        for number in range(CONNECTIONS_MAX + 200):
            silent.append(await asyncio.open_connection(executor.at.host, executor.at.port))
            silent[-1][1].write(b"POST /beat HTTP/1.1\r\nHost:" if number % 2 else b"")
            if number > CONNECTIONS_MAX - 20 and number % 10 == 0:
                assert (await executor.client.beat()).is_success
        for _, writer in silent:
            writer.close()
