"""Parses Quartz-style seven-field cron rules and finds their next fire times in a time zone.

    second minute hour day-of-month month day-of-week [year]
    0-59   0-59   0-23 1-31         1-12  1-7, 1=Sun  1970-2199

Fields are `*`, values, names (JAN, MON), ranges (one that ends before it begins goes on past the
end: 22-2), steps (0/10, */7, 1-5/2) and lists of those. Exactly one of the two fields of days is
`?`. Days of the month besides: `L` the last, `L-3` three before it, `15W` the working day nearest
the 15th in its month, `LW`, `L-3W`. Days of the week besides: `L` Saturday, `6L` the month's last
Friday, `6#3` its third.

Where a zone's clock leaps or goes back, a rule that names hours means times of a day, each once: a
time that comes twice fires when it comes first, one that is leapt over when the leap ends. A rule
that leaves the hour open (`*`) means intervals: it fires in both of two equal hours, and not in an
hour that does not exist. XXL-Job skips a time that is leapt over, and of two equal hours it fires
in the later one alone.

Invariant: a rule that was made matches some day of its years, so that a search for the next time
ends, and the next fire time lies after the moment it is asked for. Where XXL-Job reads on past what
it does not understand (`MON-FRI/2`, `15W,20`, `5x`), a rule is refused, with what would be right; a
day that a month lacks (31W, L-30) is skipped there. Absent on purpose: clocks and files; the caller
brings the zone.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, NamedTuple

from engine.foundation.errors import ConfigError, MustBe, RuleBroken

YEAR_MIN: Final = 1970
YEAR_MAX: Final = 2199
"""No time beyond it is searched for: a rule without such a time has no next one."""

TEXT_CHARS_MAX: Final = 128

_MONTHS: Final = [
    "JAN",
    "FEB",
    "MAR",
    "APR",
    "MAY",
    "JUN",
    "JUL",
    "AUG",
    "SEP",
    "OCT",
    "NOV",
    "DEC",
]
_WEEKDAYS: Final = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
_SATURDAY: Final = 7
_SUNDAY: Final = 1

DaysOfMonth = Callable[[int, int], Sequence[int]]
"""The days of a month that match, in order; of (year, month)."""
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock's
_ONE_SECOND: Final = timedelta(seconds=1)
_LAST_S: Final = int(datetime(YEAR_MAX + 1, 1, 1, tzinfo=UTC).timestamp())


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    may_wrap: bool = True

    def refused(self, value: str, allowed: str) -> ConfigError:
        return MustBe(f"cron.{self.name}", value, allowed)


_SECOND: Final = _Field("second", 0, 59)
_MINUTE: Final = _Field("minute", 0, 59)
_HOUR: Final = _Field("hour", 0, 23)
_DAY: Final = _Field("day_of_month", 1, 31)
_MONTH: Final = _Field("month", 1, 12, tuple(_MONTHS))
_WEEKDAY: Final = _Field("day_of_week", 1, 7, tuple(_WEEKDAYS))
_YEAR: Final = _Field("year", YEAR_MIN, YEAR_MAX, may_wrap=False)


@dataclass(frozen=True, slots=True)
class CronRule:
    """A rule that was read. Its numbers are in order, each once."""

    text: str
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    months: tuple[int, ...]
    years: tuple[int, ...]
    days: DaysOfMonth

    @property
    def is_every_hour(self) -> bool:
        """Does it leave the hour open? Then it means intervals, not times of a day."""
        return len(self.hours) == 24

    def first_at_or_after(self, shown: datetime) -> datetime | None:
        """The first time of the wall clock that matches and is not before `shown`, to the second;
        None when there is none up to the end of YEAR_MAX. Both are without a zone.
        """
        clock = self._clock_at_or_after(shown.hour, shown.minute, shown.second)
        first_day = shown.day if clock is not None else shown.day + 1
        for year in self.years[bisect_left(self.years, shown.year) :]:
            for month in self.months:
                if (year, month) < (shown.year, shown.month):
                    continue
                is_now = (year, month) == (shown.year, shown.month)
                days = self.days(year, month)
                at = bisect_left(days, first_day) if is_now else 0
                if at == len(days):
                    continue
                if not (is_now and days[at] == shown.day and clock is not None):
                    clock = self.hours[0], self.minutes[0], self.seconds[0]
                return datetime(year, month, days[at], *clock)  # noqa: DTZ001 - a wall clock's
        return None

    def _clock_at_or_after(
        self, hour: int, minute: int, second: int
    ) -> tuple[int, int, int] | None:
        """The first time of a day that matches, hour, minute and second, from this one on."""
        at = bisect_left(self.seconds, second)
        if at < len(self.seconds):
            second = self.seconds[at]
        else:
            second, minute = self.seconds[0], minute + 1
        at = bisect_left(self.minutes, minute)
        if at == len(self.minutes):
            hour, minute, second = hour + 1, self.minutes[0], self.seconds[0]
        elif self.minutes[at] != minute:
            minute, second = self.minutes[at], self.seconds[0]
        at = bisect_left(self.hours, hour)
        if at == len(self.hours):
            return None
        if self.hours[at] != hour:
            return self.hours[at], self.minutes[0], self.seconds[0]
        return hour, minute, second


def _broken(text: str, has: str) -> RuleBroken:
    return RuleBroken("cron", text, f"cron {text!r} must have {has}")


def cron_rule(text: str) -> CronRule:
    """The rule of a text; raises ConfigError naming the field, its value and what is allowed."""
    if len(text) > TEXT_CHARS_MAX:
        raise MustBe("cron", f"{text[:32]}…", f"at most {TEXT_CHARS_MAX} characters")
    fields = text.upper().split()
    if len(fields) not in {6, 7}:
        raise MustBe("cron", text, "six fields or seven: second minute hour day month weekday")
    second, minute, hour, day, month, weekday = fields[:6]
    if (day == "?") == (weekday == "?"):
        raise _broken(text, "`?` in one of the day of month and of week, not in both")
    rule = CronRule(
        text=text,
        seconds=_values(_SECOND, second),
        minutes=_values(_MINUTE, minute),
        hours=_values(_HOUR, hour),
        months=_values(_MONTH, month),
        years=_values(_YEAR, fields[6] if len(fields) == 7 else "*"),
        days=_by_weekday(weekday) if day == "?" else _by_day(day),
    )
    if rule.first_at_or_after(datetime(YEAR_MIN, 1, 1)) is None:  # noqa: DTZ001 - a wall clock's
        raise _broken(text, "a day that its months have in one of its years at least")
    return rule


_ITEM: Final = re.compile(
    r"(?P<begin>\*|[0-9]{1,4}|[A-Z]{3})?(-(?P<end>[0-9]{1,4}|[A-Z]{3}))?(/(?P<step>[0-9]{1,4}))?"
)


def _values(field: _Field, text: str) -> tuple[int, ...]:
    """The numbers of a field without signs of its own."""
    return tuple(sorted({value for item in text.split(",") for value in _item(field, item)}))


def _item(field: _Field, text: str) -> range | list[int]:
    """The numbers of one item of a list: `*`, a value or a range, with or without a step."""
    found = _ITEM.fullmatch(text)
    begin, end, step_text = (found["begin"], found["end"], found["step"]) if found else (None,) * 3
    if found is None or not (begin or step_text) or (end and begin in {None, "*"}):
        raise field.refused(text, f"a value, `*`, a range or a step of {field.low}-{field.high}")
    if step_text and begin and begin.isalpha():
        raise field.refused(text, "steps after numbers: a step after a name is not read")
    step = int(step_text or 0)
    if step > field.high:
        raise field.refused(text, f"a step of at most {field.high}")
    if begin in {None, "*"}:
        return range(field.low, field.high + 1, step or 1)
    low = _number(field, begin or "", text)
    if end is None:
        return range(low, (field.high if step else low) + 1, step or 1)
    high = _number(field, end, text)
    if step_text and step == 0:
        return [low]  # As in Quartz: a step of nothing stays where it begins.
    if low <= high:
        return range(low, high + 1, step or 1)
    if not field.may_wrap:
        raise field.refused(text, "a range that begins before it ends")
    size = field.high - field.low + 1
    return [
        (value - field.low) % size + field.low for value in range(low, high + size + 1, step or 1)
    ]


def _number(field: _Field, word: str, text: str) -> int:
    if word in field.names:
        return field.names.index(word) + 1
    if not word.isdigit() or not field.low <= int(word) <= field.high:
        named = f", {field.names[0]}-{field.names[-1]}" if field.names else ""
        raise field.refused(text, f"{field.low}-{field.high}{named}")
    return int(word)


def _by_day(text: str) -> DaysOfMonth:
    """The days of a field of days of the month."""
    if last := re.fullmatch(r"L(-(?P<before>[0-9]{1,2}))?(?P<working>W)?", text):
        before = int(last["before"] or 0)
        if before > 30:
            raise _DAY.refused(text, "L-0 to L-30: no month is longer")
        return _last_day(before, is_working=bool(last["working"]))
    if nearest := re.fullmatch(r"([0-9]{1,2})W", text):
        return _nearest_working_day(_number(_DAY, nearest[1], text))
    if re.search(r"[LW]", text):
        raise _DAY.refused(text, "L, L-n, LW, L-nW and nW stand alone, without a list or a range")
    wanted = _values(_DAY, text)

    def matching(year: int, month: int) -> Sequence[int]:
        length = monthrange(year, month)[1]
        return wanted[: bisect_left(wanted, length + 1)]

    return matching


def _last_day(before: int, *, is_working: bool) -> DaysOfMonth:
    def matching(year: int, month: int) -> Sequence[int]:
        day = monthrange(year, month)[1] - before
        if day < 1:
            return ()
        return (_working_day(year, month, day) if is_working else day,)

    return matching


def _nearest_working_day(wanted: int) -> DaysOfMonth:
    def matching(year: int, month: int) -> Sequence[int]:
        is_there = wanted <= monthrange(year, month)[1]
        return (_working_day(year, month, wanted),) if is_there else ()

    return matching


def _working_day(year: int, month: int, day: int) -> int:
    """Monday to Friday nearest to a day, within its month."""
    first_weekday, length = monthrange(year, month)
    weekday = _weekday(first_weekday, day)
    if weekday == _SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == _SUNDAY:
        return day + 1 if day < length else day - 2
    return day


def _by_weekday(text: str) -> DaysOfMonth:
    """The days of a field of days of the week."""
    if third := re.fullmatch(r"([0-9]|[A-Z]{3})#([0-9])", text):
        nth = int(third[2])
        if not 1 <= nth <= 5:
            raise _WEEKDAY.refused(text, "#1 to #5")
        return _nth_weekday(_number(_WEEKDAY, third[1], text), nth)
    if last := re.fullmatch(r"([0-9]|[A-Z]{3})L", text):
        return _nth_weekday(_number(_WEEKDAY, last[1], text), 0)
    if "#" in text or re.search(r"[0-9]L|[A-Z]{3}L", text):
        raise _WEEKDAY.refused(text, "n#k and nL stand alone, without a list or a range")
    wanted = frozenset((_SATURDAY,) if text == "L" else _values(_WEEKDAY, text))

    def matching(year: int, month: int) -> Sequence[int]:
        first_weekday, length = monthrange(year, month)
        return [day for day in range(1, length + 1) if _weekday(first_weekday, day) in wanted]

    return matching


def _nth_weekday(weekday: int, nth: int) -> DaysOfMonth:
    """The nth such day of a month, from 1; 0 for its last."""

    def matching(year: int, month: int) -> Sequence[int]:
        first_weekday, length = monthrange(year, month)
        first = 1 + (weekday - _weekday(first_weekday, 1)) % 7
        days = range(first, length + 1, 7)
        return days[nth - 1 : nth] if nth else days[-1:]

    return matching


def _weekday(first_weekday: int, day: int) -> int:
    """1 = Sunday to 7 = Saturday, of a day whose month begins on `first_weekday` (0 = Monday)."""
    return (first_weekday + day) % 7 + 1


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
    first_s = (shown - before - _EPOCH) // _ONE_SECOND
    second_s = (shown - after - _EPOCH) // _ONE_SECOND
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
        shown = at.repeated_until if at.is_twice else shown + _ONE_SECOND
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
            return (first - at.before - _EPOCH) // _ONE_SECOND
        again = rule.first_at_or_after(at.repeated_from)
        if again is not None and again < at.repeated_until:
            return (again - at.after - _EPOCH) // _ONE_SECOND
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
