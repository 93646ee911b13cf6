"""Computes field-by-field differences for changes to jobs, groups and users.

The audit notes it, a preview, a command or a page shows it: all by `diffs`. Long texts (sources
are up to 4 MiB) stand as their length and digest, so that what is noted is bounded and is JSON
whatever is in it.

Invariant: pure; 0, an empty text and an empty list are values like any other. Absent on purpose:
what the change does to runs, which the store knows.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from itertools import islice
from typing import Any, Final, TypeAlias

from pipelines.scheduler.job_settings import JobSettings
from pipelines.scheduler.schedules import zone_of

Changes: TypeAlias = dict[str, tuple[Any, Any]]
"""By the name of the value: the old and the new. None: there was, or is, nothing of that name."""

VALUE_CHARS_MAX: Final = 500
"""A longer text stands as its length and digest."""

DIFF_LINES_MAX: Final = 400

SOURCES: Final = frozenset({"glue_source"})
"""Never whole, however short: a source has versions of its own."""


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Changes:
    """Each value that is another after it than before; none, when nothing is."""
    names = [*before, *(name for name in after if name not in before)]
    return {
        name: (before.get(name), after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    }


def auditable(settings: JobSettings, *, group: str, is_active: bool) -> dict[str, Any]:
    """A job as the audit shows its changes: its group by application name, its source in brief."""
    values = {name: brief(name, value) for name, value in asdict(settings).items()}
    return {"group": group, "is_active": is_active, **values}


def brief(name: str, value: Any) -> Any:
    """A value as it is noted: a source, or what is long, by its length and digest."""
    if isinstance(value, list | tuple):
        text, count = json.dumps(value), len(value)
        if len(text) <= VALUE_CHARS_MAX:
            return list(value)
        return {"count": count, "sha256": _digest(text)}
    if not isinstance(value, str) or (name not in SOURCES and len(value) <= VALUE_CHARS_MAX):
        return value
    return {"chars": len(value), "sha256": _digest(value)} if value else ""


def detail_of(made: Changes) -> str:
    """Changes as the audit notes them: {"retries": [2, 0]}."""
    return json.dumps({name: list(pair) for name, pair in made.items()})


def source_diff(before: str, after: str) -> list[str]:
    """Lines that go and come between two sources, DIFF_LINES_MAX at most and one that says so."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "old", "new", lineterm="")
    found = list(islice(lines, DIFF_LINES_MAX + 1))
    if len(found) > DIFF_LINES_MAX:
        found[-1] = f"… more than {DIFF_LINES_MAX} lines"
    return found


def has_other_times(before: JobSettings, after: JobSettings) -> bool:
    """Is it planned anew? To plan anew whatever was changed would put off for ever a job that is
    changed more often than it is due, and leave out a time whose run is just to be sent.
    """
    words = ("schedule_kind", "schedule_text", "zone")
    return any(getattr(before, word) != getattr(after, word) for word in words)


def in_zone(moment_ms: int, zone: str) -> str:
    """A moment as the clocks of a job's zone show it, whatever the kind of its schedule."""
    return datetime.fromtimestamp(moment_ms / 1000, zone_of(zone)).isoformat(timespec="seconds")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
