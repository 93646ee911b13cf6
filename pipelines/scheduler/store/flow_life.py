"""Starts workflow runs when they are due and stops them on request.

Place in the walk: `sending` comes here with a run whose job is a workflow, instead of sending it.

What another run of the same workflow means is the job's `blocking`, as an executor has it: the new
run waits (it stays claimed, and is claimed again), is refused, or the other is stopped.

Invariant: of one workflow one run is under way. A run that was stopped begins no further step:
those that wait to be sent are cancelled when their turn comes; those at executors go on.
"""

from __future__ import annotations

import sqlalchemy as sa

from engine.foundation.errors import RuleBroken
from pipelines.database.database import Database
from pipelines.scheduler.job_settings import JobSettings
from pipelines.scheduler.run_life import FAILED, OK, RunEvent, RunState
from pipelines.scheduler.store.audit import Change, note
from pipelines.scheduler.store.flows import (
    WAITING_MAX,
    begin_run,
    give_up_retries,
    others_under_way,
    waiting_before,
)
from pipelines.scheduler.store.run_rows import Ending, advance, end_all, locked
from pipelines.scheduler.store.tables import AnyRow, flow_runs
from pipelines.scheduler.wire.messages import DISCARDED


def begin(connection: sa.Connection, row: AnyRow, settings: JobSettings, *, now_ms: int) -> None:
    """Begin a workflow's run that is claimed, or do what another one under way means for it."""
    others = others_under_way(connection, row)
    if others and settings.blocking == "COVER_EARLY":
        for other in others:
            stop(connection, other.log_id, f"run {row.log_id} took its place", now_ms=now_ms)
    elif others and settings.blocking == "DISCARD_LATER":
        why = f"{DISCARDED}: run {others[0].log_id} of it is under way"
        _refuse(connection, row, why, now_ms)
        return
    elif others:
        if waiting_before(connection, row) >= WAITING_MAX:
            _refuse(connection, row, f"{WAITING_MAX} runs of it wait", now_ms)
        return
    begins = Ending(row, RunEvent.BEGIN, OK, "its steps begin", token=row.token)
    if end_all(connection, [begins], now_ms=now_ms):
        begin_run(connection, row.log_id, settings.glue_source)
        advance(connection, [row.log_id], now_ms=now_ms)


def _refuse(connection: sa.Connection, row: AnyRow, why: str, now_ms: int) -> None:
    refusal = Ending(row, RunEvent.REFUSE, FAILED, why, token=row.token)
    end_all(connection, [refusal], now_ms=now_ms)


def stop(connection: sa.Connection, log_id: int, why: str, *, now_ms: int) -> bool:
    """End a workflow's run as failed, without a retry; whether it was under way."""
    give_up_retries(connection, log_id)
    stopped = [
        Ending(row, RunEvent.FAIL, FAILED, why)
        for row in locked(connection, [log_id])
        if row.state == RunState.RUNNING.value
    ]
    return bool(end_all(connection, stopped, now_ms=now_ms))


def stop_by_hand(database: Database, log_id: int, change: Change) -> bool:
    """Stop a workflow's run; whether it was under way. Raises ConfigError when it is no such run.

    Steps that executors have go on, and nothing follows from them.
    """
    with database.writing() as connection:
        begun = sa.select(flow_runs.c.log_id).where(flow_runs.c.log_id == log_id)
        if connection.scalar(begun) is None:
            rule = f"run {log_id} is no run of a workflow that has begun"
            raise RuleBroken("run", log_id, rule)
        is_stopped = stop(connection, log_id, f"stopped by {change.author}", now_ms=change.now_ms)
        if is_stopped:
            note(connection, change, "stop", f"run:{log_id}")
    return is_stopped
