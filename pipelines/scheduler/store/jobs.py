"""Jobs: made, copied, changed, started, paused, removed; each change is in the audit.

Invariant: a job that is not active has no next time, and no run that waits to be sent but that of
its last time. Who pauses it, removes it or gives it another schedule cancels what was planned.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import sqlalchemy as sa

from engine.foundation.errors import ConfigError
from pipelines.alerting.store.database import Database
from pipelines.scheduler.job_settings import JobSettings
from pipelines.scheduler.run_life import MOVES, RunEvent, RunState
from pipelines.scheduler.store.audit import Change, note
from pipelines.scheduler.store.flows import workflows_with
from pipelines.scheduler.store.glue import forget_glue, keep_glue
from pipelines.scheduler.store.tables import AnyRow, job_groups, jobs, runs
from pipelines.scheduler.workflows import WORKFLOW, workflow_of

JOBS_SHOWN_MAX: Final = 1_000
CANCELLABLE: Final = tuple(state.value for state in MOVES[RunEvent.CANCEL])
_SETTINGS: Final = tuple(field.name for field in fields(JobSettings))


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it is stored."""

    job_id: int
    group_id: int
    settings: JobSettings
    """As stored, even when `wrong_because` says that it cannot be: then it is only to be shown, and
    to be changed."""
    is_active: bool
    next_ms: int | None
    """None: it is not active, or its next time is known when its run has ended."""
    stopped_because: str | None
    """Why the scheduler stopped it, if it did."""
    changed_ms: int
    wrong_because: str | None = None
    """Why it cannot be what is stored: written by a later version, or by other hands."""


def add_job(database: Database, group_id: int, settings: JobSettings, change: Change) -> int:
    """A new job's number. It is not active before it is started."""
    with database.writing() as connection:
        return insert_job(connection, group_id, settings, change)


def insert_job(
    connection: sa.Connection, group_id: int, settings: JobSettings, change: Change
) -> int:
    """The same within a transaction."""
    _check_group(connection, group_id)
    _check_named(connection, settings, ())
    job_id: int = connection.execute(
        sa.insert(jobs)
        .values(
            **_new_number(connection),
            **_row(settings),
            group_id=group_id,
            glue_changed_ms=change.now_ms,
            is_active=False,
            counters="{}",
            changed_ms=change.now_ms,
        )
        .returning(jobs.c.job_id)
    ).scalar_one()
    keep_glue(connection, job_id, settings, change)
    note(connection, change, "add", f"job:{job_id}", detail=_told(settings))
    return job_id


def _new_number(connection: sa.Connection) -> dict[str, Any]:
    """The number of a new job, where the database would give that of the last one once more, which
    was removed: runs of that one would be this one's.
    """
    if connection.dialect.name != "sqlite":
        return {}
    last = [connection.scalar(sa.select(sa.func.max(of))) for of in (jobs.c.job_id, runs.c.job_id)]
    return {"job_id": 1 + max(one or 0 for one in last)}


def edit_job(
    database: Database,
    job_id: int,
    settings: JobSettings,
    change: Change,
    *,
    group_id: int | None = None,
    remark: str = "",
) -> None:
    """Make a job what it is told to be, in another group if one is given. With another schedule,
    what waits to be sent is cancelled, and an active job is planned anew, from now on; else its
    times stay, and its runs are sent as it is by then. `remark`: of a new source.
    """
    with database.writing() as connection:
        before = _locked(connection, job_id)
        _check_named(connection, settings, before.settings.children)
        if settings.is_workflow:
            _refuse_a_step(connection, job_id, "a job: a step is no workflow")
        is_new_glue = (before.settings.glue_type, before.settings.glue_source) != (
            settings.glue_type,
            settings.glue_source,
        )
        values = _row(settings) | {"changed_ms": change.now_ms, "stopped_because": None}
        if is_new_glue:
            values["glue_changed_ms"] = change.now_ms
            keep_glue(connection, job_id, settings, change, remark=remark)
        if group_id is not None:
            _check_group(connection, group_id)
            values["group_id"] = group_id
        # What waits of a job that is not active is its last time: it ends when that is planned.
        if _has_other_times(before.settings, settings) and (
            cancel_waiting(connection, job_id, change) or before.is_active
        ):
            values |= {"is_active": True, "next_ms": _first_ms(settings, change)}
        connection.execute(sa.update(jobs).where(jobs.c.job_id == job_id).values(values))
        note(connection, change, "edit", f"job:{job_id}", detail=_told(settings))


def start_job(database: Database, job_id: int, change: Change) -> int | None:
    """Have its schedule hold; the next time. Raises ConfigError when it never comes."""
    with database.writing() as connection:
        job = _locked(connection, job_id)
        if job.is_active:
            return job.next_ms
        next_ms = _first_ms(job.settings, change)
        connection.execute(
            sa.update(jobs)
            .where(jobs.c.job_id == job_id)
            .values(is_active=True, next_ms=next_ms, stopped_because=None)
        )
        note(connection, change, "start", f"job:{job_id}")
        return next_ms


def pause_job(database: Database, job_id: int, change: Change) -> None:
    """Have it run no more, but by hand. What an executor has goes on."""
    with database.writing() as connection:
        _locked(connection, job_id)
        cancel_waiting(connection, job_id, change)
        connection.execute(
            sa.update(jobs).where(jobs.c.job_id == job_id).values(is_active=False, next_ms=None)
        )
        note(connection, change, "pause", f"job:{job_id}")


