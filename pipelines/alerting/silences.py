"""Silences that mute matching alerts for a single period or on a weekly schedule.

Place in the walk: beside grouping, which leaves silenced alerts out of notices; pages show them as
silenced. A silence lasts from one moment to another, or comes back between them on days of the
week, from a time of day for so long, by the wall clock of a zone: a time that is leapt over begins
at the leap, one that comes twice at the first. Invariant: pure, moments of the process's clock.
Absent on purpose: where silences are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pipelines.alerting.matchers import Matcher, all_match
from pipelines.base.settings import DAY_US, MINUTE_US
from pipelines.base.time_units import micros, moment_at

REPEAT_MAX_US: Final = 7 * DAY_US
"""The longest time for which a recurring silence lasts."""
DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True, slots=True)
class Recurring:
    """When a silence comes back."""

    days: frozenset[int]
    """Days of the week on which it begins, Monday is 0; none: every day."""
    begin_minute: int
    """Minutes since midnight, as the clock on the wall shows them."""
    length_us: int
    """How long it lasts, real time."""
    zone: str
    """An IANA name, like Europe/Berlin."""

    def __post_init__(self) -> None:
        if not self.days <= set(range(7)):
            raise ValueError(f"days are 0 (Monday) to 6, not {sorted(self.days)}")
        if not 0 <= self.begin_minute < 24 * 60:
            raise ValueError(f"a day has minutes 0 to 1439, not {self.begin_minute}")
        if not MINUTE_US <= self.length_us <= REPEAT_MAX_US:
            raise ValueError("a silence comes back for a minute at least, and 7 days at most")
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(
                f"there is no time zone {self.zone!r}: write one like Europe/Berlin, or UTC"
            ) from None

    def covers(self, now_us: int) -> bool:
        """Does one of its times hold this moment?"""
        zone = ZoneInfo(self.zone)
        today = moment_at(now_us).astimezone(zone).date()
        back = self.length_us // DAY_US + 1
        days = (today - timedelta(days=number) for number in range(back + 1))
        return any(self._begins(day, zone) <= now_us < self._ends(day, zone) for day in days)

    def next_begin_us(self, now_us: int) -> int:
        """When it begins next, after this moment."""
        zone = ZoneInfo(self.zone)
        today = moment_at(now_us).astimezone(zone).date()
        days = (today + timedelta(days=number) for number in range(-1, 9))
        begins = (self._begins(day, zone) for day in days if self._is_one(day))
        return next(begin_us for begin_us in begins if begin_us > now_us)

    def _is_one(self, day: date) -> bool:
        return not self.days or day.weekday() in self.days

    def _ends(self, day: date, zone: ZoneInfo) -> int:
        return self._begins(day, zone) + self.length_us if self._is_one(day) else 0

    def _begins(self, day: date, zone: ZoneInfo) -> int:
        hour, minute = divmod(self.begin_minute, 60)
        shown = datetime.combine(day, time(hour, minute), zone)
        begin_us = micros(shown)
        back = moment_at(begin_us).astimezone(zone)
        if back.replace(tzinfo=None) == shown.replace(tzinfo=None):
            return begin_us
        # The clock leaps over it: the offsets before and after the leap show how far. It leaps at
        # the moment that the offset after it makes of the time asked for, and as much before.
        after = shown.replace(fold=1).utcoffset() or timedelta()
        before = shown.utcoffset() or timedelta()
        return _leap_us(
            zone, begin_us - (abs(after - before) // timedelta(microseconds=1)), begin_us
        )


def _leap_us(zone: ZoneInfo, low_us: int, high_us: int) -> int:
    """The first moment, between two, with the offset of the second; to the second."""
    wanted = moment_at(high_us).astimezone(zone).utcoffset()
    while high_us - low_us > 1_000_000:
        middle_us = (low_us + high_us) // 2
        is_after = moment_at(middle_us).astimezone(zone).utcoffset() == wanted
        low_us, high_us = (low_us, middle_us) if is_after else (middle_us, high_us)
    return -(-low_us // 1_000_000) * 1_000_000


@dataclass(frozen=True, slots=True)
class Silence:
    """Which alerts nobody is notified of, when, and who said so."""

    silence_id: str
    matchers: tuple[Matcher, ...]
    begin_us: int
    end_us: int
    """The first moment at which it no longer holds."""
    author: str
    comment: str
    recurring: Recurring | None = None
    """None: it lasts from begin to end."""

    def __post_init__(self) -> None:
        if not self.matchers:
            raise ValueError("a silence names what it silences: one matcher at least")
        if self.end_us <= self.begin_us:
            raise ValueError("a silence ends after its begin")

    def is_active(self, now_us: int) -> bool:
        """Does it hold at this moment?"""
        within = self.begin_us <= now_us < self.end_us
        return within and (self.recurring is None or self.recurring.covers(now_us))


def active(silences: Iterable[Silence], now_us: int) -> list[Silence]:
    """Those that hold at a moment, in the order of their ids."""
    found = (one for one in silences if one.is_active(now_us))
    return sorted(found, key=lambda one: one.silence_id)


def silenced_by(labels: Mapping[str, str], standing: Iterable[Silence]) -> Silence | None:
    """The first silence, of those that hold now, that these labels fall under."""
    return next((one for one in standing if all_match(one.matchers, labels)), None)
