"""Changes of jobs, as commands show them: in JSON, previewed, and noted with old and new."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import typer
from typer.testing import CliRunner

from engine.foundation.errors import ConfigError
from pipelines.database.clock import database_ms
from pipelines.database.database import Database
from pipelines.platform_jobs.commands import app
from pipelines.scheduler.importing.xxl_job import taken_run, taking
from pipelines.scheduler.roles import Actor
from pipelines.scheduler.run_life import RunState
from pipelines.scheduler.schedules import zone_of
from pipelines.scheduler.service import JobService
from pipelines.scheduler.store import passes, registry, results
from pipelines.scheduler.store.tables import metadata
from tests.integration.alerting.stores import sqlite_address
from tests.integration.scheduler.stores import (
    ADDRESSES,
    APP,
    MINUTE_MS,
    NOW_MS,
    a_group,
    send,
    settings,
    started,
)
from tests.unit.scheduler.test_imports_of_xxl_job import a_group as their_group
from tests.unit.scheduler.test_imports_of_xxl_job import a_job as their_job

NOT_ASKED = {("scheduler", "run")}
"""It does not end by itself, and says `ready`."""

DUMP = """CREATE TABLE `xxl_job_group` (`id` int, `app_name` varchar(64));
INSERT INTO `xxl_job_group` VALUES (1,'theirs');
"""
FLOW = "[steps.a]\njob = {0}\n"
OTHER_FLOW = "[steps.b]\njob = {0}\n"


def names_of(group: typer.Typer, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that there is, by its words."""
    for command in group.registered_commands:
        yield (*before, command.name or "")
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        yield from names_of(inner.typer_instance, (*before, inner.name) if inner.name else before)


