"""`tidemark jobs`, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from pipelines.base.command_options import user_name
from pipelines.database.database import Database
from pipelines.scheduler.commands.app import app
from pipelines.scheduler.store import tables
from tests.integration.alerting.stores import sqlite_address


def asked(folder: Path, *words: str, code: int = 0, stdin: str | None = None) -> str:
    done = CliRunner().invoke(app, [*words, "--database", sqlite_address(folder)], input=stdin)
    assert done.exit_code == code, done.output
    return done.output.strip() or str(done.exception)


def test_a_job_is_added_started_changed_run_and_shown(tmp_path: Path) -> None:
    def ask(*words: str, code: int = 0) -> str:
        return asked(tmp_path, "jobs", *words, code=code)

    added = ask(
        "add", "--group", "reports", "title=the lag report", "handler=lag", "schedule_kind=CRON",
        "schedule_text=0 0 8 * * ?", "zone=Europe/Berlin", "retries=2",
    )  # fmt: skip
    assert added == "1"
    assert ask("list") == "1  the lag report  CRON 0 0 8 * * ?  paused"
    assert ask("start", "1").endswith("Z")
    assert len(json.loads(ask("next", "1", "--count", "3", "--json"))) == 3
    ask("edit", "1", "schedule_text=0 0 9 * * ?", "parameters=x")
    assert "nothing changed: every value is as it was" in ask("edit", "1", "retries=2", code=1)
    assert "nothing changed: every value is as it was" in ask("edit", "1", code=1)
    assert "a day that its months have" in ask("edit", "1", "schedule_text=0 0 0 30 2 ?", code=1)
    assert "'scheduled' is no setting of a job" in ask("edit", "1", "scheduled=daily", code=1)
    shown = json.loads(ask("show", "1", "--json"))
    assert (shown["is_active"], shown["settings"]["schedule_text"]) == (True, "0 0 9 * * ?")
    assert ask("run", "1") == "1"
    [run] = json.loads(ask("history", "1", "--json"))
    assert (run["state"], run["cause"][:5]) == ("PLANNED", "hand:")
    ask("pause", "1")
    ask("remove", "1")
    assert "there is no job 1" in ask("show", "1", code=1)


def test_a_change_that_is_done_says_what_became_another(tmp_path: Path) -> None:
    def ask(*words: str) -> str:
        return asked(tmp_path, *words)

    ask("jobs", "add", "--group", "g", "title=a", "handler=h", "retries=1")
    edited = ask("jobs", "edit", "1", "title=b", "retries=2")
    assert edited == "title: 'a' → 'b'\nretries: 1 → 2\nnext, once it is started (UTC): none"
    source = ask("jobs", "edit", "1", "glue_type=GLUE_SHELL", "glue_source=echo 1", "handler=")
    assert "glue_type: 'BEAN' → 'GLUE_SHELL'" in source
    assert "+echo 2" in asked(tmp_path, "jobs", "glue", "edit", "1", "-", stdin="echo 2")
    ask("jobs", "edit", "1", "schedule_kind=FIX_RATE", "schedule_text=60")
    ask("jobs", "start", "1")
    assert ask("jobs", "pause", "1").startswith("is_active: True → False")
    assert ask("jobs", "pause", "1").startswith("job 1: as it was")
    assert ask("jobs", "remove", "1") == "job 1 is removed"
    ask("scheduler", "users", "add", "ann")
    assert ask("scheduler", "users", "edit", "ann", "--admin").startswith("edit user:ann\n")
    assert "title: " in ask("scheduler", "groups", "edit", "g", "--title", "the group")


def test_a_line_of_history_is_one_run_and_the_whole_is_in_json(tmp_path: Path) -> None:
    asked(tmp_path, "jobs", "add", "--group", "g", "title=a", "handler=h")
    asked(tmp_path, "jobs", "run", "1")
    database = Database.at(sqlite_address(tmp_path))
    trace = 'Traceback (most recent call last):\n  File "a", line 1\nValueError: no\x1b[2J\nmore'
    with database.writing() as connection:
        connection.execute(tables.runs.update().values(result_message=trace, state="FAILED"))
    database.close()
    line = asked(tmp_path, "jobs", "history", "1")
    assert line.endswith("  FAILED  0/1  ValueError: no\\x1b[2J"), line
    assert len(line.splitlines()) == 1
    [run] = json.loads(asked(tmp_path, "jobs", "history", "1", "--json"))
    assert run["result_message"] == trace


def test_settings_go_by_the_names_of_xxl_job_too_and_jobs_are_copied(tmp_path: Path) -> None:
    asked(tmp_path, "jobs", "add", "--group", "reports", "jobDesc=lag", "executorHandler=lag",
          "scheduleType=CRON", "scheduleConf=0 0 8 * * ?", "executorFailRetryCount=2")  # fmt: skip
    assert asked(tmp_path, "jobs", "copy", "1", "executor_timeout=60") == "2"
    copied = json.loads(asked(tmp_path, "jobs", "show", "2", "--json"))["settings"]
    assert (copied["title"], copied["timeout_s"], copied["retries"]) == ("copy of lag", 60, 2)
    output = asked(tmp_path, "jobs", "edit", "2", "alarmEmail=a@b", code=1)
    assert "alarms go through" in output


def test_a_workflow_is_made_of_a_file_and_its_steps_are_shown(tmp_path: Path) -> None:
    flow = tmp_path / "nightly.toml"
    flow.write_text("[steps.b]\njob = 1\nafter = ['a']\n[steps.a]\njob = 1\n")
    assert "there is no job 1" in asked(
        tmp_path, "jobs", "workflow", "add", "--group", "g", str(flow), code=1
    )
    asked(tmp_path, "jobs", "add", "--group", "g", "title=a", "handler=a")
    assert CliRunner().invoke(app, ["jobs", "workflow", "check", str(flow)]).output == (
        "a: job 1\nb: job 1 after a\n"
    )
    assert asked(tmp_path, "jobs", "workflow", "add", "--group", "g", str(flow)) == "2"
    assert asked(tmp_path, "jobs", "list").endswith("2  nightly  NONE  paused")
    flow.write_text("[steps.only]\njob = 1\n")
    asked(tmp_path, "jobs", "workflow", "edit", "2", str(flow), "--remark", "less")
    assert asked(tmp_path, "jobs", "glue", "show", "2") == "[steps.only]\njob = 1"
    assert asked(tmp_path, "jobs", "run", "2") == "1"
    assert "that has begun" in asked(tmp_path, "jobs", "workflow", "steps", "1", code=1)


def test_sources_are_listed_edited_and_go_back(tmp_path: Path) -> None:
    asked(tmp_path, "jobs", "add", "--group", "g", "title=a", "glueType=GLUE_SHELL",
          "glueSource=echo 1")  # fmt: skip
    asked(tmp_path, "jobs", "glue", "edit", "1", "-", "--remark", "two", stdin="echo 2\n")
    versions = json.loads(asked(tmp_path, "jobs", "glue", "list", "1", "--json"))
    assert [(one["source"], one["remark"]) for one in versions] == [
        ("echo 2\n", "two"), ("echo 1", "")
    ]  # fmt: skip
    asked(tmp_path, "jobs", "glue", "back", "1", str(versions[1]["glue_id"]))
    assert asked(tmp_path, "jobs", "glue", "show", "1") == "echo 1"
    asked(tmp_path, "jobs", "add", "--group", "g", "title=b", "handler=b")
    assert "the job runs a handler" in asked(
        tmp_path, "jobs", "glue", "edit", "2", "-", stdin="echo 1", code=1
    )


def test_who_has_no_rights_is_refused_and_the_audit_names_the_systems_user(tmp_path: Path) -> None:
    me = user_name()
    assert asked(tmp_path, "scheduler", "groups", "add", "reports", "--title", "Reports") == "1"
    asked(tmp_path, "scheduler", "users", "add", "ann", "--group", "reports")
    lines = asked(tmp_path, "scheduler", "users", "list").splitlines()
    assert lines == sorted(["ann  reports  no password", f"{me}  administrator  no password"])
    password = tmp_path / "password"
    password.write_text("correct horse battery\n")
    asked(tmp_path, "scheduler", "users", "password", "ann", "--password-file", str(password))
    token = asked(tmp_path, "scheduler", "groups", "token", "reports")
    assert len(token) > 40
    assert asked(tmp_path, "scheduler", "groups", "list") == (
        "1  reports  Reports  registered  own token"
    )
    audit = json.loads(asked(tmp_path, "scheduler", "audit", "--json"))
    assert {one["author"] for one in audit} == {me}
    assert [one["subject"] for one in audit[:2]] == ["group:1", "user:ann"]
    assert token not in str(audit)

    asked(tmp_path, "scheduler", "users", "edit", "ann", "--admin")
    asked(tmp_path, "scheduler", "users", "remove", me)
    assert "may not change users" in asked(tmp_path, "scheduler", "users", "list", code=1)
    assert "may not see the jobs" in asked(tmp_path, "jobs", "show", "1", code=1)


def test_the_history_goes_back_from_a_run_and_is_of_one_state(tmp_path: Path) -> None:
    def history(*words: str) -> list[tuple[int, str]]:
        shown = json.loads(asked(tmp_path, "jobs", "history", "1", "--json", *words))
        return [(run["log_id"], run["state"]) for run in shown]

    asked(tmp_path, "jobs", "add", "--group", "reports", "title=lag", "handler=lag")
    for _ in range(4):
        asked(tmp_path, "jobs", "run", "1")
    asked(tmp_path, "jobs", "kill", "2")
    assert history("--before", "3") == [(2, "CANCELLED"), (1, "PLANNED")]
    assert history("--state", "planned") == [(4, "PLANNED"), (3, "PLANNED"), (1, "PLANNED")]
    assert history("--state", "PLANNED", "--before", "3") == [(1, "PLANNED")]
    assert history("--before", "1") == []
    wrong = asked(tmp_path, "jobs", "history", "1", "--state", "BROKEN", code=1)
    assert "one of PLANNED, CLAIMED" in wrong
