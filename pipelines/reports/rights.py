"""Authorises and audits report changes made from the command line.

Place in the walk: `tidemark reports` → here → making, sending and tidying. Who may change the jobs
of `tidemark` may have reports made, sent and tidied; before there is an administrator, whoever has
the database is one. A run of one of our own jobs was allowed at the scheduler, and vouches for its
command while it is under way; the audit names the run. Invariant: a change is noted before it is
there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from engine.foundation.errors import ConfigError
from pipelines.base.command_options import user_name
from pipelines.database.clock import database_ms
from pipelines.database.database import Database, opened
from pipelines.platform_jobs.installing import APP
from pipelines.platform_jobs.job_commands import JOBS
from pipelines.scheduler.commands.context import acting
from pipelines.scheduler.roles import Action
from pipelines.scheduler.run_life import ENDED
from pipelines.scheduler.service import JobService
from pipelines.scheduler.store.audit import Change, note
from pipelines.scheduler.store.jobs import job_of
from pipelines.scheduler.store.results import run_of


@dataclass(frozen=True, slots=True)
class Changing:
    """Changes of reports by somebody who may."""

    database: Database
    """At a trial, what is written there is undone."""
    author: str

    @property
    def change(self) -> Change:
        """By him, now."""
        return Change(self.author, database_ms(self.database))

    def note(self, action: str, subject: str, detail: str = "") -> None:
        """Write it into the audit."""
        with self.database.writing() as connection:
            note(connection, self.change, action, subject, detail=detail)


@contextmanager
def changing(database: str | None, *, run: int | None = None) -> Iterator[Changing]:
    """The user of this process, who may change reports, or the run that vouches for him.

    Raises NotPermitted, and what the database raises.
    """
    state = opened(database)
    try:
        if run is not None and _vouches(state, run):
            yield Changing(state, f"run {run}")
            return
        actor = acting(state, user_name())
        service = JobService(state, actor, lambda: database_ms(state))
        service.demand_app(Action.CHANGE_JOBS, APP)
        yield Changing(state, actor.name)
    finally:
        state.close()


def _vouches(state: Database, log_id: int) -> bool:
    """Is it under way, and one of our own jobs?"""
    try:
        run = run_of(state, log_id)
        job = job_of(state, run.job_id)
    except ConfigError:
        return False
    return run.state not in ENDED and job.settings.handler in JOBS
