"""Cron rules against the slow and obvious way: look at each day, and at each second."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import assume, given
from hypothesis import strategies as st

from engine.foundation.errors import ConfigError
from pipelines.scheduler.cron import cron_rule, next_fire_ms

Fields = tuple[str, str, Callable[[date], bool]]
NAMES = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
SATURDAY, SUNDAY = 7, 1


def weekday(day: date) -> int:
    return day.isoweekday() % 7 + 1


def length(day: date) -> int:
    return monthrange(day.year, day.month)[1]


def nearest_working_day(day: date) -> date:
    """Of the days of that month, the working one that is nearest, the earlier of two."""
    month = [day.replace(day=number) for number in range(1, length(day) + 1)]
    working = [one for one in month if weekday(one) not in {SATURDAY, SUNDAY}]
    return min(working, key=lambda one: (abs(one - day), one))


@st.composite
def days(draw: st.DrawFn) -> Fields:
    """Both fields of days, and which dates they mean, said in another way."""
    number, before, day = (
        draw(st.integers(1, 31)),
        draw(st.integers(0, 30)),
        draw(st.integers(1, 7)),
    )
    nth, step = draw(st.integers(1, 5)), draw(st.integers(1, 7))
    low, high = draw(st.integers(1, 31)), draw(st.integers(1, 31))
    span = range(low, high + 1) if low <= high else [*range(low, 32), *range(1, high + 1)]
    week = [(day + more - 1) % 7 + 1 for more in range(step)]

    def is_last(one: date, is_meant: Callable[[date], date]) -> bool:
        wanted = length(one) - before
        return wanted >= 1 and one == is_meant(one.replace(day=wanted))

    kinds = [
        ("*", "?", lambda one: True),
        (str(number), "?", lambda one: one.day == number),
        (f"{low}-{high}", "?", lambda one: one.day in span),
        (f"{low}/{step}", "?", lambda one: one.day >= low and (one.day - low) % step == 0),
        (f"L-{before}", "?", lambda one: is_last(one, lambda at: at)),
        (f"L-{before}W", "?", lambda one: is_last(one, nearest_working_day)),
        ("LW", "?", lambda one: one == nearest_working_day(one.replace(day=length(one)))),
        (f"{number}W", "?", lambda one: number <= length(one)
         and one == nearest_working_day(one.replace(day=number))),
        ("?", f"{day}-{week[-1]}", lambda one: weekday(one) in week),
        ("?", NAMES[day - 1], lambda one: weekday(one) == day),
        ("?", f"{day}#{nth}", lambda one: weekday(one) == day and (one.day - 1) // 7 == nth - 1),
        ("?", f"{NAMES[day - 1]}L", lambda one: weekday(one) == day and one.day + 7 > length(one)),
    ]  # fmt: skip
    return draw(st.sampled_from(kinds))


@given(
    days(), st.sets(st.integers(1, 12), min_size=1), st.dates(date(2019, 1, 1), date(2027, 1, 1))
)
def test_a_rule_means_the_days_that_a_calendar_shows(
    fields: Fields, months: set[int], begin: date
) -> None:
    day, week, matches = fields
    try:
        rule = cron_rule(f"0 0 0 {day} {','.join(map(str, sorted(months)))} {week}")
    except ConfigError:
        assume(False)
    wanted = [
        one
        for one in (begin + timedelta(days=number) for number in range(800))
        if one.month in months and matches(one)
    ][:5]
    shown, found = datetime.combine(begin, datetime.min.time()), []
    for _ in wanted:
        at = rule.first_at_or_after(shown)
        assert at is not None
        found.append(at.date())
        shown = at + timedelta(seconds=1)
    assert found == wanted


TIMES = st.sets(st.integers(0, 59), min_size=1, max_size=4)
CHANGES = {
    "Europe/Berlin": (datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC)),
    "Australia/Lord_Howe": (
        datetime(2026, 4, 4, 15, tzinfo=UTC), datetime(2026, 10, 3, 15, 30, tzinfo=UTC),
    ),
    "America/Sao_Paulo": (
        datetime(2018, 2, 18, 2, tzinfo=UTC), datetime(2018, 11, 4, 3, tzinfo=UTC),
    ),
    "Pacific/Apia": (datetime(2011, 12, 30, 10, tzinfo=UTC), datetime(2012, 3, 31, 14, tzinfo=UTC)),
}  # fmt: skip


@given(
    st.sampled_from([(zone, change) for zone in CHANGES for change in (0, 1)]),
    st.one_of(st.just(set(range(24))), st.sets(st.integers(0, 4), min_size=1, max_size=3)),
    TIMES,
    st.integers(-5400, 5400),
)
def test_a_rule_fires_at_the_seconds_that_a_clock_on_the_wall_shows(
    where: tuple[str, int], hours: set[int], minutes: set[int], begin_s: int
) -> None:
    zone, change = ZoneInfo(where[0]), CHANGES[where[0]][where[1]]
    named = ",".join(map(str, sorted(hours))) if len(hours) < 24 else "*"
    rule = cron_rule(f"0 {','.join(map(str, sorted(minutes)))} {named} * * ?")
    begin = change + timedelta(seconds=begin_s)
    wanted = None
    for minute in range(1, 240):
        moment = (begin + timedelta(minutes=minute)).replace(second=0)
        if fires_at(moment, zone, hours, minutes):
            wanted = moment
            break
    found = next_fire_ms(rule, int(begin.timestamp() * 1000), zone)
    if wanted is None:
        assert found is None or found >= (begin + timedelta(minutes=239)).timestamp() * 1000
    else:
        assert found == wanted.timestamp() * 1000


def fires_at(moment: datetime, zone: ZoneInfo, hours: set[int], minutes: set[int]) -> bool:
    """Does the rule mean this full minute? Every hour: what is shown. Else each time once, one that
    is leapt over when the leap ends.
    """
    shown = moment.astimezone(zone)
    is_shown = shown.hour in hours and shown.minute in minutes
    if len(hours) == 24:
        return is_shown
    if is_shown and shown.fold == 0:
        return True
    before = (moment - timedelta(minutes=1)).astimezone(zone).replace(tzinfo=None)
    leapt = before + timedelta(minutes=1)
    while leapt < shown.replace(tzinfo=None):
        if leapt.hour in hours and leapt.minute in minutes:
            return True
        leapt += timedelta(minutes=1)
    return False
