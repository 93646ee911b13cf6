"""Queries jobs and runs for pages, filtering, sorting and limiting them in the database.

Invariant: each question is bounded, with a hundred thousand jobs and a million runs of one: by the
rows of one page, by RUNS_LOOKED_AT of a job, or by one pass over the jobs' short columns. Absent on
purpose: rights. Whoever asks names the groups that may be seen.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import sqlalchemy as sa

from pipelines.database.database import Database
from pipelines.scheduler.run_life import OPEN, OUTSIDE, RunState
from pipelines.scheduler.store.jobs import Job, job_from
from pipelines.scheduler.store.results import RUN_COLUMNS, Run, run_from
from pipelines.scheduler.store.tables import executors, job_groups, jobs, runs

JOBS_A_PAGE: Final = 25
RUNS_A_PAGE: Final = 25
RUNS_LOOKED_AT: Final = 20_000
"""Of a job, the newest: when runs of one state are looked for among many."""
LAST_RUNS: Final = 100
"""Of a job, the newest: how long they took says how long it takes."""
SHARDS_SHOWN_MAX: Final = 1_000


class JobState(StrEnum):
    """Where a job stands, as a list is filtered by it."""

    ANY = ""
    ACTIVE = "active"
    PAUSED = "paused"
    STOPPED = "stopped"
    """By the scheduler, for the reason it gives."""
    AT_WORK = "at work"
    """It has a run that is not over."""


class JobOrder(StrEnum):
    """What a list is sorted by."""

    NUMBER = ""
    TITLE = "title"
    NEXT = "next"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class JobQuery:
    """What is looked for."""

    text: str = ""
    """A part of the title, the handler or the group's names, or the job's number."""
    app_name: str = ""
    state: JobState = JobState.ANY
    order: JobOrder = JobOrder.NUMBER
    page: int = 1


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job of a list."""

    job: Job
    app_name: str
    last: Run | None
    """Its newest run."""
    p95_ms: int | None
    """How long 95 of 100 of its last successful runs took at most; None without any."""


@dataclass(frozen=True, slots=True)
class JobPage:
    """A page of what was found."""

    lines: tuple[JobLine, ...]
    found: int
    page: int


