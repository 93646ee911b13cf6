"""Numbers, moments and hostile names as text for a page.

Invariant: what comes from a message, a client or a group name is text and stays text. Dash
escapes it in elements; plotly, which renders a few HTML tags inside its labels, gets `plain`.
Unknown is written as a word with its reason, never as 0 or a dash alone.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

UNKNOWN: Final = "unknown"
LABEL_MAX: Final = 120
"""Characters of a name inside a figure; the tables show it whole."""

_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")

REASONS: Final = {
    "NO_OFFSET": "no offset was ever committed",
    "BROADCAST": "broadcast: each client keeps its own offset",
    "PURGED": "the message at the offset is deleted already",
}


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


def duration(milliseconds: float | None, *, reason: str | None = None) -> str:
    """A span of time with two units at most; None is unknown, with its reason when known."""
    if milliseconds is None:
        return unknown(reason)
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms" if milliseconds else "0 s"
    seconds = milliseconds / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h"


def count(number: int | None, *, reason: str | None = None) -> str:
    """A whole number with thousands separated; None is unknown."""
    return unknown(reason) if number is None else f"{number:,}"


def unknown(reason: str | None) -> str:
    """The word, and why."""
    return f"{UNKNOWN}: {REASONS.get(reason, reason)}" if reason else UNKNOWN


def clock(moment: datetime | None, *, day: bool = False) -> str:
    """A moment as UTC time of day, with its date when asked for."""
    if moment is None:
        return UNKNOWN
    return f"{moment:%Y-%m-%d %H:%M:%S}" if day else f"{moment:%H:%M:%S}"


def instant(moment: datetime | None) -> str:
    """A moment as UTC date and time with milliseconds: the order of one message's steps."""
    if moment is None:
        return "not told"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03}"


def plural(number: int, noun: str) -> str:
    """`1 queue`, `2 queues`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