class Asking:
    """Commands over one database; every answer is JSON, or the test fails."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: set[tuple[str, ...]] = set()
        self.known = set(names_of(app)) - NOT_ASKED

    def __call__(self, *words: str, stdin: str | None = None) -> Any:
        name = next(words[:n] for n in (3, 2) if words[:n] in self.known)
        self.asked.add(name)
        where = () if name == ("jobs", "workflow", "check") else ("--database", self.address)
        done = CliRunner().invoke(app, [*words, "--json", *where], input=stdin)
        assert done.exit_code == 0, f"{words}: {done.output} {done.exception}"
        return json.loads(done.stdout)

    @property
    def address(self) -> str:
        return sqlite_address(self.folder)


def test_every_command_of_jobs_and_of_the_scheduler_answers_in_json(tmp_path: Path) -> None:
    ask = Asking(tmp_path)
    flow, password, dump = tmp_path / "flow.toml", tmp_path / "password", tmp_path / "dump.sql"
    flow.write_text(FLOW.format(1))
    password.write_text("correct horse battery\n")
    dump.write_text(DUMP)

    made = ask("jobs", "add", "--group", "g", "title=a", "handler=a", "schedule_kind=FIX_RATE",
               "schedule_text=3600")  # fmt: skip
    assert (made["job_id"], made["job"]["settings"]["title"]) == (1, "a")
    assert [job["job_id"] for job in ask("jobs", "list")] == [1]
    assert ask("jobs", "show", "1")["is_active"] is False
    assert ask("jobs", "copy", "1", "title=b")["job"]["settings"]["title"] == "b"
    edited = ask("jobs", "edit", "1", "retries=2")
    assert (edited["changes"], edited["job"]["settings"]["retries"]) == ({"retries": [0, 2]}, 2)
    assert len(ask("jobs", "start", "1")["next"]) == 5
    assert len(ask("jobs", "next", "1")) == 5
    run = ask("jobs", "run", "1", "--parameters", "x")
    assert (run["changes"], run["is_done"]) == ({"parameters": ["", "x"]}, True)
    assert [one["log_id"] for one in ask("jobs", "history", "1")] == [run["log_id"]]
    assert ask("jobs", "log", str(run["log_id"]))["to_line"] == 0
    assert ask("jobs", "kill", str(run["log_id"]))["state"] == "CANCELLED"
    assert ask("jobs", "pause", "1")["changes"] == {"is_active": [True, False]}
    assert ask("jobs", "remove", "2")["job"] is None

    shell = ("title=c", "glue_type=GLUE_SHELL", "glue_source=echo 1")
    source = str(ask("jobs", "add", "--group", "g", *shell)["job_id"])
    ask("jobs", "glue", "edit", source, "-", stdin="echo 2")
    versions = ask("jobs", "glue", "list", source)
    assert ask("jobs", "glue", "show", source)["source"] == "echo 2"
    ask("jobs", "glue", "back", source, str(versions[1]["glue_id"]))
    assert [step["name"] for step in ask("jobs", "workflow", "check", str(flow))] == ["a"]
    nightly = str(ask("jobs", "workflow", "add", "--group", "g", str(flow))["job_id"])
    flow.write_text(OTHER_FLOW.format(1))
    ask("jobs", "workflow", "edit", nightly, str(flow))
    begun = ask("jobs", "run", nightly)["log_id"]
    begin_what_waits(ask.address)
    assert [step["name"] for step in ask("jobs", "workflow", "steps", str(begun))] == ["b"]
    assert ask("jobs", "workflow", "stop", str(begun))["is_done"] is True
    assert ask("jobs", "import", str(dump), "--zone", "UTC")["is_done"] is False
    assert len(ask("jobs", "install", "--paused")) > 4

    assert ask("scheduler", "days")[0]["open_count"] >= 1
    assert ask("scheduler", "executors")[0]["is_gone"] is False
    assert ask("scheduler", "groups", "add", "h")["app_name"] == "h"
    ask("scheduler", "groups", "edit", "h", "--title", "H")
    ask("scheduler", "groups", "copy", "h", "i")
    assert len(ask("scheduler", "groups", "token", "h")["token"]) > 40
    ask("scheduler", "groups", "remove", "h")
    assert "i" in {group["app_name"] for group in ask("scheduler", "groups", "list")}
    ask("scheduler", "users", "add", "ann")
    ask("scheduler", "users", "edit", "ann", "--group", "g")
    ask("scheduler", "users", "copy", "ann", "bob")
    ask("scheduler", "users", "password", "ann", "--password-file", str(password))
    ask("scheduler", "users", "remove", "bob")
    assert {"ann"} < {user["name"] for user in ask("scheduler", "users", "list")}
    assert {"add", "edit"} < {one["action"] for one in ask("scheduler", "audit")}
    assert ask.asked == ask.known, "each command is asked here"


def begin_what_waits(address: str) -> None:
    """As a centre does: send what was asked for, count the days; an executor is there."""
    database = Database.at(address)
    try:
        now_ms = database_ms(database)
        send(database, passes.claim_due(database, "one", now_ms=now_ms), now_ms)
        results.report_days(database, days=1, now_ms=now_ms)
        registry.beat(database, "g", ADDRESSES[0], now_ms=now_ms)
    finally:
        database.close()


PREVIEWED: dict[str, tuple[tuple[str, ...], str]] = {
    "edit": (("edit", "1", "schedule_text=120", "--group", "other"), "'60' → '120'"),
    "pause": (("pause", "1"), "is_active: True → False"),
    "start": (("start", "2"), "is_active: False → True"),
    "remove": (("remove", "1"), "'a report' → nothing"),
    "run": (("run", "1", "--parameters", "y"), "parameters: '' → 'y'"),
    "kill": (("kill", "1"), "cancelled: it was not sent"),
    "glue edit": (("glue", "edit", "2", "-"), "+echo 3"),
    "glue back": (("glue", "back", "2", "1"), "+echo 1"),
    "workflow edit": (("workflow", "edit", "3", "-"), "+[steps.b]"),
    "workflow stop": (("workflow", "stop", "2"), "it would be stopped"),
}


def rows_of(address: str) -> dict[str, list[Any]]:
    database = Database.at(address)
    try:
        with database.reading() as connection:
            return {
                table.name: list(connection.execute(sa.select(table)).all())
                for table in metadata.sorted_tables
            }
    finally:
        database.close()


def a_shop(address: str) -> None:
    """An active job with a run that waits, a paused one with two sources, a workflow under way."""
    database = Database.at(address)
    try:
        service = JobService(database, Actor("root", is_admin=True), lambda: NOW_MS)
        service.add_group("other")
        active = started(database, a_group(database))
        assert active == 1
        passes.plan_due(database, "one", now_ms=NOW_MS + MINUTE_MS - 2_000)
        shell = settings(handler="", glue_type="GLUE_SHELL", glue_source="echo 1")
        source = service.add_job(APP, shell)
        service.edit_job(source, settings(handler="", glue_type="GLUE_SHELL", glue_source="echo 2"))
        flow = settings(handler="", glue_type="WORKFLOW", glue_source=FLOW.format(source))
        service.run_job(service.add_job(APP, flow), "k")
        last = results.runs_of(database, 3)[0].log_id
        send(
            database,
            [one for one in passes.claim_due(database, "one", now_ms=NOW_MS + 1)
             if one.log_id == last],
            NOW_MS + 1,
        )  # fmt: skip
    finally:
        database.close()


@pytest.mark.parametrize("name", PREVIEWED)
def test_a_preview_says_what_would_be_done_and_leaves_no_trace(tmp_path: Path, name: str) -> None:
    words, expected = PREVIEWED[name]
    address = sqlite_address(tmp_path)
    a_shop(address)
    before = rows_of(address)
    given = {"glue edit": "echo 3", "workflow edit": OTHER_FLOW.format(2)}.get(name)

    def ask(*more: str) -> str:
        all_words = ["jobs", *words, *more, "--database", address]
        done = CliRunner().invoke(app, all_words, input=given)
        assert done.exit_code == 0, f"{done.output} {done.exception}"
        return done.output

    text, previewed = ask("--preview"), json.loads(ask("--preview", "--json"))
    assert expected in text
    assert previewed["is_done"] is False
    assert rows_of(address) == before, "nothing was changed"
    done = json.loads(ask("--json"))
    assert rows_of(address) != before
    assert done.get("changes") == previewed.get("changes"), "it did what it said"
    assert done.get("cancelled_runs") == previewed.get("cancelled_runs")
    if name in {"edit", "pause", "remove"}:
        assert previewed["cancelled_runs"] == [1]
        assert "cancelled: 1" in text
    if name in {"edit", "start"}:
        assert len(previewed["next"]) == 5


def test_a_preview_is_refused_where_the_change_is(tmp_path: Path) -> None:
    address = sqlite_address(tmp_path)
    a_shop(address)
    for words, expected in (
        (("edit", "1", "retries=0"), "nothing changed"),
        (("edit", "1", "children=99"), "there is no job 99"),
        (("remove", "2"), "so it cannot be removed"),
        (("run", "99"), "there is no job 99"),
    ):
        done = CliRunner().invoke(app, ["jobs", *words, "--preview", "--database", address])
        assert done.exit_code == 1
        assert expected in str(done.exception)


MADE: dict[str, tuple[tuple[str, ...], str]] = {
    "add": (("jobs", "add", "--group", "other", "title=new", "handler=h", "schedule_kind=CRON",
             "schedule_text=0 0 8 * * ?"), "title: nothing → 'new'"),
    "add with its group": (("jobs", "add", "--group", "fresh", "title=new", "handler=h"),
                           "app_name: nothing → 'fresh'"),
    "copy": (("jobs", "copy", "1"), "title: nothing → 'copy of a report'"),
    "install": (("jobs", "install"), "title: nothing → 'backtest'"),
    "workflow add": (("jobs", "workflow", "add", "--group", "other", "-"),
                     "glue_type: nothing → 'WORKFLOW'"),
    "group add": (("scheduler", "groups", "add", "fresh"), "app_name: nothing → 'fresh'"),
    "group edit": (("scheduler", "groups", "edit", "other", "--title", "Others"),
                   "title: 'other' → 'Others'"),
    "group copy": (("scheduler", "groups", "copy", "other", "alike"),
                   "app_name: nothing → 'alike'"),
    "group remove": (("scheduler", "groups", "remove", "other"), "app_name: 'other' → nothing"),
    "group token": (("scheduler", "groups", "token", "other"),
                    "token: 'the common one' → 'one of its own'"),
    "user add": (("scheduler", "users", "add", "ann"), "add user:ann"),
    "user edit": (("scheduler", "users", "edit", "bob", "--admin"), "is_admin: False → True"),
    "user copy": (("scheduler", "users", "copy", "bob", "ann"), "add user:ann"),
    "user password": (("scheduler", "users", "password", "bob", "--none"), "password user:bob"),
    "user remove": (("scheduler", "users", "remove", "bob"), "remove user:bob"),
}  # fmt: skip


def with_bob(address: str) -> None:
    """The shop, and a user of it; who asks here is its administrator."""
    a_shop(address)
    done = CliRunner().invoke(app, ["scheduler", "users", "add", "bob", "--database", address])
    assert done.exit_code == 0, done.exception


@pytest.mark.parametrize("name", MADE)
def test_what_would_be_made_is_previewed_refused_as_it_would_be_and_leaves_no_trace(
    tmp_path: Path, name: str
) -> None:
    words, expected = MADE[name]
    address = sqlite_address(tmp_path)
    with_bob(address)
    before = rows_of(address)

    def ask(*more: str) -> str:
        done = CliRunner().invoke(app, [*words, *more, "--database", address], input=FLOW.format(2))
        assert done.exit_code == 0, f"{done.output} {done.exception}"
        return done.output

    text, previewed = ask("--preview"), json.loads(ask("--preview", "--json"))
    assert expected in text
    assert "without --preview it is done" in text
    assert previewed["is_done"] is False
    assert rows_of(address) == before, "nothing was changed"
    assert "job_id" not in previewed or previewed["job_id"] is None
    ask("--json")
    noted = rows_of(address)["job_audit"][len(before["job_audit"]) :]
    assert rows_of(address) != before
    by_preview = [previewed, *previewed.get("also", ())]
    if "job" not in previewed:
        by_preview = previewed["changes"]
    assert sorted(one["action"] for one in by_preview) == sorted(one.action for one in noted)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("jobs", "add", "--group", "other", "title="), "a name that people know it by"),
        (("jobs", "copy", "99"), "there is no job 99"),
        (("scheduler", "groups", "add", "other"), "group 'other' exists already"),
        (("scheduler", "groups", "remove", APP), f"group {APP!r} has 3 jobs"),
        (("scheduler", "users", "remove", "nobody"), "there is no user 'nobody'"),
    ],
)
def test_a_preview_of_what_is_made_is_refused_where_making_is(
    tmp_path: Path, words: tuple[str, ...], text: str
) -> None:
    address = sqlite_address(tmp_path)
    with_bob(address)
    for more in (("--preview",), ()):
        done = CliRunner().invoke(app, [*words, *more, "--database", address])
        assert done.exit_code == 1
        assert text in str(done.exception)


def test_every_command_that_changes_something_has_a_preview() -> None:
    looks = {
        "list", "show", "history", "next", "log", "check", "steps", "days", "executors", "audit",
    }  # fmt: skip
    commands = {
        command
        for command in names_of(app)
        if command not in NOT_ASKED and command[-1] not in looks
    }
    without = {
        " ".join(command)
        for command in commands
        if "--preview" not in CliRunner().invoke(app, [*command, "--help"]).output
    }
    assert without == {"jobs import"}, "an import is a preview unless it is asked to apply"


def test_a_rehearsal_is_undone_also_by_other_eyes_and_when_it_fails(database: Database) -> None:
    service = JobService(database, Actor("root", is_admin=True), lambda: NOW_MS)
    there = len(service.groups())
    with database.rehearsal() as rehearsed:
        tried = JobService(rehearsed, Actor("root", is_admin=True), lambda: NOW_MS)
        job_id = tried.add_job("rehearsed", settings())
        assert tried.start_job(job_id).job is not None
        with pytest.raises(ConfigError, match="exists already"):
            tried.add_group("rehearsed")
        assert tried.job(job_id).is_active
        assert rehearsed.is_trial
    assert len(service.groups()) == there
    with pytest.raises(ConfigError, match="99999"), database.rehearsal() as rehearsed:
        fail_after_a_step(JobService(rehearsed, Actor("root", is_admin=True), lambda: NOW_MS))
    assert len(service.groups()) == there


def test_a_step_that_is_refused_leaves_a_rehearsal_as_it_was(database: Database) -> None:
    service = JobService(database, Actor("root", is_admin=True), lambda: NOW_MS)
    job_id = service.add_job("steps", settings())
    with database.rehearsal() as rehearsed:
        tried = JobService(rehearsed, Actor("root", is_admin=True), lambda: NOW_MS)
        tried.add_user("ann", apps=["steps"])
        with pytest.raises(ConfigError):
            forget_everybody_and_fail(rehearsed)
        assert [one.name for one in tried.users()] == ["ann", "root"]
        assert tried.job(job_id).job_id == job_id


def forget_everybody_and_fail(database: Database) -> None:
    with database.writing() as connection:
        connection.execute(sa.delete(metadata.tables["job_users"]))
        raise ConfigError("user", "ann", "another")


def fail_after_a_step(service: JobService) -> None:
    service.add_group("rehearsed")
    service.job(99_999)


def test_the_audit_goes_back_from_an_entry(tmp_path: Path) -> None:
    address = sqlite_address(tmp_path)
    with_bob(address)

    def audit(*words: str) -> list[int]:
        done = CliRunner().invoke(
            app, ["scheduler", "audit", *words, "--json", "--database", address]
        )
        assert done.exit_code == 0, done.exception
        return [one["audit_id"] for one in json.loads(done.stdout)]

    whole = audit()
    assert len(whole) > 3
    assert whole == sorted(whole, reverse=True)
    assert audit("--before", str(whole[1])) == whole[2:]
    assert audit("--before", str(whole[-1])) == []
    assert audit("user:bob", "--before", str(max(whole) + 1)) == audit("user:bob")
    plain = CliRunner().invoke(app, ["scheduler", "audit", "--database", address]).output
    assert plain.startswith(f"{whole[0]}  ")


def details(service: JobService, subject: str) -> list[dict[str, Any]]:
    return [json.loads(one.detail) for one in service.audit_of(subject)]


def test_the_audit_has_the_old_and_the_new_of_each_value_and_the_group(database: Database) -> None:
    service = JobService(database, Actor("root", is_admin=True), lambda: NOW_MS)
    service.add_group("other2")
    job_id = service.add_job("hers", settings(retries=2, parameters="p"))
    service.edit_job(job_id, settings(), app_name="other2")
    service.start_job(job_id)
    service.start_job(job_id)
    service.pause_job(job_id)
    service.pause_job(job_id)
    service.remove_job(job_id)
    removed, paused, begun, edited, added = details(service, f"job:{job_id}")
    assert (added["retries"], added["timeout_s"], added["group"]) == (
        [None, 2], [None, 0], [None, "hers"]
    )  # fmt: skip
    assert edited == {"group": ["hers", "other2"], "parameters": ["p", ""], "retries": [2, 0]}
    assert (begun, paused) == ({"is_active": [False, True]}, {"is_active": [True, False]})
    assert (removed["title"], removed["group"]) == (["a report", None], ["other2", None])

    service.edit_group("hers", title="Hers", addresses=list(ADDRESSES[:1]))
    service.edit_group("hers", title=None, addresses=None)
    hers = next(one.group_id for one in service.groups() if one.app_name == "hers")
    back, by_hand, _ = details(service, f"group:{hers}")
    assert by_hand == {"title": ["hers", "Hers"], "addresses": [None, [ADDRESSES[0]]]}
    assert back == {"addresses": [[ADDRESSES[0]], None]}
    service.add_user("ann", apps=["hers"])
    service.edit_user("ann", apps=[])
    service.remove_user("ann")
    gone, fewer, there = details(service, "user:ann")
    assert there == {"is_admin": [None, False], "group_ids": [None, [hers]]}
    assert fewer == {"group_ids": [[hers], []]}
    assert gone == {"is_admin": [False, None], "group_ids": [[], None]}


def test_runs_that_are_taken_over_are_noted_with_their_numbers(database: Database) -> None:
    service = JobService(database, Actor("root", is_admin=True), lambda: NOW_MS)
    tables = {"xxl_job_group": [their_group()], "xxl_job_info": [their_job()]}
    service.take_over(taking(tables, zone_of("UTC")), "theirs")
    row = {
        "job_id": "7", "trigger_time": "2026-01-01 00:00:00", "trigger_code": "200",
        "handle_code": "200", "handle_time": "2026-01-01 00:00:01",
    }  # fmt: skip
    past = [taken_run({"id": str(number), **row}, zone_of("UTC")) for number in (5, 6)]
    assert service.take_history([run for run in past if run is not None], "theirs") == 2
    history, jobs_taken = details(service, "source:theirs")
    assert history == {"runs": [None, 2], "their_ids": [None, [5, 6]]}
    assert jobs_taken == {"groups": [None, 1], "jobs": [None, 1], "users": [None, 0]}
    assert results.runs_of(database, service.jobs_after()[0].job_id)[0].state is RunState.DONE
