"""Which period a report is about, and what groups should keep."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from engine.foundation.errors import ConfigError
from pipelines.alerting.objectives import Objective, objectives_of, read_objectives
from pipelines.reports.windows import Period, Window, last_of


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.parametrize(
    ("period", "zone", "at", "begin", "end"),
    [
        ("hourly", "UTC", "2026-03-01T12:00:00Z", "2026-03-01T11:00Z", "2026-03-01T12:00Z"),
        ("hourly", "UTC", "2026-03-01T12:59:59Z", "2026-03-01T11:00Z", "2026-03-01T12:00Z"),
        ("daily", "UTC", "2026-03-01T00:00:00Z", "2026-02-28T00:00Z", "2026-03-01T00:00Z"),
        (
            *("daily", "Europe/Berlin", "2026-03-30T05:00:00Z"),
            *("2026-03-29T00:00+01:00", "2026-03-30T00:00+02:00"),
        ),
        ("weekly", "UTC", "2026-03-04T08:00:00Z", "2026-02-23T00:00Z", "2026-03-02T00:00Z"),
        ("weekly", "UTC", "2026-03-02T00:00:00Z", "2026-02-23T00:00Z", "2026-03-02T00:00Z"),
    ],
)
def test_a_report_is_about_the_last_period_that_is_over(
    period: str, zone: str, at: str, begin: str, end: str
) -> None:
    window = last_of(Period(period), moment(at), zone=zone)
    assert (window.begin, window.end) == (moment(begin), moment(end))
    assert window.before.end == window.begin


def test_a_day_in_which_a_clock_is_set_has_its_own_length() -> None:
    window = last_of(Period.DAILY, moment("2026-03-30T05:00:00Z"), zone="Europe/Berlin")
    assert window.length_s == 23 * 3600
    assert window.before.length_s == 24 * 3600
    assert str(window) == "Sunday 29 March 2026 (Europe/Berlin)"


def test_longer_periods_are_reported_in_longer_slots() -> None:
    at = moment("2026-03-04T08:00:00Z")
    slots = [last_of(Period(one), at).slot_s for one in ("hourly", "daily", "weekly")]
    assert slots == [60, 60, 300]


def test_windows_that_cannot_be_are_refused() -> None:
    begin = moment("2026-03-01T12:00:00Z")
    for end in ("2026-03-01T12:00:00Z", "2026-03-01T11:00:00Z", "2026-09-01T12:00:00Z"):
        with pytest.raises(ConfigError, match="5 minutes to 92 days"):
            Window(Period.CUSTOM, begin, moment(end))
    with pytest.raises(ConfigError, match="IANA zone"):
        last_of(Period.DAILY, begin, zone="Nowhere/Land")


def test_the_first_objective_that_fits_a_group_is_its_own(tmp_path: Path) -> None:
    file = tmp_path / "objectives.toml"
    file.write_text(
        '[default]\nlag = "2m"\n[[objective]]\ngroup = "pay*"\nlag = "10s"\nshare = 99.9\n'
        '[[objective]]\ncluster = "Test*"\nshare = 50\n'
    )
    objectives = read_objectives(file)
    assert objectives.of("Prod", "payments") == Objective(10_000, 99.9)
    assert objectives.of("Test1", "mail") == Objective(120_000, 50.0)
    assert objectives.of("Prod", "mail") == Objective(120_000, 99.0)
    assert read_objectives(None).of("Prod", "mail") == Objective(60_000, 99.0)


@pytest.mark.parametrize(
    "given",
    [
        {"default": {"lag": "soon"}},
        {"default": {"share": 0}},
        {"default": {"share": True}},
        {"objective": [{"group": 5}]},
        {"objective": [{"grop": "x"}]},
        {"objectives": []},
    ],
)
def test_objectives_that_say_nothing_sound_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        objectives_of(given)
