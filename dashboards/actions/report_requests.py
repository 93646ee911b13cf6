"""Handles requests from a report's page to regenerate or send the report.

Place in the walk: the scheduler's job `lag-report` runs by hand, with Spark, wherever an executor
is; what is sent waits in the outbox. Nothing is made here. Invariant: nothing happens without a
sign-in, a preview, and the right to the jobs of that group; each is in the audit. What was
previewed is looked up anew, and refused when the job has changed since; it is carried out once.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dashboards.access.visitors import STRANGER, Standing, Visitor, Visitors
from dashboards.actions.previewed_changes import click_of
from dashboards.formatting import duration, visible
from engine.foundation.errors import ConfigError, StorageError, TidemarkError
from pipelines.platform_jobs.installing import APP
from pipelines.platform_jobs.requests import (
    AskedRun,
    Maker,
    asked_for,
    key_of,
    maker,
    parameters_for,
)
from pipelines.reading.report_names import RunName, name_of
from pipelines.reports.sending import checked_receivers, post, receivers_for, was_posted
from pipelines.reports.shelf import ReportRun
from pipelines.scheduler.roles import Action, NotPermitted

if TYPE_CHECKING:
    from dashboards.page_context import PageContext
    from pipelines.database.database import Database
    from pipelines.scheduler.service import JobService

KEY_BYTES: Final = 8
KIND: Final = "request for a report"
EXECUTORS_NAMED: Final = 3
EXECUTOR: Final = (
    "TIDEMARK_OWN_JOBS=own-jobs.toml tidemark executor --admin URL --app tidemark "
    "--module pipelines.platform_jobs.handlers"
)


class What(StrEnum):
    """What may be requested."""

    AGAIN = "again"
    NEWEST = "newest"
    SEND = "send"


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was looked at before it is done: a browser keeps it, and brings it back."""

    what: What
    name: str
    key: str
    job_id: int = 0
    version: str = ""
    receiver: str = ""


@dataclass(frozen=True, slots=True)
class Preview:
    """What would happen."""

    sentences: tuple[str, ...]
    asked: Asked


@dataclass(frozen=True, slots=True)
class Ways:
    """What who looks may ask for, and why not more."""

    visitor: Visitor = STRANGER
    maker: Maker | None = None
    no_making: str = ""
    """Why nothing can be made from here, with what to do, commands between backticks."""
    receivers: tuple[str, ...] = ()
    no_sending: str = ""
    runs: tuple[AskedRun, ...] = ()

    @property
    def signed_in(self) -> bool:
        """Is it known who asks?"""
        return self.visitor.standing is Standing.SIGNED_IN


def ways(context: PageContext, run: ReportRun) -> Ways:
    """What may be requested of a report, by who asks now."""
    try:
        visitor = context.visitor()
        if context.visitors is None or visitor.is_stranger:
            return Ways(visitor)
        door = _door(context.visitors, visitor)
        if door is None:
            return Ways(visitor, no_making=_no_job(context, run), no_sending=_by_hand(context, run))
        jobs, database = door
        found = maker(jobs, database, period=run.period)
        name = name_of(run.name)
        requested = asked_for(jobs, database, found.job.job_id, name) if found and name else []
        receivers, no_sending = _receivers(context, jobs, run)
        return Ways(
            visitor, found, _no_making(context, run, found), receivers, no_sending, tuple(requested)
        )
    except (StorageError, ConfigError) as error:
        return Ways(no_making=f"What may be asked for is not known now: {error}")


def _door(visitors: Visitors, visitor: Visitor) -> tuple[JobService, Database] | None:
    jobs, database = visitors.service(visitor), visitors.database.opened()
    return None if jobs is None or database is None else (jobs, database)


def _receivers(
    context: PageContext, jobs: JobService, run: ReportRun
) -> tuple[tuple[str, ...], str]:
    if context.sending.receivers is None:
        return (), _by_hand(context, run)
    try:
        jobs.demand_app(Action.CHANGE_JOBS, APP)
        return receivers_for(context.sending.receivers), ""
    except NotPermitted:
        return (), f"To have reports sent takes the right to the jobs of {APP}."
    except ConfigError as error:
        return (), f"The file of receivers is broken: {error}"


def _by_hand(context: PageContext, run: ReportRun) -> str:
    command = f"tidemark reports send {run.name} RECEIVER --receivers FILE {context.reports.option}"
    return f"This dashboard was started without `--receivers FILE`; `{command}` has a report sent."


def _no_making(context: PageContext, run: ReportRun, found: Maker | None) -> str:
    if found is None:
        return _no_job(context, run)
    if not found.executors:
        return (
            f"The job that makes reports has no executor of {found.app_name} now: `{EXECUTOR}` "
            f"starts one. By hand, `{again_command(context, run)}` makes this one again."
        )
    return ""


def _no_job(context: PageContext, run: ReportRun) -> str:
    return (
        "There is no job here that makes reports, or you may not see it: `tidemark jobs install` "
        f"installs the platform's own. By hand, `{again_command(context, run)}` makes this one "
        "again, from the same cut; with `--newest`, from what is known now."
    )


def again_command(context: PageContext, run: ReportRun) -> str:
    """What makes a report again from the same cut."""
    return f"tidemark reports run {context.reports.option} --again {run.name}"


