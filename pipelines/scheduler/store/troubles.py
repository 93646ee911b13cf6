"""Finds runs to alert on (failed for good, lost or late) and jobs that nobody has planned.

Place in the walk: the scheduler's rows → the table `job_runs` of alerting. LOST: an executor had
the run, or may have, and nothing is heard any more. RESULT_LATE: it counted as lost, and its result
came yet. LATE: it should have begun long ago, and no executor has it. Of a run that is tried again
the last try is reported; one left out under DISCARD_LATER is not.

NOT_PLANNED: jobs are overdue, and nobody has planned them: one row, of the job that is overdue
longest. STOPPED: a pass has stopped the job, and nobody has started it since. MISSED: planned times
had no run of their own. Invariant: reads alone; bounded; the newest first.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import sqlalchemy as sa

from pipelines.base.settings import MS_US
from pipelines.base.time_units import moment_at
from pipelines.database.database import Database
from pipelines.scheduler.run_life import OK, RunState
from pipelines.scheduler.store.passes import MISFIRE, SCHEDULER, STOP
from pipelines.scheduler.store.tables import AnyRow, job_audit, job_groups, jobs, runs
from pipelines.scheduler.wire.messages import DISCARDED
from pipelines.sentences import jobs as sentences

TOLD_FOR_MS: Final = 3_600_000
"""How long after its end a run is still reported: alerting may have been down meanwhile."""
LATE_MS: Final = 60_000
"""How long after its time a run may wait for its executor."""
TROUBLES_MAX: Final = 1_000
LAST_LINES: Final = 5
NOT_PLANNED: Final = "NOT_PLANNED"
STOPPED: Final = "STOPPED"
MISSED: Final = "MISSED"
NOTES_LOOKED_AT: Final = 10_000
"""The newest entries of the audit: what is reported from it is of the last hour."""
_ENDED_BADLY: Final = (RunState.FAILED.value, RunState.REFUSED.value, RunState.LOST.value)
_NOT_BEGUN: Final = (
    RunState.PLANNED.value, RunState.CLAIMED.value, RunState.SENT.value, RunState.UNKNOWN.value,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trouble:
    """A run, or a job without one, and what is wrong with it."""

    run: int | None
    """None: there is no run that could be named."""
    job_id: int
    job: str
    app: str
    outcome: str
    """FAILED, REFUSED, LOST, RESULT_LATE, LATE; NOT_PLANNED, STOPPED or MISSED of a job."""
    executor: str | None
    planned_ms: int
    since_ms: int
    attempt: int
    evidence: str
    last_lines: str


def troubles(database: Database, *, now_ms: int) -> list[Trouble]:
    """The runs of the last hour that ended badly, those that wait for too long, and that jobs are
    not planned."""
    ended_badly = (
        runs.c.state.in_(_ENDED_BADLY)
        & (runs.c.retries_left == 0)
        & (runs.c.ended_ms > now_ms - TOLD_FOR_MS)
        & ~_is_discarded()
    )
    result_late = (runs.c.state == RunState.LOST.value) & (runs.c.late_ms > now_ms - TOLD_FOR_MS)
    is_late = runs.c.state.in_(_NOT_BEGUN) & (runs.c.due_ms < now_ms - LATE_MS)
    wanted = (
        sa.select(runs, jobs.c.title, job_groups.c.app_name)
        .join(jobs, jobs.c.job_id == runs.c.job_id)
        .join(job_groups, job_groups.c.group_id == jobs.c.group_id)
        .where(ended_badly | result_late | is_late)
        .order_by(runs.c.log_id.desc())
        .limit(TROUBLES_MAX)
    )
    with database.reading() as connection:
        of_runs = [_trouble(row) for row in connection.execute(wanted)]
        return [*_not_planned(connection, now_ms), *_noted(connection, now_ms), *of_runs]


def _is_discarded() -> sa.ColumnElement[bool]:
    """Was the run refused because its job is to leave out runs while another one is at work? That
    is what was asked for. Texts are kept as JSON strings in ASCII, and so is what is looked for.
    """
    message = sa.func.coalesce(sa.type_coerce(runs.c.trigger_message, sa.Text()), "")
    begins = message.startswith(json.dumps(DISCARDED)[:-1], autoescape=True)
    return (runs.c.state == RunState.REFUSED.value) & begins


def _not_planned(connection: sa.Connection, now_ms: int) -> list[Trouble]:
    """Overdue jobs, if there are any: a centre that lives has moved their next times."""
    is_overdue = jobs.c.is_active & (jobs.c.next_ms < now_ms - LATE_MS)
    count = connection.scalar(sa.select(sa.func.count()).select_from(jobs).where(is_overdue)) or 0
    longest = connection.execute(
        sa.select(jobs.c.job_id, jobs.c.title, jobs.c.next_ms, job_groups.c.app_name)
        .join(job_groups, job_groups.c.group_id == jobs.c.group_id)
        .where(is_overdue)
        .order_by(jobs.c.next_ms, jobs.c.job_id)
        .limit(1)
    ).one_or_none()
    if longest is None:
        return []
    evidence = sentences.not_planned(count, moment_at(longest.next_ms * MS_US))
    return [_without_run(longest, NOT_PLANNED, longest.next_ms, evidence)]


def _noted(connection: sa.Connection, now_ms: int) -> list[Trouble]:
    """What the scheduler noted of jobs in the last hour, each once. A job that was stopped and is
    started again is no trouble any more.
    """
    newest = (
        sa.select(job_audit).order_by(job_audit.c.audit_id.desc()).limit(NOTES_LOOKED_AT).subquery()
    )
    notes = connection.execute(
        sa.select(newest)
        .where(
            newest.c.author == SCHEDULER,
            newest.c.action.in_((STOP, MISFIRE)),
            newest.c.at_ms > now_ms - TOLD_FOR_MS,
        )
        .order_by(newest.c.audit_id)
        .limit(TROUBLES_MAX)
    ).all()
    by_job = {(int(one.subject.removeprefix("job:")), one.action): one for one in notes}
    named = connection.execute(
        sa.select(jobs.c.job_id, jobs.c.title, jobs.c.stopped_because, job_groups.c.app_name)
        .join(job_groups, job_groups.c.group_id == jobs.c.group_id)
        .where(jobs.c.job_id.in_(sorted({job_id for job_id, _ in by_job})))
    )
    theirs = {row.job_id: row for row in named}
    return [
        _of_job(theirs[job_id], one)
        for (job_id, action), one in by_job.items()
        if job_id in theirs and (action == MISFIRE or theirs[job_id].stopped_because is not None)
    ]


def _of_job(job: AnyRow, one: AnyRow) -> Trouble:
    outcome, evidence = STOPPED, sentences.stopped(job.stopped_because)
    if one.action == MISFIRE:
        outcome, evidence = MISSED, _missed(one.detail)
    return _without_run(job, outcome, one.at_ms, evidence)


def _without_run(job: AnyRow, outcome: str, at_ms: int, evidence: str) -> Trouble:
    """What is wrong with a job, and with no run of it."""
    return Trouble(
        run=None,
        job_id=job.job_id,
        job=job.title,
        app=job.app_name,
        outcome=outcome,
        executor=None,
        planned_ms=at_ms,
        since_ms=at_ms,
        attempt=0,
        evidence=evidence,
        last_lines="",
    )


def _missed(detail: str) -> str:
    """What the scheduler noted of a misfire, in a sentence."""
    noted = json.loads(detail)
    done = f"by {noted['misfire']} {noted['done']}"
    since = datetime.fromisoformat(noted["missed_from"])
    return sentences.missed(since, done, more_jobs=noted.get("more_jobs", 0))


def _trouble(row: AnyRow) -> Trouble:
    outcome = row.state if row.state in _ENDED_BADLY else "LATE"
    if outcome == RunState.LOST.value and row.late_code is not None:
        outcome = "RESULT_LATE"
    said = row.result_message or row.trigger_message or ""
    return Trouble(
        run=row.log_id,
        job_id=row.job_id,
        job=row.title,
        app=row.app_name,
        outcome=outcome,
        executor=row.address,
        planned_ms=row.planned_ms,
        since_ms=row.ended_ms or row.due_ms,
        attempt=row.attempt,
        evidence=_evidence(outcome, row),
        last_lines="\n".join(line for line in said.splitlines()[-LAST_LINES:] if line.strip()),
    )


def _evidence(outcome: str, row: AnyRow) -> str:
    tries = row.attempt + 1
    match outcome:
        case "FAILED":
            return sentences.failed(row.address, tries, row.result_code)
        case "REFUSED":
            return sentences.refused(tries)
        case "LOST":
            return sentences.lost(row.address, tries)
        case "RESULT_LATE":
            result = "success" if row.late_code == OK else f"code {row.late_code}"
            return sentences.result_late(row.address, result)
        case _:
            return sentences.late()
