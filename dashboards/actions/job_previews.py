"""Pure functions that preview what a requested job change will do.

Place in the walk: `job_changes` reads the facts, shows the preview, and does what was previewed.
Invariant: a preview has a version, made of the wish and of what it rests on. What is done has the
same version, or it is previewed again.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from engine.foundation.errors import ConfigError
from pipelines.scheduler.diffs import changes, has_other_times
from pipelines.scheduler.job_settings import JobSettings, setting_of
from pipelines.scheduler.routing import RouteStrategy
from pipelines.scheduler.run_life import ENDED, OUTSIDE
from pipelines.scheduler.store.glue import REMARK_CHARS_MAX, GlueVersion
from pipelines.scheduler.store.jobs import Job
from pipelines.scheduler.store.results import Run

TIMES_SHOWN: Final = 5
NOTHING_YET: Final = "Nothing is changed yet."
DIFF_LINES_MAX: Final = 400
SHOWN_CHARS_MAX: Final = 400
SCHEDULE_CHARS_MAX: Final = 128
"""As the database has it."""
SETTINGS: Final = tuple(one.name for one in fields(JobSettings))
FIELD_OF: Final = {"schedule": "schedule_text", "cron": "schedule_text", "steps": "glue_source"}
"""The field beside which an error stands that names something else."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants: an action, on a job or a run (0: a new job), with these values."""

    action: str
    subject: int = 0
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    """What stands now, as far as a wish needs it."""

    now_ms: int
    job: Job | None = None
    app_name: str = ""
    run: Run | None = None
    waiting: int = 0
    """Planned runs that nobody has sent."""
    outside: int = 0
    """Runs that executors have, or may have."""
    addresses: Sequence[str] = ()
    workflows: Sequence[int] = ()
    version: GlueVersion | None = None
    """The source that is to be had again."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What will be done."""

    title: str
    said: tuple[str, ...] = ()
    changes: tuple[tuple[str, str, str], ...] = ()
    """Name, what stands now, what will stand."""
    diff: tuple[str, ...] = ()
    times: tuple[int, ...] = ()
    zone: str = "UTC"
    wrong: Mapping[str, str] = field(default_factory=dict)
    """What cannot be, by field; under "" what is of none. With any nothing can be done."""
    settings: JobSettings | None = None
    """The settings that the job will have."""
    version: str = ""


def preview_of(wish: Wish, facts: Facts) -> Preview:
    """What a wish would do now."""
    made = _MAKERS[wish.action](wish, facts)
    return replace(made, version=_version(wish, facts))


def _version(wish: Wish, facts: Facts) -> str:
    rests_on: list[Any] = [facts.job.version if facts.job is not None else ""]
    if facts.run is not None:
        rests_on += [facts.run.log_id, facts.run.state in ENDED, facts.run.address]
    made_of = [wish.action, wish.subject, sorted(wish.values.items()), rests_on]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:32]


def _run(wish: Wish, facts: Facts) -> Preview:
    job = _job(facts)
    given = wish.values.get("parameters", job.settings.parameters)
    own = "" if given == job.settings.parameters else ", with parameters of its own"
    said = [f"One run of it begins now, whether it is active or not{own}."]
    if not job.settings.is_workflow:
        said.append(_targets(job.settings, facts))
    if facts.outside:
        said.append(f"{_runs(facts.outside)} of it at work: {_blocking(job.settings)}")
    return Preview(
        f"Run job {job.job_id} now",
        tuple(said),
        changes=_changed({"parameters": job.settings.parameters}, {"parameters": given}),
        wrong=_unreadable(job),
    )


def _targets(settings: JobSettings, facts: Facts) -> str:
    if not facts.addresses:
        return f"No executor of {facts.app_name} is there: the run will be refused."
    listed = ", ".join(facts.addresses[:10]) + ("…" if len(facts.addresses) > 10 else "")
    if settings.route == RouteStrategy.SHARDING_BROADCAST.value:
        return f"Each executor gets a shard of it, of {len(facts.addresses)}: {listed}."
    return f"By {settings.route} one of these executors is asked: {listed}."


def _blocking(settings: JobSettings) -> str:
    return {
        "SERIAL_EXECUTION": "it waits for those of the same executor.",
        "DISCARD_LATER": "an executor that has one refuses it.",
        "COVER_EARLY": "an executor that has one ends that.",
    }.get(settings.blocking, "")


