"""Our time lag from polled ends: what it says, how sure it is, and where it says that it is not."""

from __future__ import annotations

import pytest

from engine.foundation.errors import ConfigError
from pipelines.rules.time_lag import Polled, PolledEnds, Provenance, Reason, TimeLag

INTERPOLATED, EXTRAPOLATED = Provenance.INTERPOLATED, Provenance.EXTRAPOLATED


def polls(*points: tuple[int, int], points_max: int = 120) -> PolledEnds:
    made = PolledEnds(points_max=points_max)
    for max_offset, time_ms in points:
        made.add(max_offset, time_ms)
    return made


def test_a_message_between_two_polls_was_stored_between_them() -> None:
    ends = polls((100, 0), (200, 10_000))
    assert ends.time_lag(149, now_ms=12_000) == TimeLag(
        lag_ms=7_000, error_ms=5_000, provenance=INTERPOLATED, least_ms=2_000, most_ms=12_000
    )


def test_the_last_message_of_a_poll_was_stored_by_then_at_the_latest() -> None:
    assert polls((100, 0), (200, 10_000)).time_lag(199, now_ms=10_000).lag_ms == 0


def test_a_pause_of_the_producer_is_no_part_of_the_way() -> None:
    """The end stood at 200 from 10 s to 60 s: message 200 came after it, message 199 before it."""
    ends = polls((100, 0), (200, 10_000), (200, 60_000), (300, 70_000))
    assert ends.time_lag(199, now_ms=70_000).lag_ms == 60_000
    after = ends.time_lag(200, now_ms=70_000)
    assert (after.lag_ms, after.least_ms, after.most_ms) == (9_900, 0, 10_000)


def test_a_drained_queue_has_no_lag_however_long_it_is_idle() -> None:
    ends = PolledEnds()
    for minute in range(1_000):
        ends.add(500, minute * 60_000)
        assert ends.time_lag(500, now_ms=minute * 60_000) == TimeLag(
            0, 0, INTERPOLATED, least_ms=0, most_ms=0
        )
    assert len(ends) == 2


def test_since_the_newest_poll_something_may_have_come() -> None:
    assert polls((500, 0)).time_lag(500, now_ms=4_000) == TimeLag(
        0, 4_000, EXTRAPOLATED, least_ms=0, most_ms=4_000
    )
    assert polls((500, 0)).time_lag(507, now_ms=4_000).most_ms == 4_000


def test_what_was_there_before_the_first_poll_has_waited_at_least_since_then() -> None:
    assert polls((500, 1_000), (500, 9_000)).time_lag(499, now_ms=9_000) == TimeLag(
        None, None, Provenance.UNKNOWN, Reason.BEFORE_FIRST_POLL, least_ms=8_000
    )


@pytest.mark.parametrize(
    ("ends", "committed", "least", "reason"),
    [
        (polls((500, 0)), None, None, Reason.NO_OFFSET),
        (polls(), 3, None, Reason.NO_POLLS),
        (polls((500, 0)), 501, None, Reason.AHEAD_OF_END),
        (polls((500, 0)), 10, 11, Reason.PURGED),
    ],
    ids=["no offset", "no polls", "ahead of the end", "purged"],
)
def test_what_cannot_be_known_says_why(
    ends: PolledEnds, committed: int | None, least: int | None, reason: Reason
) -> None:
    found = ends.time_lag(committed, now_ms=0, min_offset=least)
    assert (found.lag_ms, found.error_ms, found.reason) == (None, None, reason)
    assert found.provenance is (
        Provenance.PURGED if reason is Reason.PURGED else Provenance.UNKNOWN
    )


def test_the_first_message_that_is_kept_is_not_purged() -> None:
    assert polls((5, 0), (9, 10)).time_lag(7, now_ms=10, min_offset=7).reason is None


def test_a_topic_that_is_made_again_is_known_from_its_first_poll_on() -> None:
    ends = polls((0, 0), (90_000, 10_000))
    assert ends.add(40, 20_000) is Polled.NEW_LIFE
    ends.add(140, 30_000)
    assert ends.time_lag(90, now_ms=30_000) == TimeLag(
        4_900, 5_100, INTERPOLATED, least_ms=0, most_ms=10_000
    )
    assert ends.time_lag(140, now_ms=30_000).lag_ms == 0


def test_below_a_fall_the_message_may_be_of_either_life() -> None:
    """End 100 at 0, 200 at 10 s, 150 at 20 s: message 120 came between 0 and 10 s if the newest
    were lost, and between 10 s and 20 s if the queue was made again.
    """
    ends = polls((100, 0), (200, 10_000), (150, 20_000))
    assert ends.time_lag(120, now_ms=25_000) == TimeLag(
        15_000, 10_000, EXTRAPOLATED, least_ms=5_000, most_ms=25_000
    )
    assert ends.time_lag(90, now_ms=25_000).reason is Reason.BEFORE_FIRST_POLL
    assert ends.time_lag(90, now_ms=25_000).least_ms == 5_000


def test_what_was_lost_and_written_again_may_be_as_young_as_the_first_poll_after() -> None:
    """End 100 at 10 s and 200 at 20 s, then 150 lost and 100 written: 150 at 30 s. Message 80 was
    there at 10 s, and is another one since.
    """
    ends = polls((0, 0), (100, 10_000), (200, 20_000), (150, 30_000))
    assert ends.time_lag(80, now_ms=30_000) == TimeLag(
        15_000, 15_000, EXTRAPOLATED, least_ms=0, most_ms=30_000
    )


def test_polls_that_come_late_are_passed_over() -> None:
    ends = polls((100, 5_000))
    assert ends.add(110, 4_000) is Polled.OUT_OF_ORDER
    assert ends.add(100, 5_000) is Polled.OUT_OF_ORDER
    assert ends.add(90, 5_000) is Polled.OUT_OF_ORDER
    assert ends.points == [(100, 5_000)]
    assert ends.add(100, 6_000) is Polled.ADDED
    assert ends.add(100, 7_000) is Polled.EXTENDED
    assert ends.points == [(100, 5_000), (100, 7_000)]


def test_of_the_polls_of_one_ms_the_highest_counts() -> None:
    ends = polls((0, 0), (100, 5_000))
    assert ends.add(110, 5_000) is Polled.EXTENDED
    assert ends.points == [(0, 0), (110, 5_000)]
    assert ends.time_lag(110, now_ms=5_000).lag_ms == 0
    assert ends.time_lag(109, now_ms=5_000).most_ms == 5_000


def test_a_week_of_polls_fits_into_the_points_and_stays_known_to_a_share_of_its_age() -> None:
    ends = PolledEnds()
    every_ms, polled = 30_000, 7 * 2_880
    for number in range(polled):
        ends.add(number * 300, number * every_ms)
    now_ms = (polled - 1) * every_ms
    assert len(ends) == 120
    for back in (1, 10, 100, 1_000, 10_000, polled - 2):
        found = ends.time_lag((polled - 1 - back) * 300 - 150, now_ms=now_ms)
        assert found.error_ms is not None
        assert found.most_ms is not None
        assert found.error_ms <= max(every_ms, found.most_ms * 0.09)


def test_too_few_points_to_keep_are_refused() -> None:
    with pytest.raises(ConfigError, match="points_max=2 is not allowed: 3 or more"):
        PolledEnds(points_max=2)
