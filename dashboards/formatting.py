"""Formats numbers, times and untrusted names as text for a page.

Invariant: what comes from a message, a client or a group name is text and stays text. Dash
escapes it in elements; plotly, which renders a few HTML tags inside its labels, gets `plain`.
Numbers and moments are worded as everywhere else (`pipelines.base.wording`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pipelines.base.wording import (
    REASONS,
    UNKNOWN,
    clock,
    count,
    duration,
    or_more,
    plural,
    size,
    spoken,
    unknown,
)

__all__ = [
    "LABEL_MAX",
    "REASONS",
    "UNKNOWN",
    "HowFarBehind",
    "clock",
    "count",
    "duration",
    "instant",
    "or_more",
    "plain",
    "plural",
    "size",
    "spoken",
    "unknown",
    "visible",
]

LABEL_MAX: Final = 120
"""Characters of a name inside a figure; the tables show it whole."""

_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")


def plain(text: object) -> str:
    """Text for a plotly label: nothing in it is a tag, an entity or a direction character.

    Removing tags instead would make two hostile names the same, or one of them empty.
    """
    shown = visible(text)
    cut = shown if len(shown) <= LABEL_MAX else shown[: LABEL_MAX - 1] + "…"
    return cut.replace("&", "&amp;").replace("<", "‹").replace(">", "›")


def visible(text: object) -> str:
    """A name with its control and direction characters shown as such: they could turn the text
    around them."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", str(text)).strip() or "(blank)"


def instant(moment: datetime | None) -> str:
    """A moment as UTC date and time with milliseconds: the order of one message's steps."""
    if moment is None:
        return "unknown"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HowFarBehind:
    """How far a group is behind: figures that are known, or else their lower bounds."""

    lag_messages: int | None
    lag_at_least_messages: int | None
    time_lag_ms: int | None
    time_lag_at_least_ms: int | None

    @property
    def messages(self) -> str:
        """How many messages it is behind, in words."""
        return or_more(self.lag_messages, self.lag_at_least_messages)

    @property
    def time_lag(self) -> str:
        """How long the oldest of them has waited, in words."""
        return or_more(self.time_lag_ms, self.time_lag_at_least_ms, duration)