def _start(wish: Wish, facts: Facts) -> Preview:
    del wish
    job = _job(facts)
    wrong = _unreadable(job)
    times: tuple[int, ...] = ()
    if not wrong:
        times = _times(job.settings, facts.now_ms)
        if not times:
            wrong = {"": "Its schedule has no time to come."}
    if job.is_active:
        wrong = {"": "It is active already."}
    said = ["Its schedule holds from now on."]
    if job.stopped_because:
        said.append(f"The scheduler had stopped it: {job.stopped_because}")
    return Preview(
        f"Start job {job.job_id}",
        tuple(said),
        changes=(("state", "paused", "active"),),
        times=times,
        zone=job.settings.zone,
        wrong=wrong,
    )


def _pause(wish: Wish, facts: Facts) -> Preview:
    del wish
    job = _job(facts)
    said = ["It runs no more, but by hand.", _cancelled(facts)]
    if facts.outside:
        said.append(f"{_runs(facts.outside)} with executors, and what they have goes on.")
    return Preview(
        f"Pause job {job.job_id}",
        tuple(said),
        changes=(("state", "active", "paused"),),
        wrong={} if job.is_active else {"": "It is paused already."},
    )


def _remove(wish: Wish, facts: Facts) -> Preview:
    del wish
    job = _job(facts)
    said = [
        "The job and its sources are removed for good; its runs stay until they are forgotten.",
        _cancelled(facts),
    ]
    wrong = {}
    if facts.workflows:
        listed = ", ".join(map(str, facts.workflows[:5]))
        wrong[""] = f"It is a step of the workflow {listed}, which would miss it."
    return Preview(f"Remove job {job.job_id}", tuple(said), wrong=wrong)


def _copy(wish: Wish, facts: Facts) -> Preview:
    job = _job(facts)
    settings, wrong = settings_with(job.settings, wish.values)
    group = wish.values.get("group", facts.app_name)
    return Preview(
        f"Copy job {job.job_id}",
        (f"A new job like this one with its source, in group {group}; it is paused.",),
        changes=_changed(_texts(job.settings), _texts(settings)),
        times=() if wrong else _times(settings, facts.now_ms),
        zone=settings.zone,
        wrong=wrong | _unreadable(job),
        settings=settings,
    )


def _edit(wish: Wish, facts: Facts) -> Preview:
    job = _job(facts)
    settings, wrong = settings_with(job.settings, wish.values)
    group = wish.values.get("group", facts.app_name)
    made = _changed(
        _texts(job.settings) | {"group": facts.app_name}, _texts(settings) | {"group": group}
    )
    is_mended = job.wrong_because is not None
    if not made and not wrong and not is_mended:
        wrong = {"": NOTHING_YET}
    times: tuple[int, ...] = ()
    if not wrong:
        times = _times(settings, facts.now_ms)
        if job.is_active and not times:
            wrong = {"schedule_text": "an active job needs a time to come"}
    if has_other_times(job.settings, settings):
        said = [_cancelled(facts)]
        if job.is_active:
            said.append("It is active, and planned anew from now on.")
    else:
        said = ["Its times stay; what waits to be sent is sent as the job is by then."]
    return Preview(
        f"Change job {job.job_id}",
        tuple(said),
        changes=made,
        times=times,
        zone=settings.zone,
        wrong=wrong,
        settings=settings,
    )


def _add(wish: Wish, facts: Facts) -> Preview:
    blank = JobSettings.unchecked(title="")
    settings, wrong = settings_with(blank, {"title": "", "handler": ""} | dict(wish.values))
    group = wish.values.get("group", "")
    if not group:
        wrong = wrong | {"group": "the group whose executors run it"}
    return Preview(
        "Make a job",
        (f"A new job of group {group or '…'}. It is paused until somebody starts it.",),
        changes=_changed(_texts(blank), _texts(settings)),
        times=() if wrong else _times(settings, facts.now_ms),
        zone=settings.zone,
        wrong=wrong,
        settings=settings,
    )


def _source(wish: Wish, facts: Facts) -> Preview:
    job = _job(facts)
    wanted = {"glue_source": wish.values.get("glue_source", job.settings.glue_source)}
    said = "Runs from now on get the new source. The old one stays a version, to go back to."
    return _of_source(f"Change the source of job {job.job_id}", said, wish, facts, wanted=wanted)


def _back(wish: Wish, facts: Facts) -> Preview:
    version = facts.version
    assert version is not None, "there is a version to go back to"
    wanted = {"glue_type": version.glue_type, "glue_source": version.source}
    said = f"The source is again as in version {version.glue_id}."
    return _of_source(f"Roll job {_job(facts).job_id} back", said, wish, facts, wanted=wanted)


