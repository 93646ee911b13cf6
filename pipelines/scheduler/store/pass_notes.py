"""Notes which jobs a planning pass stopped, and which times it was too late for.

Place in the walk: `passes` calls, in the transaction of the pass; the audit has it, and `troubles`
reports it from there for an hour.

Invariant: a pass notes each job that it stops. Of misfires it notes MISFIRES_NOTED_MAX one by one,
and the rest in one entry: after a day without a centre every job has missed something.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from pipelines.base.settings import MS_US
from pipelines.base.time_units import moment_at, utc_text
from pipelines.scheduler.changes import detail_of
from pipelines.scheduler.planning import Plan
from pipelines.scheduler.store.audit import Change, note_all
from pipelines.scheduler.store.tables import AnyRow, jobs

SCHEDULER: Final = "the scheduler"
"""The author, as the audit names him."""
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
