"""Formats numbers, lower bounds and times consistently as human-readable text.

Invariant: unknown is a word with its reason, never 0 or a dash alone; a lower bound stands in a
column of its own and never in that of the figure. Absent on purpose: markup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

UNKNOWN: Final = "unknown"

KIB: Final = 1024
UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")

ROWS_NAMED: Final = 3
"""Failing rows named in a sentence."""

_VOWELS: Final = ("a", "e", "i", "o", "u")

REASONS: Final = {
    "NO_OFFSET": "no offset was ever committed",
    "BROADCAST": "broadcast: each client keeps its own offset",
    "BEYOND_END": "the consume offset lies beyond the end of the queue",
    "PURGED": "the message at the offset is deleted already",
    "STORED_AHEAD": "it was stored after now: the broker's clock was set, or runs wrong",
    "OBSERVED": "an observer sees only what members hold",
    "QUEUE_UNKNOWN": "the lag of a queue is unknown",
    "JUMPED": "an offset went back, or unread messages were deleted, a moment ago",
    "TOO_EARLY": "it has been seen for too short a time",
    "WORD_NOT_KNOWN": "a later version of the broker wrote it",
}
AT_LEAST: Final = "_at_least_"
"""In the name of a column that is the lower bound of another one."""


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


def size(number: int | None, *, reason: str | None = None) -> str:
    """Bytes in the largest unit of which there is one at least; None is unknown."""
    if number is None:
        return unknown(reason)
    figure, unit = float(number), 0
    while figure >= KIB and unit < len(UNITS) - 1:
        figure, unit = figure / KIB, unit + 1
    return (
        f"{figure:,.0f} {UNITS[unit]}"
        if not unit or figure >= 100
        else f"{figure:,.1f} {UNITS[unit]}"
    )


def at_least(number: int | None, *, reason: str | None) -> str:
    """A number that is exact without a reason, the least with one; None is unknown."""
    said = count(number, reason=reason)
    return said if number is None or not reason else f"at least {said}"


def or_more(
    figure: int | None, bound: int | None, shown: Callable[[int | None], str] = count
) -> str:
    """A figure that is known, or by its lower bound: 40, at least 12, or unknown."""
    if figure is not None or bound is None:
        return shown(figure)
    return f"at least {shown(bound)}"


def unknown(reason: str | None) -> str:
    """The word, and why."""
    return f"{UNKNOWN}: {REASONS.get(reason, reason)}" if reason else UNKNOWN


def clock(moment: datetime | None, *, day: bool = False) -> str:
    """A moment as UTC time of day, with its date when asked for."""
    if moment is None:
        return UNKNOWN
    return f"{moment:%Y-%m-%d %H:%M:%S}" if day else f"{moment:%H:%M:%S}"


def plural(number: int, noun: str) -> str:
    """`1 queue`, `2 queues`, `2 deliveries`."""
    return f"{number:,} {noun if number == 1 else plural_of(noun)}"


def plural_of(noun: str) -> str:
    """`queues`, `deliveries`."""
    is_changed = noun.endswith("y") and noun[-2:-1] not in _VOWELS
    return f"{noun[:-1]}ies" if is_changed else f"{noun}s"


def with_article(noun: str) -> str:
    """A noun with its article: `a consumer crash`, `an offset store lost`."""
    return f"{'an' if noun[:1].lower() in _VOWELS else 'a'} {noun}"


def broken_text(broken: int, checked: int, rows: Sequence[tuple[str, str]]) -> str:
    """How many rows break a law; `rows`: the key and figures of those that are known, some of which
    are named."""
    named = [f"{key} ({detail})" for key, detail in rows[:ROWS_NAMED]]
    more = broken - len(named)
    rest = [f"and {more} more"] if more > 0 and len(named) == ROWS_NAMED else []
    return f"{broken:,} of {checked:,} break it: {'; '.join([*named, *rest])}"


def spoken(constant: str) -> str:
    """FROZEN_HEAD as `frozen head`."""
    return constant.replace("_", " ").lower()


def bound_of(name: str) -> str:
    """The column that is the lower bound of a figure: lag_messages → lag_at_least_messages."""
    figure, _, unit = name.rpartition("_")
    return f"{figure}{AT_LEAST}{unit}"


class AtLeast(int):
    """A number of which only a lower bound is known."""

    def __str__(self) -> str:
        return f"at least {int(self)}"
