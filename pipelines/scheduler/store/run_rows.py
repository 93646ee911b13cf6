"""Changes run states as `run_life` allows, and stores what follows when a run ends.

Place in the walk: below `sending` and `results`, which say what happened. In the same transaction
an unsuccessful run is tried again while it has retries, with the same shard; a success begins the
job's children, unless that is a circle, which stops there with its job; the end of a job with a
fixed delay sets its next time; the end of a step begins those that waited for it. Each is a row
with a cause of its own, so that it cannot be stored twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from engine.foundation.errors import ConfigError
from pipelines.database.database import insert_missing
from pipelines.scheduler.result_words import head_and_tail
from pipelines.scheduler.run_life import (
    ENDED,
    FAILED,
    OK,
    UNSUCCESSFUL,
    RunEvent,
    RunState,
    Standing,
    moved,
)
from pipelines.scheduler.schedules import ScheduleKind, schedule_of
from pipelines.scheduler.store.flows import begins_in, children_of, look_again, progressed
from pipelines.scheduler.store.passes import Stopped, stop_jobs
from pipelines.scheduler.store.tables import AnyRow, jobs, runs
from pipelines.scheduler.trigger_cycles import circle_by, path_in_words
from pipelines.scheduler.workflows import WORKFLOW

_RESULTS: Final = (
    RunEvent.SUCCEED, RunEvent.FAIL, RunEvent.MISS, RunEvent.BEREAVE, RunEvent.GIVE_UP,
)  # fmt: skip
"""Events whose code is that of the result; of others it is that of the trigger."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Something happened to a run, which may end it."""

    row: AnyRow
    event: RunEvent
    code: int
    message: str
    token: int | None = None
    """Of the claim under which somebody says so, if they do."""


def locked(connection: sa.Connection, log_ids: Iterable[int]) -> Sequence[AnyRow]:
    """The rows of runs, locked for this transaction, in order."""
    return connection.execute(
        sa.select(runs)
        .where(runs.c.log_id.in_(sorted(log_ids)))
        .order_by(runs.c.log_id)
        .with_for_update()
    ).all()


def standing_of(row: AnyRow) -> Standing:
    """What decides about a run."""
    return Standing(RunState(row.state), row.token, row.claim_until_ms, row.sendings)


def end_all(
    connection: sa.Connection, endings: Iterable[Ending], *, now_ms: int
) -> list[tuple[Ending, RunState]]:
    """Move the runs that may be moved, with what follows; those that were, and their new states."""
    changed = [
        (ending, state)
        for ending in endings
        if (
            state := moved(standing_of(ending.row), ending.event, now_ms=now_ms, token=ending.token)
        )
    ]
    for is_result in (False, True):
        values = [
            {
                "of": ending.row.log_id,
                "now": state.value,
                "code": ending.code,
                "message": head_and_tail(ending.message),
                "at": now_ms if state in ENDED else None,
                "due": now_ms if state is RunState.PLANNED else ending.row.due_ms,
            }
            for ending, state in changed
            if (ending.event in _RESULTS) is is_result
        ]
        if values:
            words = ("result_code", "result_message") if is_result else (
                "trigger_code", "trigger_message",
            )  # fmt: skip
            connection.execute(
                sa.update(runs)
                .where(runs.c.log_id == sa.bindparam("of"))
                .values(
                    {
                        "state": sa.bindparam("now"),
                        words[0]: sa.bindparam("code"),
                        words[1]: sa.bindparam("message"),
                        "ended_ms": sa.bindparam("at"),
                        "due_ms": sa.bindparam("due"),
                    }
                ),
                values,
            )
    _follow(connection, changed, now_ms=now_ms)
    return changed


def planned_row(job_id: int, cause: str, *, now_ms: int, **values: Any) -> dict[str, Any]:
    """A run that is due now, for the next centre that looks."""
    return {
        "job_id": job_id,
        "cause": cause,
        "shard_index": 0,
        "shard_total": 1,
        "attempt": 0,
        "retries_left": 0,
        "parameters": None,
        "planned_ms": now_ms,
        "due_ms": now_ms,
        "state": RunState.PLANNED.value,
        "token": 0,
        "holder": "",
        "claim_until_ms": 0,
        "sendings": 0,
        "flow_id": None,
        "step": None,
    } | values


