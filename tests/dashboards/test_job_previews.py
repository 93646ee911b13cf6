"""A preview says what the change itself comes to, and is another one once anything is another.

Row F8.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from dashboards.access.visitors import Standing, Visitor
from dashboards.actions.job_changes import JobChanges
from dashboards.actions.job_previews import (
    NOTHING_YET,
    Facts,
    Preview,
    Wish,
    settings_with,
    version_of,
)
from pipelines.scheduler.job_settings import JobSettings
from pipelines.scheduler.roles import Actor
from pipelines.scheduler.run_life import RunState
from pipelines.scheduler.store import glue, jobs, results
from pipelines.scheduler.store.tables import executors
from tests.dashboards import jobs_shown
from tests.dashboards.house import House

DAILY = JobSettings(
    title="daily", handler="lag", schedule_kind="CRON", schedule_text="0 0 8 * * ?",
    zone="Europe/Berlin",
)  # fmt: skip
ROOT = Visitor(Standing.SIGNED_IN, Actor("root", is_admin=True))


def previewed(
    house: House, action: str, values: dict[str, str] | None = None, of: str | int = "daily"
) -> Preview:
    subject = house.jobs[of] if isinstance(of, str) else of
    before = house.rows()
    changes = JobChanges(jobs_shown.visitors_of(house.address))
    state = changes.preview(ROOT, Wish(action, subject, values or {}))
    assert house.rows() == before, "a preview leaves nothing behind"
    assert state.preview is not None, state.refused
    return state.preview


def said(house: House, action: str, values: dict[str, str] | None = None, **given: Any) -> str:
    return " ".join(previewed(house, action, values, **given).said)


def edited(house: House, name: str, **values: Any) -> None:
    job = jobs.job_of(house.database, house.jobs[name])
    settings = replace(job.settings, **values)
    jobs.edit_job(house.database, job.job_id, settings, jobs_shown.by())


def test_a_run_names_who_is_asked(house: House) -> None:
    first = "By ROUND one of these executors is asked: http://10.0.0.1:9999/, http://10.0.0.2"
    assert first in said(house, "run")
    assert "shard of it, of 1: http://10.0.1.7:9999/." in said(house, "run", of="convert")
    assert "2 runs are of it at work: it waits" in said(house, "run", of="convert")
    found = previewed(house, "run", {"parameters": "x"})
    assert found.changes == (("parameters", "--range day", "x"),)
    assert "with parameters of its own" in found.said[0]
    with house.database.writing() as connection:
        connection.execute(sa.delete(executors))
    assert "No executor of lag-reports is there" in said(house, "run")


def test_a_pause_says_what_it_cancels_and_what_goes_on(house: House) -> None:
    assert "Nothing waits to be sent" in said(house, "pause")
    jobs_shown.a_run(house.database, house.jobs["daily"], RunState.PLANNED)
    found = previewed(house, "pause")
    assert "1 run is planned and not sent, and cancelled by it." in found.said
    assert found.changes == (("state", "active", "paused"),)
    assert "what they have goes on" in said(house, "pause", of="convert")
    assert previewed(house, "pause", of="script").wrong == {"": "It is paused already."}


def test_what_waits_of_a_paused_job_can_be_cancelled(house: House) -> None:
    jobs_shown.a_run(house.database, house.jobs["script"], RunState.PLANNED)
    found = previewed(house, "pause", of="script")
    assert not found.wrong, "the store would cancel it"
    assert "1 run is planned and not sent, and cancelled by it." in found.said


def test_a_start_shows_the_next_five_times_in_its_zone(house: House) -> None:
    edited(house, "script", zone="Europe/Berlin")
    found = previewed(house, "start", of="script")
    assert (len(found.times), found.zone, dict(found.wrong)) == (5, "Europe/Berlin", {})
    assert found.changes == (("state", "paused", "active"),)
    assert "has no time to come" in previewed(house, "start", of="long").wrong[""]
    assert previewed(house, "start").wrong == {"": "It is active already."}


def test_an_edit_shows_old_and_new_and_what_is_planned_anew(house: House) -> None:
    found = previewed(house, "edit", {"zone": "UTC", "retries": "3", "group": "media"})
    assert found.changes == (
        ("group", "lag-reports", "media"), ("zone", "Europe/Berlin", "UTC"), ("retries", "2", "3")
    )  # fmt: skip
    assert found.times[0] % 86_400_000 == 8 * 3_600_000
    assert "planned anew" in said(house, "edit", {"zone": "UTC"})
    assert "Its times stay" in said(house, "edit", {"retries": "3"})
    same = {"title": "Lag report of the day"}
    assert previewed(house, "edit", same).wrong == {"": NOTHING_YET}
    longer = {"parameters": jobs_shown.LONG + "x"}
    [(name, old, new)] = previewed(house, "edit", longer, of="long").changes
    assert (name, old, new) == ("parameters", "x" * 400 + "…", "x" * 400 + "…")


def test_an_edit_by_which_a_paused_job_is_active_again_says_so(house: House) -> None:
    jobs_shown.a_run(house.database, house.jobs["script"], RunState.PLANNED)
    found = previewed(house, "edit", {"schedule_text": "0 0 9 * * ?"}, of="script")
    assert ("state", "paused", "active") in found.changes, "its last time is planned anew"
    assert "1 run is planned and not sent, and cancelled by it." in found.said


def test_an_active_job_keeps_a_time_to_come(house: House) -> None:
    wrong = previewed(house, "edit", {"schedule_kind": "NONE", "schedule_text": ""}).wrong
    assert list(wrong) == ["schedule_text"]
    assert "no time to come" in wrong["schedule_text"]


def test_all_that_is_wrong_is_shown_at_once() -> None:
    values = {"title": "", "zone": "Mars/Olympus", "retries": "many", "timeout_s": "-1",
              "blocking": "NEVER", "children": "1,x"}  # fmt: skip
    _, wrong = settings_with(DAILY, values)
    assert set(wrong) == set(values)
    _, wrong = settings_with(DAILY, {"schedule_text": "0 0 8 30 2 ?"})
    assert list(wrong) == ["schedule_text"]
    for text in ("x" * 129, "0\x00"):
        _, wrong = settings_with(replace(DAILY, schedule_kind="NONE"), {"schedule_text": text})
        assert list(wrong) == ["schedule_text"], "the database would not take it"


def test_a_new_job_needs_a_group_and_what_any_job_needs(house: House) -> None:
    assert set(previewed(house, "add", {"title": "new"}, of=0).wrong) == {"handler", "group"}
    whole = {"title": "new", "handler": "x", "group": "media"}
    found = previewed(house, "add", whole, of=0)
    assert not found.wrong
    assert found.changes == (("title", "", "new"), ("handler", "", "x"))
    assert "A new job of group media." in found.said[0]


def test_a_copy_shows_what_differs_and_leaves_children_out_that_are_gone(house: House) -> None:
    edited(house, "daily", children=(house.jobs["script"],))
    jobs.remove_job(house.database, house.jobs["script"], jobs_shown.by())
    found = previewed(house, "copy", {"title": "twin"})
    assert found.changes == (
        ("title", "Lag report of the day", "twin"), ("children", str(house.jobs["script"]), "")
    )  # fmt: skip
    assert len(found.times) == 5


def test_a_source_needs_a_remark_and_shows_what_differs(house: House) -> None:
    new = {"glue_source": jobs_shown.SOURCE + "c\n", "remark": " "}
    found = previewed(house, "source", new, of="script")
    assert "remark" in found.wrong
    assert found.diff[-1:] == ("+c",)
    first = glue.glue_of(house.database, house.jobs["script"])[-1]
    given = {"glue_id": str(first.glue_id), "remark": "why"}
    back = previewed(house, "back", given, of="script")
    assert not back.wrong
    assert "+print('hi')" in back.diff
    same = {"glue_source": jobs_shown.SOURCE, "remark": "why"}
    assert previewed(house, "source", same, of="script").wrong == {"": NOTHING_YET}


def test_a_kill_says_who_is_asked_and_what_there_is_to_end(house: House) -> None:
    daily, database = house.jobs["daily"], house.database
    sent = jobs_shown.a_run(database, daily, RunState.RUNNING)
    assert "http://10.0.0.1:9999/ is asked to end it" in said(house, "kill", of=sent)
    waits = jobs_shown.a_run(database, daily, RunState.PLANNED, cause="hand:x")
    assert "was not sent yet" in said(house, "kill", of=waits)
    flow = jobs_shown.a_run(database, daily, RunState.RUNNING, cause="hand:y", address=None)
    assert "No further step" in said(house, "kill", of=flow)
    over = jobs_shown.a_run(database, daily, RunState.DONE, cause="hand:z")
    assert "it is DONE already" in previewed(house, "kill", of=over).wrong[""]


def test_a_step_of_a_workflow_is_not_removed(house: House) -> None:
    assert "removed for good" in said(house, "remove", of="script")
    steps = f"[steps.tidy]\njob = {house.jobs['script']}\n"
    flow = JobSettings(title="flow", glue_type="WORKFLOW", glue_source=steps)
    reports = jobs.job_of(house.database, house.jobs["script"]).group_id
    number = jobs.add_job(house.database, reports, flow, jobs_shown.by())
    wrong = previewed(house, "remove", of="script").wrong
    assert f"is a step of workflow {number}" in wrong[""]


@pytest.mark.parametrize(
    "changed",
    [
        {"settings": replace(DAILY, retries=1)},
        {"is_active": False},
        {"group_id": 2},
        {"stopped_because": "x"},
    ],
)
def test_a_version_is_another_once_the_job_is(changed: dict[str, Any]) -> None:
    now = jobs_shown.NOW_MS
    job = jobs.Job(7, 1, DAILY, is_active=True, next_ms=None, stopped_because=None, changed_ms=now)
    wish = Wish("run", 7)
    version = version_of(wish, Facts(now, job=job))
    assert version != version_of(wish, Facts(now, job=replace(job, **changed)))
    moved = replace(job, next_ms=now + 1, changed_ms=now + 1)
    assert version == version_of(wish, Facts(now, job=moved))


def test_a_version_is_another_once_the_wish_is(house: House) -> None:
    now = jobs_shown.NOW_MS
    versions = {
        version_of(Wish(action, 7, values), Facts(now))
        for action in ("run", "copy")
        for values in ({}, {"title": "x"}, {"title": "y"})
    }
    assert len(versions) == 6
    number = jobs_shown.a_run(house.database, house.jobs["daily"], RunState.RUNNING)
    run = results.run_of(house.database, number)
    killed = {
        version_of(Wish("kill", number), Facts(now, run=one))
        for one in (run, replace(run, state=RunState.DONE), replace(run, address="b"))
    }
    assert len(killed) == 3
