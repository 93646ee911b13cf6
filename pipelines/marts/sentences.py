"""Words of sentences: how the marts say figures in `evidence` and `reason`.

Place in the walk: the last step of the marts that explain their figures. Invariant: an unknown
figure is said to be unknown. Absent on purpose: whole sentences, which are their marts'.
"""

from __future__ import annotations

from pipelines.microseconds import moment_at
from pipelines.wording import duration


def messages(count: int | None) -> str:
    """So many messages, in words: 1 message, 40 messages, an unknown number of messages."""
    if count is None:
        return "an unknown number of messages"
    return "1 message" if count == 1 else f"{count} messages"


def number(value: int | None) -> str:
    """The number, or that it is unknown."""
    return "unknown" if value is None else str(value)


def clock(moment_us: int) -> str:
    """Hours, minutes and seconds of a moment, UTC."""
    return f"{moment_at(moment_us):%H:%M:%S}"


def rate(messages_per_hour: int) -> str:
    """Messages a second; those of an hour where it is less than one in ten seconds."""
    if messages_per_hour < 360:
        return f"{messages_per_hour:,} messages an hour"
    return f"{messages_per_hour / 3600:,.1f} messages/s"


def deleted_unread(retained: int | None, growth_per_hour: int) -> str:
    """When what waits goes: the queue keeps `retained` messages before the first of them."""
    if retained is None:
        return "when they are deleted unread is unknown, the queue has deleted nothing yet"
    left_ms = max(0, retained) * 3_600_000 // growth_per_hour
    return f"the oldest of them are deleted unread in about {duration(left_ms)} at this rate"
