"""Previews changes to jobs and runs, and applies them exactly as previewed.

Place in the walk: below `previewed_changes`. An action is one function: a preview carries it out in
a transaction that is undone, and shows what it was refused with, or what it came to.

Invariant: when the job has been changed since the preview, nothing is done; the store enforces this
in its transaction. Absent on purpose: rights, which the scheduler's service checks at both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from dashboards.access.visitors import Visitor, Visitors
from dashboards.actions.job_previews import (
    TIMES_SHOWN,
    Facts,
    Preview,
    Wish,
    field_of,
    settings_wished,
    shown,
    version_of,
    wrong_by,
)
from dashboards.actions.previewed_changes import Changes, OtherThanPreviewed, PanelState, why_not
from engine.foundation.errors import ConfigError
from pipelines.database.database import Database
from pipelines.scheduler.diffs import changes, has_other_times, source_diff
from pipelines.scheduler.job_settings import JobSettings
from pipelines.scheduler.page_queries import PageService
from pipelines.scheduler.refusals import no_such
from pipelines.scheduler.roles import Action, NotPermitted
from pipelines.scheduler.routing import RouteStrategy
from pipelines.scheduler.run_life import ENDED, RunState
from pipelines.scheduler.store.jobs import Changed, Job, JobChanged

KIND: Final = "change of a job"
ACTIONS: Final[Mapping[str, str]] = {
    "run": "Run job {number} now",
    "start": "Start job {number}",
    "pause": "Pause job {number}",
    "remove": "Remove job {number}",
    "copy": "Copy job {number}",
    "edit": "Change job {number}",
    "add": "Make a job",
    "source": "Change the source of job {number}",
    "back": "Roll job {number} back",
    "kill": "Kill run {number} of job {job}",
}
"""The titles of what pages change of jobs and runs."""
_STATES: Final = ("paused", "active")
_OTHERS_WAIT: Final[Mapping[str, str]] = {
    "SERIAL_EXECUTION": "it waits for those of the same executor.",
    "DISCARD_LATER": "an executor that has one refuses it.",
    "COVER_EARLY": "an executor that has one ends that.",
}
"""What becomes of a run while another one is at work, by `blocking`."""


@dataclass(frozen=True, slots=True)
class Requested:
    """A wish, with what stands, and how it is carried out."""

    wish: Wish
    facts: Facts
    settings: JobSettings
    """Those that the job is to have."""
    key: str = ""
    token: str | None = None
    """The common one, by which executors are asked."""

    @property
    def number(self) -> int:
        """Of the job or the run."""
        return self.wish.subject

    @property
    def group(self) -> str:
        """The application that the job is to belong to."""
        return self.wish.values.get("group", self.facts.app_name)

    @property
    def remark(self) -> str:
        """Why a source is changed."""
        return self.wish.values["remark"].strip()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an action came to."""

    leads_to: str
    """The page of what came of it."""
    done: str
    """Once it is done."""
    effects: Sequence[str]
    """Before it is done."""
    changes: Iterable[tuple[str, str, str]] = ()
    """Name, what stands before it, what stands then."""
    planned: Job | None = None
    """The job, if its next times are of interest."""
    wrong: str = ""
    """Why there is nothing to do."""


class JobChanges(Changes):
    """What pages change of jobs and runs."""

    def __init__(self, visitors: Visitors, *, token: str | None = None) -> None:
        """`token`: the common one, by which executors are asked."""
        super().__init__(visitors, kind=KIND)
        self._token = token

    def _previewed(
        self, database: Database, visitor: Visitor, wish: Wish
    ) -> tuple[Preview, Facts | None]:
        facts = facts_of(self._visitors.service_at(database, visitor), wish)
        settings, wrong = settings_wished(wish, facts)
        outcome = None
        if not wrong:
            try:
                with database.rehearsal() as rehearsed:
                    service = self._visitors.service_at(rehearsed, visitor)
                    outcome = _ACTIONS[wish.action](service, Requested(wish, facts, settings))
                wrong = {"": outcome.wrong} if outcome.wrong else {}
            except NotPermitted as error:
                wrong = {"": why_not(error)}
            except ConfigError as error:
                wrong = wrong_by(error, wish, lambda key: (field_of(key),))
        return _preview(Requested(wish, facts, settings), outcome, wrong), facts

    def _apply(
        self, database: Database, visitor: Visitor, now: PanelState, *, version: str, key: str
    ) -> str:
        del version  # The store compares that of the job in its transaction.
        assert now.facts is not None, "it was previewed on facts"
        expects = None if now.facts.job is None else now.facts.job.version
        service = self._visitors.service_at(database, visitor, expects=expects)
        settings, _ = settings_wished(now.wish, now.facts)
        asked = Requested(now.wish, now.facts, settings, key, self._token)
        try:
            outcome = _ACTIONS[now.wish.action](service, asked)
        except JobChanged as error:
            raise OtherThanPreviewed from error
        return f"{outcome.leads_to} {outcome.done}"

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
        outside=service.outside_of(job.job_id) if wish.action in {"run", "pause"} else 0,
        addresses=service.addresses(group) if wish.action == "run" else (),
        version=version,
    )


