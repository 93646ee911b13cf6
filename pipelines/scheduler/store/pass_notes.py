"""What a pass leaves behind of jobs that it stops, and of times that it was too late for.

Place in the walk: `passes` calls, in the transaction of the pass; the audit has it, and `troubles`
tells it from there for an hour.

Invariant: a pass notes each job that it stops. Of misfires it notes MISFIRES_NOTED_MAX one by one,
and the rest in one entry: after a day without a centre every job has missed something.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from pipelines.scheduler.changes import detail_of
from pipelines.scheduler.store.audit import Change, note_all
from pipelines.scheduler.store.tables import jobs

SCHEDULER: Final = "the scheduler"
"""Who does it, as the audit names him."""
STOP: Final = "stop"
OVER: Final = "over"
"""Of a job that was to run once, and has: that is no trouble."""
MISFIRE: Final = "misfire"
MISFIRES_NOTED_MAX: Final = 100
"""In one transaction of a pass."""


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
