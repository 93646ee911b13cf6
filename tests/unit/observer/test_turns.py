"""Whose turn it is when there is more to ask than one look may."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.observer.question_turns import Turns


def ask_all(turns: Turns[Any], everyone: Collection[Any], urgent: Sequence[Any] = ()) -> list[Any]:
    """Whom a look with enough time asks."""
    due = turns.due(everyone, urgent)
    for one in due:
        turns.begin(one)
    return due


def test_all_are_asked_when_there_is_room() -> None:
    turns = Turns[str](3)
    assert set(ask_all(turns, ["a", "b", "c"])) == {"a", "b", "c"}


def test_what_moves_comes_first_and_the_rest_takes_turns() -> None:
    turns = Turns[str](2)
    everyone = ["a", "b", "c", "d"]
    looks = [ask_all(turns, everyone, ["d"]) for _ in range(3)]
    assert looks == [["d", "a"], ["d", "b"], ["d", "c"]]


@settings(max_examples=40)
@given(st.integers(1, 40), st.integers(2, 10), st.data())
def test_nobody_waits_longer_than_two_rounds_whatever_is_urgent(
    count: int, count_max: int, data: st.DataObject
) -> None:
    turns, everyone = Turns[int](count_max), range(count)
    asked: dict[int, int] = dict.fromkeys(everyone, 0)
    always_urgent = range(data.draw(st.integers(0, count)))
    for look in range(1, 30):
        urgent = data.draw(st.lists(st.sampled_from(everyone), max_size=20))
        due = ask_all(turns, everyone, [*always_urgent, *urgent])
        assert len(due) == len(set(due)) <= count_max
        for one in due:
            asked[one] = look
        assert all(look - at <= 2 * count // (count_max // 2 or 1) + 2 for at in asked.values())


def test_a_round_is_over_when_each_was_asked_since() -> None:
    turns = Turns[str](2)
    everyone = ["a", "b", "c"]
    ask_all(turns, everyone)
    assert not turns.were_all_asked_since(0, everyone)
    ask_all(turns, everyone)
    assert turns.were_all_asked_since(0, everyone)
    assert not turns.were_all_asked_since(1, everyone)


def test_who_is_gone_is_waited_for_no_more() -> None:
    turns = Turns[str](1)
    ask_all(turns, ["a", "b"])
    assert ask_all(turns, ["b"]) == ["b"]
    assert turns.were_all_asked_since(1, ["b"])


def test_for_whom_there_was_no_time_is_first_in_the_next_look() -> None:
    turns = Turns[str](2)
    everyone = ["a", "b", "c", "d"]
    first, late = turns.due(everyone)
    turns.begin(first)
    assert late in turns.due(everyone)
    assert not turns.were_all_asked_since(0, [late])


def test_as_long_as_somebody_was_never_asked_more_are_asked_at_once() -> None:
    turns, everyone = Turns[int](2, first_max=4), range(7)
    assert [len(ask_all(turns, everyone)) for _ in range(4)] == [4, 4, 2, 2]


@settings(max_examples=40)
@given(st.integers(1, 40), st.integers(2, 10), st.data())
def test_of_those_who_want_to_be_asked_again_and_again_none_waits_for_long(
    count: int, count_max: int, data: st.DataObject
) -> None:
    """When somebody was asked is not forgotten while he does not want to be."""
    turns, everyone = Turns[int](count_max), range(count)
    always = data.draw(st.sets(st.sampled_from(everyone), min_size=1))
    asked: dict[int, int] = dict.fromkeys(always, 0)
    for look in range(1, 30):
        wanted = always | data.draw(st.sets(st.sampled_from(everyone)))
        due = turns.due(everyone, of=wanted)
        assert len(due) == len(set(due)) <= count_max
        assert wanted.issuperset(due)
        for one in due:
            turns.begin(one)
            asked[one] = look
        assert all(look - asked[one] <= 2 * count // (count_max // 2 or 1) + 2 for one in always)