def _preview(asked: Requested, outcome: Outcome | None, wrong: Mapping[str, str]) -> Preview:
    wish, facts = asked.wish, asked.facts
    job_id = asked.number if facts.run is None else facts.run.job_id
    lines = source_diff(facts.settings.glue_source, asked.settings.glue_source)[2:]
    preview = Preview(
        ACTIONS[wish.action].format(number=asked.number, job=job_id),
        diff=tuple(lines) if wish.action in {"source", "back"} else (),
        wrong=wrong,
        version=version_of(wish, facts),
    )
    if outcome is None:
        return preview
    preview = replace(preview, said=tuple(outcome.effects), changes=tuple(outcome.changes))
    if outcome.planned is None:
        return preview
    schedule = outcome.planned.settings.schedule
    times = schedule.upcoming_ms(schedule.next_ms(facts.now_ms), count=TIMES_SHOWN)
    return replace(preview, times=tuple(times), zone=outcome.planned.settings.zone)


def _run(service: PageService, asked: Requested) -> Outcome:
    number, facts, settings = asked.number, asked.facts, asked.facts.settings
    given = asked.wish.values.get("parameters", settings.parameters)
    made = changes({"parameters": settings.parameters}, {"parameters": given})
    log_id = service.run_job(number, f"page:{asked.key}"[:48], given if made else None)
    own = ", with parameters of its own" if made else ""
    effects = [f"One run of it begins now, whether it is active or not{own}."]
    if not settings.is_workflow:
        effects.append(_targets(settings, facts))
    if facts.outside:
        others = _OTHERS_WAIT.get(settings.blocking, "")
        effects.append(f"{_runs(facts.outside)} of it at work: {others}")
    return Outcome(
        f"/jobs/{number}?run={log_id}",
        f"Run {log_id} begins.",
        effects,
        [(name, shown(old), shown(new)) for name, (old, new) in made.items()],
    )


def _targets(settings: JobSettings, facts: Facts) -> str:
    if not facts.addresses:
        return f"No executor of {facts.app_name} is there: the run will be refused."
    listed = ", ".join(facts.addresses[:10]) + ("…" if len(facts.addresses) > 10 else "")
    if settings.route == RouteStrategy.SHARDING_BROADCAST.value:
        return f"Each executor gets a shard of it, of {len(facts.addresses)}: {listed}."
    return f"By {settings.route} one of these executors is asked: {listed}."


def _start(service: PageService, asked: Requested) -> Outcome:
    done = service.start_job(asked.number)
    stopped = asked.facts.job and asked.facts.job.stopped_because
    why = (f"The scheduler had stopped it: {stopped}",) if stopped else ()
    effects = ("Its schedule holds from now on.", *why)
    return _changed(asked, done, "is active", effects, planned=done.job)


def _pause(service: PageService, asked: Requested) -> Outcome:
    done = service.pause_job(asked.number)
    outside = asked.facts.outside
    on = (f"{_runs(outside)} with executors, and what they have goes on.",) if outside else ()
    effects = ("It runs no more, but by hand.", _cancelled(done), *on)
    return _changed(asked, done, "is paused", effects)


def _remove(service: PageService, asked: Requested) -> Outcome:
    done = service.remove_job(asked.number)
    gone = "The job and its sources are removed for good; its runs stay until they are forgotten."
    return Outcome("/jobs", f"Job {asked.number} is removed.", (gone, _cancelled(done)))


def _copy(service: PageService, asked: Requested) -> Outcome:
    job_id = service.copy_job(asked.number, asked.settings, app_name=asked.group)
    effect = f"A new job like this one with its source, in group {asked.group}; it is paused."
    done = f"Job {job_id} is a copy of job {asked.number}, and paused."
    return _made(service, asked, job_id, said=done, effect=effect)


