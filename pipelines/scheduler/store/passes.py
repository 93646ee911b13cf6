"""Plans runs for due jobs and advances the jobs' next times, under the schedule lock.

Place in the walk: called by a centre each second; what it gives back goes into the centre's ring.

A run that was cancelled before it was sent leaves its time free: when the job is due at that time
again, the old row's cause becomes `void:<log_id>`, and a new row has its place.

Invariant: runs and next times are stored together, so that a centre which dies at any moment leaves
a job either not planned yet or with its run. The run is claimed by who planned it; when that one
dies, its claim ends, and `claim_due` gives the run to another. A pass notes each job that it stops
in the audit, from which `troubles` reports it; of misfires MISFIRES_NOTED_MAX one by one, and the
rest in one entry.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from engine.foundation.errors import ConfigError
from pipelines.base.settings import MS_US
from pipelines.base.time_units import moment_at, utc_text
from pipelines.database.database import Database, insert_missing
from pipelines.scheduler.diffs import detail_of
from pipelines.scheduler.run_life import CLAIM_MS, RunState
from pipelines.scheduler.schedules import (
    WINDOW_MS,
    MisfirePolicy,
    Plan,
    Schedule,
    ScheduleKind,
    plan,
    schedule_of,
)
from pipelines.scheduler.store.audit import Change, note_all
from pipelines.scheduler.store.split_writes import in_parts
from pipelines.scheduler.store.tables import AnyRow, jobs, runs, schedule_locks

JOBS_PER_PASS: Final = 5_000
"""As XXL-Job reads at most. More that are due are read by the next pass, which follows at once."""

RUNS_PER_CLAIM: Final = 2_000
BECAUSE_CHARS_MAX: Final = 1_000
LOCK: Final = "schedule"


Time = tuple[int, int]
"""A job, and a planned time of it."""
SCHEDULER: Final = "the scheduler"
"""The author, as the audit names him."""
STOP: Final = "stop"
OVER: Final = "over"
"""Of a job that was to run once, and has: that is no trouble."""
MISFIRE: Final = "misfire"
MISFIRES_NOTED_MAX: Final = 100
"""In one transaction of a pass."""


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
    missed: tuple[int, ...]
    """Jobs of which a planned time got no run of its own; the audit has them."""
    stopped: tuple[int, ...]
    """Jobs that the pass stopped: nothing more to come, or a schedule that cannot be read."""


def plan_due(database: Database, holder: str, *, now_ms: int) -> Pass:
    """Plan the jobs that are due within the window, and claim their runs. A job that breaks the
    pass is stopped, with what it broke as the reason.
    """
    with database.reading() as connection:
        due = connection.scalars(
            sa.select(jobs.c.job_id)
            .where(jobs.c.next_ms <= now_ms + WINDOW_MS)
            .order_by(jobs.c.next_ms, jobs.c.job_id)
            .limit(JOBS_PER_PASS)
        ).all()
    if not due:
        return Pass((), 0, (), ())
    done, broken = in_parts(sorted(due), lambda some: _pass(database, some, holder, now_ms))
    for job_id, error in broken:
        with database.writing() as connection:
            because = f"it cannot be planned: {error}"[:BECAUSE_CHARS_MAX]
            stop_jobs(connection, [Stopped(job_id, because)], now_ms=now_ms)
    return Pass(
        tuple(claim for one in done for claim in one.claims),
        len(due),
        tuple(of for one in done for of in one.missed),
        (*(of for one in done for of in one.stopped), *(of for of, _ in broken)),
    )


def _pass(database: Database, job_ids: Sequence[int], holder: str, now_ms: int) -> Pass:
    """Plan those of these jobs that are due still, in one transaction. Rows are locked in the order
    of their numbers, as by everybody.
    """
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
            .where(jobs.c.job_id.in_(job_ids), jobs.c.next_ms <= now_ms + WINDOW_MS)
            .order_by(jobs.c.job_id)
            .with_for_update()
        ).all()
        planned = [(row, _planned(row, now_ms)) for row in due]
        claims, had = _store_runs(connection, planned, holder)
        missed = note_misfires(connection, planned, now_ms=now_ms)
        stopped = _move_on(connection, planned, had, now_ms)
    return Pass(claims, len(due), missed, stopped)


def _planned(row: AnyRow, now_ms: int) -> Plan | str:
    """The plan of a job, or why it has none: one that cannot be read must not hold up the rest."""
    try:
        schedule = _schedule(row)
        misfire = MisfirePolicy(row.misfire)
    except (ConfigError, ValueError) as error:
        return str(error)
    return plan(schedule, misfire, next_ms=row.next_ms, now_ms=now_ms)


def _store_runs(
    connection: sa.Connection, planned: Sequence[tuple[AnyRow, Plan | str]], holder: str
) -> tuple[tuple[Claim, ...], list[Time]]:
    """The claims on what is new, and the times that have had their run: after a clock that went
    back, a time comes again.
    """
    wanted: dict[Time, dict[str, Any]] = {
        (row.job_id, run.planned_ms): {
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
    }
    made = _insert(connection, list(wanted.values()))
    if left := [row for time, row in wanted.items() if time not in made]:
        _set_aside(connection, left)
        made |= _insert(connection, left)
    return tuple(made.values()), [time for time in wanted if time not in made]


def _insert(connection: sa.Connection, rows: Sequence[dict[str, Any]]) -> dict[Time, Claim]:
    if not rows:
        return {}
    columns = (runs.c.log_id, runs.c.job_id, runs.c.token, runs.c.due_ms, runs.c.planned_ms)
    made = connection.execute(insert_missing(connection, runs).returning(*columns), rows)
    return {(row.job_id, row.planned_ms): Claim(*row[:4]) for row in made}


def _set_aside(connection: sa.Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Give the cause of runs that were cancelled before they were sent to those that are planned in
    their place. They stay cancelled: a centre that has a claim on one sends nothing by it.
    """
    connection.execute(
        sa.update(runs)
        .where(
            runs.c.job_id == sa.bindparam("of"),
            runs.c.cause == sa.bindparam("by"),
            runs.c.state == RunState.CANCELLED.value,
            runs.c.sendings == 0,
            runs.c.attempt == 0,
        )
        .values(cause=sa.literal("void:") + sa.cast(runs.c.log_id, sa.String)),
        [{"of": row["job_id"], "by": row["cause"]} for row in rows],
    )


