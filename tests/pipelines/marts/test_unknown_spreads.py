"""What nobody can know is called unknown, with the reason: a broker that is silent, rows that were
lost, a clock that was set. Nothing that stood is closed as healed by it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipelines.marts.computing import beginning
from pipelines.marts.judging.ticks import STEP as TICKS
from pipelines.marts.judging.ticks import WORDS
from pipelines.marts.mart import Given
from tests.pipelines.bronze_lake import SECOND, START_US
from tests.pipelines.gold_lake import SHORT
from tests.pipelines.marts.literal_facts import only
from tests.pipelines.marts.reported_story import bronze, second
from tests.pipelines.marts.test_judges_row_by_row import Story
from tests.pipelines.partition import facts_between, horizons_of

HOUR_S = 3600
Row = dict[str, Any]


def standing() -> Story:
    """A queue that stands at 80 with 50 waiting, reported at 2 s, never again: it is unchanged."""
    story = Story()
    story.event("SNAPSHOT", seq_from=1)
    broker = story.at(2)
    broker.watermark(max_offset=130, pulled=90, last_pull_time=broker.now_us)
    return story


def report_all(story: Story) -> None:
    """A snapshot, of the queue as it was."""
    begin = story.broker.seq + 1
    story.broker.watermark(max_offset=130, pulled=90, last_pull_time=START_US + 2 * SECOND)
    story.event("SNAPSHOT", seq_from=begin)


def stalls(story: Story) -> list[tuple[Any, ...]]:
    """Revisions: at which second, state, rule, why unknown."""
    rows = story.gold().get("stalled_windows", [])
    return [
        (second(row["observed_at"]), row["state"], row["rule"], row["unknown_reason"])
        for row in rows
    ]


def states(story: Story) -> list[tuple[float, str]]:
    """What the group was reported to be, when it changed."""
    found = [(second(row["observed_at"]), row["state"]) for row in story.gold()["group_state"]]
    return [
        one for one, before in zip(found, [(0.0, ""), *found], strict=False) if one[1] != before[1]
    ]


def test_a_loss_leaves_open_windows_open_and_says_why_they_are_unknown() -> None:
    story = standing()
    story.at(41)
    story.event("SPOOL_LOSS")
    story.at(61)
    report_all(story)
    story.at(100)
    assert stalls(story) == [
        (14, "OPEN", "STALLED", None),
        (42, "OPEN", "STALLED", "SPOOL_LOSS"),
        (62, "OPEN", "STALLED", None),
    ]
    unknown = story.gold()["stalled_windows"][1]
    assert only([unknown], "lag_messages", "committed_to", "time_lag_ms") == [(None, None, None)]
    assert unknown["evidence"] == (
        "Whether group g has moved on queue 0 of t on broker-a is unknown: the broker lost "
        "reports; its next snapshot shows how it stands. It was stalled before."
    )
    assert states(story)[-3:] == [(14, "STALLED"), (42, "UNKNOWN"), (62, "STALLED")]


def test_a_snapshot_of_what_stands_leaves_its_window_alone() -> None:
    """A key that is reported again in a snapshot is the same life, not another one."""
    story = standing()
    for at in range(21, 121, 20):
        story.at(at)
        report_all(story)
    story.at(125)
    assert stalls(story) == [(14, "OPEN", "STALLED", None)]


@pytest.mark.parametrize(("report_each_ms", "is_silent"), [(None, True), (30_000, False)])
def test_an_emitter_that_reports_seldom_is_silent_later(
    report_each_ms: int | None, is_silent: bool
) -> None:
    """One minute between the last horizon of a life and the boot of the next one."""
    story = standing()
    story.event("OBSERVED", report_each_ms=report_each_ms)
    story.at(41)
    story.broker.at(100)
    story.event("BOOT")
    report_all(story)
    story.at(140)
    reasons = {reason for _, _, _, reason in stalls(story)}
    assert ("EMITTER_SILENT" in reasons) == is_silent


def test_a_broker_that_was_silent_leaves_open_windows_open() -> None:
    story = standing()
    story.at(41)
    story.broker.at(100)
    story.event("BOOT")
    report_all(story)
    story.at(140)
    assert stalls(story) == [
        (14, "OPEN", "STALLED", None),
        (42, "OPEN", "STALLED", "EMITTER_SILENT"),
        (100, "OPEN", "STALLED", None),
    ]
    assert states(story)[-2:] == [(42, "UNKNOWN"), (100, "STALLED")]


@pytest.mark.parametrize("says_so", [True, False])
def test_between_two_looks_of_an_observer_nothing_is_known_to_be_unchanged(says_so: bool) -> None:
    """The looks fail for a minute, and all is well meanwhile: no stall is made up."""
    story = Story()
    story.event("SNAPSHOT", seq_from=1)
    story.event("OBSERVED", report_each_ms=2_000)
    for at in range(2, 41, 2):
        broker = story.at(at)
        moved = 10 * at
        broker.watermark(committed=moved, pulled=moved + 10, max_offset=moved + 50)
    story.broker.at(100)
    if says_so:
        story.event("LOOKS_MISSED", time_from_us=START_US + 40 * SECOND)
    story.broker.watermark(committed=1000, pulled=1010, max_offset=1050)
    story.at(104)
    assert bool(stalls(story)) != says_so
    reasons = {row["reason"] for row in story.gold()["group_state"]}
    said = (
        "Nothing is known of group g on broker-a: the broker did not answer its observer for a "
        "while."
    )
    assert (said in reasons) == says_so


def test_what_stood_before_looks_were_missed_is_unknown_and_then_what_the_next_look_says() -> None:
    story = standing()
    story.event("OBSERVED", report_each_ms=2_000)
    story.at(41)
    story.broker.at(100)
    story.event("LOOKS_MISSED", time_from_us=START_US + 41 * SECOND)
    story.at(130)
    assert stalls(story) == [
        (14, "OPEN", "STALLED", None),
        (42, "OPEN", "STALLED", "LOOKS_MISSED"),
        (100, "OPEN", "STALLED", None),
    ]


def test_a_late_look_leaves_no_gap() -> None:
    story = standing()
    story.event("OBSERVED", report_each_ms=10_000)
    story.at(41)
    story.broker.at(63)
    story.event("LOOKS_MISSED", time_from_us=START_US + 41 * SECOND)
    story.at(80)
    assert stalls(story) == [(14, "OPEN", "STALLED", None)]


def test_what_is_well_behind_a_gap_is_closed_by_what_is_seen() -> None:
    story = standing()
    story.at(41)
    story.event("SPOOL_LOSS")
    story.at(61)
    begin = story.broker.seq + 1
    story.broker.watermark(committed=130, pulled=130, max_offset=130, committed_state="AT_END")
    story.event("SNAPSHOT", seq_from=begin)
    story.at(70)
    assert stalls(story)[-1] == (62, "CLOSED", "STALLED", None)


def test_trouble_that_is_over_behind_a_gap_ends_when_a_window_shows_it() -> None:
    """Far behind, yet it moves: after a whole window that is no stall any more."""
    story = standing()
    story.at(41)
    story.event("SPOOL_LOSS")
    story.at(61)
    report_all(story)
    for at in range(62, 90):
        broker = story.at(at)
        moved = 80 + at
        broker.watermark(committed=moved, pulled=moved + 10, max_offset=moved + 50)
    story.at(90)
    assert stalls(story)[-1] == (72, "CLOSED", "STALLED", None)


def test_a_clock_set_forward_makes_the_span_it_passed_over_unknown() -> None:
    """Nothing has waited for the hour that the clock has left out."""
    story = standing()
    story.at(41)
    story.broker.at(HOUR_S + 41)
    story.event("CLOCK_STEPPED", step_ms=HOUR_S * 1000)
    story.at(HOUR_S + 60)
    assert stalls(story) == [
        (14, "OPEN", "STALLED", None),
        (42, "OPEN", "STALLED", "CLOCK_STEPPED"),
        (HOUR_S + 42, "OPEN", "STALLED", None),
    ]
    last = story.gold()["group_state"][-1]
    assert (last["state"], last["lag_messages"], last["time_lag_ms"]) == ("STALLED", 50, None)
    unknown = [row for row in story.gold()["group_state"] if row["state"] == "UNKNOWN"]
    assert {row["reason"] for row in unknown} == {
        f"Nothing is known of group g on broker-a: {WORDS['CLOCK_STEPPED']}."
    }


def test_a_clock_set_back_makes_all_unknown_until_it_has_made_that_up() -> None:
    story = standing()
    story.at(41)
    story.event("CLOCK_STEPPED", step_ms=-20_000)
    story.at(100)
    assert stalls(story) == [
        (14, "OPEN", "STALLED", None),
        (42, "OPEN", "STALLED", "CLOCK_STEPPED"),
        (62, "OPEN", "STALLED", None),
    ]
    assert story.gold()["group_state"][-1]["time_lag_ms"] is None


def test_a_message_stored_when_the_clock_was_right_again_has_an_age() -> None:
    story = standing()
    story.at(41)
    story.event("CLOCK_STEPPED", step_ms=-20_000)
    story.at(70)
    since = START_US + 65 * SECOND
    story.broker.watermark(committed=90, max_offset=130, store_time_at_committed=since)
    story.at(81)
    assert story.gold()["group_state"][-1]["time_lag_ms"] == 15_000


@pytest.mark.parametrize("step_ms", [900, -900])
def test_a_clock_that_was_set_by_less_than_a_second_changes_nothing(step_ms: int) -> None:
    story = standing()
    story.at(41)
    story.event("CLOCK_STEPPED", step_ms=step_ms)
    story.at(60)
    assert stalls(story) == [(14, "OPEN", "STALLED", None)]


def test_a_clock_set_by_a_century_makes_one_row_of_a_span_that_never_was() -> None:
    story = standing()
    story.at(41)
    century_s = 100 * 365 * 24 * HOUR_S
    story.broker.at(century_s)
    story.event("CLOCK_STEPPED", step_ms=century_s * 1000 - 41_000)
    story.at(century_s + 10)
    reported = bronze(story.rows)
    facts = facts_between(reported, {}, horizons_of(reported)[-1])
    facts["lifecycle"] = story.lifecycle_facts()
    made = TICKS.compute(
        Given({name: facts[name] for name in TICKS.reads}, beginning(TICKS), SHORT)
    )
    alive = np.asarray(made.rows["is_alive"])
    assert (len(alive), int((~alive).sum())) == (21 + 1 + 5, 1)
    assert [one[1:] for one in stalls(story)][-1] == ("OPEN", "STALLED", None)


def test_an_emitter_that_has_nothing_to_report_is_judged_on_by_its_horizon() -> None:
    """Its signs of life are enough: minutes of silence about a queue are minutes at 80."""
    story = standing()
    for at in range(5, 900, 5):
        story.at(at)
    reported = story.gold()["group_state"]
    assert second(reported[-1]["observed_at"]) == 890
    assert reported[-1]["state"] == "STALLED"
    assert {row["state"] for row in reported} == {"OK", "STALLED"}
