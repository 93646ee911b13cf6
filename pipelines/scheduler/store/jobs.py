"""Stores jobs as users add, edit, start, pause or remove them, and audits each change.

Invariant: a job that is not active has no next time, and no run that waits to be sent but that of
its last time. Who pauses it, removes it or gives it another schedule cancels what was planned.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import sqlalchemy as sa

from engine.foundation.errors import ConfigError, MustBe, RuleBroken, TidemarkError
from pipelines.database.database import Database
from pipelines.scheduler.diffs import (
    Changes,
    auditable,
    brief,
    changes,
    detail_of,
    has_other_times,
)
from pipelines.scheduler.job_settings import JobSettings
from pipelines.scheduler.refusals import is_a_step, no_such, nothing_changed
from pipelines.scheduler.run_life import MOVES, RunEvent, RunState
from pipelines.scheduler.store.audit import Change, note
from pipelines.scheduler.store.flows import begins_in, children_of, step_jobs_of, workflows_with
from pipelines.scheduler.store.glue import forget_glue, keep_glue
from pipelines.scheduler.store.tables import AnyRow, job_groups, jobs, runs, schedule_locks
from pipelines.scheduler.trigger_cycles import circle_by, path_in_words
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

    @property
    def version(self) -> str:
        """A digest of its settings: it changes whenever somebody changes the job. How far its
        schedule has come is no part of it."""
        parts = (asdict(self.settings), self.group_id, self.is_active, self.stopped_because)
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


class JobChanged(TidemarkError):
    """A job is not any more what somebody looked at who wants to change it: look again."""

    def __init__(self, job_id: int) -> None:
        super().__init__(f"job {job_id} has been changed meanwhile")


@dataclass(frozen=True, slots=True)
class Changed:
    """The change of a job; on a database's trial, what it would be."""

    job_id: int
    action: str
    """As the audit has it."""
    changes: Changes
    """Of its settings, its group and whether it is active; none: it was so before."""
    cancelled: tuple[int, ...]
    """The runs that waited to be sent, and are not any more."""
    job: Job | None
    """As it is then; None: it is gone."""


def add_job(database: Database, group_id: int, settings: JobSettings, change: Change) -> int:
    """A new job's number. It is not active before it is started."""
    with database.writing() as connection:
        return insert_job(connection, group_id, settings, change)


def insert_job(
    connection: sa.Connection, group_id: int, settings: JobSettings, change: Change
) -> int:
    """The same within a transaction."""
    group = _app_name(connection, group_id)
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
    _refuse_a_circle(connection, job_id, settings)  # A child of before may have had its number.
    keep_glue(connection, job_id, settings, change)
    made = changes({}, auditable(settings, group=group, is_active=False))
    note(connection, change, "add", f"job:{job_id}", detail=detail_of(made))
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
) -> Changed:
    """Change a job to these settings, and move it to another group if one is given. With another
    schedule, what waits to be sent is cancelled, and an active job is planned anew, from now on;
    else its times stay, and its runs are sent with the new settings. `remark`: of a new source.

    Raises ConfigError when nothing changes: such an edit is a slip.
    """
    with database.writing() as connection:
        if settings.children or settings.is_workflow:  # Two at once would close a circle unseen.
            connection.execute(sa.select(schedule_locks).with_for_update())
        before = _locked(connection, job_id, change)
        is_same = settings == before.settings and group_id in {None, before.group_id}
        if is_same and before.wrong_because is None:
            raise nothing_changed()
        _check_named(connection, settings, before.settings.children)
        if settings.is_workflow:
            _refuse_a_step(connection, job_id, "become a workflow")
        _refuse_a_circle(connection, job_id, settings, before.settings)
        cancelled: tuple[int, ...] = ()
        is_new_glue = (before.settings.glue_type, before.settings.glue_source) != (
            settings.glue_type,
            settings.glue_source,
        )
        values = _row(settings) | {"changed_ms": change.now_ms, "stopped_because": None}
        if is_new_glue:
            values["glue_changed_ms"] = change.now_ms
            keep_glue(connection, job_id, settings, change, remark=remark)
        if group_id is not None:
            _app_name(connection, group_id)
            values["group_id"] = group_id
        # What waits of a job that is not active is its last time: it ends when that is planned.
        if has_other_times(before.settings, settings):
            cancelled = cancel_waiting(connection, job_id, change)
            if cancelled or before.is_active:
                values |= {"is_active": True, "next_ms": _first_ms(settings, change)}
        _update(connection, job_id, values)
        return _noted(connection, change, "edit", before, cancelled=cancelled)


def start_job(database: Database, job_id: int, change: Change) -> Changed:
    """Have its schedule hold. Raises ConfigError when its time never comes."""
    with database.writing() as connection:
        job = _locked(connection, job_id, change)
        if job.is_active:
            return Changed(job_id, "start", {}, (), job)
        next_ms = _first_ms(job.settings, change)
        started = {"is_active": True, "next_ms": next_ms, "stopped_because": None}
        _update(connection, job_id, started)
        return _noted(connection, change, "start", job)


def pause_job(database: Database, job_id: int, change: Change) -> Changed:
    """Have it run no more, but by hand. What an executor has goes on."""
    with database.writing() as connection:
        job = _locked(connection, job_id, change)
        cancelled = cancel_waiting(connection, job_id, change)
        if not job.is_active and not cancelled:
            return Changed(job_id, "pause", {}, (), job)
        _update(connection, job_id, {"is_active": False, "next_ms": None})
        return _noted(connection, change, "pause", job, cancelled=cancelled)