def job_page(database: Database, query: JobQuery, group_ids: Collection[int] | None) -> JobPage:
    """The page that is asked for, or the last one; of these groups, or of all."""
    with database.reading() as connection:
        meant = _meant(query, group_ids)
        joined = jobs.join(job_groups, job_groups.c.group_id == jobs.c.group_id)
        found = connection.scalar(sa.select(sa.func.count()).select_from(joined).where(*meant)) or 0
        page = max(1, min(query.page, -(-found // JOBS_A_PAGE)))
        rows = connection.execute(
            sa.select(jobs, job_groups.c.app_name)
            .select_from(joined)
            .where(*meant)
            .order_by(*_order(query.order))
            .limit(JOBS_A_PAGE)
            .offset((page - 1) * JOBS_A_PAGE)
        ).all()
        lines = []
        for row in rows:
            last, took_ms = _last(connection, row.job_id), _took(connection, row.job_id)
            lines.append(JobLine(job_from(row), row.app_name, last, p95_of(took_ms)))
    return JobPage(tuple(lines), found, page)


def runs_page(
    database: Database, job_id: int, *, state: RunState | None = None, before: int | None = None
) -> tuple[list[Run], bool]:
    """Runs of a job, the newest first, of one state if it is named, before a number if one is;
    and whether there are older ones. Looked at are the RUNS_LOOKED_AT newest.
    """
    newest = (
        sa.select(*RUN_COLUMNS)
        .where(runs.c.job_id == job_id, *([] if before is None else [runs.c.log_id < before]))
        .order_by(runs.c.log_id.desc())
        .limit(RUNS_A_PAGE + 1 if state is None else RUNS_LOOKED_AT)
        .subquery()
    )
    wanted = sa.select(newest).order_by(newest.c.log_id.desc()).limit(RUNS_A_PAGE + 1)
    if state is not None:
        wanted = wanted.where(newest.c.state == state.value)
    with database.reading() as connection:
        found = [run_from(row) for row in connection.execute(wanted)]
    return found[:RUNS_A_PAGE], len(found) > RUNS_A_PAGE


def shards_of(database: Database, run: Run) -> list[Run]:
    """The runs of the same cause: the last attempt of each shard, in order."""
    wanted = (
        sa.select(*RUN_COLUMNS)
        .where(runs.c.job_id == run.job_id, runs.c.cause == run.cause)
        .order_by(runs.c.shard_index, runs.c.attempt)
        .limit(SHARDS_SHOWN_MAX)
    )
    with database.reading() as connection:
        found = [run_from(row) for row in connection.execute(wanted)]
    return list({one.shard_index: one for one in found}.values())


def outside_of(database: Database, job_id: int) -> int:
    """How many runs an executor has, or may have."""
    states = [state.value for state in OUTSIDE]
    having = sa.select(sa.func.count()).where(runs.c.job_id == job_id, runs.c.state.in_(states))
    with database.reading() as connection:
        return connection.scalar(having) or 0


def beats_of(database: Database, app_names: Collection[str]) -> dict[str, list[tuple[str, int]]]:
    """The addresses that registered, and when each said so last, by application."""
    wanted = (
        sa.select(executors)
        .where(executors.c.app_name.in_(sorted(app_names)))
        .order_by(executors.c.app_name, executors.c.address)
    )
    found: dict[str, list[tuple[str, int]]] = {}
    with database.reading() as connection:
        for row in connection.execute(wanted):
            found.setdefault(row.app_name, []).append((row.address, row.seen_ms))
    return found


def p95_of(took_ms: Iterable[int]) -> int | None:
    """The least of these that 95 of 100 of them do not exceed."""
    ordered = sorted(took_ms)
    return ordered[-(-95 * len(ordered) // 100) - 1] if ordered else None


def _last(connection: sa.Connection, job_id: int) -> Run | None:
    wanted = sa.select(*RUN_COLUMNS).where(runs.c.job_id == job_id)
    row = connection.execute(wanted.order_by(runs.c.log_id.desc()).limit(1)).one_or_none()
    return None if row is None else run_from(row)


def _took(connection: sa.Connection, job_id: int) -> list[int]:
    """Of the last runs, how long those took that were done, from being sent to their end."""
    rows = connection.execute(
        sa.select(runs.c.state, runs.c.sent_ms, runs.c.ended_ms)
        .where(runs.c.job_id == job_id)
        .order_by(runs.c.log_id.desc())
        .limit(LAST_RUNS)
    )
    return [
        max(0, row.ended_ms - row.sent_ms)
        for row in rows
        if row.state == RunState.DONE.value and None not in {row.sent_ms, row.ended_ms}
    ]


def _meant(query: JobQuery, group_ids: Collection[int] | None) -> list[sa.ColumnElement[bool]]:
    found: list[sa.ColumnElement[bool]] = []
    if group_ids is not None:
        found.append(jobs.c.group_id.in_(sorted(group_ids)))
    if query.app_name:
        found.append(job_groups.c.app_name == _storable(query.app_name))
    match query.state:
        case JobState.ACTIVE:
            found.append(jobs.c.is_active)
        case JobState.PAUSED:
            found += [~jobs.c.is_active, jobs.c.stopped_because.is_(None)]
        case JobState.STOPPED:
            found.append(jobs.c.stopped_because.is_not(None))
        case JobState.AT_WORK:
            states = [state.value for state in OPEN]
            found.append(
                sa.exists().where(runs.c.job_id == jobs.c.job_id, runs.c.state.in_(states))
            )
    if query.text:
        texts = (jobs.c.title, jobs.c.handler, job_groups.c.app_name, job_groups.c.title)
        either = [_holds(text, query.text) for text in texts]
        if query.text.isascii() and query.text.isdigit() and len(query.text) < 16:
            either.append(jobs.c.job_id == int(query.text))
        found.append(sa.or_(*either))
    return found


def _holds(column: sa.Column[Any], part: str) -> sa.ColumnElement[bool]:
    """Texts are kept as JSON strings in ASCII, and so is what is looked for."""
    written = json.dumps(part)[1:-1] if column.name != "app_name" else _storable(part)
    escaped = written.lower().replace("~", "~~").replace("%", "~%").replace("_", "~_")
    lowered = sa.func.lower(sa.type_coerce(column, sa.Text()))
    return lowered.like(f"%{escaped}%", escape="~")


def _storable(text: str) -> str:
    """PostgreSQL takes no NUL and no half of a character; nothing is called so."""
    return text.encode("ascii", "replace").decode().replace("\x00", "?")


def _order(order: JobOrder) -> list[Any]:
    match order:
        case JobOrder.TITLE:
            title = sa.func.lower(sa.type_coerce(jobs.c.title, sa.Text()))
            return [title, jobs.c.job_id]
        case JobOrder.NEXT:
            return [jobs.c.next_ms.is_(None), jobs.c.next_ms, jobs.c.job_id]
        case JobOrder.CHANGED:
            return [jobs.c.changed_ms.desc(), jobs.c.job_id]
        case _:
            return [jobs.c.job_id]
