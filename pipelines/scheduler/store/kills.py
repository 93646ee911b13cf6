"""Records a request to kill a run, and cancels the run if it has not been sent.

Place in the walk: before `centre.run_requests`, which asks the executor.

Invariant: a run that was not sent yet is not sent any more; one that is killed is not tried again,
whatever its job allows: who ends a run means it. Absent on purpose: requests.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from pipelines.database.database import Database
from pipelines.scheduler.refusals import no_such
from pipelines.scheduler.run_life import ENDED, FAILED, RunEvent, RunState
from pipelines.scheduler.store.audit import Change, note
from pipelines.scheduler.store.flow_life import stop
from pipelines.scheduler.store.run_rows import Ending, end_all, locked
from pipelines.scheduler.store.tables import runs


@dataclass(frozen=True, slots=True)
class Kill:
    """What is left to do about a run that is to end."""

    log_id: int
    job_id: int
    state: RunState
    """As it stands now."""
    address: str | None
    """The executor to ask; None: nobody has it, or not any more."""
    message: str = ""
    """What was done, if it was done at once."""


def begin_kill(database: Database, log_id: int, change: Change) -> Kill:
    """Note who wants the run to end, and cancel it if it was not sent; that of a workflow begins no
    further step. Raises ConfigError for a run that there is not.
    """
    with database.writing() as connection:
        row = next(iter(locked(connection, [log_id])), None)
        if row is None:
            raise no_such("run", log_id)
        state = RunState(row.state)
        if state in ENDED:
            return Kill(log_id, row.job_id, state, None)
        note(connection, change, "kill", f"run:{log_id}", detail=f"job:{row.job_id}")
        if state is RunState.RUNNING and row.address is None:
            stop(connection, log_id, f"killed by {change.author}", now_ms=change.now_ms)
            return Kill(log_id, row.job_id, RunState.FAILED, None, "no further step of it begins")
        ending = Ending(row, RunEvent.CANCEL, FAILED, f"killed by {change.author}")
        for _, state in end_all(connection, [ending], now_ms=change.now_ms):
            return Kill(log_id, row.job_id, state, None, "cancelled: it was not sent")
        connection.execute(sa.update(runs).where(runs.c.log_id == log_id).values(retries_left=0))
        return Kill(log_id, row.job_id, state, row.address)
