"""Plans the runs of a job that are due now, and finds its next time.

Place in the walk: under the schedule lock, a centre reads the jobs that are due within the window,
plans each as written here, and stores runs and next times in one transaction.

        missed                  late          ahead
    ──────────────┬───────────────────┬───────────────────┬────→ time
             now - WINDOW_MS         now            now + WINDOW_MS

A planned time that is late by the window at most gets its run, each of them (XXL-Job runs once for
several). What is older is missed: the job's policy says whether one run makes up for it.

Invariant: pure. Each planned time gets one run or is missed, and the next time lies beyond the
window, so that a pass over the same job plans nothing twice. A pass plans RUNS_MAX a job at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pipelines.scheduler.schedules import MisfirePolicy, Schedule

WINDOW_MS: Final = 5_000
"""As in XXL-Job: so far ahead runs are planned, and so late a planned time counts as due."""

RUNS_MAX: Final = 2 * WINDOW_MS // 1000 + 2
"""Schedules are of whole seconds: more do not fit into the window, and one for what was missed."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run to be."""

    planned_ms: int
    """The time that the schedule gives: what the run is for."""
    due_ms: int
    """When it is sent: then, or now if that is past."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pass makes of one job."""

    runs: tuple[PlannedRun, ...]
    next_ms: int | None
    """The next time that is not planned yet; None when there is none, or only its end sets it."""
    missed_from_ms: int | None = None
    """The first planned time that gets no run of its own, if there is one."""


def plan(schedule: Schedule, misfire: MisfirePolicy, *, next_ms: int, now_ms: int) -> Plan:
    """The runs of a job that is due at `next_ms`, up to the end of the window."""
    runs: list[PlannedRun] = []
    ahead_ms: int | None = next_ms
    missed_from_ms = None
    if next_ms + WINDOW_MS < now_ms:
        missed_from_ms = next_ms
        if misfire is MisfirePolicy.FIRE_ONCE_NOW:
            runs.append(PlannedRun(next_ms, now_ms))
        is_over = schedule.waits_for_the_end and bool(runs)
        missed_until_ms = now_ms - (0 if schedule.waits_for_the_end else WINDOW_MS + 1)
        ahead_ms = None if is_over else schedule.after_missing_ms(next_ms, missed_until_ms)
    while ahead_ms is not None and ahead_ms <= now_ms + WINDOW_MS and len(runs) < RUNS_MAX:
        runs.append(PlannedRun(ahead_ms, max(ahead_ms, now_ms)))
        ahead_ms = None if schedule.waits_for_the_end else schedule.next_ms(ahead_ms)
    assert ahead_ms is None or ahead_ms > now_ms + WINDOW_MS, "schedules are of whole seconds"
    return Plan(tuple(runs), ahead_ms, missed_from_ms)
