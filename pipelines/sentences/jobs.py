"""Sentences about failed or waiting job runs and overdue jobs.

Place in the walk: rows of the scheduler → `evidence` of alerting's job_runs. Pure. Absent on
purpose: which runs these are.
"""

from __future__ import annotations

from datetime import datetime

from pipelines.base.wording import plural
from pipelines.sentences.figures import moment, whole


def failed(executor: str | None, tries: int, code: int | None) -> str:
    """That a run failed for good."""
    return whole(f"the run failed{_at(executor)}{_after(tries)} with code {code}")


def refused(tries: int) -> str:
    """That nobody took a run."""
    return whole(f"no executor has taken the run{_after(tries)}")


def lost(executor: str | None, tries: int) -> str:
    """That nothing is heard of a run any more."""
    return whole(f"what became of the run{_at(executor)} is unknown{_after(tries)}")


def result_late(executor: str | None, result: str) -> str:
    """That the result of a lost run came yet."""
    return whole(f"the run counted as lost; its result came late{_at(executor)}: {result}")


def late() -> str:
    """That a run waits for its executor."""
    return whole("the run should have begun, and no executor has it yet")


def not_planned(jobs: int, since: datetime) -> str:
    """That jobs are overdue, and nobody has planned them."""
    are = "is" if jobs == 1 else "are"
    first = f"the first since {moment(since, day=True)}"
    return whole(f"{plural(jobs, 'job')} {are} overdue and not planned, {first}")


def stopped(why: str) -> str:
    """That the scheduler has stopped a job."""
    return whole(f"the scheduler has stopped the job: {why}")


def missed(since: datetime, done: str, *, more_jobs: int) -> str:
    """That a job was not planned in time; `done`: what its misfire strategy did about it."""
    others = ""
    if more_jobs:
        have = "has" if more_jobs == 1 else "have"
        others = f"{plural(more_jobs, 'more job')} {have} missed times, too"
    return whole(
        f"no centre planned the job in time from {moment(since, day=True)} on; {done}", others
    )


def _at(executor: str | None) -> str:
    return f" at {executor}" if executor else ""


def _after(tries: int) -> str:
    return f" after {tries} tries" if tries > 1 else ""