def _follow(
    connection: sa.Connection, changed: Sequence[tuple[Ending, RunState]], *, now_ms: int
) -> None:
    ended = [(ending.row, state) for ending, state in changed if state in ENDED]
    if not ended:
        return
    theirs = {
        row.job_id: row
        for row in connection.execute(
            sa.select(
                jobs.c.job_id, jobs.c.children, jobs.c.schedule_kind, jobs.c.schedule_text,
                jobs.c.is_active, jobs.c.glue_type, jobs.c.stopped_because,
            ).where(jobs.c.job_id.in_(sorted({row.job_id for row, _ in ended})))
        )
    }  # fmt: skip
    new: list[dict[str, Any]] = []
    # In the order in which planning locks jobs: two that wait for each other are both held up.
    for row, state in sorted(ended, key=lambda one: (one[0].job_id, one[0].log_id)):
        job = theirs.get(row.job_id)
        if job is None:
            continue
        if state in UNSUCCESSFUL and row.retries_left > 0:
            new.append(_retry(row, now_ms))
            continue
        if state is RunState.DONE:
            new += _children(connection, job, row, now_ms)
        if job.schedule_kind == ScheduleKind.FIX_DELAY and row.cause.startswith("plan:"):
            next_ms = _after_the_end(job, now_ms)
            connection.execute(
                sa.update(jobs)
                .where(jobs.c.job_id == row.job_id, jobs.c.is_active, jobs.c.next_ms.is_(None))
                .values(next_ms=next_ms)
            )
    if new:
        connection.execute(insert_missing(connection, runs), new)
    look_again(connection, (of for of, job in theirs.items() if job.glue_type == WORKFLOW))
    advance(connection, {row.flow_id for row, _ in ended if row.flow_id}, now_ms=now_ms)


def advance(connection: sa.Connection, flow_ids: Iterable[int], *, now_ms: int) -> None:
    """Begin the steps whose turn it is in these runs of workflows, and end those that are over."""
    begun: list[dict[str, Any]] = []
    endings: list[Ending] = []
    for flow, found in progressed(connection, flow_ids):
        retries = _retries(connection, (step.job_id for step in found.begin))
        begun += [
            planned_row(
                step.job_id,
                f"flow:{flow.log_id}:{step.name}",
                now_ms=now_ms,
                retries_left=retries.get(step.job_id, 0),
                parameters=flow.parameters if step.parameters is None else step.parameters,
                planned_ms=flow.planned_ms,
                flow_id=flow.log_id,
                step=step.name,
            )
            for step in found.begin
        ]
        if found.is_over:
            event = RunEvent.SUCCEED if found.is_done else RunEvent.FAIL
            endings.append(Ending(flow, event, OK if found.is_done else FAILED, found.message))
    if begun:
        connection.execute(insert_missing(connection, runs), begun)
    if endings:
        end_all(connection, endings, now_ms=now_ms)


def _retries(connection: sa.Connection, job_ids: Iterable[int]) -> dict[int, int]:
    wanted = sorted(set(job_ids))
    if not wanted:
        return {}
    there = connection.execute(
        sa.select(jobs.c.job_id, jobs.c.retries).where(jobs.c.job_id.in_(wanted))
    )
    return {row.job_id: row.retries for row in there}


def _after_the_end(job: AnyRow, now_ms: int) -> int:
    """When a job with a delay is due again; now, if its delay cannot be read: planning stops it
    then, and says why.
    """
    try:
        return schedule_of(job.schedule_kind, job.schedule_text).next_ms(now_ms) or now_ms
    except ConfigError:
        return now_ms


def _retry(row: AnyRow, now_ms: int) -> dict[str, Any]:
    return planned_row(
        row.job_id,
        row.cause,
        now_ms=now_ms,
        shard_index=row.shard_index,
        shard_total=row.shard_total,
        attempt=row.attempt + 1,
        retries_left=row.retries_left - 1,
        parameters=row.parameters,
        planned_ms=row.planned_ms,
        flow_id=row.flow_id,
        step=row.step,
    )


def _children(
    connection: sa.Connection, job: AnyRow, row: AnyRow, now_ms: int
) -> list[dict[str, Any]]:
    try:
        named = [child for child in children_of(job.children) if child != row.job_id]
    except ConfigError:
        return []  # `jobs list` shows it; the result of the run is stored all the same.
    named = _without_a_circle(connection, job, named, now_ms)
    if not named:
        return []
    return [
        planned_row(
            child,
            f"after:{row.log_id}",
            now_ms=now_ms,
            retries_left=retries,
            planned_ms=row.planned_ms,
        )
        for child, retries in _retries(connection, named).items()
    ]


def _without_a_circle(
    connection: sa.Connection, job: AnyRow, named: list[int], now_ms: int
) -> list[int]:
    """The children that do not begin the job again. A job with others is stopped, and the audit
    has why: nobody here has let it be stored.
    """
    begins = begins_in(connection)
    circle = circle_by(job.job_id, named, begins)
    if not circle:
        return named
    because = (
        f"jobs begin each other in a circle: {path_in_words(circle)}. Job {circle[1]} was not "
        f"begun: leave it out of the children of job {job.job_id}, then start that"
    )
    if job.stopped_because != because:
        stop_jobs(connection, [Stopped(job.job_id, because)], now_ms=now_ms)
    return [child for child in named if not circle_by(job.job_id, [child], begins)]
