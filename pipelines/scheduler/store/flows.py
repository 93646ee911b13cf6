"""Finds the children and steps that a job starts, and the progress of workflow runs.

Place in the walk: below `jobs` and `run_rows`, which begin steps, end runs and look for cycles of
jobs (`trigger_cycles`) by what is said here. What cannot be read begins nothing.

Invariant: whoever looks how far a run has come holds the lock on its row, so that of two steps that
end at once the second sees the end of the first. Rows of steps are locked before that of their run,
never after.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from engine.foundation.errors import ConfigError, MustBe, RuleBroken
from pipelines.database.database import Database, upsert
from pipelines.scheduler.run_life import RunState
from pipelines.scheduler.store.tables import AnyRow, flow_runs, jobs, runs
from pipelines.scheduler.trigger_cycles import Begins
from pipelines.scheduler.workflows import (
    WORKFLOW,
    Progress,
    ShardEnd,
    StepState,
    progress,
    workflow_of,
)

WAITING_MAX: Final = 100
"""Runs of one workflow that wait for another of it to end; a further one is refused."""

_WAITS: Final = (RunState.PLANNED.value, RunState.CLAIMED.value)
JOBS_AT_ONCE: Final = 1_000
"""In one question; a circle is looked for by as many as it takes."""


def progressed(connection: sa.Connection, flow_ids: Iterable[int]) -> list[tuple[AnyRow, Progress]]:
    """How far those of these runs have come that are under way; their rows are locked."""
    wanted = sorted(flow_ids)
    if not wanted:
        return []
    flows = connection.execute(
        sa.select(runs)
        .where(runs.c.log_id.in_(wanted), runs.c.state == RunState.RUNNING.value)
        .order_by(runs.c.log_id)
        .with_for_update()
    ).all()
    there = [flow.log_id for flow in flows]
    texts = {
        row.log_id: row.definition
        for row in connection.execute(sa.select(flow_runs).where(flow_runs.c.log_id.in_(there)))
    }
    ends = _ends(connection, there)
    return [
        (flow, _progress(texts.get(flow.log_id, ""), ends.get(flow.log_id, ()))) for flow in flows
    ]


def _progress(text: str, ends: Sequence[ShardEnd]) -> Progress:
    """How far a run has come. One whose definition cannot be read is over, and has failed."""
    try:
        return progress(workflow_of(text), ends)
    except ConfigError:
        return Progress({"its definition, which cannot be read": StepState.FAILED}, ())


def _ends(connection: sa.Connection, flow_ids: Sequence[int]) -> dict[int, list[ShardEnd]]:
    found: dict[int, list[ShardEnd]] = {}
    for row in connection.execute(
        sa.select(
            runs.c.flow_id, runs.c.step, runs.c.shard_index, runs.c.attempt, runs.c.state
        ).where(runs.c.flow_id.in_(flow_ids))
    ):
        end = ShardEnd(row.step, row.shard_index, row.attempt, RunState(row.state))
        found.setdefault(row.flow_id, []).append(end)
    return found


def over(connection: sa.Connection, rows: Iterable[AnyRow]) -> frozenset[int]:
    """Of these runs, the steps of workflows' runs that are over: nothing is sent for them."""
    steps = [row for row in rows if row.flow_id is not None]
    if not steps:
        return frozenset()
    under_way = connection.scalars(
        sa.select(runs.c.log_id).where(
            runs.c.log_id.in_(sorted({row.flow_id for row in steps})),
            runs.c.state == RunState.RUNNING.value,
        )
    ).all()
    return frozenset(row.log_id for row in steps if row.flow_id not in under_way)


def others_under_way(connection: sa.Connection, row: AnyRow) -> Sequence[AnyRow]:
    """The runs of the same workflow that are under way. No other begins before this transaction
    ends: the job's row is locked. Theirs are not: whoever ends one looks for those that wait.
    """
    connection.execute(
        sa.select(jobs.c.job_id).where(jobs.c.job_id == row.job_id).with_for_update()
    )
    return connection.execute(
        sa.select(runs)
        .where(
            runs.c.job_id == row.job_id,
            runs.c.log_id != row.log_id,
            runs.c.state == RunState.RUNNING.value,
            runs.c.address.is_(None),
        )
        .order_by(runs.c.log_id)
    ).all()


def waiting_before(connection: sa.Connection, row: AnyRow) -> int:
    """How many runs of the same job wait that came before this one."""
    waiting = sa.select(sa.func.count()).where(
        runs.c.job_id == row.job_id, runs.c.log_id < row.log_id, runs.c.state.in_(_WAITS)
    )
    return connection.scalar(waiting) or 0


