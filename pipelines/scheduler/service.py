"""Authorises, performs and audits every change that people make to jobs, groups and users.

Place in the walk: between the command line (and pages) and the store, which asks nobody.

Invariant: whatever changes a job demands the right to the job's group, and to the groups of all
jobs that it would begin: its children and, of a workflow, its steps. Nobody gets at the jobs of a
group by naming them in one of another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from engine.foundation.errors import ConfigError
from pipelines.database.database import Database
from pipelines.scheduler.centre.run_requests import Killed, RunLog, kill_run, log_of_run
from pipelines.scheduler.importing.xxl_job import TakenRun, Taking
from pipelines.scheduler.job_settings import JobSettings
from pipelines.scheduler.refusals import no_such
from pipelines.scheduler.roles import Action, Actor, demand, may
from pipelines.scheduler.run_life import RunState
from pipelines.scheduler.store import (
    audit,
    flow_life,
    flows,
    glue,
    groups,
    imports,
    jobs,
    people,
    registry,
    results,
)
from pipelines.scheduler.store.audit import Change
from pipelines.scheduler.store.groups import Group
from pipelines.scheduler.store.kills import begin_kill
from pipelines.scheduler.workflows import workflow_of


class JobService:
    """The database, as one person may use it. What he may not raises NotPermitted.

    At a trial of the database whatever is asked for is only tried: it is refused as it would be
    refused, answered as it would be answered, and undone; no executor is asked.
    """

    def __init__(
        self,
        database: Database,
        actor: Actor | None,
        now_ms: Callable[[], int],
        *,
        expects: str | None = None,
    ) -> None:
        """`actor` None: nobody, who may nothing. `expects`: the version of the job that he looks
        at: changes of it raise JobChanged when it is another by now."""
        self._database = database
        self._actor = actor
        self._now_ms = now_ms
        self._expects = expects

    @property
    def now_ms(self) -> int:
        """The time here."""
        return self._now_ms()

    @property
    def change(self) -> Change:
        """By him, now."""
        name = self._actor.name if self._actor else ""
        return Change(name, self._now_ms(), self._expects)

    def demand_job(self, action: Action, job_id: int) -> jobs.Job:
        """The job, if permitted; the refusal is the same whether or not there is such a job."""
        try:
            job = jobs.job_of(self._database, job_id)
        except ConfigError:
            demand(self._actor, action)
            raise
        demand(self._actor, action, job.group_id)
        return job

    def demand_app(self, action: Action, app_name: str) -> None:
        """Raise NotPermitted unless he may, of the jobs of an application; of one that is not
        there, an administrator may."""
        demand(self._actor, action, self._group_id(app_name))

    def demand_named(self, settings: JobSettings, known: Iterable[int]) -> None:
        """Demand the right to all jobs that this one would begin, but for those it began before."""
        steps = workflow_of(settings.glue_source).steps if settings.is_workflow else ()
        named = {child for child in settings.children if child not in set(known)}
        for job_id in sorted(named | {step.job_id for step in steps}):
            self.demand_job(Action.CHANGE_JOBS, job_id)

    # Jobs

    def jobs_after(self, job_id: int = 0) -> list[jobs.Job]:
        """Those with greater numbers that he may see, a thousand at most."""
        if self._actor is not None and self._actor.is_admin:
            return jobs.jobs_after(self._database, job_id)
        mine = [
            group.group_id
            for group in groups.groups(self._database)
            if may(self._actor, Action.SEE_JOBS, group.group_id)
        ]
        return jobs.jobs_after(self._database, job_id, group_ids=mine)

    def job(self, job_id: int) -> jobs.Job:
        """A job."""
        return self.demand_job(Action.SEE_JOBS, job_id)

    def runs_of(
        self, job_id: int, *, before: int | None = None, state: RunState | None = None
    ) -> list[results.Run]:
        """Its runs, the newest first; those before a number, and of one state, if given."""
        self.demand_job(Action.SEE_JOBS, job_id)
        return results.runs_of(self._database, job_id, before=before, state=state)

    def add_job(self, app_name: str, settings: JobSettings) -> int:
        """A new job's number; an administrator makes the group with it when it is new."""
        group_id = self._group_id(app_name)
        if group_id is None:
            demand(self._actor, Action.CHANGE_GROUPS)
        else:
            demand(self._actor, Action.CHANGE_JOBS, group_id)
        self.demand_named(settings, ())
        if group_id is None:
            group_id = groups.add_group(self._database, app_name, self.change)
        return jobs.add_job(self._database, group_id, settings, self.change)

    def edit_job(
        self,
        job_id: int,
        settings: JobSettings,
        *,
        app_name: str | None = None,
        remark: str = "",
    ) -> jobs.Changed:
        """Change the job to these settings, and move it to another group if one is named."""
        before = self.demand_job(Action.CHANGE_JOBS, job_id)
        self.demand_named(settings, before.settings.children)
        group_id = None if app_name is None else self._group_to_change(app_name)
        return jobs.edit_job(
            self._database, job_id, settings, self.change, group_id=group_id, remark=remark
        )

    def copy_job(self, job_id: int, settings: JobSettings, *, app_name: str | None = None) -> int:
        """A job like another but for what changes; it is not active. The copy's number. Children of
        the other one that were removed since are left out.
        """
        before = self.demand_job(Action.SEE_JOBS, job_id)
        group_id = before.group_id if app_name is None else self._group_to_change(app_name)
        demand(self._actor, Action.CHANGE_JOBS, group_id)
        had = before.settings.children
        there = (one for one in settings.children if one not in had or self._is_there(one))
        copied = replace(settings, children=tuple(there))
        self.demand_named(copied, ())
        return jobs.add_job(self._database, group_id, copied, self.change)

    def start_job(self, job_id: int) -> jobs.Changed:
        """Have its schedule hold."""
        self.demand_job(Action.CHANGE_JOBS, job_id)
        return jobs.start_job(self._database, job_id, self.change)

    def pause_job(self, job_id: int) -> jobs.Changed:
        """Have it run no more, but by hand."""
        self.demand_job(Action.CHANGE_JOBS, job_id)
        return jobs.pause_job(self._database, job_id, self.change)

    def remove_job(self, job_id: int) -> jobs.Changed:
        """Remove it."""
        self.demand_job(Action.CHANGE_JOBS, job_id)
        return jobs.remove_job(self._database, job_id, self.change)

    def run_job(self, job_id: int, run_key: str, parameters: str | None = None) -> int:
        """Have it run once, now; the number of the run."""
        job = self.demand_job(Action.CHANGE_JOBS, job_id)
        if self._expects is not None and self._expects != job.version:
            raise jobs.JobChanged(job_id)
        return results.run_by_hand(
            self._database, job_id, run_key, self.change, parameters=parameters
        )

    def kill_run(self, log_id: int, *, token: str | None) -> Killed:
        """Have a run end; `token`: the common one, by which executors are asked."""
        self._demand_run(Action.CHANGE_JOBS, log_id)
        if self._database.is_trial:
            kill = begin_kill(self._database, log_id, self.change)
            return Killed(log_id, kill.state, kill.address, kill.message)
        return kill_run(self._database, log_id, self.change, token=token)

    def log_of_run(self, log_id: int, *, from_line: int, token: str | None) -> RunLog:
        """Lines of its log."""
        self._demand_run(Action.SEE_JOBS, log_id)
        return log_of_run(
            self._database, log_id, from_line=from_line, now_ms=self._now_ms(), token=token
        )

    def days(self, count: int) -> list[results.DayReport]:
        """How the runs of the last days stand, those of all groups."""
        demand(self._actor, Action.SEE_CENTRE)
        return results.reports(self._database, days=count)

    def registered(self) -> list[registry.Registered]:
        """Registered executors and those written by hand, of the groups whose jobs he may see."""
        mine = {group.app_name for group in self.groups()}
        is_admin = self._actor is not None and self._actor.is_admin
        found = registry.known(self._database, now_ms=self._now_ms())
        return [one for one in found if is_admin or one.app_name in mine]

    # Sources and workflows

    def glue_of(self, job_id: int) -> list[glue.GlueVersion]:
        """The sources that it has and had, the newest first."""
        self.demand_job(Action.SEE_JOBS, job_id)
        return glue.glue_of(self._database, job_id)

    def roll_back(self, job_id: int, glue_id: int, *, remark: str = "") -> jobs.Changed:
        """Give it a source again that it had."""
        job = self.demand_job(Action.CHANGE_JOBS, job_id)
        version = glue.glue_version(self._database, job_id, glue_id)
        settings = replace(job.settings, glue_type=version.glue_type, glue_source=version.source)
        return self.edit_job(job_id, settings, remark=remark or f"as version {glue_id}")

    def steps_of(self, log_id: int) -> list[flows.StepShown]:
        """The steps of a workflow's run."""
        self._demand_run(Action.SEE_JOBS, log_id)
        return flows.steps_of(self._database, log_id)

    def stop_run(self, log_id: int) -> bool:
        """Stop a workflow's run; whether it was under way."""
        self._demand_run(Action.CHANGE_JOBS, log_id)
        return flow_life.stop_by_hand(self._database, log_id, self.change)

    # Groups

    def groups(self) -> list[Group]:
        """Those whose jobs he may see."""
        return [
            group
            for group in groups.groups(self._database)
            if may(self._actor, Action.SEE_JOBS, group.group_id)
        ]

    def add_group(
        self, app_name: str, *, title: str = "", addresses: Sequence[str] | None = None
    ) -> int:
        """A new group's number."""
        demand(self._actor, Action.CHANGE_GROUPS)
        return groups.add_group(
            self._database, app_name, self.change, title=title, manual_addresses=addresses
        )

    def edit_group(
        self, app_name: str, *, title: str | None, addresses: Sequence[str] | None
    ) -> None:
        """Another title (None: as it was), and where its executors are (None: they register)."""
        group = self._group_to_manage(app_name)
        groups.edit_group(
            self._database,
            group.group_id,
            self.change,
            title=group.title if title is None else title,
            manual_addresses=addresses,
        )

    def copy_group(self, app_name: str, as_name: str) -> int:
        """A group like another, without its token; its number."""
        group = self._group_to_manage(app_name)
        return groups.add_group(
            self._database,
            as_name,
            self.change,
            title=group.title,
            manual_addresses=group.manual_addresses,
        )

    def set_token(self, app_name: str, token: str | None) -> None:
        """Give its executors a token of their own; None: the common one."""
        group = self._group_to_manage(app_name)
        groups.set_token(self._database, group.group_id, token, self.change)

    def remove_group(self, app_name: str) -> None:
        """Remove a group without jobs."""
        group = self._group_to_manage(app_name)
        groups.remove_group(self._database, group.group_id, self.change)

    # People

    def users(self) -> list[people.User]:
        """All users."""
        demand(self._actor, Action.CHANGE_PEOPLE)
        return people.users(self._database)

    def add_user(self, name: str, *, is_admin: bool = False, apps: Iterable[str] = ()) -> None:
        """Make a user. The first one makes whoever does it an administrator: from then on rights
        are asked for, and his would be gone.
        """
        demand(self._actor, Action.CHANGE_PEOPLE)
        listed = self._group_ids(apps)
        self.keep_administrator(but=name if is_admin else None)
        people.add_user(
            self._database,
            name,
            self.change,
            is_admin=is_admin,
            group_ids=listed,
        )

    def keep_administrator(self, *, but: str | None = None) -> None:
        """Make who asks an administrator if there is none, unless it is he that is added now."""
        demand(self._actor, Action.CHANGE_PEOPLE)
        change = self.change
        if change.author != but and not people.has_administrator(self._database):
            people.add_user(self._database, change.author, change, is_admin=True)

    def edit_user(
        self, name: str, *, is_admin: bool | None = None, apps: Iterable[str] | None = None
    ) -> None:
        """Change his rights; None leaves them."""
        demand(self._actor, Action.CHANGE_PEOPLE)
        listed = None if apps is None else self._group_ids(apps)
        people.edit_user(self._database, name, self.change, is_admin=is_admin, group_ids=listed)

    def copy_user(self, name: str, as_name: str) -> None:
        """A user with the rights of another, and no password."""
        demand(self._actor, Action.CHANGE_PEOPLE)
        rights = people.actor_of(self._database, name)
        if rights is None:
            raise no_such("user", name)
        people.add_user(
            self._database,
            as_name,
            self.change,
            is_admin=rights.is_admin,
            group_ids=rights.group_ids,
        )

    def set_password(self, name: str, password: str | None) -> None:
        """Give a user another password, or none; everybody may change his own."""
        if self._actor is None or self._actor.name != name:
            demand(self._actor, Action.CHANGE_PEOPLE)
        people.set_password(self._database, name, password, self.change)

    def remove_user(self, name: str) -> None:
        """Remove a user."""
        demand(self._actor, Action.CHANGE_PEOPLE)
        people.remove_user(self._database, name, self.change)

    def audit_of(
        self, subject: str | None = None, *, before: int | None = None
    ) -> list[audit.Noted]:
        """The audit of changes, the newest first; what was noted before a number, if given."""
        demand(self._actor, Action.SEE_AUDIT)
        return audit.audit_of(self._database, subject, before=before)

    # Imports

    def take_over(self, taking: Taking, source: str, *, is_started: bool = False) -> imports.Import:
        """Store what is new of another database."""
        demand(self._actor, Action.IMPORT)
        change = self.change
        if taking.users:
            self.keep_administrator()
        done = imports.take_over(self._database, taking, source, change)
        if not is_started:
            return done
        remarks = imports.start_taken(self._database, done.took, change)
        return imports.Import(done.took, (*done.remarks, *remarks))

    def take_history(self, taken: Iterable[TakenRun], source: str) -> int:
        """Store runs of jobs that were taken over; how many were new."""
        demand(self._actor, Action.IMPORT)
        return imports.take_history(self._database, taken, source, self.change)

    # What these need

    def _demand_run(self, action: Action, log_id: int) -> None:
        try:
            job_id = results.run_of(self._database, log_id).job_id
        except ConfigError:
            demand(self._actor, action)
            raise
        self.demand_job(action, job_id)

    def _is_there(self, job_id: int) -> bool:
        try:
            jobs.job_of(self._database, job_id)
        except ConfigError:
            return False
        return True

    def _group_id(self, app_name: str) -> int | None:
        there = {group.app_name: group.group_id for group in groups.groups(self._database)}
        return there.get(app_name)

    def _group_to_change(self, app_name: str) -> int:
        group_id = self._group_id(app_name)
        demand(self._actor, Action.CHANGE_JOBS, group_id)
        if group_id is None:
            raise no_such("group", app_name)
        return group_id

    def _group_to_manage(self, app_name: str) -> Group:
        demand(self._actor, Action.CHANGE_GROUPS)
        for group in groups.groups(self._database):
            if group.app_name == app_name:
                return group
        raise no_such("group", app_name)

    def _group_ids(self, apps: Iterable[str]) -> list[int]:
        return [self._group_to_manage(app).group_id for app in apps]
