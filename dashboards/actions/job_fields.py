"""Parses a job's settings from a page's fields, compares them and shows them. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

from engine.foundation.errors import ConfigError
from pipelines.scheduler.job_settings import JobSettings
from pipelines.scheduler.setting_names import setting_of

DIFF_LINES_MAX: Final = 400
SHOWN_CHARS_MAX: Final = 400
SCHEDULE_CHARS_MAX: Final = 128
"""As the database has it."""
SETTINGS: Final = tuple(one.name for one in fields(JobSettings))
FIELD_OF: Final = {"schedule": "schedule_text", "cron": "schedule_text", "steps": "glue_source"}
"""The field beside which an error stands that names something else."""


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
