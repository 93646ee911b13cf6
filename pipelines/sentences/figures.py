"""Reusable phrases for places, clients, times and message counts.

Place in the walk: below the sentences of all subjects. Pure. Invariant: what is not known is left
out or called unknown, never a number; a time has its zone, a count its noun. Absent on purpose:
whole sentences.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pipelines.base.time_units import moment_at
from pipelines.base.wording import duration, plural, plural_of

CLIENT_MAX: Final = 60
"""Characters of a client id in a sentence."""
NAMED_MAX: Final = 3
"""Names in a sentence; further ones are counted."""
_NANOSECONDS: Final = re.compile(r"#\d{9,}$")
"""RocketMQ's clients end their id with a moment that means nothing to a reader."""


def queue_of(topic: str, queue_id: int, broker: str | None = None) -> str:
    """`queue 0 of orders on broker-a`."""
    place = f"queue {queue_id} of {topic}"
    return place if broker is None else f"{place} on {broker}"


def client(client_id: str | None) -> str:
    """A client by the part of its id that names it; `an unknown client`."""
    if client_id is None:
        return "an unknown client"
    short = _NANOSECONDS.sub("", client_id)
    if len(short) <= CLIENT_MAX:
        return short
    half = (CLIENT_MAX - 1) // 2
    return f"{short[:half]}…{short[-half:]}"


def moment(at: datetime, *, day: bool = False) -> str:
    """`19:10:03 UTC`, with its date when asked for."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC" if day else f"{at:%H:%M:%S} UTC"


def since(at: datetime | None) -> str:
    """` since 19:10:03 UTC`; nothing when it is not known."""
    return "" if at is None else f" since {moment(at)}"


def waiting(count: int | None, waited_ms: float | None = None) -> str:
    """`99 messages wait, the oldest for 40 s`."""
    if count is None:
        return "how many messages wait is unknown"
    if count == 0:
        return "no message waits"
    said = "1 message waits" if count == 1 else f"{plural(count, 'message')} wait"
    if waited_ms is None:
        return said
    whom = "" if count == 1 else ", the oldest"
    return f"{said}{whom} for {duration(waited_ms)}"


def behind(count: int | None) -> str:
    """`99 messages behind`."""
    return f"{messages(count)} behind"


def whole(*sentences: str) -> str:
    """Sentences one after the other, each with a capital and a full stop, without empty ones."""
    said = [one.strip().rstrip(".") for one in sentences]
    return " ".join(f"{one[0].upper()}{one[1:]}." for one in said if one)


def rate(messages_per_hour: int) -> str:
    """Messages a second; those of an hour where it is less than one in ten seconds."""
    if messages_per_hour < 360:
        return f"{messages_per_hour:,} messages an hour"
    return f"{messages_per_hour / 3600:,.1f} messages/s"


def deleted_unread(retained: int | None, growth_per_hour: int) -> str:
    """When what waits goes: the queue keeps `retained` messages before the first of them."""
    if retained is None:
        return "when they are deleted unread is unknown: the queue has deleted nothing yet"
    left_ms = max(0, retained) * 3_600_000 // growth_per_hour
    return f"the oldest of them are deleted unread in about {duration(left_ms)} at this rate"


def messages(count: int | None) -> str:
    """So many messages: `1 message`, `40 messages`, `an unknown number of messages`."""
    return number_of(count, "message")


def number_of(count: int | None, noun: str) -> str:
    """So many of something: `1 queue`, `2 queues`, `an unknown number of queues`."""
    return f"an unknown number of {plural_of(noun)}" if count is None else plural(count, noun)


def was(count: int) -> str:
    """The verb behind so many: `was`, `were`."""
    return "was" if count == 1 else "were"


def clock(moment_us: int) -> str:
    """A moment in µs since 1970, as `19:10:03 UTC`."""
    return moment(moment_at(moment_us))


def says_neither(count: int) -> str:
    """What a client leaves open that is silent about so many messages."""
    finished = "it is finished" if count == 1 else "they are finished"
    return f"says neither what it holds nor that {finished}"


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more:,} more" if more > 0 else "")


def of_all(part: int, whole: int, noun: str) -> str:
    """`1 of 3 members`, `its only member`."""
    return f"its only {noun}" if whole == 1 else f"{part:,} of {plural(whole, noun)}"


def span(span_us: int) -> str:
    """A span of time in whole seconds, or in minutes from ten on: `40 s`, `12 min`."""
    seconds = max(1, round(span_us / 1_000_000))
    return f"{seconds} s" if seconds < 600 else f"{seconds // 60} min"