def preview(context: PageContext, run: ReportRun, what: What, receiver: str = "") -> Preview:
    """What would happen. Raises a TidemarkError with why it would not."""
    _, _, jobs, database = _needed(context)
    key = secrets.token_hex(KEY_BYTES)
    if what is What.SEND:
        return _preview_of_sending(context, run, receiver, key, jobs=jobs, database=database)
    found = _needed_maker(context, run, jobs, database)
    jobs.demand_job(Action.CHANGE_JOBS, found.job.job_id)
    parameters = parameters_for(run.name, newest=what is What.NEWEST)
    named = ", ".join(found.executors[:EXECUTORS_NAMED])
    more = len(found.executors) - EXECUTORS_NAMED
    where = f"{named} and {more:,} more" if more > 0 else named
    promise = (
        f"It is made from the cut of this one, cycle {run.cycle:,}: the same rows, so the same "
        "numbers. When gold does not keep them any more, they are the numbers that were kept, and "
        "the page says so."
        if what is What.AGAIN
        else "It is made from what is known now: what came later may change numbers, and then the "
        "report says which."
    )
    title = visible(found.job.settings.title)
    said = f"Job {found.job.job_id}, {title}, of {found.app_name} runs once, now, on {where}."
    return Preview(
        (
            f"{said} Its parameters are `{parameters}`.",
            promise,
            f"This one took {duration(run.took_ms)}. It stays; the new one has the next number.",
        ),
        Asked(what, run.name, key, found.job.job_id, found.job.version),
    )


def _preview_of_sending(
    context: PageContext,
    run: ReportRun,
    receiver: str,
    key: str,
    *,
    jobs: JobService,
    database: Database,
) -> Preview:
    jobs.demand_app(Action.CHANGE_JOBS, APP)
    (to,) = checked_receivers(context.sending.receivers, [receiver])
    if was_posted(context.reports.shelf, run, to, database=database):
        said = f"{to} was sent this run, or is about to be: nothing is sent again."
    else:
        said = (
            f"{to} is sent the sentence, what is new and a link, mail also the page, as soon as "
            "`tidemark alerts run` is at work."
        )
    return Preview((said,), Asked(What.SEND, run.name, key, receiver=to))


def carry_out(context: PageContext, asked: Asked) -> str:
    """Does what was previewed, once; returns a sentence that says what was done.

    Raises a TidemarkError with why it was not done, or why that is not known.
    """
    run = context.reports.named(asked.name)
    name = name_of(asked.name)
    if run is None or name is None:
        raise ConfigError("report", asked.name[:64], "one of this lake")
    if not _is_key(asked.key):
        raise ConfigError("key", "***", "that of a preview")
    visitors, visitor, jobs, database = _needed(context, asked.version or None)
    click = click_of(visitors, database, visitor, key=asked.key, kind=KIND)
    return click.do(lambda: _done(context, asked, run, name, jobs=jobs, database=database))


def _done(
    context: PageContext,
    asked: Asked,
    run: ReportRun,
    name: RunName,
    *,
    jobs: JobService,
    database: Database,
) -> str:
    if asked.what is What.SEND:
        jobs.demand_app(Action.CHANGE_JOBS, APP)
        to = checked_receivers(context.sending.receivers, [asked.receiver])
        sent = post(
            context.reports.shelf,
            run,
            to,
            jobs.change,
            pages=context.sending.pages,
            database=database,
        )
        return f"{asked.receiver} {'is sent it' if sent else 'was sent it before: not again'}"
    found = _needed_maker(context, run, jobs, database)
    if found.job.job_id != asked.job_id:
        raise ConfigError("job", asked.job_id, "the job that makes such reports now; look again")
    parameters = parameters_for(run.name, newest=asked.what is What.NEWEST)
    log_id = jobs.run_job(found.job.job_id, key_of(name, asked.key), parameters)
    return f"asked for: run {log_id} of job {found.job.job_id}"


def _is_key(text: str) -> bool:
    return len(text) == 2 * KEY_BYTES and set(text) <= set("0123456789abcdef")


def _needed(
    context: PageContext, expects: str | None = None
) -> tuple[Visitors, Visitor, JobService, Database]:
    visitor = context.visitor()
    if context.visitors is None or visitor.standing is not Standing.SIGNED_IN:
        raise NotPermitted("who has not signed in may not have reports made or sent")
    jobs, database = (
        context.visitors.service(visitor, expects=expects),
        context.visitors.database.opened(),
    )
    if jobs is None or database is None:
        raise NotPermitted("there is no database of jobs yet")
    return context.visitors, visitor, jobs, database


def _needed_maker(
    context: PageContext, run: ReportRun, jobs: JobService, database: Database
) -> Maker:
    found = maker(jobs, database, period=run.period)
    if found is None or not found.executors:
        raise ReportNotMade(_no_making(context, run, found))
    return found


class ReportNotMade(TidemarkError):
    """No job or no executor is there that would make it; it says what to do."""


def asked_of(given: Any) -> Asked:
    """What a browser brings back. ConfigError for anything else."""
    try:
        return msgspec.convert(given, Asked)
    except msgspec.ValidationError as error:
        raise ConfigError("asked", "***", f"what was looked at ({error})") from None


def state_words(one: AskedRun, made: ReportRun | None) -> tuple[str, str, str]:
    """(sign, words, css) of a run that was asked for. made: a report that is there since then."""
    if one.state.value == "DONE":
        said = "done" if made is None else f"done: run {made.number} is there"
        return "✓", said, "ok"
    if one.is_over:
        return "✖", one.state.value.lower(), "lost"
    waiting = one.state.value in ("PLANNED", "CLAIMED")
    return "◔", "waits for its executor" if waiting else "under way", "slow"
