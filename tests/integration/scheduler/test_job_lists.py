"""Jobs and runs as pages list them: found, sorted and cut by either database, however many."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import pytest
import sqlalchemy as sa

from pipelines.database.database import Database
from pipelines.scheduler.run_life import RunState
from pipelines.scheduler.store import groups, job_lists, jobs
from pipelines.scheduler.store.job_lists import (
    JOBS_A_PAGE,
    RUNS_A_PAGE,
    JobOrder,
    JobQuery,
    JobState,
    p95_of,
)
from pipelines.scheduler.store.run_rows import planned_row
from pipelines.scheduler.store.tables import jobs as job_table
from pipelines.scheduler.store.tables import runs as run_table
from tests.integration.alerting.stores import sqlite_address
from tests.integration.scheduler.stores import HOSTILE, NOW_MS, by, settings

MANY = 100_000
WITHIN_S = 5
"""Some tens of ms where nobody else is at work."""


def found(database: Database, group_ids: list[int] | None = None, **asked: object) -> list[str]:
    page = job_lists.job_page(database, JobQuery(**asked), group_ids)
    return [line.job.settings.title for line in page.lines]


def shop(database: Database) -> dict[str, int]:
    mine = groups.add_group(database, "reports", by(), title="Über reports")
    other = groups.add_group(database, "media", by())
    numbers = {
        "Ärger_100%": jobs.add_job(database, mine, settings(title="Ärger_100%"), by()),
        "beta": jobs.add_job(database, mine, settings(title="beta", handler="X-lag"), by()),
        "Alpha": jobs.add_job(database, other, settings(title="Alpha"), by(now_ms=NOW_MS + 5)),
        HOSTILE: jobs.add_job(database, other, settings(title=HOSTILE), by()),
    }
    jobs.start_job(database, numbers["Alpha"], by())
    with database.writing() as connection:
        connection.execute(
            sa.update(job_table)
            .where(job_table.c.job_id == numbers["beta"])
            .values(stopped_because="no time to come")
        )
    return numbers


@pytest.mark.parametrize(
    ("asked", "titles"),
    [
        ({}, ["Ärger_100%", "beta", "Alpha", HOSTILE]),
        ({"text": "ALPHA"}, ["Alpha"]),
        ({"text": "x-LAG"}, ["beta"]),
        ({"text": "r_100%"}, ["Ärger_100%"]),
        ({"text": "%"}, ["Ärger_100%"]),
        ({"text": "_"}, ["Ärger_100%"]),
        ({"text": "Ärger"}, ["Ärger_100%"]),
        ({"text": "über"}, []),
        ({"text": "Über"}, ["Ärger_100%", "beta"]),
        ({"text": "media"}, ["Alpha", HOSTILE]),
        ({"text": HOSTILE}, [HOSTILE]),
        ({"text": "' OR '1'='1"}, []),
        ({"text": "9" * 15}, []),
        ({"app_name": "media"}, ["Alpha", HOSTILE]),
        ({"app_name": "\x00"}, []),
        ({"app_name": "\ud800"}, []),
        ({"state": JobState.ACTIVE}, ["Alpha"]),
        ({"state": JobState.STOPPED}, ["beta"]),
        ({"state": JobState.PAUSED}, ["Ärger_100%", HOSTILE]),
        ({"state": JobState.AT_WORK}, ["Ärger_100%"]),
        ({"order": JobOrder.NEXT}, ["Alpha", "Ärger_100%", "beta", HOSTILE]),
        ({"order": JobOrder.CHANGED}, ["Alpha", "Ärger_100%", "beta", HOSTILE]),
        ({"page": 7}, ["Ärger_100%", "beta", "Alpha", HOSTILE]),
    ],
)
def test_jobs_are_found_by_what_people_look_for(
    database: Database, asked: dict[str, object], titles: list[str]
) -> None:
    numbers = shop(database)
    with database.writing() as connection:
        row = planned_row(numbers["Ärger_100%"], "hand:x", now_ms=NOW_MS, retries_left=0)
        connection.execute(sa.insert(run_table).values(row))
    assert found(database, **asked) == titles


def test_titles_are_sorted_as_people_read_them_and_a_number_finds_its_job(
    database: Database,
) -> None:
    numbers = shop(database)
    ordered = found(database, order=JobOrder.TITLE)
    assert ordered.index("Alpha") < ordered.index("beta")
    assert "beta" in found(database, text=str(numbers["beta"]))


def test_only_jobs_of_the_named_groups_are_found(database: Database) -> None:
    shop(database)
    [reports, media] = groups.groups(database)
    assert found(database, [media.group_id]) == ["Alpha", HOSTILE]
    assert found(database, [reports.group_id], text="alpha") == []
    assert found(database, []) == []
    assert job_lists.job_page(database, JobQuery(), []).found == 0


def test_runs_are_paged_by_number_and_chosen_by_state(database: Database) -> None:
    job_id = shop(database)["beta"]
    for number in range(60):
        with database.writing() as connection:
            row = planned_row(job_id, f"hand:{number}", now_ms=NOW_MS, retries_left=0)
            state = RunState.FAILED if number % 20 == 0 else RunState.DONE
            times = {"sent_ms": NOW_MS, "ended_ms": NOW_MS + number * 1_000}
            connection.execute(sa.insert(run_table).values(row | times | {"state": state.value}))
    first, is_more = job_lists.runs_page(database, job_id)
    assert (len(first), is_more) == (RUNS_A_PAGE, True)
    seen, before = list(first), first[-1].log_id
    while is_more:
        page, is_more = job_lists.runs_page(database, job_id, before=before)
        seen += page
        before = page[-1].log_id
    assert len({run.log_id for run in seen}) == 60
    failed, is_more = job_lists.runs_page(database, job_id, state=RunState.FAILED)
    assert [run.cause for run in failed] == ["hand:40", "hand:20", "hand:0"]
    assert not is_more
    [line] = job_lists.job_page(database, JobQuery(text="beta"), None).lines
    assert line.p95_ms == 57_000
    assert line.last is not None
    assert line.last.cause == "hand:59"


@pytest.mark.parametrize(
    ("took_ms", "p95"), [([], None), ([7], 7), (range(1, 101), 95), (range(1, 21), 19), ([3, 1], 3)]
)
def test_a_percentile_is_one_of_its_values(took_ms: list[int], p95: int | None) -> None:
    assert p95_of(took_ms) == p95


def test_a_hundred_thousand_jobs_are_listed_page_by_page(tmp_path: Path) -> None:
    database = Database.at(sqlite_address(tmp_path))
    group_id = groups.add_group(database, "many", by())
    row = asdict(settings()) | {
        "group_id": group_id, "children": "[]", "glue_changed_ms": NOW_MS, "is_active": True,
        "counters": "{}", "changed_ms": NOW_MS,
    }  # fmt: skip
    with database.writing() as connection:
        connection.execute(
            sa.insert(job_table),
            [row | {"title": f"job {at:06}", "next_ms": NOW_MS + at} for at in range(MANY)],
        )
    for asked in (
        {"page": MANY // JOBS_A_PAGE},
        {"order": JobOrder.TITLE, "page": 2_000},
        {"order": JobOrder.NEXT},
        {"text": "job 09999", "state": JobState.ACTIVE, "app_name": "many"},
        {"state": JobState.AT_WORK},
    ):
        begun = time.thread_time()
        page = job_lists.job_page(database, JobQuery(**asked), [group_id])
        took_s = time.thread_time() - begun
        assert len(page.lines) <= JOBS_A_PAGE
        assert took_s < WITHIN_S, (asked, took_s)
    assert found(database, page=10**6)[-1] == f"job {MANY - 1:06}"
    database.close()
