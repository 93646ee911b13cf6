"""Who may read a queue beside its reader: what nobody will read again is at risk no more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipelines.marts.duplicate_risk_windows import MART
from pipelines.marts.risks.events import Event
from pipelines.marts.risks.windows import Fold
from tests.pipelines.marts.literal_facts import SECOND, Row, State, computed, facts, only
from tests.pipelines.marts.risk_events import (
    PLACE,
    again,
    answer,
    away,
    begun_anew,
    death,
    departure,
    ends_as,
    progress,
)


def risks(state: State | None = None, **tables: list[Row]) -> tuple[list[Row], State]:
    """What the rows of these tables put at risk."""
    given = {name: facts(name, *rows) for name, rows in tables.items()}
    return computed(MART, given, state)


@pytest.mark.parametrize("has_left", [True, False], ids=["it left", "it does not hold the queue"])
def test_of_two_readers_one_that_is_away_is_none_and_the_other_ones_death_leaves_what_is_certain(
    has_left: bool,
) -> None:
    two_read = answer(1, 100, 140), again(2, 100, 150)
    dead = replace(departure(5, 110, 150), client_id="c2", certain=10, finished=((110, 120),))
    assert ends_as(*two_read, dead)["certain"] == 0
    known = ends_as(*two_read, away(4, "c1", has_left=has_left), dead)
    assert (known["certain"], known["all_from_offset"]) == (10, None)
    late = ends_as(*two_read, dead, away(6, "c1", has_left=has_left))
    assert (late["certain"], late["certain_ranges"]) == (10, ((110, 120),))
    assert (late["told_by"], late["all_from_offset"]) == ("ALONE", None)


def test_who_was_answered_where_to_begin_and_left_is_awaited_no_more() -> None:
    lost, further_on = departure(1, 20, 34), replace(answer(3, 30, 34), next_client_id="c3")
    assert ends_as(lost, answer(2, 20, 34), further_on)["from_offset"] == 20
    assert ends_as(lost, answer(2, 20, 34), away(2, "c2"), further_on)["from_offset"] == 30


def test_who_says_at_once_that_it_does_not_hold_the_queue_may_take_it_up_yet() -> None:
    lost, further_on = departure(1, 20, 34), replace(answer(5, 30, 34), next_client_id="c3")
    for at, begins_at in ((2, 20), (3, 30)):
        answered = answer(2, 20, 34), away(at, "c2", has_left=False)
        assert ends_as(lost, *answered, further_on)["from_offset"] == begins_at, at


@pytest.mark.parametrize("happened", [(), (death(1, 70, 80, 90),)], ids=["alive", "broker died"])
def test_a_queue_that_was_given_back_before_it_was_pulled_leaves_nothing_at_risk(
    happened: tuple[Event, ...],
) -> None:
    """c1 reads on, and repeats nothing; whoever comes next asks again."""
    answered = answer(2, 70, 90)
    given_back = ends_as(*happened, answered, away(4, "c2", has_left=False))
    assert (given_back["from_offset"], given_back["to_offset"]) == (90, 90)
    assert not given_back["certain"]
    next_one = replace(answer(5, 80, 90), next_client_id="c3")
    asked = ends_as(*happened, answered, away(4, "c2", has_left=False), next_one)
    assert (asked["from_offset"], asked["to_offset"]) == (80, 90)


def test_that_the_last_puller_was_the_last_says_nothing_of_whether_it_has_begun_anew() -> None:
    """c1 died with the broker, asks anew, and waits; c2, answered as well, gives the queue back."""
    anew = begun_anew(answer(3, 70, 90), "c1")
    mark = progress(4, 70, 90)._replace(last_puller="c1")
    answered = death(1, 70, 80, 90), answer(2, 70, 90), anew, mark
    last = ends_as(*answered, away(5, "c2", has_left=False))
    assert (last["from_offset"], last["to_offset"]) == (70, 90)
    fold = Fold(PLACE)
    fold.take([*answered, away(5, "c2", has_left=False)])
    assert fold.window is not None
    assert [one.client_id for one in fold.window.awaited] == ["c1"]


def test_who_is_slow_to_begin_may_do_so_yet_when_another_gives_the_queue_back() -> None:
    slow = replace(answer(1, 70, 90), next_client_id="c3"), progress(7, 70, 90)
    answered = *slow, answer(8, 80, 90)
    assert ends_as(*answered, away(10, "c2", has_left=False))["from_offset"] == 80
    said = away(9, "c3", has_left=False), away(10, "c2", has_left=False)
    assert ends_as(*answered, *said)["from_offset"] == 90


def test_what_a_reader_that_is_gone_had_pulled_is_at_risk_whoever_gives_the_queue_back() -> None:
    lost, answered = departure(1, 70, 90), answer(2, 70, 90)
    assert ends_as(lost, answered, away(4, "c2", has_left=False))["from_offset"] == 70


def test_what_one_of_two_readers_has_pulled_alone_is_at_risk_in_the_window_that_takes_over() -> (
    None
):
    fold = Fold(PLACE)
    fold.take([answer(1, 100, 140), again(2, 100, 140), progress(3, 140, 160)])
    fold.take([replace(departure(4, 150, 160), client_id="c2")])
    assert only(fold.revisions[-2:], "told_by", "from_offset", "to_offset") == [
        ("TAKEN_OVER", 100, 140),
        ("OPENED", 140, 160),
    ]


def test_an_answer_behind_a_window_of_which_all_has_come_opens_one_of_its_own() -> None:
    fold = Fold(PLACE)
    fold.take([departure(1, 100, 140), answer(2, 100, 140), again(3, 100, 140)])
    fold.take([progress(4, 139, 160), replace(answer(5, 155, 160), next_client_id="c3")])
    columns = ("told_by", "basis", "from_offset", "to_offset", "redelivered")
    assert only(fold.revisions[-2:], *columns) == [
        ("TAKEN_OVER", "DEPARTURE", 100, 140, 40),
        ("OPENED", "OFFSET_ANSWER", 155, 160, 0),
    ]
    fold.take([replace(again(6, 155, 160), next_client_id="c3")])
    assert only(fold.revisions[-1:], *columns) == [("AGAIN", "OFFSET_ANSWER", 155, 160, 5)]


def test_two_that_take_a_queue_from_each_other_twice_at_once_still_have_to_pull_the_same() -> None:
    """c1 lost it to c2 and pulled once more; what c2 pulled between comes to c1 as well."""
    answered = replace(answer(1, 437, 438), client_id="c2", next_client_id="c1")
    seen = replace(again(2, 437, 438), client_id="c2", next_client_id="c1")
    hand_over = replace(departure(3, 437, 439), cause="HAND_OVER", reader_is_gone=False)
    there = replace(hand_over, all_from_offset=439)
    back = replace(there, seq=4, event_us=4 * SECOND, client_id="c2", from_offset=439)
    fold = Fold(PLACE)
    fold.take([answered, seen, there, back])
    assert fold.window is not None
    assert (fold.window.from_offset, fold.window.all_from_offset) == (438, 438)


def test_members_that_leave_and_queues_that_are_given_back_reach_the_windows_they_concern() -> None:
    """Over the edges of cuts, too: b was answered 80, a reads on; then a leaves, b gave it back."""
    marks = {"committed": 80, "pulled": 90, "last_puller": "a", "client_id": "b"}
    answers = [
        {"at": 1, "seq": number, "told_offset": 80, "queue_id": queue_id, **marks}
        for number, queue_id in ((1, 0), (2, 1))
    ]
    _, state = risks(offset_answers=answers)
    dropped = {"client_id": "b", "held_count": 0, "dropped": True, "answered": True}
    _, state = risks(state, client_windows=[{"at": 3, "seq": 3, **dropped}])
    answered = [
        [one["client_id"] for one in row["awaited"]] for row in state["windows"].to_pylist()
    ]
    assert sorted(answered) == [[], ["b"]], "of queue 1 nobody says that it was given back"
    left = {"at": 4, "seq": 4, "client_id": "a", "kind": "LEFT", "inferred": False, "generation": 1}
    _, state = risks(state, rebalance_events=[left])
    assert [row["others"] for row in state["windows"].to_pylist()] == [[], []]