def _add(service: PageService, asked: Requested) -> Outcome:
    job_id = service.add_job(asked.group, asked.settings)
    effect = f"A new job of group {asked.group}. It is paused until somebody starts it."
    said = f"Job {job_id} is made, and paused."
    return _made(service, asked, job_id, said=said, effect=effect)


def _made(
    service: PageService, asked: Requested, job_id: int, *, said: str, effect: str
) -> Outcome:
    job = service.job(job_id)
    made = changes(asdict(asked.facts.settings), asdict(job.settings))
    done = Changed(job_id, "add", made, (), job)
    shown_changes = _shown_changes(asked.facts.settings, done)
    return Outcome(f"/jobs/{job_id}", said, (effect,), shown_changes, planned=job)


def _edit(service: PageService, asked: Requested) -> Outcome:
    done = service.edit_job(asked.number, asked.settings, app_name=asked.group)
    assert done.job is not None, "it is still there"
    effects = ["Its times stay; what waits to be sent is sent as the job is by then."]
    if has_other_times(asked.facts.settings, asked.settings):
        effects = [_cancelled(done)]
        if done.job.is_active:
            effects.append("It is active, and planned anew from now on.")
    return _changed(asked, done, "is changed", effects, planned=done.job)


def _source(service: PageService, asked: Requested) -> Outcome:
    done = service.edit_job(asked.number, asked.settings, remark=asked.remark)
    effect = "Runs from now on get the new source. The old one stays a version, to go back to."
    return _changed(asked, done, "has the new source", [effect], part="/source")


def _back(service: PageService, asked: Requested) -> Outcome:
    assert asked.facts.version is not None, "there is a version to go back to"
    glue_id = asked.facts.version.glue_id
    done = service.roll_back(asked.number, glue_id, remark=asked.remark)
    effect = f"The source is again as in version {glue_id}."
    return _changed(asked, done, "has that source again", [effect], part="/source")


def _changed(
    asked: Requested,
    done: Changed,
    now: str,
    effects: Sequence[str],
    *,
    part: str = "",
    planned: Job | None = None,
) -> Outcome:
    """`now`: what is true of the job then; `part`: of its page."""
    number = asked.number
    return Outcome(
        f"/jobs/{number}{part}",
        f"Job {number} {now}.",
        effects,
        _shown_changes(asked.facts.settings, done),
        planned,
        "" if done.changes or done.cancelled else f"It {now} already.",
    )


def _kill(service: PageService, asked: Requested) -> Outcome:
    killed = service.kill_run(asked.number, token=asked.token)
    sent = "" if killed.address is None else f"{killed.address} was asked. "
    done = f"{sent}{killed.message}".rstrip() or f"It is {killed.state}."
    run, wrong = asked.facts.run, ""
    assert run is not None, "there is a run to end"
    if killed.address is not None:
        effects = [
            f"{killed.address} is asked to end it, and it is not tried again.",
            f"An executor of XXL-Job ends all runs of job {run.job_id} that it has; ours this one.",
        ]
    elif killed.state is RunState.CANCELLED:
        effects = ["It was not sent yet, and is cancelled."]
    else:
        effects = ["No further step of the workflow begins; what executors have goes on."]
    if run.state in ENDED:
        wrong = f"There is nothing to end: it is {run.state} already."
    return Outcome("", done, effects, wrong=wrong)


_ACTIONS: Final[Mapping[str, Callable[[PageService, Requested], Outcome]]] = {
    "run": _run,
    "start": _start,
    "pause": _pause,
    "remove": _remove,
    "copy": _copy,
    "edit": _edit,
    "add": _add,
    "source": _source,
    "back": _back,
    "kill": _kill,
}


def _shown_changes(before: JobSettings, done: Changed) -> Iterator[tuple[str, str, str]]:
    """Name, what stands now and what will stand. A source has a diff instead."""
    for name, (old, new) in done.changes.items():
        if name == "is_active":
            yield "state", _STATES[old], _STATES[new]
        elif name == "group":
            yield name, old, new
        elif name != "glue_source":  # In the audit a long value is a digest.
            assert done.job is not None, "it is still there"
            then = done.job.settings
            yield name, shown(getattr(before, name)), shown(getattr(then, name))


def _cancelled(done: Changed) -> str:
    if not done.cancelled:
        return "Nothing waits to be sent that it would cancel."
    return f"{_runs(len(done.cancelled))} planned and not sent, and cancelled by it."


def _runs(number: int) -> str:
    return f"{number:,} run is" if number == 1 else f"{number:,} runs are"