def remove_job(database: Database, job_id: int, change: Change) -> None:
    """Remove a job and its sources. Its runs stay until they are forgotten. Raises ConfigError for
    a step of a workflow.
    """
    with database.writing() as connection:
        job = _locked(connection, job_id)
        _refuse_a_step(connection, job_id, "one that no workflow has as a step")
        cancel_waiting(connection, job_id, change)
        connection.execute(sa.delete(jobs).where(jobs.c.job_id == job_id))
        forget_glue(connection, job_id)
        note(connection, change, "remove", f"job:{job_id}", detail=_told(job.settings))


def job_of(database: Database, job_id: int) -> Job:
    """A job; raises ConfigError when there is none of that number."""
    with database.reading() as connection:
        row = connection.execute(sa.select(jobs).where(jobs.c.job_id == job_id)).one_or_none()
    return _job(row, job_id)


def jobs_after(
    database: Database, job_id: int = 0, *, group_ids: Collection[int] | None = None
) -> list[Job]:
    """The jobs with greater numbers, of these groups or of all; JOBS_SHOWN_MAX at most."""
    wanted = sa.select(jobs).where(jobs.c.job_id > job_id).order_by(jobs.c.job_id)
    if group_ids is not None:
        wanted = wanted.where(jobs.c.group_id.in_(sorted(group_ids)))
    with database.reading() as connection:
        rows = connection.execute(wanted.limit(JOBS_SHOWN_MAX)).all()
    return [_job(row, row.job_id) for row in rows]


def _check_group(connection: sa.Connection, group_id: int) -> None:
    there = sa.select(job_groups.c.group_id).where(job_groups.c.group_id == group_id)
    if connection.scalar(there) is None:
        raise ConfigError("group", group_id, "a group that there is")


def _check_named(connection: sa.Connection, settings: JobSettings, known: Collection[int]) -> None:
    """Raise ConfigError for a child that is no job, but for those that the job has had (a child may
    be removed), and for a step of a workflow that is no job, or a workflow.
    """
    steps = workflow_of(settings.glue_source).steps if settings.is_workflow else ()
    new = {child for child in settings.children if child not in known}
    rows = connection.execute(
        sa.select(jobs.c.job_id, jobs.c.glue_type).where(
            jobs.c.job_id.in_(sorted(new | {step.job_id for step in steps}))
        )
    )
    there = {row.job_id: row.glue_type == WORKFLOW for row in rows}
    if unknown := sorted(new - set(there)):
        raise ConfigError("children", unknown[0], "a job that there is")
    if settings.is_workflow:
        workflow_of(settings.glue_source).check_jobs(there)


def _refuse_a_step(connection: sa.Connection, job_id: int, allowed: str) -> None:
    if theirs := workflows_with(connection, job_id):
        told = f"{job_id}, a step of {', '.join(map(str, theirs[:5]))}"
        raise ConfigError("job", told, allowed)


def cancel_waiting(connection: sa.Connection, job_id: int, change: Change) -> int:
    """Cancel the runs that a job's schedule planned and nobody has sent; how many."""
    return connection.execute(
        sa.update(runs)
        .where(
            runs.c.job_id == job_id,
            runs.c.state.in_(CANCELLABLE),
            runs.c.sendings == 0,
            runs.c.cause.like("plan:%"),
        )
        .values(state=RunState.CANCELLED.value, ended_ms=change.now_ms)
    ).rowcount


def settings_of(row: AnyRow) -> JobSettings:
    """What the row of a job says that it is; raises ConfigError when that cannot be any more."""
    try:
        return JobSettings(**_stored(row), children=children_of(row.children))
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ConfigError("job", row.job_id, f"settings that can be read ({error})") from error


def children_of(text: str) -> tuple[int, ...]:
    """The jobs of a stored list; raises ConfigError when it is none."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(type(one) is int for one in found):
        raise ConfigError("children", text[:64], "a list of numbers of jobs")
    return tuple(found)


def _stored(row: AnyRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _SETTINGS if name != "children"}


def _job(row: AnyRow | None, job_id: int) -> Job:
    if row is None:
        raise ConfigError("job", job_id, "a job that there is")
    wrong = None
    try:
        settings = settings_of(row)
    except ConfigError as error:
        settings, wrong = JobSettings.unchecked(**_stored(row)), str(error)
    return Job(
        row.job_id,
        row.group_id,
        settings,
        row.is_active,
        row.next_ms,
        row.stopped_because,
        row.changed_ms,
        wrong,
    )


def _locked(connection: sa.Connection, job_id: int) -> Job:
    """A job, its row locked: before rows of its runs are, as by everybody who locks both."""
    row = connection.execute(
        sa.select(jobs).where(jobs.c.job_id == job_id).with_for_update()
    ).one_or_none()
    return _job(row, job_id)


def _row(settings: JobSettings) -> dict[str, Any]:
    values = asdict(settings)
    return values | {"children": json.dumps(list(settings.children))}


def _told(settings: JobSettings) -> str:
    """A job's settings for the audit, without its source, which has versions of its own."""
    return json.dumps({name: value for name, value in asdict(settings).items() if value})[:10_000]


def _has_other_times(before: JobSettings, settings: JobSettings) -> bool:
    """To plan anew whatever was changed would put off for ever a job that is changed more often
    than it is due, and leave out a time whose run is just to be sent.
    """
    words = ("schedule_kind", "schedule_text", "zone")
    return any(getattr(settings, word) != getattr(before, word) for word in words)


def _first_ms(settings: JobSettings, change: Change) -> int:
    next_ms = settings.schedule.next_ms(change.now_ms)
    if next_ms is None:
        raise ConfigError("schedule", settings.schedule_text, "one that has a time to come")
    return next_ms
