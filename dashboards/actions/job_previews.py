"""Wishes to change jobs, their previews, and the settings that fields ask for; pure.

Place in the walk: below `previewed_changes` and `job_changes`, which tries a wish and says what it
came to.
Invariant: a preview has a version, made of the wish and of what it rests on. What is done has the
same version, or it is previewed again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from engine.foundation.errors import ConfigError
from pipelines.scheduler.job_settings import JobSettings, setting_of
from pipelines.scheduler.refusals import AS_THEY_ARE
from pipelines.scheduler.run_life import ENDED
from pipelines.scheduler.store.glue import REMARK_CHARS_MAX, GlueVersion
from pipelines.scheduler.store.jobs import Job
from pipelines.scheduler.store.results import Run

TIMES_SHOWN: Final = 5
NOTHING_YET: Final = "Nothing is changed yet."
SHOWN_CHARS_MAX: Final = 400
SCHEDULE_CHARS_MAX: Final = 128
"""As the database has it."""
SETTINGS: Final = tuple(one.name for one in fields(JobSettings))
FIELD_OF: Final = {
    "schedule": "schedule_text",
    "cron": "schedule_text",
    "steps": "glue_source",
    "workflow": "glue_source",
}
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
    outside: int = 0
    """Runs that executors have, or may have."""
    addresses: Sequence[str] = ()
    version: GlueVersion | None = None
    """The source that is to be had again."""

    @property
    def settings(self) -> JobSettings:
        """Those of the job, or of a new one."""
        return JobSettings.unchecked(title="") if self.job is None else self.job.settings


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
    version: str = ""


def version_of(wish: Wish, facts: Facts) -> str:
    """A digest of a wish and of what its effect rests on."""
    rests_on: list[Any] = [facts.job.version if facts.job is not None else ""]
    if facts.run is not None:
        rests_on += [facts.run.log_id, facts.run.state in ENDED, facts.run.address]
    made_of = [wish.action, wish.subject, sorted(wish.values.items()), rests_on]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:32]


def settings_wished(wish: Wish, facts: Facts) -> tuple[JobSettings, dict[str, str]]:
    """The settings that a job is to have, and what is wrong with the values, by field."""
    before, values = facts.settings, wish.values
    runs = wish.action in {"run", "start", "copy"}
    if facts.job is not None and facts.job.wrong_because is not None and runs:
        return before, {"": f"It cannot be: {facts.job.wrong_because}"}
    match wish.action:
        case "add":
            settings, wrong = settings_with(before, {"title": "", "handler": ""} | dict(values))
            if not values.get("group"):
                wrong["group"] = "the group whose executors run it"
            return settings, wrong
        case "copy" | "edit":
            return settings_with(before, values)
        case "source":
            wanted = {"glue_source": values.get("glue_source", before.glue_source)}
        case "back":
            assert facts.version is not None, "there is a version to go back to"
            wanted = {"glue_type": facts.version.glue_type, "glue_source": facts.version.source}
        case _:
            return before, {}
    settings, wrong = settings_with(before, wanted)
    if not 0 < len(values.get("remark", "").strip()) <= REMARK_CHARS_MAX:
        wrong["remark"] = f"why, in 1 to {REMARK_CHARS_MAX} characters"
    return settings, wrong


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
            name = field_of(error.key)
            if name in wrong:
                break
            wrong[name] = error.allowed
            wanted.pop(name, None)
    return before, wrong


def field_of(key: str) -> str:
    """The field of what an error is about; empty: there is none."""
    name = key.split(".", 1)[0]
    found = FIELD_OF.get(name, name)
    return found if found in SETTINGS else ""


def wrong_by(
    error: ConfigError, wish: Wish, fields_of: Callable[[str], Sequence[str]]
) -> dict[str, str]:
    """Why a wish is refused, beside the first field of the error's key that the wish has."""
    if error.value == AS_THEY_ARE:
        return {"": NOTHING_YET}
    there = [one for one in fields_of(error.key) if one in wish.values]
    return {there[0]: error.allowed} if there else {"": str(error)}


def text_of(value: object) -> str:
    """A setting as a text, as it is given in a field."""
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def shown(value: object) -> str:
    """A setting as a text, cut where it is long."""
    text = text_of(value)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"