def look_again(connection: sa.Connection, job_ids: Iterable[int]) -> None:
    """Have the runs of these workflows that wait for another to end be claimed anew, at once. One
    that somebody is just looking at is looked at again when its claim has ended.
    """
    wanted = sorted(job_ids)
    if not wanted:
        return
    waiting = connection.scalars(
        sa.select(runs.c.log_id)
        .where(runs.c.job_id.in_(wanted), runs.c.state == RunState.CLAIMED.value)
        .with_for_update(skip_locked=True)
    ).all()
    connection.execute(sa.update(runs).where(runs.c.log_id.in_(waiting)).values(claim_until_ms=0))


def give_up_retries(connection: sa.Connection, log_id: int) -> None:
    """What is stopped is not tried again."""
    connection.execute(sa.update(runs).where(runs.c.log_id == log_id).values(retries_left=0))


def begin_run(connection: sa.Connection, log_id: int, definition: str) -> None:
    """Keep the workflow as it is at the beginning of its run."""
    kept = {"log_id": log_id, "definition": definition}
    connection.execute(upsert(connection, flow_runs, kept))
    connection.execute(sa.update(runs).where(runs.c.log_id == log_id).values(sendings=1))


def workflows_with(connection: sa.Connection, job_id: int) -> list[int]:
    """The workflows of which a job is a step."""
    found = connection.execute(
        sa.select(jobs.c.job_id, jobs.c.glue_source)
        .where(jobs.c.glue_type == WORKFLOW)
        .order_by(jobs.c.job_id)
    )
    return [row.job_id for row in found if job_id in _jobs_in(row.glue_source)]


def _jobs_in(text: str) -> list[int]:
    """The jobs of a workflow's steps; none of one that cannot be read any more, or begin."""
    try:
        return [step.job_id for step in workflow_of(text).steps]
    except ConfigError:
        return []


@dataclass(frozen=True, slots=True)
class StepShown:
    """A step of a workflow's run as it is shown."""

    name: str
    job_id: int
    after: tuple[str, ...]
    state: StepState
    log_ids: tuple[int, ...]
    """Its runs: shards and attempts, in order."""


def steps_of(database: Database, log_id: int) -> list[StepShown]:
    """The steps of a workflow's run that has begun; raises ConfigError when it is none."""
    with database.reading() as connection:
        text = connection.scalar(
            sa.select(flow_runs.c.definition).where(flow_runs.c.log_id == log_id)
        )
        if text is None:
            rule = f"run {log_id} is no run of a workflow that has begun"
            raise RuleBroken("run", log_id, rule)
        flow_state = connection.scalar(sa.select(runs.c.state).where(runs.c.log_id == log_id))
        ends = _ends(connection, [log_id]).get(log_id, [])
        numbers: dict[str, list[int]] = {}
        for row in connection.execute(
            sa.select(runs.c.log_id, runs.c.step)
            .where(runs.c.flow_id == log_id)
            .order_by(runs.c.log_id)
        ):
            numbers.setdefault(row.step, []).append(row.log_id)
    workflow = workflow_of(text)
    found = progress(workflow, ends)
    is_under_way = flow_state == RunState.RUNNING.value
    return [
        StepShown(
            step.name,
            step.job_id,
            step.after,
            _shown(found.states[step.name], step.name in numbers, is_under_way),
            tuple(numbers.get(step.name, ())),
        )
        for step in workflow.steps
    ]


def _shown(state: StepState, has_rows: bool, is_under_way: bool) -> StepState:
    """What a run that was stopped had not begun is left out."""
    return state if has_rows or is_under_way else StepState.LEFT_OUT


def children_of(text: str) -> tuple[int, ...]:
    """The jobs of a stored list; raises ConfigError when it is none."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(type(one) is int for one in found):
        raise MustBe("children", text[:64], "a list of numbers of jobs")
    return tuple(found)


def step_jobs_of(glue_type: str, source: str) -> tuple[int, ...]:
    """The jobs of a workflow's steps; none of another job, or of one that cannot be read."""
    if glue_type != WORKFLOW:
        return ()
    try:
        return tuple(step.job_id for step in workflow_of(source).steps)
    except ConfigError:
        return ()


def begins_in(connection: sa.Connection) -> Begins:
    """A question of many jobs at once: which do they begin?"""

    def begins(job_ids: Collection[int]) -> Mapping[int, Collection[int]]:
        wanted = sorted(job_ids)
        found: dict[int, tuple[int, ...]] = {}
        for at in range(0, len(wanted), JOBS_AT_ONCE):
            some = jobs.c.job_id.in_(wanted[at : at + JOBS_AT_ONCE])
            for row in connection.execute(sa.select(jobs.c.job_id, jobs.c.children).where(some)):
                found[row.job_id] = _children(row.children)
            sources = sa.select(jobs.c.job_id, jobs.c.glue_type, jobs.c.glue_source).where(
                some, jobs.c.glue_type == WORKFLOW
            )
            for flow in connection.execute(sources):
                found[flow.job_id] += step_jobs_of(flow.glue_type, flow.glue_source)
        return found

    return begins


def _children(text: str) -> tuple[int, ...]:
    try:
        return children_of(text)
    except ConfigError:
        return ()
