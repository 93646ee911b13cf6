"""Cron rules: the times that XXL-Job's own class gives, what is refused, clocks that are set."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from engine.foundation.errors import ConfigError
from pipelines.scheduler.cron import cron_rule, next_fire_ms

CASES = json.loads(
    (Path(__file__).parents[2] / "cases" / "xxl_cron_route.json").read_text(encoding="utf-8")
)["cron"]


def fires(expression: str, begin: str, zone: str, count: int) -> list[str]:
    """The next fire times after a moment, as a clock in that zone shows them."""
    rule, there = cron_rule(expression), ZoneInfo(zone)
    moment = datetime.fromisoformat(begin)
    moment_ms: int | None = int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)
    found = []
    for _ in range(count):
        assert moment_ms is not None
        moment_ms = next_fire_ms(rule, moment_ms, there)
        if moment_ms is None:
            found.append("none")
            break
        found.append(datetime.fromtimestamp(moment_ms / 1000, there).isoformat())
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["expr"] or "nothing")
def test_next_times_are_those_of_xxl_job(case: dict[str, Any]) -> None:
    if not case["valid"]:
        with pytest.raises(ConfigError):
            cron_rule(case["expr"])
        return
    wanted = ["none" if time is None else f"{time}+00:00" for time in case["next"]]
    assert fires(case["expr"], case["from"], "UTC", len(wanted)) == wanted


@pytest.mark.parametrize(
    ("expression", "field"),
    [
        ("0 0 0 30 2 ?", "a day that its months have"),
        ("0 0 0 31 4,6,9,11 ?", "a day that its months have"),
        ("0 0 0 29 2 ? 2025-2027", "a day that its months have"),
        ("0 0 0 ? 2 7#5 2025", "a day that its months have"),
        ("* * * * *", "six fields or seven"),
        ("0 0 0 1 1 ? 2030 2031", "six fields or seven"),
        ("0 0 0 1 1 ? 2200", "1970-2199"),
        ("0 0 0 1 1 ? 2031-2030", "begins before it ends"),
        ("0 0 0 15W,20 * ?", "stand alone"),
        ("0 0 0 L,3 * ?", "stand alone"),
        ("0 0 0 L-31 * ?", "L-0 to L-30"),
        ("0 0 0 ? * 6#6", "#1 to #5"),
        ("0 0 0 ? * 6#1,2#1", "stand alone"),
        ("0 0 0 ? * MON-FRI/2", "steps after numbers"),
        ("0 0 0 ? * 8", "SUN-SAT"),
        ("5X * * * * ?", "a value"),
        ("-5 * * * * ?", "a value"),
        ("*-5 * * * * ?", "a value"),
        ("1,,2 * * * * ?", "a value"),
        ("0/60 * * * * ?", "a step of at most 59"),
        ("? * * * * ?", "a value"),
        ("? * * 1 * ?", "a value"),
        ("0 0 0 1 JAN-FOO ?", "JAN-DEC"),
        ("0 0 0 ? * 0#1", "1-7"),
        ("0 " * 200, "128 characters"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_with_what_would_be_right(
    expression: str, field: str
) -> None:
    with pytest.raises(ConfigError, match=field):
        cron_rule(expression)


def test_a_day_that_a_month_lacks_is_skipped_there() -> None:
    assert [time[:10] for time in fires("0 0 0 31W * ?", "2026-01-31", "UTC", 3)] == [
        "2026-03-31", "2026-05-29", "2026-07-31",
    ]  # fmt: skip
    assert [time[:10] for time in fires("0 0 0 L-30 * ?", "2026-01-02", "UTC", 2)] == [
        "2026-03-01", "2026-05-01",
    ]  # fmt: skip


def test_a_rule_goes_on_through_centuries_without_its_day() -> None:
    assert fires("0 0 0 29 2 ?", "2096-03-01", "UTC", 1)[0][:10] == "2104-02-29"
    assert fires("0 0 0 ? * *", "2199-12-31", "UTC", 1) == ["none"]
    assert fires("0 0 0 ? * *", "1900-01-01", "UTC", 1)[0][:10] == "1970-01-01"


@pytest.mark.parametrize(
    ("expression", "begin", "wanted"),
    [
        # The clock leaps from 02:00 to 03:00 on 29 March 2026, and goes back on 25 October.
        ("0 30 2 * * ?", "2026-03-28T12:00", ["29T03:00:00+02:00", "30T02:30:00+02:00"]),
        ("0 0/20 2 * * ?", "2026-03-29T00:00", ["29T03:00:00+02:00", "30T02:00:00+02:00"]),
        ("0 30 * * * ?", "2026-03-29T00:00", ["29T01:30:00+01:00", "29T03:30:00+02:00"]),
        ("0 30 2 * * ?", "2026-10-24T12:00", ["25T02:30:00+02:00", "26T02:30:00+01:00"]),
        ("0 30 * * * ?", "2026-10-24T23:45",
         ["25T02:30:00+02:00", "25T02:30:00+01:00", "25T03:30:00+01:00"]),
        ("0 0 2,3 * * ?", "2026-10-24T23:00", ["25T02:00:00+02:00", "25T03:00:00+01:00"]),
        ("0 0 3 * * ?", "2026-10-25T00:30", ["25T03:00:00+01:00"]),
        ("0 45 2 * * ?", "2026-10-25T01:30", ["26T02:45:00+01:00"]),
    ],
)  # fmt: skip
def test_when_the_clock_is_set(expression: str, begin: str, wanted: list[str]) -> None:
    found = fires(expression, begin, "Europe/Berlin", len(wanted))
    assert [time[8:] for time in found] == wanted


def test_a_day_that_a_zone_left_out_fires_when_the_next_begins() -> None:
    assert fires("0 0 12 30 12 ?", "2011-12-01", "Pacific/Apia", 1) == ["2011-12-31T00:00:00+14:00"]
