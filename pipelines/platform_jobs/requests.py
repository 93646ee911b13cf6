"""Finds the job that makes a report, and the runs that pages have requested from it.

Place in the walk: a page → a run of the job `lag-report` by hand, with parameters of its own → the
handler. Making a report needs Spark, which no page has.

Invariant: a person gets at jobs by his right to their group alone, as in the job service. The
key of a run says which period it is about, so that whoever looks at a report sees the requests for
it, and two requests with one key are one run. Absent on purpose: parameters that somebody writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from engine.foundation.errors import ConfigError
from pipelines.database.database import Database
from pipelines.platform_jobs.installing import APP
from pipelines.reading.report_names import RunName, name_of
from pipelines.scheduler.roles import Action
from pipelines.scheduler.run_life import ENDED, RunState
from pipelines.scheduler.service import JobService
from pipelines.scheduler.store.jobs import Job
from pipelines.scheduler.store.registry import addresses_of
from pipelines.scheduler.store.tables import runs

HANDLER: Final = "lag-report"
SHOWN_MAX: Final = 5
_HAND: Final = "hand:"


@dataclass(frozen=True, slots=True)
class Maker:
    """The job that makes a report."""

    job: Job
    app_name: str
    executors: tuple[str, ...]
    """Where it can run now."""


@dataclass(frozen=True, slots=True)
class AskedRun:
    """A run that was asked for, in its last try."""

    log_id: int
    job_id: int
    parameters: str
    state: RunState
    planned_ms: int
    ended_ms: int | None
    message: str

    @property
    def is_over(self) -> bool:
        """Has it ended, well or not?"""
        return self.state in ENDED


def maker(service: JobService, database: Database, *, period: str) -> Maker | None:
    """The job by which he can have a report of such a period made; None when he may see none."""
    apps = {group.group_id: group.app_name for group in service.groups()}
    own = [
        job
        for job in _jobs(service)
        if job.settings.handler == HANDLER and job.wrong_because is None and job.group_id in apps
    ]
    if not own:
        return None
    wanted = f"period={period}"
    job = min(
        own,
        key=lambda one: (
            apps[one.group_id] != APP,
            wanted not in one.settings.parameters.split(),
            not one.is_active,
            one.job_id,
        ),
    )
    with database.reading() as connection:
        found = addresses_of(connection, [job.group_id], now_ms=service.now_ms)
    return Maker(job, apps[job.group_id], found.get(job.group_id, ()))


def _jobs(service: JobService) -> Iterator[Job]:
    last = 0
    while found := service.jobs_after(last):
        yield from found
        last = found[-1].job_id


def parameters_for(name: str, *, newest: bool) -> str:
    """The parameters of a run that makes a report again. ConfigError for what names none."""
    if name_of(name) is None:
        raise ConfigError("report", name[:64], "the name of a run of a report")
    return f"again={name} newest=yes" if newest else f"again={name}"


def key_of(name: RunName, entropy: str) -> str:
    """The key of a run that is asked for."""
    return f"{_begin(name)}{entropy}"


def _begin(name: RunName) -> str:
    digest = hashlib.sha256(f"{name.report}/{name.window}".encode()).hexdigest()[:12]
    return f"report:{digest}:"


def asked_for(
    service: JobService, database: Database, job_id: int, name: RunName
) -> list[AskedRun]:
    """The runs that were asked for about the period of a report, the newest first; SHOWN_MAX at
    most. NotPermitted as the service says."""
    service.demand_job(Action.SEE_JOBS, job_id)
    begin = f"{_HAND}{_begin(name)}"
    columns = (
        *(runs.c[one] for one in ("log_id", "job_id", "parameters", "state", "planned_ms")),
        *(runs.c[one] for one in ("ended_ms", "result_message", "trigger_message", "cause")),
    )
    wanted = (
        sa.select(*columns)
        .where(runs.c.job_id == job_id, runs.c.cause.startswith(begin, autoescape=True))
        .order_by(runs.c.log_id.desc())
        .limit(10 * SHOWN_MAX)
    )
    found: dict[str, AskedRun] = {}
    with database.reading() as connection:
        for row in connection.execute(wanted):
            one = AskedRun(
                row.log_id,
                row.job_id,
                row.parameters or "",
                RunState(row.state),
                row.planned_ms,
                row.ended_ms,
                row.result_message or row.trigger_message or "",
            )
            found.setdefault(row.cause, one)  # The first that comes is its last try.
    return list(found.values())[:SHOWN_MAX]