def _move_on(
    connection: sa.Connection,
    planned: Sequence[tuple[AnyRow, Plan | str]],
    had: Sequence[Time],
    now_ms: int,
) -> tuple[int, ...]:
    """Set the next times. A job without one is stopped, unless the end of its run sets it."""
    moved: list[dict[str, Any]] = []
    stopped: list[Stopped] = []
    over = _over(connection, had)
    for row, one in planned:
        if isinstance(one, str):
            stopped.append(Stopped(row.job_id, one))
        elif one.next_ms is not None:
            moved.append({"of": row.job_id, "next": one.next_ms})
        elif (schedule := _schedule(row)).waits_for_the_end:
            next_ms = schedule.next_ms(now_ms) if row.job_id in over else None
            moved.append({"of": row.job_id, "next": next_ms})
        else:
            is_over = row.schedule_kind == ScheduleKind.ONCE
            stopped.append(Stopped(row.job_id, "its schedule has no time to come", is_over))
    if moved:
        connection.execute(
            sa.update(jobs)
            .where(jobs.c.job_id == sa.bindparam("of"))
            .values(next_ms=sa.bindparam("next")),
            moved,
        )
    stop_jobs(connection, stopped, now_ms=now_ms)
    return tuple(one.job_id for one in stopped)


def _over(connection: sa.Connection, had: Sequence[Time]) -> frozenset[int]:
    """The jobs of these times whose run has ended, and so sets no next time any more."""
    if not had:
        return frozenset()
    ended = sa.select(runs.c.job_id).where(
        sa.tuple_(runs.c.job_id, runs.c.planned_ms).in_(had),
        runs.c.cause.like("plan:%"),
        runs.c.ended_ms.is_not(None),
    )
    return frozenset(connection.scalars(ended))


def _schedule(row: AnyRow) -> Schedule:
    return schedule_of(row.schedule_kind, row.schedule_text, row.zone)


