"""Next fire times of a cron rule in a time zone, across changes of the clock.

Place in the walk: between `cron`, which knows no zones, and `schedules`.

The rule, where a zone's clock leaps or goes back:

- A rule that names hours means times of a day, each once. A time that comes twice fires when it
  comes first. A time that the clock leaps over fires when the leap ends; several such fire once.
- A rule that leaves the hour open (`*`) means intervals. It fires whenever the clock shows what it
  asks for: in both of two equal hours, and not for an hour that does not exist.

XXL-Job differs on these days only: it skips a time that is leapt over, and of two equal hours it
fires in the later one alone, whatever the rule, so that a rule of each minute rests for an hour.

Invariant: the next fire time lies after the moment it is asked for. Absent on purpose: clocks and
files; the caller brings the zone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from pipelines.scheduler.cron import YEAR_MAX, YEAR_MIN, CronRule

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock's
_SECOND: Final = timedelta(seconds=1)
_LAST_S: Final = int(datetime(YEAR_MAX + 1, 1, 1, tzinfo=UTC).timestamp())


def next_fire_ms(rule: CronRule, after_ms: int, zone: tzinfo) -> int | None:
    """The first moment after this one at which the rule fires, in ms since 1970 UTC; None when
    there is none until the end of YEAR_MAX.
    """
    after_s = max(after_ms // 1000, -1)
    if after_s >= _LAST_S:
        return None
    if rule.is_every_hour:
        found_s = _next_whenever_shown(rule, after_s, zone)
    else:
        found_s = _next_once(rule, after_s, zone)
    return None if found_s is None else found_s * 1000


@dataclass(frozen=True, slots=True)
class _Shown:
    """When a wall clock shows a time: once (both moments equal), twice, or never."""

    first_s: int
    second_s: int
    """Later than `first_s` where the time comes twice; earlier where it never comes."""
    change_s: int
    """Where the clock is set, of a time that comes twice or never; else the moment itself."""
    before: timedelta
    after: timedelta
    """Offsets of the zone, on both sides of the change."""

    @property
    def is_twice(self) -> bool:
        return self.second_s > self.first_s

    @property
    def is_never(self) -> bool:
        return self.second_s < self.first_s

    @property
    def repeated_from(self) -> datetime:
        """What the clock shows when it has been set."""
        return _EPOCH + timedelta(seconds=self.change_s) + self.after

    @property
    def repeated_until(self) -> datetime:
        """What it would have shown then, and soon shows, had it not been set back."""
        return _EPOCH + timedelta(seconds=self.change_s) + self.before


def _shown(shown: datetime, zone: tzinfo) -> _Shown:
    before = shown.replace(tzinfo=zone, fold=0).utcoffset() or timedelta()
    after = shown.replace(tzinfo=zone, fold=1).utcoffset() or timedelta()
    first_s = (shown - before - _EPOCH) // _SECOND
    second_s = (shown - after - _EPOCH) // _SECOND
    change_s = first_s
    if before != after:
        change_s = _change(zone, min(first_s, second_s), max(first_s, second_s))
    return _Shown(first_s, second_s, change_s, before, after)


def _change(zone: tzinfo, low_s: int, high_s: int) -> int:
    """The first second, between two with different offsets, that has the offset of the latter."""
    wanted = _offset(zone, high_s)
    while high_s - low_s > 1:
        middle_s = (low_s + high_s) // 2
        if _offset(zone, middle_s) == wanted:
            high_s = middle_s
        else:
            low_s = middle_s
    return high_s


def _offset(zone: tzinfo, moment_s: int) -> timedelta:
    return datetime.fromtimestamp(moment_s, zone).utcoffset() or timedelta()


def _wall(zone: tzinfo, moment_s: int) -> datetime:
    shown = (_EPOCH + timedelta(seconds=moment_s)).replace(tzinfo=UTC).astimezone(zone)
    local = shown.replace(tzinfo=None)
    return max(local, datetime(YEAR_MIN, 1, 1, fold=local.fold))  # noqa: DTZ001


def _next_once(rule: CronRule, after_s: int, zone: tzinfo) -> int | None:
    """Each time of the wall clock fires once; their moments never go back as the times go on."""
    shown: datetime | None = _wall(zone, after_s).replace(fold=0)
    for _ in range(
        8
    ):  # Changes of the clock that lie between: one at most, in every zone there is.
        shown = None if shown is None else rule.first_at_or_after(shown)
        if shown is None:
            return None
        at = _shown(shown, zone)
        fires_s = at.change_s if at.is_never else at.first_s
        if fires_s > after_s:
            return fires_s
        shown = at.repeated_until if at.is_twice else shown + _SECOND
        if at.is_never:
            shown = max(shown, at.repeated_from)
    raise AssertionError(f"{zone} sets its clock without end")


def _next_whenever_shown(rule: CronRule, after_s: int, zone: tzinfo) -> int | None:
    """Each moment at which the wall clock shows a time that matches."""
    begin_s = after_s + 1
    shown = _wall(zone, begin_s)
    at = _shown(shown.replace(fold=0), zone)
    if at.is_twice and shown.fold == 0:
        first = rule.first_at_or_after(shown)
        if first is not None and first < at.repeated_until:
            return (first - at.before - _EPOCH) // _SECOND
        again = rule.first_at_or_after(at.repeated_from)
        if again is not None and again < at.repeated_until:
            return (again - at.after - _EPOCH) // _SECOND
        shown = at.repeated_until
    found = rule.first_at_or_after(shown.replace(fold=0))
    for _ in range(1000):  # Days on which the rule's only times do not exist: two centuries' worth.
        if found is None:
            return None
        at = _shown(found, zone)
        if not at.is_never:
            return at.first_s if at.first_s > after_s else at.second_s
        found = rule.first_at_or_after(at.repeated_from)
    raise AssertionError(f"{zone} sets its clock without end")
