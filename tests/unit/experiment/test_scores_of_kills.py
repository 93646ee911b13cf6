"""Scores of kills: a message counts as foreseen only by what was recorded before it came again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from experiment.ledger import Delivery
from experiment.plan import Flush, Kill, Listener, Victim
from experiment.report import rest_in_words
from experiment.score import KillRow, score, verdict
from experiment.stage import Killed, Played

SECOND = 1_000_000
GROUP, TOPIC = Listener.FAST.group, Listener.FAST.topic
KILL = Kill(1, 0.0, Victim.CONSUMER, ("host-1",), broker_first=False, down_s=1.0, flush=Flush.ASYNC)


def delivered(at_s: float, *offsets: int) -> list[Delivery]:
    """Listeners begin with these messages, `at_s` seconds in."""
    at_us = int(at_s * SECOND)
    return [Delivery(at_us, GROUP, TOPIC, 0, one, f"m{one}", "client", 0) for one in offsets]


def revision(at_s: float, begin: int, end: int, **values: Any) -> dict[str, Any]:
    """A revision of window w, open and not confirmed unless given otherwise."""
    known = {"cluster": "run", "group": GROUP, "topic": TOPIC, "queue_id": 0, "window_id": "w"}
    fields = {"revision": int(at_s * 10), "basis": "DEPARTURE", "cause": "CONSUMER_CRASH"}
    state = {"state": "OPEN", "outcome": "POSSIBLE", "redelivered_messages": 0}
    unknown = dict.fromkeys(("redelivered_to", "all_from_offset", "certain_ranges"))
    at = {"observed_us": int(at_s * SECOND), "from_offset": begin, "to_offset": end}
    return {**known, **fields, **state, **unknown, **at, **values}


def scored(deliveries: list[Delivery], *revisions: dict[str, Any]) -> KillRow:
    """Of one kill at second 10, whose consequences end at second 20."""
    killed = Killed(KILL, 10 * SECOND, 20 * SECOND, Flush.SYNC)
    (row,) = score(Played("run", (killed,), tuple(deliveries)), revisions)
    return row


BEFORE = delivered(5, *range(100))


def test_what_came_again_inside_a_range_reported_before_was_foreseen() -> None:
    row = scored([*BEFORE, *delivered(12, *range(80, 100))], revision(11, 80, 100))
    assert row.redelivered == row.predicted == ((80, 100),)
    assert row.unforeseen == ()
    found = verdict([row], 1)
    assert (found.recall, found.precision) == (1.0, 1.0)


def test_a_range_reported_after_the_message_came_again_foresaw_nothing() -> None:
    row = scored([*BEFORE, *delivered(10.5, 80, 81)], revision(11, 80, 100))
    assert row.unforeseen == ((80, 82),)
    assert verdict([row], 1).recall == 0.0
    assert not verdict([row], 1).holds


def test_a_range_that_grew_after_the_delivery_did_not_foresee_it() -> None:
    revisions = [revision(11, 90, 100), revision(13, 80, 100)]
    row = scored([*BEFORE, *delivered(12, 80, 90)], *revisions)
    assert row.unforeseen == ((80, 81),)


def test_a_window_that_a_redelivery_opened_predicts_nothing() -> None:
    seen = revision(11, 80, 100, basis="REDELIVERY", outcome="CONFIRMED")
    row = scored([*BEFORE, *delivered(12, 80)], seen)
    assert (row.predicted, row.unforeseen) == ((), ((80, 81),))


def test_messages_below_the_range_or_beyond_it_were_not_foreseen() -> None:
    row = scored([*BEFORE, *delivered(12, 79, 80, 99)], revision(11, 80, 99))
    assert row.unforeseen == ((79, 80), (99, 100))


def test_two_readers_in_turn_are_foreseen_from_the_offset_that_was_answered() -> None:
    revisions = revision(11, 80, 90, all_from_offset=95)
    row = scored([*BEFORE, *delivered(12, 89, 92, 95, 99)], revisions)
    assert row.unforeseen == ((92, 93),)


def test_a_range_that_was_withdrawn_is_no_prediction_but_was_reported() -> None:
    revisions = [revision(11, 80, 100), revision(12, 95, 100)]
    row = scored([*BEFORE, *delivered(13, *range(94, 100))], *revisions)
    assert (row.predicted, row.ever_predicted) == (((95, 100),), ((80, 100),))
    assert row.unforeseen == ((94, 95),)


def test_a_window_that_passed_counts_against_precision_and_foresees_nothing_any_more() -> None:
    passed = revision(12, 80, 100, state="CLOSED", outcome="PASSED")
    row = scored([*BEFORE, *delivered(13, 80)], revision(11, 80, 100), passed)
    assert (row.predicted, row.unforeseen, row.hits) == (((80, 100),), ((80, 81),), 1)
    assert verdict([row], 1).precision == 1 / 20


def test_what_was_pulled_again_may_wait_for_its_listener_behind_the_end_of_the_window() -> None:
    seen = {"redelivered_messages": 20, "redelivered_to": 100, "outcome": "CONFIRMED"}
    revisions = [revision(11, 80, 100), revision(12, 80, 100, **seen)]
    closed = revision(12.5, 80, 100, **seen, state="CLOSED")
    row = scored([*BEFORE, *delivered(13, 80, 99)], *revisions, closed)
    assert row.unforeseen == ()


def test_a_window_that_another_one_took_over_is_measured_by_the_other() -> None:
    first = [revision(11, 60, 100), revision(11.5, 60, 100, state="CLOSED")]
    second = revision(11.5, 90, 100, window_id="x")
    row = scored([*BEFORE, *delivered(13, 90)], *first, second)
    assert row.predicted == ((90, 100),)


def test_certain_is_what_was_predicted_before_the_first_message_came_again() -> None:
    certain = [{"from_offset": 84, "to_offset": 90}]
    late = [{"from_offset": 80, "to_offset": 100}]
    revisions = [revision(11, 80, 100, certain_ranges=certain)]
    revisions.append(revision(13, 80, 100, certain_ranges=late, redelivered_messages=9))
    row = scored([*BEFORE, *delivered(12, *range(80, 89))], *revisions)
    assert (row.certain, row.certain_again) == (((84, 90),), 5)
    assert not verdict([row], 1).holds


def test_the_prediction_holds_if_four_fifths_come_and_half_of_the_kills_have_certain_parts() -> (
    None
):
    certain = [{"from_offset": 80, "to_offset": 81}]
    came = [*BEFORE, *delivered(12, 80, 81, 82, 83)]
    row = scored(came, revision(11, 80, 85, certain_ranges=certain))
    assert verdict([row], 2).holds
    assert not verdict([row], 3).holds
    other = replace(row, predicted=((80, 86),))
    assert not verdict([other], 1).holds  # Four of six came.


def test_what_was_predicted_and_did_not_come_is_named_by_kind_of_kill_and_window() -> None:
    revisions = [revision(11, 80, 90), revision(11, 50, 53, window_id="x", cause="HAND_OVER")]
    row = scored([*BEFORE, *delivered(12, *range(80, 88))], *revisions)
    assert row.rest == {
        "CONSUMER_CRASH, beside what came": 2,
        "HAND_OVER, nothing of it came": 3,
    }
    assert rest_in_words(Victim.CONSUMER, [row]) == (
        "kills of CONSUMER: 5 predicted messages did not come: 3 HAND_OVER, nothing of it came; "
        "2 CONSUMER_CRASH, beside what came"
    )
    assert rest_in_words(Victim.BROKER, []) == "kills of BROKER: all that was predicted came"


def test_another_cluster_in_the_lake_is_left_alone() -> None:
    deliveries = [*BEFORE, *delivered(12, 80)]
    row = scored(deliveries, revision(11, 80, 100, cluster="another"))
    assert (row.predicted, row.unforeseen) == ((), ((80, 81),))


def test_what_came_again_before_the_kill_is_not_laid_to_it() -> None:
    killed = Killed(KILL, 10 * SECOND, 20 * SECOND, Flush.SYNC)
    played = Played("run", (killed,), (*BEFORE, *delivered(9, 80)))
    assert score(played, []) == []
