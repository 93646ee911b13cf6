"""Passes of planning: under the schedule lock, what is due becomes runs and next times move on.

Place in the walk: called by a centre each second; what it gives back goes into the centre's ring.

Invariant: runs and next times are stored together, so that a centre which dies at any moment leaves
a job either not planned yet or with its run. The run is claimed by who planned it; when that one
dies, its claim ends, and `claim_due` gives the run to another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from engine.foundation.errors import ConfigError
from pipelines.alerting.store.database import Database
from pipelines.scheduler.planning import WINDOW_MS, Plan, plan
from pipelines.scheduler.run_life import CLAIM_MS, RunState
from pipelines.scheduler.schedules import MisfirePolicy, schedule_of
from pipelines.scheduler.store.tables import AnyRow, jobs, runs, schedule_locks

JOBS_PER_PASS: Final = 5_000
"""As XXL-Job reads at most. More that are due are read by the next pass, which follows at once."""

RUNS_PER_CLAIM: Final = 2_000
LOCK: Final = "schedule"


@dataclass(frozen=True, slots=True)
class Claim:
    """A run that is this centre's to send."""

    log_id: int
    job_id: int
    token: int
    due_ms: int


@dataclass(frozen=True, slots=True)
class Pass:
    """What a pass did."""

    claims: tuple[Claim, ...]
    read_count: int
    """Jobs that were due; JOBS_PER_PASS of them say that there may be more."""
    missed_count: int
    """Jobs of which a planned time got no run of its own."""
    stopped: tuple[int, ...]
    """Jobs that the pass stopped: nothing more to come, or a schedule that cannot be read."""


def plan_due(database: Database, holder: str, *, now_ms: int) -> Pass:
    """Plan the jobs that are due within the window, and claim their runs."""
    with database.writing() as connection:
        connection.execute(
            sa.select(schedule_locks).where(schedule_locks.c.name == LOCK).with_for_update()
        )
        due = connection.execute(
            sa.select(
                jobs.c.job_id,
                jobs.c.schedule_kind,
                jobs.c.schedule_text,
                jobs.c.zone,
                jobs.c.misfire,
                jobs.c.retries,
                jobs.c.next_ms,
            )
            .where(jobs.c.next_ms <= now_ms + WINDOW_MS)
            .order_by(jobs.c.next_ms, jobs.c.job_id)
            .limit(JOBS_PER_PASS)
            .with_for_update()
        ).all()
        planned = [(row, _planned(row, now_ms)) for row in due]
        claims = _store_runs(connection, planned, holder)
        stopped = _move_on(connection, planned)
    missed = sum(isinstance(one, Plan) and one.missed_from_ms is not None for _, one in planned)
    return Pass(claims, len(due), missed, stopped)


def _planned(row: AnyRow, now_ms: int) -> Plan | str:
    """The plan of a job, or why it has none: one that cannot be read must not hold up the rest."""
    try:
        schedule = schedule_of(row.schedule_kind, row.schedule_text, row.zone)
        misfire = MisfirePolicy(row.misfire)
    except (ConfigError, ValueError) as error:
        return str(error)
    return plan(schedule, misfire, next_ms=row.next_ms, now_ms=now_ms)


def _store_runs(
    connection: sa.Connection, planned: Sequence[tuple[AnyRow, Plan | str]], holder: str
) -> tuple[Claim, ...]:
    values = [
        {
            "job_id": row.job_id,
            "cause": f"plan:{run.planned_ms}",
            "shard_index": 0,
            "shard_total": 1,
            "attempt": 0,
            "retries_left": row.retries,
            "planned_ms": run.planned_ms,
            "due_ms": run.due_ms,
            "state": RunState.CLAIMED.value,
            "token": 1,
            "holder": holder,
            "claim_until_ms": run.due_ms + CLAIM_MS,
            "sendings": 0,
        }
        for row, one in planned
        if isinstance(one, Plan)
        for run in one.runs
    ]
    if not values:
        return ()
    made = connection.execute(
        sa.insert(runs).returning(runs.c.log_id, runs.c.job_id, runs.c.token, runs.c.due_ms),
        values,
    )
    return tuple(Claim(*row) for row in made)


def _move_on(
    connection: sa.Connection, planned: Sequence[tuple[AnyRow, Plan | str]]
) -> tuple[int, ...]:
    """Set the next times. A job without one is stopped, unless its run's end will tell it."""
    moved: list[dict[str, Any]] = []
    stopped: list[dict[str, Any]] = []
    for row, one in planned:
        if isinstance(one, str):
            stopped.append({"of": row.job_id, "because": one})
        elif one.next_ms is not None:
            moved.append({"of": row.job_id, "next": one.next_ms})
        elif schedule_of(row.schedule_kind, row.schedule_text, row.zone).waits_for_the_end:
            moved.append({"of": row.job_id, "next": None})
        else:
            stopped.append({"of": row.job_id, "because": "its schedule has no time to come"})
    one_job = jobs.c.job_id == sa.bindparam("of")
    if moved:
        connection.execute(
            sa.update(jobs).where(one_job).values(next_ms=sa.bindparam("next")), moved
        )
    if stopped:
        connection.execute(
            sa.update(jobs)
            .where(one_job)
            .values(next_ms=None, is_active=False, stopped_because=sa.bindparam("because")),
            stopped,
        )
    return tuple(one["of"] for one in stopped)


def claim_due(database: Database, holder: str, *, now_ms: int) -> tuple[Claim, ...]:
    """Claim what nobody has claimed and is due, and what was claimed by one who did not send it."""
    is_planned = (runs.c.state == RunState.PLANNED.value) & (runs.c.due_ms <= now_ms + WINDOW_MS)
    is_left = (runs.c.state == RunState.CLAIMED.value) & (runs.c.claim_until_ms <= now_ms)
    with database.writing() as connection:
        rows = [
            row
            for condition in (is_planned, is_left)
            for row in connection.execute(
                sa.select(runs.c.log_id, runs.c.job_id, runs.c.token, runs.c.due_ms)
                .where(condition)
                .order_by(runs.c.due_ms, runs.c.log_id)
                .limit(RUNS_PER_CLAIM)
                .with_for_update(skip_locked=True)
            )
        ]
        if not rows:
            return ()
        claims = tuple(
            Claim(row.log_id, row.job_id, row.token + 1, max(row.due_ms, now_ms)) for row in rows
        )
        connection.execute(
            sa.update(runs)
            .where(runs.c.log_id == sa.bindparam("of"))
            .values(
                state=RunState.CLAIMED.value,
                token=sa.bindparam("by"),
                holder=holder,
                claim_until_ms=sa.bindparam("until"),
            ),
            [{"of": one.log_id, "by": one.token, "until": one.due_ms + CLAIM_MS} for one in claims],
        )
    return claims
