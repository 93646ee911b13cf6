"""Jobs and their groups: made, changed, started, paused, removed; each change is in the audit.

Invariant: a job that is not active has no next time and no run that waits to be sent. Whatever
changes a job cancels those that were planned by what it was; a next time is planned anew.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from engine.foundation.errors import ConfigError
from pipelines.alerting.store.database import Database
from pipelines.scheduler.job_settings import BEAN, JobSettings
from pipelines.scheduler.run_life import MOVES, RunEvent, RunState
from pipelines.scheduler.store.tables import (
    AnyRow,
    glue_versions,
    job_audit,
    job_groups,
    jobs,
    runs,
)

GLUE_VERSIONS_MAX: Final = 30
"""Of one job; beyond it the oldest goes. As in XXL-Job."""

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


@dataclass(frozen=True, slots=True)
class Group:
    """Executors that run the same handlers."""

    group_id: int
    app_name: str
    title: str
    manual_addresses: tuple[str, ...] | None
    """Where they are; None: they register themselves."""


@dataclass(frozen=True, slots=True)
class Change:
    """Who changes something, and when."""

    author: str
    now_ms: int


def add_group(
    database: Database,
    app_name: str,
    change: Change,
    *,
    title: str = "",
    manual_addresses: Sequence[str] | None = None,
) -> int:
    """A new group's number; raises ConfigError when the application has one."""
    if not app_name or len(app_name) > 64 or not app_name.isascii() or not app_name.isprintable():
        raise ConfigError("app_name", app_name[:64], "1 to 64 letters of ASCII")
    manual = None if manual_addresses is None else json.dumps(list(manual_addresses))
    try:
        with database.writing() as connection:
            group_id: int = connection.execute(
                sa.insert(job_groups)
                .values(
                    app_name=app_name,
                    title=title or app_name,
                    manual_addresses=manual,
                    changed_ms=change.now_ms,
                )
                .returning(job_groups.c.group_id)
            ).scalar_one()
            note(connection, change, "add", f"group:{group_id}", detail=app_name)
    except IntegrityError as error:
        raise ConfigError("app_name", app_name, "one that no group has yet") from error
    return group_id


def groups(database: Database) -> tuple[Group, ...]:
    """All groups, by number."""
    with database.reading() as connection:
        rows = connection.execute(sa.select(job_groups).order_by(job_groups.c.group_id)).all()
    return tuple(
        Group(row.group_id, row.app_name, row.title, _addresses(row.manual_addresses))
        for row in rows
    )


