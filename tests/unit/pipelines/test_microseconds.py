"""Moments as whole numbers: none loses a microsecond, whatever its zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.foundation.errors import ConfigError
from pipelines.base.time_units import given_us, micros, moment_at, utc_text

ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
INSIDE = {"min_value": datetime(1, 1, 2), "max_value": datetime(9999, 12, 30)}  # noqa: DTZ001
MOMENTS = st.datetimes(**INSIDE, timezones=ZONES)


@given(MOMENTS)
def test_a_moment_comes_back_as_it_was(moment: datetime) -> None:
    back = moment_at(micros(moment))
    assert (back, back.tzinfo) == (moment, UTC)


@given(MOMENTS, MOMENTS)
def test_numbers_are_as_far_apart_as_moments(first: datetime, second: datetime) -> None:
    assert timedelta(microseconds=micros(second) - micros(first)) == second - first


def test_a_moment_without_a_zone_is_of_utc_and_a_number_is_what_it_says() -> None:
    assert micros(datetime(1970, 1, 1, 0, 0, 1)) == 1_000_000  # noqa: DTZ001
    assert micros(-7) == -7
    assert moment_at(-1) == datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


@given(MOMENTS)
def test_a_text_is_of_utc_and_is_read_as_the_moment_it_was_written_of(moment: datetime) -> None:
    text = utc_text(moment)
    assert text.endswith("Z")
    assert given_us("--from", text) == given_us("--from", moment) == micros(moment)


def test_what_is_no_moment_is_refused_by_its_name_and_place() -> None:
    with pytest.raises(ConfigError, match=r"begin='soon'.*UTC unless it says else\) \(row 7\)"):
        given_us("begin", "soon", "row 7")