def remove_job(database: Database, job_id: int, change: Change) -> Changed:
    """Remove a job and its sources. Its runs stay until they are forgotten. Raises ConfigError for
    a step of a workflow.
    """
    with database.writing() as connection:
        job = _locked(connection, job_id, change)
        _refuse_a_step(connection, job_id, "be removed")
        cancelled = cancel_waiting(connection, job_id, change)
        connection.execute(sa.delete(jobs).where(jobs.c.job_id == job_id))
        forget_glue(connection, job_id)
        return _noted(connection, change, "remove", job, cancelled=cancelled)


def job_of(database: Database, job_id: int) -> Job:
    """A job; raises ConfigError when there is none of that number."""
    with database.reading() as connection:
        row = connection.execute(sa.select(jobs).where(jobs.c.job_id == job_id)).one_or_none()
    return _job(row, job_id)


def job_if_there(database: Database, job_id: int) -> Job | None:
    """A job; None when there is none of that number."""
    with database.reading() as connection:
        row = connection.execute(sa.select(jobs).where(jobs.c.job_id == job_id)).one_or_none()
    return None if row is None else job_from(row)


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


def _update(connection: sa.Connection, job_id: int, values: dict[str, Any]) -> None:
    connection.execute(sa.update(jobs).where(jobs.c.job_id == job_id).values(values))


def _noted(
    connection: sa.Connection,
    change: Change,
    action: str,
    before: Job,
    *,
    cancelled: tuple[int, ...] = (),
) -> Changed:
    """Audit what became of a job, and return it."""
    row = connection.execute(sa.select(jobs).where(jobs.c.job_id == before.job_id)).one_or_none()
    after = None if row is None else _job(row, before.job_id)
    made = changes(_auditable(connection, before), _auditable(connection, after) if after else {})
    noted = made | ({"cancelled_runs": ((), brief("", cancelled))} if cancelled else {})
    note(connection, change, action, f"job:{before.job_id}", detail=detail_of(noted))
    return Changed(before.job_id, action, made, cancelled, after)


def _auditable(connection: sa.Connection, job: Job) -> dict[str, Any]:
    app = connection.scalar(
        sa.select(job_groups.c.app_name).where(job_groups.c.group_id == job.group_id)
    )
    return auditable(job.settings, group=app or str(job.group_id), is_active=job.is_active)


def _app_name(connection: sa.Connection, group_id: int) -> str:
    there = sa.select(job_groups.c.app_name).where(job_groups.c.group_id == group_id)
    app_name: str | None = connection.scalar(there)
    if app_name is None:
        raise no_such("group", group_id)
    return app_name


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
        raise no_such("job", unknown[0], key="children", where="children")
    if settings.is_workflow:
        workflow_of(settings.glue_source).check_jobs(there)


def _refuse_a_circle(
    connection: sa.Connection, job_id: int, settings: JobSettings, before: JobSettings | None = None
) -> None:
    """Raise RuleBroken for a job that would begin itself again by what it begins, but for what it
    has begun before: who changes its title need not mend what somebody else has stored.
    """
    known = set() if before is None else _begun_by(before)
    if circle := circle_by(job_id, _begun_by(settings) - known, begins_in(connection)):
        path = path_in_words(circle)
        raise RuleBroken(
            "children" if circle[1] in settings.children else "steps",
            path,
            f"these jobs begin each other in a circle and would run without end: {path}; leave out "
            f"job {circle[1]}, or a later one of them",
        )


def _begun_by(settings: JobSettings) -> set[int]:
    return {*settings.children, *step_jobs_of(settings.glue_type, settings.glue_source)}


def _refuse_a_step(connection: sa.Connection, job_id: int, so_it_cannot: str) -> None:
    if theirs := workflows_with(connection, job_id):
        raise is_a_step(job_id, theirs, so_it_cannot)


def cancel_waiting(connection: sa.Connection, job_id: int, change: Change) -> tuple[int, ...]:
    """Cancel the runs that a job's schedule planned and nobody has sent; which they were."""
    cancelled = connection.scalars(
        sa.update(runs)
        .where(
            runs.c.job_id == job_id,
            runs.c.state.in_(CANCELLABLE),
            runs.c.sendings == 0,
            runs.c.cause.like("plan:%"),
        )
        .values(state=RunState.CANCELLED.value, ended_ms=change.now_ms)
        .returning(runs.c.log_id)
    )
    return tuple(sorted(cancelled))


def settings_of(row: AnyRow) -> JobSettings:
    """The job in a row; raises ConfigError when its settings cannot be any more."""
    try:
        return JobSettings(**_stored(row), children=children_of(row.children))
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise MustBe("job", row.job_id, f"settings that can be read ({error})") from error


def _stored(row: AnyRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _SETTINGS if name != "children"}


def _job(row: AnyRow | None, job_id: int) -> Job:
    if row is None:
        raise no_such("job", job_id)
    return job_from(row)


def job_from(row: AnyRow) -> Job:
    """The job of a row, also when that cannot be any more."""
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


def _locked(connection: sa.Connection, job_id: int, change: Change) -> Job:
    """A job, its row locked: before rows of its runs are, as by everybody who locks both. Raises
    JobChanged when it is another than the change expects."""
    row = connection.execute(
        sa.select(jobs).where(jobs.c.job_id == job_id).with_for_update()
    ).one_or_none()
    job = _job(row, job_id)
    if change.expects is not None and change.expects != job.version:
        raise JobChanged(job_id)
    return job


def _row(settings: JobSettings) -> dict[str, Any]:
    values = asdict(settings)
    return values | {"children": json.dumps(list(settings.children))}


def _first_ms(settings: JobSettings, change: Change) -> int:
    next_ms = settings.schedule.next_ms(change.now_ms)
    if next_ms is None:
        text = settings.schedule_text
        raise RuleBroken("schedule", text, f"schedule {text!r} has no time to come")
    return next_ms
