"""Changes of jobs from pages: previewed on what stands now, then done as they were previewed, once.

Place in the walk: between the panel of a change and the scheduler's desk, which allows, does and
notes it.

Invariant: nothing is done that was not previewed as it is done. When the job has been changed
since, nothing is done and the new preview is shown; the store holds to that in its transaction.
Each preview has a key, and a key is taken once: a second click, or a request that is sent again, is
told what came of the first. Absent on purpose: rights, which the desk asks for at both.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dashboards.job_previews import DEEDS, Facts, Preview, Wish, preview_of
from dashboards.once import BEING_DONE, click_of, why_not
from dashboards.visits import Visitor, Visitors
from engine.foundation.errors import ConfigError, TidemarkError
from pipelines.scheduler.looking import LookingDesk
from pipelines.scheduler.roles import Deed, NotPermitted
from pipelines.scheduler.store.jobs import JobChanged

KIND: Final = "change of a job"
ON_JOBS: Final = ("run", "start", "pause", "remove", "copy", "edit", "source", "back")

NEW_NOW: Final = (
    "What it rests on has changed meanwhile, so nothing was done. This is what would be now."
)
NO_DATABASE: Final = "There is no database of jobs yet."


@dataclass(frozen=True, slots=True)
class Told:
    """What the panel of a change shows."""

    wish: Wish
    preview: Preview | None = None
    key: str = ""
    facts: Facts | None = None
    done: str = ""
    """What was done."""
    refused: str = ""
    """Why nothing is done, or why it is not known whether."""
    leads_to: str = ""
    """The page of what came of it."""


class JobChanges:
    """What pages change."""

    def __init__(self, visitors: Visitors, *, token: str | None = None) -> None:
        """`token`: the common one, by which executors are asked."""
        self._visitors = visitors
        self._token = token

    def preview(self, visitor: Visitor, wish: Wish) -> Told:
        """What a wish would do now."""
        try:
            desk = self._visitors.desk(visitor)
            if desk is None:
                return Told(wish, refused=NO_DATABASE)
            facts = facts_of(desk, wish)
            return Told(wish, preview_of(wish, facts), secrets.token_hex(16), facts)
        except TidemarkError as error:
            return Told(wish, refused=why_not(error))

    def do(self, visitor: Visitor, wish: Wish, *, version: str, key: str) -> Told:
        """Do what was previewed under this version and key."""
        now = self.preview(visitor, wish)
        if now.preview is None or now.facts is None:
            return now
        if now.preview.version != version:
            earlier = self._earlier(wish, visitor, key)
            return earlier or replace(now, refused=NEW_NOW)
        if now.preview.wrong:
            return now
        try:
            return self._done_once(visitor, wish, now, key)
        except JobChanged:
            return replace(self.preview(visitor, wish), refused=NEW_NOW)
        except TidemarkError as error:
            return replace(now, refused=why_not(error))

    def _done_once(self, visitor: Visitor, wish: Wish, now: Told, key: str) -> Told:
        assert now.preview is not None, "it was previewed"
        assert now.facts is not None, "on facts"
        expects = None if now.facts.job is None else now.facts.job.version
        desk = self._visitors.desk(visitor, expects=expects)
        database = self._visitors.database.opened()
        if desk is None or database is None:
            return Told(wish, refused=NO_DATABASE)
        preview = now.preview
        result = click_of(self._visitors, database, visitor, key=key, kind=KIND).carry_out(
            lambda: _done(desk, wish, preview, key=key, token=self._token)
        )
        if result is None:
            return self._earlier(wish, visitor, key) or Told(wish, refused=BEING_DONE)
        return _told_done(wish, result)

    def _earlier(self, wish: Wish, visitor: Visitor, key: str) -> Told | None:
        """What came of the same before, if it was begun."""
        database = self._visitors.database.opened()
        if database is None:
            return None
        found = click_of(self._visitors, database, visitor, key=key, kind=KIND).earlier()
        if found is None:
            return None
        if found.is_done:
            return _told_done(wish, found.said)
        return Told(wish, refused=found.said)


def wish_of(asked: Any, deeds: Sequence[str] = DEEDS) -> Wish | None:
    """What a browser asks for; None for what no page of ours asks."""
    if not isinstance(asked, dict) or asked.get("deed") not in deeds:
        return None
    subject, values = asked.get("subject"), asked.get("values")
    if type(subject) is not int or not isinstance(values, dict) or len(values) > 40:
        return None
    if not all(isinstance(one, str) for pair in values.items() for one in pair):
        return None
    return Wish(asked["deed"], subject, values)


def facts_of(desk: LookingDesk, wish: Wish) -> Facts:
    """What stands now. Raises NotPermitted unless he may do it, ConfigError for what is not."""
    if wish.deed == "kill":
        run = desk.run(wish.subject)
        desk.demand_job(Deed.CHANGE_JOBS, run.job_id)
        return Facts(desk.now_ms, run=run)
    if wish.deed == "add":
        if not any(desk.may(Deed.CHANGE_JOBS, group.group_id) for group in desk.groups()):
            raise NotPermitted("a job is made in a group whose jobs one may change")
        return Facts(desk.now_ms)
    job = desk.demand_job(Deed.CHANGE_JOBS, wish.subject)
    group = desk.group_of(job)
    version = None
    if wish.deed == "back":
        wanted = wish.values.get("glue_id", "")
        found = [one for one in desk.glue_of(job.job_id) if str(one.glue_id) == wanted]
        if not found:
            raise ConfigError("version", wanted, f"one that job {job.job_id} has")
        version = found[0]
    return Facts(
        desk.now_ms,
        job=job,
        app_name=group.app_name,
        waiting=desk.waiting_of(job.job_id),
        outside=desk.outside_of(job.job_id) if wish.deed in {"run", "pause"} else 0,
        addresses=desk.addresses(group) if wish.deed == "run" else (),
        workflows=desk.workflows_with(job.job_id) if wish.deed == "remove" else (),
        version=version,
    )


def _done(desk: LookingDesk, wish: Wish, preview: Preview, *, key: str, token: str | None) -> str:
    """Do it; "where it leads, what was done"."""
    number, values, group = wish.subject, wish.values, wish.values.get("group")
    page, settings = f"/jobs/{number}", preview.settings
    match wish.deed:
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
            told = "" if killed.address is None else f"{killed.address} was told. "
            return f" {told}{killed.message}".rstrip() or f" It is {killed.state}."
    assert settings is not None, "the others are made of settings"
    match wish.deed:
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


def _told_done(wish: Wish, result: str) -> Told:
    leads_to, _, said = result.partition(" ")
    return Told(wish, done=said, leads_to=leads_to)
