"""Defines the investigation notebook for each type of problem, with its link and parameters.

Place in the walk: an alert → a link → JupyterLab, which (`lab_links`) fills in group, range and
cut, and opens it. Invariant: pure. What is filled in is a literal of text: a name that others chose
can be no code. The same question has the same name, so a second click opens what the first one
made.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from engine.foundation.errors import ConfigError
from pipelines.base.time_units import moment_at, utc_text

PATH: Final = "/tidemark/investigate"
"""Of the link, below the lab's address."""
KINDS: Final = ("lag", "stalls", "duplicates", "members", "failures", "platform")
"""A notebook each, in `notebooks/investigate`."""
PARAMETERS: Final = "parameters"
"""The tag of the cell that is filled in, as papermill has it."""
VALUE_MAX: Final = 300
"""Characters of a value."""

_KIND_OF_TABLE: Final = {
    "group_state": "lag",
    "lag_causes": "lag",
    "consumer_lag": "lag",
    "consumer_lag_rollups": "lag",
    "stalled_windows": "stalls",
    "duplicate_risk_windows": "duplicates",
    "offset_violations": "duplicates",
    "replaced_messages": "duplicates",
    "passed_over_messages": "lag",
    "lost_unread_messages": "lag",
    "rebalances": "members",
    "ownership": "members",
    "dead_letters": "failures",
    "retry_flow": "failures",
    "delayed_retries": "failures",
}
_NEEDS_GROUP: Final = ("lag",)


@dataclass(frozen=True, slots=True)
class Investigation:
    """A question that a notebook is to answer; an empty text: everything."""

    kind: str
    cluster: str = ""
    group: str = ""
    topic: str = ""
    since: str = ""
    """Moments are ISO 8601 in UTC."""
    until: str = ""
    as_of: str = ""
    """What was known then, whatever came later."""

    @property
    def address(self) -> str:
        """Below the lab's address."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return f"{PATH}?{urlencode({name: value for name, value in values.items() if value})}"

    @property
    def file_name(self) -> str:
        """Of the notebook that is made for it."""
        about = re.sub(r"[^A-Za-z0-9_-]+", "-", self.group or self.topic or self.cluster)[:40]
        digest = hashlib.sha256(self.address.encode("utf-8", "surrogatepass")).hexdigest()[:10]
        return "-".join(part for part in (self.kind, about.strip("-"), digest) if part) + ".ipynb"


def of_alert(
    table: str, labels: Mapping[str, str], *, begin_us: int, end_us: int, margin: timedelta
) -> Investigation:
    """What looks into an alert: of a rule about that table, that has held between two moments."""
    group = _sound(labels.get("group", ""))
    kind = _KIND_OF_TABLE.get(table, "platform")
    if kind in _NEEDS_GROUP and not group:
        kind = "platform"
    end = moment_at(end_us)
    return Investigation(
        kind,
        _sound(labels.get("cluster", "")),
        group,
        _sound(labels.get("topic", "")),
        utc_text(moment_at(begin_us) - margin),
        utc_text(end),
        utc_text(end),
    )


def asked_for(given: Mapping[str, str]) -> Investigation:
    """The investigation that an address asks for; ConfigError for what none can be about."""
    known = {one.name for one in fields(Investigation)}
    values = {name: value for name, value in given.items() if name in known and value}
    kind = values.get("kind", "")
    if kind not in KINDS:
        raise ConfigError("kind", kind, f"one of {', '.join(KINDS)}")
    for name, value in values.items():
        if len(value) > VALUE_MAX:
            raise ConfigError(name, f"{value[:20]}…", f"a text of {VALUE_MAX} characters at most")
        if name in ("since", "until", "as_of"):
            values[name] = _moment(name, value)
    return Investigation(**values)


def filled(notebook: Mapping[str, Any], asked: Investigation) -> dict[str, Any]:
    """A notebook with the question in its cell of parameters."""
    values = {
        one.name.upper(): getattr(asked, one.name) or None
        for one in fields(asked)
        if one.name != "kind"
    }
    source = "\n".join(f"{name} = {value!a}" for name, value in values.items())
    cells = [
        {**cell, "source": source}
        if PARAMETERS in cell.get("metadata", {}).get("tags", ())
        else cell
        for cell in notebook["cells"]
    ]
    return {**notebook, "cells": cells}


def _moment(name: str, value: str) -> str:
    try:
        return utc_text(datetime.fromisoformat(value))
    except (ValueError, OverflowError):
        raise ConfigError(name, value, "a moment like 2026-03-01T12:00:00Z") from None


def _sound(value: str) -> str:
    """A name as an address can carry it; one that no encoding has, or is too long, asks for all."""
    is_text = value.encode("utf-8", "replace").decode() == value
    return value if is_text and len(value) <= VALUE_MAX else ""
