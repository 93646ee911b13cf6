"""Previews changes of jobs against their present state, and applies what was previewed.

Place in the walk: `changes` is the mechanism; here is what it previews and applies for jobs.

Invariant: when the job has been changed since the preview, nothing is done; the store enforces this
in its transaction. Absent on purpose: rights, which the scheduler's service checks at both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dashboards.access.visitors import Visitor, Visitors
from dashboards.actions.changes import Changes, OtherThanPreviewed, PanelState
from dashboards.actions.job_previews import Facts, Preview, Wish, preview_of
from engine.foundation.errors import RuleBroken
from pipelines.database.database import Database
from pipelines.scheduler.page_queries import LookingDesk
from pipelines.scheduler.refusals import no_such
from pipelines.scheduler.roles import Action, NotPermitted
from pipelines.scheduler.store.jobs import JobChanged

KIND: Final = "change of a job"
ON_JOBS: Final = ("run", "start", "pause", "remove", "copy", "edit", "source", "back")


class JobChanges(Changes):
    """What pages change of jobs and runs."""

    def __init__(self, visitors: Visitors, *, token: str | None = None) -> None:
        """`token`: the common one, by which executors are asked."""
        super().__init__(visitors, kind=KIND)
        self._token = token

    def _previewed(
        self, database: Database, visitor: Visitor, wish: Wish
    ) -> tuple[Preview, Facts | None]:
        desk = self._visitors.desk_at(database, visitor)
        facts = facts_of(desk, wish)
        return _without_a_circle(desk, wish, facts, preview_of(wish, facts)), facts

    def _apply(
        self, database: Database, visitor: Visitor, now: PanelState, *, version: str, key: str
    ) -> str:
        del version  # The store compares that of the job in its transaction.
        assert now.preview is not None, "it was previewed"
        assert now.facts is not None, "on facts"
        expects = None if now.facts.job is None else now.facts.job.version
        desk = self._visitors.desk_at(database, visitor, expects=expects)
        try:
            return _applied(desk, now.wish, now.preview, key=key, token=self._token)
        except JobChanged as error:
            raise OtherThanPreviewed from error

    def _done(self, wish: Wish, result: str) -> PanelState:
        leads_to, _, said = result.partition(" ")
        return PanelState(wish, done=said, leads_to=leads_to)


def facts_of(desk: LookingDesk, wish: Wish) -> Facts:
    """What stands now. Raises NotPermitted unless he may do it, ConfigError for what is not."""
    if wish.action == "kill":
        run = desk.run(wish.subject)
        desk.demand_job(Action.CHANGE_JOBS, run.job_id)
        return Facts(desk.now_ms, run=run)
    if wish.action == "add":
        if not any(desk.may(Action.CHANGE_JOBS, group.group_id) for group in desk.groups()):
            raise NotPermitted("a job is made in a group whose jobs one may change")
        return Facts(desk.now_ms)
    job = desk.demand_job(Action.CHANGE_JOBS, wish.subject)
    group = desk.group_of(job)
    version = None
    if wish.action == "back":
        wanted = wish.values.get("glue_id", "")
        found = [one for one in desk.glue_of(job.job_id) if str(one.glue_id) == wanted]
        if not found:
            raise no_such("version", wanted, where=f"job {job.job_id}")
        version = found[0]
    return Facts(
        desk.now_ms,
        job=job,
        app_name=group.app_name,
        waiting=desk.waiting_of(job.job_id),
        outside=desk.outside_of(job.job_id) if wish.action in {"run", "pause"} else 0,
        addresses=desk.addresses(group) if wish.action == "run" else (),
        workflows=desk.workflows_with(job.job_id) if wish.action == "remove" else (),
        version=version,
    )


def _without_a_circle(desk: LookingDesk, wish: Wish, facts: Facts, preview: Preview) -> Preview:
    """The preview; of a change by which a job would begin itself again, with why it cannot be."""
    if wish.action == "copy" or facts.job is None or preview.settings is None or preview.wrong:
        return preview
    try:
        desk.refuse_a_circle(facts.job, preview.settings)
    except RuleBroken as broken:
        field = "children" if broken.key == "children" else ""
        return replace(preview, wrong={field: str(broken)})
    return preview


def _applied(
    desk: LookingDesk, wish: Wish, preview: Preview, *, key: str, token: str | None
) -> str:
    """Do it; "where it leads, what was done"."""
    number, values, group = wish.subject, wish.values, wish.values.get("group")
    page, settings = f"/jobs/{number}", preview.settings
    match wish.action:
        case "run":
            own = values.get("parameters") if preview.changes else None
            log_id = desk.run_job(number, f"page:{key}"[:48], own)
            return f"{page}?run={log_id} Run {log_id} begins."
        case "start":
            desk.start_job(number)
            return f"{page} Job {number} is active."
        case "pause":
            desk.pause_job(number)
            return f"{page} Job {number} is paused."
        case "remove":
            desk.remove_job(number)
            return f"/jobs Job {number} is removed."
        case "kill":
            killed = desk.kill_run(number, token=token)
            asked = "" if killed.address is None else f"{killed.address} was asked. "
            return f" {asked}{killed.message}".rstrip() or f" It is {killed.state}."
    assert settings is not None, "the others are made of settings"
    match wish.action:
        case "copy":
            copied = desk.copy_job(number, settings, app_name=group)
            return f"/jobs/{copied} Job {copied} is a copy of job {number}, and paused."
        case "add":
            made = desk.add_job(group or "", settings)
            return f"/jobs/{made} Job {made} is made, and paused."
        case "back":
            desk.roll_back(number, int(values["glue_id"]), remark=values["remark"].strip())
            return f"{page}/source Job {number} has that source again."
        case "source":
            desk.edit_job(number, settings, remark=values["remark"].strip())
            return f"{page}/source Job {number} has the new source."
        case _:
            desk.edit_job(number, settings, app_name=group)
            return f"{page} Job {number} is changed."
