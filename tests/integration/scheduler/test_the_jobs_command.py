"""`tidemark jobs`, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from pipelines.scheduler.commands import app
from tests.integration.alerting.stores import sqlite_address


def test_a_job_is_added_started_changed_run_and_shown(tmp_path: Path) -> None:
    def ask(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(
            app, ["jobs", *words, "--database", sqlite_address(tmp_path)], env={"USER": "ann"}
        )
        assert done.exit_code == code, done.output
        return done.output.strip() or str(done.exception)

    added = ask(
        "add", "--group", "reports", "title=the lag report", "handler=lag", "schedule_kind=CRON",
        "schedule_text=0 0 8 * * ?", "zone=Europe/Berlin", "retries=2",
    )  # fmt: skip
    assert added == "1"
    assert ask("list") == "1  the lag report  CRON 0 0 8 * * ?  paused"
    assert ask("start", "1").endswith("Z")
    assert len(json.loads(ask("next", "1", "--count", "3", "--json"))) == 3
    ask("edit", "1", "schedule_text=0 0 9 * * ?", "children=1,2")
    assert "a day that its months have" in ask("edit", "1", "schedule_text=0 0 0 30 2 ?", code=1)
    assert "NAME=VALUE" in ask("edit", "1", "scheduled=daily", code=1)
    shown = json.loads(ask("show", "1", "--json"))
    assert (shown["is_active"], shown["settings"]["schedule_text"]) == (True, "0 0 9 * * ?")
    assert ask("run", "1") == "1"
    [run] = json.loads(ask("history", "1", "--json"))
    assert (run["state"], run["cause"][:5]) == ("PLANNED", "hand:")
    ask("pause", "1")
    ask("remove", "1")
    assert "a job that there is" in ask("show", "1", code=1)
