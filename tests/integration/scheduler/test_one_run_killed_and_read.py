"""One run, as people deal with it: its log read while it goes on, ended, and not tried again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from engine.foundation.errors import ConnectFailed
from pipelines.database.clock import machine_ms
from pipelines.database.database import Database
from pipelines.scheduler.centre.run_requests import LastLines, kill_run, log_of_run
from pipelines.scheduler.commands.app import app
from pipelines.scheduler.run_life import RunEvent, RunState
from pipelines.scheduler.store import groups, jobs, passes, registry, results
from pipelines.scheduler.store.troubles import troubles
from pipelines.scheduler.wire.client import opened_caller
from tests.integration.alerting.stores import sqlite_address
from tests.integration.scheduler.parties import (
    LOOK_AGAIN_S,
    PATIENCE_S,
    TOKEN,
    executor_here,
    until,
)
from tests.integration.scheduler.stores import NOW_MS, a_group, answered, by, send, settings
from tests.integration.scheduler.test_centre_process import a_centre, ended


async def asked(folder: Path, *words: str) -> str:
    """What `tidemark jobs` says, from a process of its own as far as the loop is concerned."""

    def ask() -> str:
        arguments = ["jobs", *words, "--database", sqlite_address(folder), "--token", TOKEN]
        done = CliRunner().invoke(app, arguments, env={"USER": "ann"})
        return done.output if done.exit_code == 0 else f"failed: {done.exception}"

    return await asyncio.to_thread(ask)


async def log_with(folder: Path, log_id: int, text: str) -> dict[str, Any]:
    """The log as the command shows it, as soon as it has this."""
    async with asyncio.timeout(PATIENCE_S):
        while text not in (log := await asked(folder, "log", str(log_id), "--json")):  # noqa: ASYNC110 - a file
            await asyncio.sleep(LOOK_AGAIN_S)
    page: dict[str, Any] = json.loads(log.splitlines()[0])
    return page


async def test_a_run_is_read_while_it_goes_on_killed_alone_and_not_tried_again(
    tmp_path: Path,
) -> None:
    database = Database.at(sqlite_address(tmp_path))
    now = by("ann", machine_ms())
    group_id = groups.add_group(database, "tests", now)
    wanted = settings(handler="waits-for-ever", retries=3)
    job_id = jobs.add_job(database, group_id, wanted, now)
    async with (
        opened_caller() as caller,
        a_centre(database, caller, token=TOKEN) as at,
        executor_here(tmp_path / "x", at.text),
    ):
        await until(lambda: registry.everybody(database, now_ms=machine_ms()))
        first, second = (
            results.run_by_hand(database, job_id, key, by("ann", machine_ms())) for key in "ab"
        )
        page = await log_with(tmp_path, first, "will not come back")
        assert (page["from_line"], page["is_end"]) == (1, False)
        later = json.loads(await asked(tmp_path, "log", str(first), "--from-line", "99", "--json"))
        assert later["text"] == ""

        assert "was asked to end it" in await asked(tmp_path, "kill", str(second))
        waited = await ended(database, second)
        assert waited.result_message is not None
        assert "job not executed, in the job queue, killed" in waited.result_message
        assert results.run_of(database, first).state in {RunState.ACCEPTED, RunState.RUNNING}

        killed = json.loads(await asked(tmp_path, "kill", str(first), "--json"))
        assert killed["address"].startswith("http://127.0.0.1:")
        assert "and tidies up" in await asked(tmp_path, "log", str(first), "--follow")
        run = results.run_of(database, first)
        assert (run.state, run.result_code) == (RunState.FAILED, 500)
        lines = LastLines(database, TOKEN)
        now_ms = machine_ms()
        found = troubles(database, now_ms=now_ms)
        lines_of = {
            one.run: one for one in await asyncio.to_thread(lines.added, found, now_ms=now_ms)
        }
        assert "and tidies up" in lines_of[first].last_lines
        assert "killed" in lines_of[second].last_lines, "it has no log: what its executor reported"
        assert "nothing to end: FAILED" in await asked(tmp_path, "kill", str(first))
        [log] = (tmp_path / "x").glob(f"logs/*/{first}.log")
        log.unlink()
        followed = await asked(tmp_path, "log", str(first), "--follow", "--json")
        gone = json.loads(followed.splitlines()[0])
        assert (gone["text"], gone["to_line"], gone["is_end"]) == ("", 0, True)
        assert len(results.runs_of(database, job_id)) == 2, "a killed run is not tried again"
    database.close()


def test_what_was_not_sent_is_cancelled_and_what_nobody_registered_is_not_asked(
    tmp_path: Path,
) -> None:
    database = Database.at(sqlite_address(tmp_path))
    job_id = jobs.add_job(database, a_group(database), settings(), by())
    first, second = (results.run_by_hand(database, job_id, key, by()) for key in "ab")
    assert kill_run(database, first, by("bob"), token=None).state is RunState.CANCELLED
    assert log_of_run(database, first, now_ms=NOW_MS, token=None).is_end

    batch = send(database, passes.claim_due(database, "one", now_ms=NOW_MS), NOW_MS)
    assert [one.log_id for one in batch.sendings] == [second], "the first is cancelled"
    answered(database, batch, RunEvent.ACCEPT, NOW_MS)
    gone_ms = NOW_MS + registry.GONE_MS
    with pytest.raises(ConnectFailed, match="not registered"):
        kill_run(database, second, by("bob", gone_ms), token=None)
    with pytest.raises(ConnectFailed, match="not registered"):
        log_of_run(database, second, now_ms=gone_ms, token=None)
    results.note_results(database, [results.Result(second, 500)], now_ms=gone_ms)
    assert results.run_of(database, second).state is RunState.FAILED
    database.close()
