"""Previews changes to jobs and runs, and applies them exactly as previewed.

Place in the walk: below `previewed_changes`. Invariant: when the job has been changed since the
preview, nothing is done; the store enforces this in its transaction. Absent on purpose: rights,
which the scheduler's service checks at both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dashboards.access.visitors import Visitor, Visitors
from dashboards.actions.job_previews import Facts, Preview, Wish, preview_of
from dashboards.actions.previewed_changes import Changes, OtherThanPreviewed, PanelState
from engine.foundation.errors import RuleBroken
from pipelines.database.database import Database
from pipelines.scheduler.page_queries import PageService
from pipelines.scheduler.refusals import no_such
from pipelines.scheduler.roles import Action, NotPermitted
from pipelines.scheduler.store.jobs import JobChanged

KIND: Final = "change of a job"


class JobChanges(Changes):
    """What pages change of jobs and runs."""

    def __init__(self, visitors: Visitors, *, token: str | None = None) -> None:
        """`token`: the common one, by which executors are asked."""
        super().__init__(visitors, kind=KIND)
        self._token = token

    def _previewed(
        self, database: Database, visitor: Visitor, wish: Wish
    ) -> tuple[Preview, Facts | None]:
        service = self._visitors.service_at(database, visitor)
        facts = facts_of(service, wish)
        return _without_a_circle(service, wish, facts, preview_of(wish, facts)), facts

    def _apply(
        self, database: Database, visitor: Visitor, now: PanelState, *, version: str, key: str
    ) -> str:
        del version  # The store compares that of the job in its transaction.
        assert now.preview is not None, "it was previewed"
        assert now.facts is not None, "on facts"
        expects = None if now.facts.job is None else now.facts.job.version
        service = self._visitors.service_at(database, visitor, expects=expects)
        try:
            return _applied(service, now.wish, now.preview, key=key, token=self._token)
        except JobChanged as error:
            raise OtherThanPreviewed from error

    def _done(self, wish: Wish, result: str) -> PanelState:
        leads_to, _, said = result.partition(" ")
        return PanelState(wish, done=said, leads_to=leads_to)


def facts_of(service: PageService, wish: Wish) -> Facts:
    """What stands now. Raises NotPermitted unless he may do it, ConfigError for what is not."""
    if wish.action == "kill":
        run = service.run(wish.subject)
        service.demand_job(Action.CHANGE_JOBS, run.job_id)
        return Facts(service.now_ms, run=run)
    if wish.action == "add":
        if not any(service.may(Action.CHANGE_JOBS, group.group_id) for group in service.groups()):
            raise NotPermitted("a job is made in a group whose jobs one may change")
        return Facts(service.now_ms)
    job = service.demand_job(Action.CHANGE_JOBS, wish.subject)
    group = service.group_of(job)
    version = None
    if wish.action == "back":
        wanted = wish.values.get("glue_id", "")
        found = [one for one in service.glue_of(job.job_id) if str(one.glue_id) == wanted]
        if not found:
            raise no_such("version", wanted, where=f"job {job.job_id}")
        version = found[0]
    return Facts(
        service.now_ms,
        job=job,
        app_name=group.app_name,
        waiting=service.waiting_of(job.job_id),
        outside=service.outside_of(job.job_id) if wish.action in {"run", "pause"} else 0,
        addresses=service.addresses(group) if wish.action == "run" else (),
        workflows=service.workflows_with(job.job_id) if wish.action == "remove" else (),
        version=version,
    )


def _without_a_circle(service: PageService, wish: Wish, facts: Facts, preview: Preview) -> Preview:
    """The preview; of a change by which a job would begin itself again, with why it cannot be."""
    if wish.action == "copy" or facts.job is None or preview.settings is None or preview.wrong:
        return preview
    try:
        service.refuse_a_circle(facts.job, preview.settings)
    except RuleBroken as broken:
        field = "children" if broken.key == "children" else ""
        return replace(preview, wrong={field: str(broken)})
    return preview


def _applied(
    service: PageService, wish: Wish, preview: Preview, *, key: str, token: str | None
) -> str:
    """Do it; "where it leads, what was done"."""
    number, values, group = wish.subject, wish.values, wish.values.get("group")
    page, settings = f"/jobs/{number}", preview.settings
    match wish.action:
        case "run":
            own = values.get("parameters") if preview.changes else None
            log_id = service.run_job(number, f"page:{key}"[:48], own)
            return f"{page}?run={log_id} Run {log_id} begins."
        case "start":
            service.start_job(number)
            return f"{page} Job {number} is active."
        case "pause":
            service.pause_job(number)
            return f"{page} Job {number} is paused."
        case "remove":
            service.remove_job(number)
            return f"/jobs Job {number} is removed."
        case "kill":
            killed = service.kill_run(number, token=token)
            sent = "" if killed.address is None else f"{killed.address} was asked. "
            return f" {sent}{killed.message}".rstrip() or f" It is {killed.state}."
    assert settings is not None, "the others are made of settings"
    match wish.action:
        case "copy":
            copied = service.copy_job(number, settings, app_name=group)
            return f"/jobs/{copied} Job {copied} is a copy of job {number}, and paused."
        case "add":
            made = service.add_job(group or "", settings)
            return f"/jobs/{made} Job {made} is made, and paused."
        case "back":
            service.roll_back(number, int(values["glue_id"]), remark=values["remark"].strip())
            return f"{page}/source Job {number} has that source again."
        case "source":
            service.edit_job(number, settings, remark=values["remark"].strip())
            return f"{page}/source Job {number} has the new source."
        case _:
            service.edit_job(number, settings, app_name=group)
            return f"{page} Job {number} is changed."