def claim_due(database: Database, holder: str, *, now_ms: int) -> tuple[Claim, ...]:
    """Claim what nobody has claimed and is due, and what was claimed by one who did not send it. A
    run that cannot be claimed, for what stands in its row, counts as lost.
    """
    is_planned = (runs.c.state == RunState.PLANNED.value) & (runs.c.due_ms <= now_ms + WINDOW_MS)
    is_left = (
        (runs.c.state == RunState.CLAIMED.value)
        & (runs.c.claim_until_ms <= now_ms)
        & (runs.c.due_ms <= now_ms + WINDOW_MS)
    )
    with database.reading() as connection:
        due = [
            log_id
            for condition in (is_planned, is_left)
            for log_id in connection.scalars(
                sa.select(runs.c.log_id)
                .where(condition)
                .order_by(runs.c.due_ms, runs.c.log_id)
                .limit(RUNS_PER_CLAIM)
            )
        ]
    if not due:
        return ()

    def claim(some: Sequence[int]) -> tuple[Claim, ...]:
        with database.writing() as connection:
            wanted = runs.c.log_id.in_(some) & (is_planned | is_left)
            return _claimed(connection, wanted, holder, now_ms)

    done, broken = in_parts(due, claim)
    for log_id, error in broken:
        _lose(database, log_id, f"its row cannot be read: {error}", now_ms=now_ms)
    return tuple(one for claims in done for one in claims)


def _claimed(
    connection: sa.Connection, wanted: sa.ColumnElement[bool], holder: str, now_ms: int
) -> tuple[Claim, ...]:
    rows = connection.execute(
        sa.select(runs.c.log_id, runs.c.job_id, runs.c.token, runs.c.due_ms)
        .where(wanted)
        .order_by(runs.c.due_ms, runs.c.log_id)
        .with_for_update(skip_locked=True)
    ).all()
    claims = tuple(
        Claim(row.log_id, row.job_id, row.token + 1, max(row.due_ms, now_ms)) for row in rows
    )
    if claims:
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


def _lose(database: Database, log_id: int, why: str, *, now_ms: int) -> None:
    with database.writing() as connection:
        connection.execute(
            sa.update(runs)
            .where(runs.c.log_id == log_id)
            .values(
                state=RunState.LOST.value,
                result_message=why[:BECAUSE_CHARS_MAX],
                ended_ms=now_ms,
            )
        )


@dataclass(frozen=True, slots=True)
class Stopped:
    """A job that is to be stopped, and why."""

    job_id: int
    because: str
    is_over: bool = False
    """Was it to run once, and that has been?"""


def stop_jobs(connection: sa.Connection, stopped: Sequence[Stopped], *, now_ms: int) -> None:
    """Stop jobs, and note who did and why."""
    if not stopped:
        return
    connection.execute(
        sa.update(jobs)
        .where(jobs.c.job_id == sa.bindparam("of"))
        .values(next_ms=None, is_active=False, stopped_because=sa.bindparam("because")),
        [{"of": one.job_id, "because": one.because} for one in stopped],
    )
    for action, meant in ((STOP, False), (OVER, True)):
        entries = [
            (
                f"job:{one.job_id}",
                detail_of({"is_active": (True, False), "stopped_because": (None, one.because)}),
            )
            for one in stopped
            if one.is_over is meant
        ]
        note_all(connection, Change(SCHEDULER, now_ms), action, entries)


def note_misfires(
    connection: sa.Connection, planned: Sequence[tuple[AnyRow, Plan | str]], *, now_ms: int
) -> tuple[int, ...]:
    """Note of which jobs a planned time got no run of its own; all of them. One entry stands for
    those beyond MISFIRES_NOTED_MAX: it is of the first of them, and has how many more there are.
    """
    missed = [
        (row, one)
        for row, one in planned
        if isinstance(one, Plan) and one.missed_from_ms is not None
    ]
    entries = [
        (f"job:{row.job_id}", json.dumps(_as_note(row, one)))
        for row, one in missed[: MISFIRES_NOTED_MAX + 1]
    ]
    if more := len(missed) - len(entries):
        row, one = missed[MISFIRES_NOTED_MAX]
        entries[-1] = f"job:{row.job_id}", json.dumps({**_as_note(row, one), "more_jobs": more})
    note_all(connection, Change(SCHEDULER, now_ms), MISFIRE, entries)
    return tuple(row.job_id for row, _ in missed)


def _as_note(row: AnyRow, one: Plan) -> dict[str, str]:
    """The first time that was missed, the policy, and what was done."""
    assert one.missed_from_ms is not None, "nothing was missed"
    is_made_up = any(run.planned_ms == one.missed_from_ms for run in one.runs)
    return {
        "missed_from": utc_text(moment_at(one.missed_from_ms * MS_US), timespec="seconds"),
        "misfire": row.misfire,
        "done": "one run makes up for it" if is_made_up else "no run makes up for it",
    }