def _of_source(
    title: str, said: str, wish: Wish, facts: Facts, *, wanted: Mapping[str, str]
) -> Preview:
    before = _job(facts).settings
    settings, wrong = settings_with(before, wanted)
    diff = diff_of(before.glue_source, settings.glue_source)
    if settings == before and not wrong:
        wrong = {"": NOTHING_YET}
    remark = wish.values.get("remark", "").strip()
    if not remark or len(remark) > REMARK_CHARS_MAX:
        wrong = wrong | {"remark": f"why, in 1 to {REMARK_CHARS_MAX} characters"}
    return Preview(
        title,
        (said,),
        _changed({"glue_type": before.glue_type}, {"glue_type": settings.glue_type}),
        tuple(diff),
        wrong=wrong,
        settings=settings,
    )


def _kill(wish: Wish, facts: Facts) -> Preview:
    del wish
    run = facts.run
    assert run is not None, "there is a run to end"
    wrong = {}
    if run.state in ENDED:
        said = [f"It is {run.state} already."]
        wrong[""] = "There is nothing to end."
    elif run.state in OUTSIDE and run.address is not None:
        said = [
            f"{run.address} is asked to end it, and it is not tried again.",
            f"An executor of XXL-Job ends all runs of job {run.job_id} that it has; ours this one.",
        ]
    elif run.state in OUTSIDE:
        said = ["No further step of the workflow begins; what executors have goes on."]
    else:
        said = ["It was not sent yet, and is cancelled."]
    return Preview(f"Kill run {run.log_id} of job {run.job_id}", tuple(said), wrong=wrong)


_MAKERS: Final = {
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
ACTIONS: Final = tuple(_MAKERS)


def _texts(settings: JobSettings) -> dict[str, str]:
    return {name: text_of(getattr(settings, name)) for name in SETTINGS if name != "glue_source"}


def _changed(
    before: Mapping[str, str], after: Mapping[str, str]
) -> tuple[tuple[str, str, str], ...]:
    made = changes(before, after)
    return tuple((name, shown(old), shown(new)) for name, (old, new) in made.items())


def _times(settings: JobSettings, now_ms: int) -> tuple[int, ...]:
    schedule = settings.schedule
    return tuple(schedule.upcoming_ms(schedule.next_ms(now_ms), count=TIMES_SHOWN))


def _cancelled(facts: Facts) -> str:
    if not facts.waiting:
        return "Nothing waits to be sent that it would cancel."
    return f"{_runs(facts.waiting)} planned and not sent, and cancelled by it."


def _runs(number: int) -> str:
    return f"{number:,} run is" if number == 1 else f"{number:,} runs are"


def _unreadable(job: Job) -> dict[str, str]:
    return {} if job.wrong_because is None else {"": f"It cannot be: {job.wrong_because}"}


def _job(facts: Facts) -> Job:
    assert facts.job is not None, "the action is one on a job"
    return facts.job


def settings_with(
    before: JobSettings, values: Mapping[str, str]
) -> tuple[JobSettings, dict[str, str]]:
    """Settings with some values changed, and what is wrong, by field: all of it, not the first.

    A value that cannot be is left as it was while the others are looked at.
    """
    wrong: dict[str, str] = {}
    wanted: dict[str, Any] = {}
    for name in SETTINGS:
        if name in values:
            try:
                wanted[name] = setting_of(name, values[name])
            except ConfigError as error:
                wrong[name] = error.allowed
    text = values.get("schedule_text", "")
    if len(text) > SCHEDULE_CHARS_MAX or not text.isprintable():
        wrong["schedule_text"] = f"one line of {SCHEDULE_CHARS_MAX} characters at most"
        wanted.pop("schedule_text", None)
    for _ in range(len(SETTINGS)):
        try:
            return replace(before, **wanted), wrong
        except ConfigError as error:
            name = _field(error.key)
            if name in wrong:
                break
            wrong[name] = error.allowed
            wanted.pop(name, None)
    return before, wrong


def diff_of(before: str, after: str) -> list[str]:
    """The lines that differ, with some around them; at most DIFF_LINES_MAX."""
    made = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
    lines = [line for at, line in enumerate(made) if at > 1]
    if len(lines) > DIFF_LINES_MAX:
        return [*lines[:DIFF_LINES_MAX], f"… and {len(lines) - DIFF_LINES_MAX:,} lines more"]
    return lines


def text_of(value: object) -> str:
    """A setting as a text, as it is given in a field."""
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def shown(text: str) -> str:
    """A text cut where it is long."""
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


def _field(key: str) -> str:
    name = key.split(".", 1)[0]
    if name in {"steps", "workflow"}:
        return "glue_source"
    found = FIELD_OF.get(name, name)
    return found if found in SETTINGS else ""
