"""Our own jobs, carried out: a command in a process of its own, whose lines are the run's log."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipelines.platform_jobs import handlers
from pipelines.platform_jobs.job_commands import VARIABLE
from pipelines.scheduler.executor import JobContext
from pipelines.scheduler.wire.messages import Code

FIRE = datetime(2026, 3, 2, 0, 20, tzinfo=UTC)


def context(parameters: str, log: list[str]) -> JobContext:
    return JobContext(1, 2, parameters, FIRE, FIRE, True, 0, 1, _write=log.append)


def test_a_run_carries_out_its_command_and_says_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "own-jobs.toml"
    settings.write_text(f'lake = "{tmp_path / "lake"}"\n')
    monkeypatch.setenv(VARIABLE, str(settings))
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    log: list[str] = []
    done = context("", log)
    handlers.retention(done)
    assert (done.code, done.message) == (Code.SUCCESS, "removed the files of 0 reports")
    assert "tidemark reports tidy --lake" in log[0]
    failed = context("period=hourly", log)
    handlers.lag_report(failed)
    assert failed.code == Code.FAIL
    assert "no cycle of" in failed.message
    assert "is complete yet" in log[-1]