def _addresses(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(json.loads(text))


def add_job(database: Database, group_id: int, settings: JobSettings, change: Change) -> int:
    """A new job's number. It is not active before it is started."""
    with database.writing() as connection:
        there = sa.select(job_groups.c.group_id).where(job_groups.c.group_id == group_id)
        if connection.scalar(there) is None:
            raise ConfigError("group", group_id, "a group that there is")
        job_id: int = connection.execute(
            sa.insert(jobs)
            .values(
                **_row(settings),
                group_id=group_id,
                glue_changed_ms=change.now_ms,
                is_active=False,
                counters="{}",
                changed_ms=change.now_ms,
            )
            .returning(jobs.c.job_id)
        ).scalar_one()
        _keep_glue(connection, job_id, settings, change)
        note(connection, change, "add", f"job:{job_id}", detail=_told(settings))
    return job_id


def edit_job(database: Database, job_id: int, settings: JobSettings, change: Change) -> None:
    """Make a job what it is told to be. What waits to be sent is cancelled; an active job is
    planned anew, from now on.
    """
    with database.writing() as connection:
        before = _locked(connection, job_id)
        cancel_waiting(connection, job_id, change)
        is_new_glue = (before.settings.glue_type, before.settings.glue_source) != (
            settings.glue_type,
            settings.glue_source,
        )
        values = _row(settings) | {"changed_ms": change.now_ms, "stopped_because": None}
        if is_new_glue:
            values["glue_changed_ms"] = change.now_ms
            _keep_glue(connection, job_id, settings, change)
        if before.is_active:
            values["next_ms"] = _first_ms(settings, change)
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
    """Remove a job and its sources. Its runs stay until they are forgotten."""
    with database.writing() as connection:
        job = _locked(connection, job_id)
        cancel_waiting(connection, job_id, change)
        connection.execute(sa.delete(jobs).where(jobs.c.job_id == job_id))
        connection.execute(sa.delete(glue_versions).where(glue_versions.c.job_id == job_id))
        note(connection, change, "remove", f"job:{job_id}", detail=_told(job.settings))


def job_of(database: Database, job_id: int) -> Job:
    """A job; raises ConfigError when there is none of that number."""
    with database.reading() as connection:
        row = connection.execute(sa.select(jobs).where(jobs.c.job_id == job_id)).one_or_none()
    return _job(row, job_id)


def jobs_after(database: Database, job_id: int = 0, *, group_id: int | None = None) -> list[Job]:
    """The jobs with greater numbers, JOBS_SHOWN_MAX at most."""
    wanted = sa.select(jobs).where(jobs.c.job_id > job_id).order_by(jobs.c.job_id)
    if group_id is not None:
        wanted = wanted.where(jobs.c.group_id == group_id)
    with database.reading() as connection:
        rows = connection.execute(wanted.limit(JOBS_SHOWN_MAX)).all()
    return [_job(row, row.job_id) for row in rows]


def glue_of(database: Database, job_id: int) -> list[tuple[int, str, str]]:
    """The sources that a job had: when each was stored, by whom, and the text; the newest first."""
    with database.reading() as connection:
        rows = connection.execute(
            sa.select(glue_versions)
            .where(glue_versions.c.job_id == job_id)
            .order_by(glue_versions.c.glue_id.desc())
        ).all()
    return [(row.changed_ms, row.author, row.source) for row in rows]


def cancel_waiting(connection: sa.Connection, job_id: int, change: Change) -> None:
    """Cancel the runs that a job's schedule planned and nobody has sent."""
    connection.execute(
        sa.update(runs)
        .where(
            runs.c.job_id == job_id,
            runs.c.state.in_(CANCELLABLE),
            runs.c.sendings == 0,
            runs.c.cause.like("plan:%"),
        )
        .values(state=RunState.CANCELLED.value, ended_ms=change.now_ms)
    )


def note(
    connection: sa.Connection, change: Change, action: str, subject: str, *, detail: str = ""
) -> None:
    """Write down who did what."""
    connection.execute(
        sa.insert(job_audit).values(
            at_ms=change.now_ms,
            author=change.author,
            action=action,
            subject=subject,
            detail=detail,
        )
    )


def settings_of(row: AnyRow) -> JobSettings:
    """What the row of a job says that it is; raises ConfigError when that cannot be any more."""
    return JobSettings(**_stored(row), children=children_of(row.children))


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


def _first_ms(settings: JobSettings, change: Change) -> int:
    next_ms = settings.schedule.next_ms(change.now_ms)
    if next_ms is None:
        raise ConfigError("schedule", settings.schedule_text, "one that has a time to come")
    return next_ms


def _keep_glue(
    connection: sa.Connection, job_id: int, settings: JobSettings, change: Change
) -> None:
    if settings.glue_type == BEAN:
        return
    connection.execute(
        sa.insert(glue_versions).values(
            job_id=job_id,
            glue_type=settings.glue_type,
            source=settings.glue_source,
            remark="",
            author=change.author,
            changed_ms=change.now_ms,
        )
    )
    kept = (
        sa.select(glue_versions.c.glue_id)
        .where(glue_versions.c.job_id == job_id)
        .order_by(glue_versions.c.glue_id.desc())
    )
    newest = connection.scalars(kept.limit(GLUE_VERSIONS_MAX)).all()
    connection.execute(
        sa.delete(glue_versions).where(
            glue_versions.c.job_id == job_id, glue_versions.c.glue_id < newest[-1]
        )
    )
