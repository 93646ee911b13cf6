"""Converts datetimes exactly to and from whole microseconds since the Unix epoch.

Place in the walk: wherever a number of a plan, a state or a command line meets a datetime. By whole
numbers alone: a float of seconds since 1970 is off by some hundred nanoseconds.

Invariant: `moment_at(micros(moment)) == moment`. Absent on purpose: clocks, and how moments are
shown to people (`wording.clock`).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from engine.foundation.errors import ConfigError

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ONE: Final = timedelta(microseconds=1)


def micros(moment: int | datetime) -> int:
    """µs since 1970 UTC. A datetime that names no zone is of UTC; a number is what it says."""
    if isinstance(moment, int):
        return moment
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - EPOCH) // _ONE


def moment_at(moment_us: int) -> datetime:
    """The moment so many µs after the beginning of 1970, in UTC."""
    return EPOCH + timedelta(microseconds=moment_us)


def given_us(name: str, given: object, place: str = "") -> int:
    """µs since 1970 UTC of a moment that somebody has given, as a datetime or in ISO 8601.

    ConfigError that names it, and the place where it was read.
    """
    try:
        return micros(given if isinstance(given, datetime) else datetime.fromisoformat(str(given)))
    except ValueError:
        allowed = "an ISO 8601 moment like 2026-03-01T12:00:00Z (UTC unless it says else)"
        raise ConfigError(name, given, allowed, place) from None


def utc_text(moment: datetime, *, timespec: str = "auto") -> str:
    """ISO 8601 with a Z, as a moment is given on command lines and in addresses of pages."""
    return moment.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")
