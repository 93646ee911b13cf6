"""Schedules: the next time of each kind, after a pause of the centre too, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from engine.foundation.errors import ConfigError
from pipelines.scheduler.schedules import Schedule, schedule_of

NOON = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() * 1000)
HOUR = 3_600_000


def test_a_job_without_a_schedule_has_no_time() -> None:
    assert schedule_of("NONE", "").next_ms(NOON) is None


def test_a_cron_rule_is_read_in_the_zone_of_the_job() -> None:
    assert schedule_of("CRON", "0 0 8 * * ?", "UTC").next_ms(NOON) == NOON + 20 * HOUR
    assert schedule_of("CRON", "0 0 8 * * ?", "Asia/Shanghai").next_ms(NOON) == NOON + 12 * HOUR


def test_a_rate_keeps_its_beat_when_times_were_missed() -> None:
    rate = schedule_of("FIX_RATE", "60")
    assert rate.next_ms(NOON) == NOON + 60_000
    assert rate.after_missing_ms(NOON, NOON + 150_000) == NOON + 180_000
    assert rate.after_missing_ms(NOON, NOON + 120_000) == NOON + 180_000


def test_a_cron_rule_that_was_missed_goes_on_from_now() -> None:
    each_minute = schedule_of("CRON", "0 * * * * ?")
    assert each_minute.after_missing_ms(NOON, NOON + 150_000) == NOON + 180_000


def test_a_delay_counts_from_the_end_of_a_run() -> None:
    delay = schedule_of("FIX_DELAY", "30")
    assert delay.waits_for_the_end
    assert delay.next_ms(NOON + 7) == NOON + 30_007


def test_once_is_one_moment_and_then_never() -> None:
    once = schedule_of("ONCE", "2026-03-01T13:00", "Europe/Berlin")
    assert once.next_ms(NOON - HOUR) == NOON
    assert once.next_ms(NOON) is None
    assert schedule_of("ONCE", "2026-03-01T12:00:00Z").once_ms == NOON


@pytest.mark.parametrize(
    ("kind", "text", "zone", "reason"),
    [
        ("HOURLY", "1", "UTC", "CRON"),
        ("CRON", "0 0 0 31 2 ?", "UTC", "a day that its months have"),
        ("CRON", "0 0 0 * * ?", "Mars/Olympus", "IANA"),
        ("CRON", "0 0 0 * * ?", "../../etc/passwd", "IANA"),
        ("CRON", "0 0 0 * * ?", "", "IANA"),
        ("FIX_RATE", "0", "UTC", "whole seconds"),
        ("FIX_RATE", "-1", "UTC", "whole seconds"),
        ("FIX_RATE", "1.5", "UTC", "whole seconds"),
        ("FIX_DELAY", "9" * 30, "UTC", "whole seconds"),
        ("ONCE", "tomorrow", "UTC", "ISO 8601"),
        ("ONCE", "9999-12-31T23:59", "UTC", "1970 to 2199"),
        ("ONCE", "0001-01-01T00:00", "Asia/Tokyo", "1970 to 2199"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(kind: str, text: str, zone: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        schedule_of(kind, text, zone)


def test_equal_texts_give_equal_schedules_of_rates() -> None:
    assert schedule_of("FIX_RATE", "60") == Schedule(
        schedule_of("FIX_RATE", "60").kind, None, None, 60_000
    )
