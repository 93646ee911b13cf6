"""Extends the job service with queries for pages, subject to the same permissions.

Place in the walk: between pages and the store. Whatever is shown of a job, a run or a group is
allowed here first.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.database.operations import Operation
from pipelines.operations import service
from pipelines.scheduler.roles import Action, NotPermitted, may
from pipelines.scheduler.run_life import RunState
from pipelines.scheduler.service import JobService
from pipelines.scheduler.store import groups, job_lists, jobs, registry, results
from pipelines.scheduler.store.groups import Group
from pipelines.scheduler.store.job_lists import JobPage, JobQuery
from pipelines.scheduler.store.jobs import Job
from pipelines.scheduler.store.results import Run


@dataclass(frozen=True, slots=True)
class Executor:
    """An executor of a group."""

    address: str
    seen_ms: int | None
    """When it said last that it is there; None: somebody has written its address by hand."""


class PageService(JobService):
    """The database, as one person may look at it and change it."""

    def may(self, action: Action, group_id: int | None = None) -> bool:
        """May he? For what is shown: whatever is done asks again."""
        return may(self._actor, action, group_id)

    def job_page(self, query: JobQuery) -> JobPage:
        """A page of the jobs that he may see."""
        if self._actor is not None and self._actor.is_admin:
            return job_lists.job_page(self._database, query, None)
        mine = [group.group_id for group in self.groups()]
        return job_lists.job_page(self._database, query, mine)

    def group_of(self, job: Job) -> Group:
        """The group of a job that he has been given."""
        self.demand_job(Action.SEE_JOBS, job.job_id)
        return groups.group_of(self._database, job.group_id)

    def runs_page(
        self, job_id: int, *, state: RunState | None, before: int | None
    ) -> tuple[list[Run], bool]:
        """Runs of a job, and whether there are older ones."""
        self.demand_job(Action.SEE_JOBS, job_id)
        return job_lists.runs_page(self._database, job_id, state=state, before=before)

    def run(self, log_id: int) -> Run:
        """A run."""
        self._demand_run(Action.SEE_JOBS, log_id)
        return results.run_of(self._database, log_id)

    def shards_of(self, run: Run) -> list[Run]:
        """The last attempts of all shards of what a run is of."""
        self._demand_run(Action.SEE_JOBS, run.log_id)
        return job_lists.shards_of(self._database, run)

    def outside_of(self, job_id: int) -> int:
        """How many of its runs executors have, or may have."""
        self.demand_job(Action.SEE_JOBS, job_id)
        return job_lists.outside_of(self._database, job_id)

    def titles_of(self, job_ids: list[int]) -> dict[int, str]:
        """The titles of those jobs that he may see."""
        found = {}
        for job_id in job_ids:
            job = jobs.job_if_there(self._database, job_id)
            if job is not None and self.may(Action.SEE_JOBS, job.group_id):
                found[job_id] = job.settings.title
        return found

    def executors(self) -> list[tuple[Group, list[Executor]]]:
        """The groups that he may see, and where their executors are."""
        shown = self.groups()
        beats = job_lists.beats_of(
            self._database, [one.app_name for one in shown if one.manual_addresses is None]
        )
        return [(group, _executors(group, beats)) for group in shown]

    def operations(self) -> list[Operation]:
        """Long actions, the newest ones; for everybody who is known, as pages of lag are."""
        if self._actor is None:
            raise NotPermitted("nobody in particular may not see operations")
        return service.listed(self._database, now_us=self.now_ms * 1000)

    def operation(self, operation_id: str) -> Operation | None:
        """One of them; None when it is unknown, or forgotten."""
        if self._actor is None:
            raise NotPermitted("nobody in particular may not see operations")
        return service.found(self._database, operation_id, now_us=self.now_ms * 1000)

    def addresses(self, group: Group) -> list[str]:
        """Where the executors of a group are that are there now."""
        beats = job_lists.beats_of(self._database, [group.app_name])
        now_ms = self.now_ms
        return [
            one.address
            for one in _executors(group, beats)
            if one.seen_ms is None or one.seen_ms > now_ms - registry.GONE_MS
        ]


def _executors(group: Group, beats: dict[str, list[tuple[str, int]]]) -> list[Executor]:
    if group.manual_addresses is not None:
        return [Executor(address, None) for address in group.manual_addresses]
    return [Executor(address, seen_ms) for address, seen_ms in beats.get(group.app_name, [])]
