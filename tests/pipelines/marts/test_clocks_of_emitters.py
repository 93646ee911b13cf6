"""How far an emitter's clock is from that of its lake, by horizons and when they were shipped; and
the age of messages when a clock was set.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.marts.emitter_health import BACKLOG_ROWS
from pipelines.marts.emitter_health import MART as EMITTER_HEALTH
from tests.pipelines.bronze_lake import SECOND, START_US
from tests.pipelines.marts.literal_facts import NOON, State, computed, facts, numbers, only
from tests.pipelines.marts.test_judges_row_by_row import Story

SKEW = ("clock_skew_ms", "clock_skew_reason")


def shipment(
    seq: int, *, horizon_s: float, shipped_s: float | None, rows: int = 1
) -> dict[str, Any]:
    """A shipment whose rows end with `seq`."""
    shipped = None if shipped_s is None else NOON + int(shipped_s * SECOND)
    return {
        "seq": seq,
        "emitter": "c/b/0/shipper",
        "seq_from": seq * 10_000 - rows + 1,
        "seq_to": seq * 10_000,
        "event_time_to": NOON + int(horizon_s * SECOND),
        "shipped_time": shipped,
    }


def skews(*shipments: dict[str, Any], state: State | None = None) -> tuple[list[Any], State]:
    """Skew of each, and why it is unknown."""
    given_facts = {"shipments": facts("shipments", *shipments), "row_numbers": numbers()}
    rows, carried = computed(EMITTER_HEALTH, given_facts, state)
    return only(rows, *SKEW), carried


def test_a_clock_that_is_right_lies_as_far_back_as_a_shipment_takes() -> None:
    skew, _ = skews(shipment(1, horizon_s=10, shipped_s=11.5))
    assert skew == [(-1500, None)]


@pytest.mark.parametrize("skew_s", [-3600, 3600])
def test_a_clock_that_is_off_shows_by_how_much(skew_s: int) -> None:
    each = [
        shipment(number, horizon_s=10 * number + skew_s, shipped_s=10 * number + late_s)
        for number, late_s in enumerate((4, 1, 3), start=1)
    ]
    skew, _ = skews(*each)
    assert [ms for ms, _ in skew] == [skew_s * 1000 - one for one in (4000, 1000, 1000)]


def test_the_least_late_of_the_last_twelve_counts_and_an_earlier_one_no_more() -> None:
    prompt = shipment(1, horizon_s=1, shipped_s=1.1)
    late = [shipment(number, horizon_s=number, shipped_s=number + 20) for number in range(2, 15)]
    skew, _ = skews(prompt, *late)
    assert [ms for ms, _ in skew] == [-100] * 12 + [-20_000] * 2


def test_what_an_earlier_shipper_or_a_backlog_cannot_show_is_unknown_with_its_reason() -> None:
    skew, _ = skews(shipment(1, horizon_s=1, shipped_s=None))
    assert skew == [(None, "NOT_TOLD")]
    skew, _ = skews(shipment(1, horizon_s=1, shipped_s=3600, rows=BACKLOG_ROWS))
    assert skew == [(None, "BACKLOG")]
    skew, _ = skews(shipment(1, horizon_s=3600, shipped_s=1, rows=BACKLOG_ROWS))
    assert skew == [(3_599_000, None)], "rows cannot come before they are reported"


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-50, 50), max_size=30), st.integers(0, 30))
def test_any_cut_gives_the_same_skews(apart_s: list[int], cut: int) -> None:
    each = [
        shipment(number, horizon_s=number, shipped_s=number + apart)
        for number, apart in enumerate(apart_s, start=1)
    ]
    whole, _ = skews(*each)
    first, state = skews(*each[:cut])
    second, _ = skews(*each[cut:], state=state)
    assert first + second == whole


def lag_rows(story: Story) -> list[tuple[Any, ...]]:
    """Time lag of each row, and why it is unknown."""
    names = ("lag_messages", "time_lag_ms", "provenance", "unknown_reason")
    return only(story.gold()["consumer_lag"], *names)


def stepped(step_s: int) -> Story:
    """A message waits from 9 s on; at 20 s the clock is set."""
    story = Story()
    story.at(10).watermark(store_time_at_committed=START_US + 9 * SECOND)
    story.at(20)
    story.broker.at(20 + max(0, step_s))
    story.event("CLOCK_STEPPED", step_ms=step_s * 1000)
    return story


def test_how_long_a_message_waits_is_unknown_once_the_clock_was_set_forward() -> None:
    story = stepped(3600)
    for at, since in ((3625, 9), (3630, 3626)):
        story.at(at).watermark(store_time_at_committed=START_US + since * SECOND)
    story.at(3640)
    assert lag_rows(story) == [
        (20, 1_000, "EXACT", None),
        (20, None, "UNKNOWN", "CLOCK_STEPPED"),
        (20, 4_000, "EXACT", None),
    ]


def test_and_once_it_was_set_back_until_it_has_made_that_up() -> None:
    story = stepped(-30)
    for at, since in ((25, 24), (60, 45), (62, 55)):
        story.at(at).watermark(store_time_at_committed=START_US + since * SECOND)
    story.at(70)
    assert [row[1:] for row in lag_rows(story)[1:]] == [
        (None, "UNKNOWN", "CLOCK_STEPPED"),
        (None, "UNKNOWN", "CLOCK_STEPPED"),
        (7_000, "EXACT", None),
    ]


def test_a_queue_on_which_nothing_waits_is_exact_whatever_the_clock() -> None:
    story = stepped(3600)
    story.at(3630).watermark(committed=100, committed_state="AT_END")
    story.at(3640)
    assert lag_rows(story)[-1] == (0, 0, "EXACT", None)
