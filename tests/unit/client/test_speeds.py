"""How fast a member pulls and consumes: the minute before the question, failures of the hour."""

from __future__ import annotations

import pytest

from engine.client.consuming.consume_stats import LENGTHS_MAX, FlowControl, Speeds

BEGIN_MS = 1_700_000_000_000 // 60_000 * 60_000


def test_a_minute_of_steady_work_is_shown_as_rates_and_mean_times() -> None:
    speeds = Speeds()
    for second in range(120):
        now_ms = BEGIN_MS + second * 1000
        speeds.pulled("T", count=20, took_ms=4, now_ms=now_ms)
        speeds.consumed("T", succeeded=10, failed=0, took_ms=3, now_ms=now_ms)
        speeds.consumed("T", succeeded=8, failed=2, took_ms=5, now_ms=now_ms)
    speed = speeds.table(["T"], now_ms=BEGIN_MS + 120_000 - 1)["T"]
    assert (speed.pull_rt, speed.consume_rt) == (4, 4)
    rates = (speed.pull_tps, speed.consume_ok_tps, speed.consume_failed_tps)
    assert [round(rate or 0) for rate in rates] == [20, 18, 2]
    assert speed.consume_failed_msgs == 240


def test_what_is_older_than_a_minute_counts_no_more_and_a_failure_for_an_hour() -> None:
    speeds = Speeds()
    speeds.pulled("T", count=1, took_ms=9, now_ms=BEGIN_MS)
    speeds.consumed("T", succeeded=0, failed=1, took_ms=9, now_ms=BEGIN_MS)
    speed = speeds.table(["T"], now_ms=BEGIN_MS + 70_000)["T"]
    assert (speed.pull_rt, speed.pull_tps, speed.consume_rt, speed.consume_failed_tps) == (
        0,
        0,
        0,
        0,
    )
    assert speed.consume_failed_msgs == 1
    for later_ms, failures in ((59 * 60_000, 1), (61 * 60_000, 0)):
        assert speeds.table(["T"], now_ms=BEGIN_MS + later_ms)["T"].consume_failed_msgs == failures


def test_the_rate_of_a_first_instant_is_no_rate_of_thousands() -> None:
    speeds = Speeds()
    speeds.pulled("T", count=50, took_ms=1, now_ms=BEGIN_MS)
    assert speeds.table(["T"], now_ms=BEGIN_MS + 1)["T"].pull_tps == 5


def test_topics_that_are_not_asked_for_are_forgotten() -> None:
    speeds = Speeds()
    speeds.pulled("gone", count=50, took_ms=1, now_ms=BEGIN_MS)
    assert list(speeds.table(["T"], now_ms=BEGIN_MS)) == ["T"]
    assert speeds.table(["gone"], now_ms=BEGIN_MS)["gone"].pull_tps == 0


def test_percentiles_are_of_the_calls_of_a_minute_and_at_most_a_quarter_too_high() -> None:
    speeds = Speeds()
    for _ in range(990):
        speeds.consumed("T", succeeded=1, failed=0, took_ms=3, now_ms=BEGIN_MS)
    for _ in range(10):
        speeds.consumed("T", succeeded=1, failed=0, took_ms=1000, now_ms=BEGIN_MS)
    speed = speeds.table(["T"], now_ms=BEGIN_MS + 1)["T"]
    assert (speed.calls, speed.consume_p50, speed.consume_p99) == (1000, 3, 3)
    speeds.consumed("T", succeeded=1, failed=0, took_ms=1000, now_ms=BEGIN_MS)
    assert 1000 <= (speeds.table(["T"], now_ms=BEGIN_MS + 1)["T"].consume_p99 or 0) < 1250
    later = speeds.table(["T"], now_ms=BEGIN_MS + 70_000)["T"]
    assert (later.calls, later.consume_p50, later.consume_p99) == (0, None, None)


@pytest.mark.parametrize("took_ms", [0, 1, 3, 4, 5, 7, 8, 9, 99, 1000, 4095, 4096, 10**8, 10**12])
def test_a_single_call_is_its_own_percentile_to_within_a_quarter(took_ms: int) -> None:
    speeds = Speeds()
    speeds.consumed("T", succeeded=1, failed=0, took_ms=took_ms, now_ms=BEGIN_MS)
    speed = speeds.table(["T"], now_ms=BEGIN_MS)["T"].consume_p99
    longest = 1 << (LENGTHS_MAX // 4 + 2)
    assert speed is not None
    if took_ms < longest:
        assert took_ms <= speed <= took_ms * 1.25


def test_rests_of_pulls_are_reported_by_their_reason_for_a_minute() -> None:
    speeds = Speeds()
    for _ in range(3):
        speeds.rested("T", FlowControl.COUNT, rest_ms=50, now_ms=BEGIN_MS)
    speeds.rested("T", FlowControl.SPAN, rest_ms=50, now_ms=BEGIN_MS)
    speed = speeds.table(["T"], now_ms=BEGIN_MS)["T"]
    assert (speed.flow_count_ms, speed.flow_bytes_ms, speed.flow_span_ms) == (150, 0, 50)
    assert speeds.table(["T"], now_ms=BEGIN_MS + 70_000)["T"].flow_count_ms == 0
