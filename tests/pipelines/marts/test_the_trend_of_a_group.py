"""The trend of a group is that of all its queues together, over one span."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.base.settings import Evaluation
from pipelines.marts.groups.sums import courses
from pipelines.marts.judging.packed import UNKNOWN
from tests.amounts import examples
from tests.pipelines.bronze_lake import SECOND
from tests.pipelines.marts.reported_story import second
from tests.pipelines.marts.test_judges_row_by_row import Story

Lags = Callable[[int], int | None]
"""How far a queue is behind at a second; None: it has no offset."""


def polled(queues: Sequence[Lags], *, seconds: int, each_s: int = 10) -> list[dict[str, Any]]:
    """States of a group whose queues are looked at so often, all else unchanged."""
    story = Story()
    story.event("SNAPSHOT", seq_from=1)
    for at in range(2, seconds, each_s):
        broker = story.at(at)
        for queue_id, lag_at in enumerate(queues):
            lag = lag_at(at)
            end = 1000 + 50 * at
            values: dict[str, Any] = {"max_offset": end, "pulled": None, "last_pull_time": None}
            if lag is None:
                values |= {"committed": None, "committed_state": "NONE"}
            else:
                since = broker.now_us - lag * SECOND // 50
                values |= {"committed": end - lag, "store_time_at_committed": since}
                values["committed_state"] = "EXACT" if lag else "AT_END"
                if not lag:
                    values["store_time_at_committed"] = None
            broker.watermark(queue_id, **values)
    story.at(seconds)
    return [
        row for row in story.gold()["group_state"] if row["state"] != "UNKNOWN" or row["queues"]
    ]


def trends(rows: list[dict[str, Any]], since: float) -> set[str | None]:
    return {row["trend"] for row in rows if second(row["observed_at"]) >= since}


def uneven(rate: int, seed: int) -> Lags:
    """Grows by a rate a minute, in steps that no line fits."""
    return lambda at: rate * at // 60 + (at * seed) % 7


def resting(_at: int) -> int:
    return 0


def test_four_queues_that_grow_beside_one_at_rest_are_never_steady() -> None:
    queues = [*(uneven(rate, seed) for rate, seed in ((130, 3), (126, 5), (140, 2), (122, 4)))]
    rows = polled([*queues, resting], seconds=600)
    assert trends(rows, 80) == {"GROWING"}
    assert {row["state"] for row in rows if second(row["observed_at"]) >= 80} <= {"OK", "SLOW"}


def test_a_group_that_is_killed_grows_within_a_minute_and_until_it_works_again() -> None:
    def killed(at: int) -> int:
        return 97 + (0 if at < 200 else 5 * (at - 200))

    rows = polled([killed, resting], seconds=420)
    assert trends(rows, 250) == {"GROWING"}
    assert trends([row for row in rows if second(row["observed_at"]) < 200], 80) == {"STEADY"}


def test_with_one_queue_unknown_the_trend_is_unknown() -> None:
    rows = polled([uneven(130, 3), lambda at: 0 if at < 100 else None], seconds=200)
    assert trends([row for row in rows if second(row["observed_at"]) < 100], 80) == {"GROWING"}
    assert trends(rows, 110) == {None}
    assert {row["lag_change_per_hour"] for row in rows[-3:]} == {None}


def test_a_reset_backwards_is_no_change_of_lag() -> None:
    """What lay before it is compared with nothing; the first window after it shows the drain."""

    def set_back_at_100(at: int) -> int:
        return 20 if at < 100 else max(0, 4000 - 30 * (at - 100))

    rows = polled([set_back_at_100, resting], seconds=300, each_s=2)
    seen = {
        (row["trend"], row["trend_unknown_reason"])
        for row in rows
        if 100 <= second(row["observed_at"]) < 110
    }
    assert seen == {(None, "JUMPED")}
    assert trends(rows[:20], 110) == {"SHRINKING"}


def test_a_queue_that_is_set_back_has_no_trend_over_the_jump() -> None:
    story = Story()
    for at, committed in ((2, 1000), (12, 1100), (22, 0), (27, 100), (34, 300)):
        story.at(at).watermark(committed=committed, max_offset=1200)
    story.at(40)
    made = sorted(story.gold()["consumer_lag"], key=lambda row: row["seq"])
    trends_seen = [row["trend"] for row in made]
    assert trends_seen == [None, "SHRINKING", None, None, "SHRINKING"]


def test_courses_of_some_queues_are_no_course_of_the_group() -> None:
    """Of one queue the course was certain, and nothing is known of it any more."""
    known = {"open": 50, "open_before": 40, "growth": 600, "swings": False, "tick_us": 60}
    figures = {name: np.array([value, value]) for name, value in known.items()}
    figures["swings"] = figures["swings"].astype(bool)
    one, none = np.zeros(2, np.int64), np.array([UNKNOWN])
    change, _ = courses(one, 1, figures, none, tick_us=60, evaluation=Evaluation())
    assert change.tolist() == [1200]
    figures["open"][1] = UNKNOWN
    change, _ = courses(one, 1, figures, none, tick_us=60, evaluation=Evaluation())
    assert change.tolist() == [UNKNOWN]


@examples(8, in_full=50)
@given(rates=st.lists(st.integers(60, 300), min_size=1, max_size=4), at=st.integers(8, 12))
def test_the_change_of_a_group_is_the_sum_of_the_changes_of_its_queues_over_one_span(
    rates: list[int], at: int
) -> None:
    queues: list[Lags] = [lambda at, rate=rate: rate * at // 60 for rate in rates]  # type: ignore[misc]
    [last] = polled(queues, seconds=10 * at + 5)[-1:]
    now = int(second(last["observed_at"])) // 10 * 10 - 8
    changes = [queue(now) - queue(now - 60) for queue in queues]  # type: ignore[operator]
    assert last["lag_change_per_hour"] == 60 * sum(changes)


@pytest.mark.parametrize("period_s", [20, 40])
def test_what_comes_and_goes_within_the_span_is_no_trend(period_s: int) -> None:
    rows = polled([lambda at: 40 * (at % period_s) // 10, resting], seconds=600)
    assert trends(rows, 300) == {"STEADY"}
