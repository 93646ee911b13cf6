"""Determines the period that a report covers and the period before it.

Place in the walk: a job's fire time, or two moments that somebody names → a window → everything
else of this room.

Invariant: a window is [begin, end), of whole seconds; days and weeks are those of a calendar in a
zone, so one of them may have 23 or 25 hours. Absent on purpose: clocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from engine.foundation.errors import ConfigError
from pipelines.base.settings import SECOND_US
from pipelines.base.time_units import micros, moment_at, utc_text
from pipelines.marts.consumer_lag_rollups import SPANS_S

SLOTS_MAX: Final = 2_100
"""Of a window: a week of five minutes, and an hour where a clock is set back."""
LONGEST: Final = timedelta(days=92)
SHORTEST: Final = timedelta(minutes=5)


class Period(StrEnum):
    """How often a report is made."""

    HOURLY = "hourly"
    DAILY = "daily"
    WEEKLY = "weekly"
    CUSTOM = "custom"
    """From one moment to another."""


@dataclass(frozen=True, slots=True)
class Window:
    """What a report is about."""

    period: Period
    begin: datetime
    end: datetime
    zone: str = "UTC"
    """The time zone in which days begin."""

    def __post_init__(self) -> None:
        for moment in (self.begin, self.end):
            if micros(moment) % SECOND_US:
                raise ConfigError("window", utc_text(moment), "moments of whole seconds")
        if not SHORTEST <= self.end - self.begin <= LONGEST:
            named = f"{utc_text(self.begin)} to {utc_text(self.end)}"
            raise ConfigError("window", named, "5 minutes to 92 days, the end after the beginning")

    @property
    def name(self) -> str:
        """Of its files and in addresses: no two windows of a report have the same."""
        return f"{self.begin.astimezone(UTC):%Y%m%dT%H%M%S}Z-{self.length_s}s"

    @property
    def length_s(self) -> int:
        """Seconds."""
        return round((self.end - self.begin).total_seconds())

    @property
    def slot_s(self) -> int:
        """The resolution of lag: the shortest slot of roll-ups of which there are not too many."""
        fitting = (span for span in SPANS_S if self.length_s <= span * SLOTS_MAX)
        return next(fitting, SPANS_S[-1])

    @property
    def before(self) -> Window:
        """The period before it, with which it is compared."""
        if self.period in (Period.HOURLY, Period.CUSTOM):
            return Window(self.period, self.begin - (self.end - self.begin), self.begin, self.zone)
        return last_of(self.period, self.begin, zone=self.zone)

    def __str__(self) -> str:
        zone = zone_of(self.zone)
        begin, end = self.begin.astimezone(zone), self.end.astimezone(zone)
        if self.period is Period.DAILY:
            return f"{begin:%A %d %B %Y} ({self.zone})"
        if self.period is Period.WEEKLY:
            last = end - timedelta(days=1)
            return f"{begin:%d %B} to {last:%d %B %Y} ({self.zone})"
        upto = f"{end:%H:%M}" if begin.date() == end.date() else f"{end:%d %B %H:%M}"
        return f"{begin:%d %B %Y %H:%M} to {upto} ({self.zone})"


def last_of(period: Period, at: datetime, *, zone: str = "UTC") -> Window:
    """The last whole hour, day or week (from Monday on) that was over at a moment."""
    local = at.astimezone(zone_of(zone))
    if period is Period.HOURLY:
        end = moment_at(micros(at) // (3600 * SECOND_US) * 3600 * SECOND_US)
        return Window(period, end - timedelta(hours=1), end, zone)
    if period is Period.CUSTOM:
        raise ConfigError("period", period.value, "hourly, daily or weekly, or two moments")
    today = local.replace(hour=0, minute=0, second=0, microsecond=0)
    days = 1 if period is Period.DAILY else 7
    end_day = today if period is Period.DAILY else today - timedelta(days=today.weekday())
    # Days are subtracted from the local date: the zone says which moment that is.
    begin_day = end_day - timedelta(days=days)
    return Window(period, begin_day.astimezone(UTC), end_day.astimezone(UTC), zone)


def zone_of(name: str) -> ZoneInfo:
    """An IANA zone; ConfigError for none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError("zone", name, "an IANA zone like Europe/Berlin") from None
