"""What a preview says of a change, and that it is another one once anything is another.

Row F8.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dashboards.actions.job_previews import (
    DIFF_LINES_MAX,
    NOTHING_YET,
    Facts,
    Preview,
    Wish,
    diff_of,
    preview_of,
    settings_with,
)
from pipelines.scheduler.job_settings import JobSettings
from pipelines.scheduler.run_life import RunState
from pipelines.scheduler.store.glue import GlueVersion
from pipelines.scheduler.store.jobs import Job
from pipelines.scheduler.store.results import Run

NOW_MS = 1_780_000_000_000
DAILY = JobSettings(
    title="daily", handler="lag", schedule_kind="CRON", schedule_text="0 0 8 * * ?",
    zone="Europe/Berlin",
)  # fmt: skip
JOB = Job(7, 1, DAILY, is_active=True, next_ms=None, stopped_because=None, changed_ms=NOW_MS)
FACTS = Facts(NOW_MS, job=JOB, app_name="reports", addresses=("http://10.0.0.1:9999/",))
RUN = Run(9, 7, "plan:1", RunState.RUNNING, 1, 0, 0, 1, "http://10.0.0.1:9999/", 1, 200, "",
          None, None, None, None)  # fmt: skip


def previewed(action: str, values: dict[str, str] | None = None, **facts: Any) -> Preview:
    return preview_of(Wish(action, 7, values or {}), replace(FACTS, **facts))


def said(action: str, values: dict[str, str] | None = None, **facts: Any) -> str:
    return " ".join(previewed(action, values, **facts).said)


def test_a_run_names_who_is_asked() -> None:
    assert "By ROUND one of these executors is asked: http://10.0.0.1:9999/." in said("run")
    assert "No executor of reports is there" in said("run", addresses=())
    shards = replace(JOB, settings=replace(DAILY, route="SHARDING_BROADCAST"))
    assert "of 2: a, b." in said("run", job=shards, addresses=("a", "b"))
    assert "2 runs are of it at work: it waits" in said("run", outside=2)
    assert previewed("run", {"parameters": "x"}).changes == (("parameters", "", "x"),)


def test_a_pause_says_what_it_cancels_and_what_goes_on() -> None:
    assert "1 run is planned and not sent, and cancelled by it." in said("pause", waiting=1)
    assert "what they have goes on" in said("pause", outside=3)
    paused = replace(JOB, is_active=False)
    assert previewed("pause", job=paused).wrong == {"": "It is paused already."}


def test_a_start_shows_the_next_five_times_in_its_zone() -> None:
    paused = replace(JOB, is_active=False)
    found = previewed("start", job=paused)
    assert (len(found.times), found.zone, dict(found.wrong)) == (5, "Europe/Berlin", {})
    by_hand = replace(paused, settings=JobSettings(title="x", handler="y"))
    assert previewed("start", job=by_hand).wrong == {"": "Its schedule has no time to come."}
    assert previewed("start").wrong == {"": "It is active already."}


def test_an_edit_shows_old_and_new_and_what_is_planned_anew() -> None:
    found = previewed("edit", {"zone": "UTC", "retries": "3", "group": "media"})
    assert found.changes == (
        ("zone", "Europe/Berlin", "UTC"), ("retries", "0", "3"), ("group", "reports", "media")
    )  # fmt: skip
    assert found.times[0] % 86_400_000 == 8 * 3_600_000
    assert "planned anew" in said("edit", {"zone": "UTC"})
    assert previewed("edit", {"title": "daily"}).wrong == {"": NOTHING_YET}
    long = {"parameters": "x" * 5_000}
    longer = replace(JOB, settings=replace(DAILY, parameters="x" * 4_999))
    assert previewed("edit", long, job=longer).changes, "what differs beyond the cut differs"


def test_an_active_job_keeps_a_time_to_come() -> None:
    wrong = previewed("edit", {"schedule_kind": "NONE"}).wrong
    assert wrong == {"schedule_text": "an active job needs a time to come"}


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


def test_a_new_job_needs_a_group_and_what_any_job_needs() -> None:
    wish = Wish("add", 0, {"title": "new"})
    assert set(preview_of(wish, Facts(NOW_MS)).wrong) == {"handler", "group"}
    whole = replace(wish, values={"title": "new", "handler": "x", "group": "reports"})
    assert not preview_of(whole, Facts(NOW_MS)).wrong


def test_a_source_needs_a_remark_and_shows_what_differs() -> None:
    script = replace(DAILY, handler="", glue_type="GLUE_PYTHON", glue_source="a\nb\n")
    job = replace(JOB, settings=script)
    found = previewed("source", {"glue_source": "a\nc\n", "remark": " "}, job=job)
    assert "remark" in found.wrong
    assert found.diff[-2:] == ("-b", "+c")
    version = GlueVersion(3, NOW_MS, "ann", "", "GLUE_SHELL", "echo")
    back = previewed("back", {"glue_id": "3", "remark": "why"}, job=job, version=version)
    assert not back.wrong
    assert back.changes == (("glue_type", "GLUE_PYTHON", "GLUE_SHELL"),)
    assert len(diff_of("", "x\n" * 10_000)) == DIFF_LINES_MAX + 1


def test_a_kill_says_who_is_asked_and_what_there_is_to_end() -> None:
    assert "http://10.0.0.1:9999/ is asked to end it" in said("kill", job=None, run=RUN)
    waits = replace(RUN, state=RunState.PLANNED, address=None)
    assert "was not sent yet" in said("kill", job=None, run=waits)
    flow = replace(RUN, address=None)
    assert "No further step" in said("kill", job=None, run=flow)
    over = replace(RUN, state=RunState.DONE)
    assert previewed("kill", job=None, run=over).wrong


def test_a_step_of_a_workflow_is_not_removed() -> None:
    assert "step of the workflow 3" in previewed("remove", workflows=[3]).wrong[""]
    assert not previewed("remove").wrong


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
    other = replace(JOB, **changed)
    assert previewed("run").version != previewed("run", job=other).version
    moved = replace(JOB, next_ms=NOW_MS + 1, changed_ms=NOW_MS + 1)
    assert previewed("run").version == previewed("run", job=moved).version


def test_a_version_is_another_once_the_wish_is() -> None:
    versions = {
        previewed(action, values).version
        for action in ("run", "copy")
        for values in ({}, {"title": "x"}, {"title": "y"})
    }
    assert len(versions) == 6
    killed = {
        previewed("kill", job=None, run=run).version
        for run in (RUN, replace(RUN, state=RunState.DONE), replace(RUN, address="b"))
    }
    assert len(killed) == 3
