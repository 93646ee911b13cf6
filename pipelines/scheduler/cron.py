"""Cron rules of seven fields, as in Quartz and XXL-Job: which wall-clock times match.

Place in the walk: the first step; `schedules` asks it for next fire times, and plans them.

    second minute hour day-of-month month day-of-week [year]
    0-59   0-59   0-23 1-31         1-12  1-7, 1=Sun  1970-2199

Fields are `*`, values, names (JAN, MON), ranges (one that ends before it begins goes on past the
end: 22-2), steps (0/10, */7, 1-5/2) and lists of those. Exactly one of the two fields of days is
`?`. Days of the month besides: `L` the last, `L-3` three before it, `15W` the working day nearest
the 15th in its month, `LW`, `L-3W`. Days of the week besides: `L` Saturday, `6L` the month's last
Friday, `6#3` its third.

Invariant: a rule that was made matches some day of its years, so that a search for the next time
ends. Where XXL-Job reads on past what it does not understand (`MON-FRI/2`, `15W,20`, `5x`), a rule
is refused, with what would be right; a day that a month lacks (31W, L-30) is skipped there.

Absent on purpose: zones. `wall_clock` says at which moment a wall clock shows a time.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from engine.foundation.errors import ConfigError

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


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    may_wrap: bool = True

    def refused(self, value: str, allowed: str) -> ConfigError:
        return ConfigError(f"cron.{self.name}", value, allowed)


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


def cron_rule(text: str) -> CronRule:
    """The rule of a text; raises ConfigError naming the field, its value and what is allowed."""
    if len(text) > TEXT_CHARS_MAX:
        raise ConfigError("cron", f"{text[:32]}…", f"at most {TEXT_CHARS_MAX} characters")
    fields = text.upper().split()
    if len(fields) not in {6, 7}:
        raise ConfigError("cron", text, "six fields or seven: second minute hour day month weekday")
    second, minute, hour, day, month, weekday = fields[:6]
    if (day == "?") == (weekday == "?"):
        raise ConfigError("cron", text, "`?` in one of the day of month and of week, not in both")
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
        raise ConfigError("cron", text, "a day that its months have in one of its years at least")
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
