"""Jobs, their runs, executors and people, as a scheduler would have stored them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import sqlalchemy as sa

from dashboards.access.visitors import Visitors
from dashboards.reads.job_database import JobDatabase
from pipelines.database.database import Database
from pipelines.scheduler.job_settings import JobSettings
from pipelines.scheduler.passwords import password_hash
from pipelines.scheduler.run_life import RunState
from pipelines.scheduler.store import groups, jobs, people, registry
from pipelines.scheduler.store.audit import Change
from pipelines.scheduler.store.run_rows import planned_row
from pipelines.scheduler.store.tables import job_users, runs
from tests.sqlite_databases import address_in, filled_by, laid_in

NOW_MS = 1_780_000_000_000
MINUTE_MS = 60_000
PASSWORD = "correct horse battery"
HOSTILE = "<img src=x onerror=alert(1)>\u202egnp\u200b {{7*7}} '\"; DROP TABLE jobs--"
LONG = "x" * 10_000
SOURCE = "import sys\n\nprint('hello', sys.argv[1:])\nfor n in range(3):\n    print(n)\n"
OLD_SOURCE = "import sys\n\nprint('hi')\n"


def by(author: str = "root", now_ms: int = NOW_MS) -> Change:
    return Change(author, now_ms)


def at(database: Database) -> int:
    del database
    return NOW_MS


def visitors_of(address: str, *, is_local: bool = True) -> Visitors:
    """People of a database whose clock stands."""
    return Visitors(JobDatabase(address), is_local=is_local, clock_ms=at)


def a_database(folder: Path) -> Database:
    return Database.at(laid_in(folder))


def address_of(folder: Path) -> str:
    return address_in(folder)


@cache
def _of_house() -> tuple[bytes, dict[str, int]]:
    return filled_by(store_jobs)


def a_filled_database(folder: Path) -> tuple[Database, dict[str, int]]:
    """A database of the house of `store_jobs`, and its numbers by name."""
    file, numbers = _of_house()
    return Database.at(laid_in(folder, file)), dict(numbers)


def add_people(database: Database, *, ann: int) -> None:
    """An administrator, and Ann, who has the jobs of one group; both have a password."""
    people.add_user(database, "root", by(), is_admin=True)
    people.add_user(database, "ann", by(), group_ids=[ann])
    with database.writing() as connection:
        connection.execute(sa.update(job_users).values(password_hash=kept_of_password()))


@cache
def kept_of_password() -> str:
    """Made once: it takes its time."""
    return password_hash(PASSWORD)


def a_run(
    database: Database,
    job_id: int,
    state: RunState,
    *,
    cause: str = "",
    ago_ms: int = MINUTE_MS,
    took_ms: int = 1_800,
    shard: tuple[int, int] = (0, 1),
    address: str | None = "http://10.0.0.1:9999/",
    message: str = "",
) -> int:
    """A run as it would stand."""
    planned_ms = NOW_MS - ago_ms
    new = planned_row(job_id, cause or f"plan:{planned_ms}", now_ms=planned_ms, retries_left=0)
    was_sent = state not in {RunState.PLANNED, RunState.CLAIMED, RunState.CANCELLED}
    is_over = state in {RunState.DONE, RunState.FAILED, RunState.LOST, RunState.REFUSED}
    fields = {
        "state": state.value,
        "shard_index": shard[0],
        "shard_total": shard[1],
        "address": address if was_sent else None,
        "sent_ms": planned_ms + 120 if was_sent else None,
        "sendings": int(was_sent),
        "ended_ms": planned_ms + 120 + took_ms if is_over else None,
        "result_code": {RunState.DONE: 200, RunState.FAILED: 500}.get(state),
        "result_message": message or None,
    }
    with database.writing() as connection:
        return int(
            connection.execute(
                sa.insert(runs).values(new | fields).returning(runs.c.log_id)
            ).scalar_one()
        )


def store_jobs(database: Database) -> dict[str, int]:
    """A small house: two groups, jobs of each kind, runs in each state. Numbers by name."""
    reports = groups.add_group(database, "lag-reports", by(), title="Lag reports")
    media = groups.add_group(
        database, "media", by(), manual_addresses=["http://10.0.1.7:9999/"], title=HOSTILE
    )
    for number, ago_ms in ((1, 4_000), (2, 21_000), (3, 25_000)):
        registry.beat(
            database, "lag-reports", f"http://10.0.0.{number}:9999/", now_ms=NOW_MS - ago_ms
        )
    add_people(database, ann=reports)

    def job(group_id: int, title: str, **given: object) -> int:
        settings = JobSettings(**{"title": title, "handler": "lag", "author": "ann"} | given)
        return jobs.add_job(database, group_id, settings, by("ann", NOW_MS - 10 * MINUTE_MS))

    found = {
        "daily": job(
            reports,
            "Lag report of the day",
            schedule_kind="CRON",
            schedule_text="0 0 8 * * ?",
            zone="Europe/Berlin",
            parameters="--range day",
            retries=2,
            timeout_s=900,
        ),
        "convert": job(
            media,
            "Convert new files",
            handler="convert",
            schedule_kind="FIX_RATE",
            schedule_text="300",
            route="SHARDING_BROADCAST",
        ),
        "script": job(
            reports,
            "Tidy old exports",
            handler="",
            glue_type="GLUE_PYTHON",
            glue_source=OLD_SOURCE,
            schedule_kind="CRON",
            schedule_text="0 30 2 ? * MON-FRI",
        ),
        "hostile": job(media, HOSTILE, handler=HOSTILE, parameters=HOSTILE, author=HOSTILE),
        "long": job(reports, "y" * 255, parameters=LONG),
    }
    jobs.edit_job(
        database,
        found["script"],
        JobSettings(
            title="Tidy old exports",
            author="ann",
            glue_type="GLUE_PYTHON",
            glue_source=SOURCE,
            schedule_kind="CRON",
            schedule_text="0 30 2 ? * MON-FRI",
        ),
        by("ann", NOW_MS - 5 * MINUTE_MS),
        remark="says what it was given",
    )
    for name in ("daily", "convert"):
        jobs.start_job(database, found[name], by("ann"))
    found["shard"] = _add_runs(database, found)
    return found


def _add_runs(database: Database, found: dict[str, int]) -> int:
    """Runs of three jobs in each state; the number of the last shard of one."""
    for ago in range(30, 0, -1):
        state = RunState.FAILED if ago == 3 else RunState.DONE
        message = "the lake cannot be read: no such bucket" if ago == 3 else "7 groups, 2 late"
        a_run(
            database, found["daily"], state, ago_ms=ago * 1440 * MINUTE_MS, message=message,
            took_ms=40_000 + 900 * ago,
        )  # fmt: skip
    cause = f"plan:{NOW_MS - MINUTE_MS}"
    states = (RunState.DONE, RunState.RUNNING, RunState.ACCEPTED, RunState.FAILED, RunState.DONE)
    for index, state in enumerate(states):
        shard = a_run(
            database, found["convert"], state, cause=cause, shard=(index, len(states)),
            address=f"http://10.0.1.{index + 1}:9999/", message=HOSTILE if index == 3 else "",
        )  # fmt: skip
    a_run(database, found["script"], RunState.LOST, ago_ms=60 * MINUTE_MS)
    return shard
