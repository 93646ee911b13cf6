"""Turns of marks that stand still: in a round each is told once, however many move meanwhile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.broker.reporting.dirty_marks import EmittedMarks

TURNS = 3


def told_of(keys: str) -> EmittedMarks[str, int]:
    told: EmittedMarks[str, int] = EmittedMarks()
    for key in keys:
        told.told(key, 0)
    return told


def sample(told: EmittedMarks[str, int], *, moved: int | None = None) -> list[str]:
    """One sample that finds every moved key changed: what it tells."""
    due = told.due(turns=TURNS, moved=moved)
    for key in due:
        told.looked_at([key])
        told.told(key, 1)
    return list(due)


@pytest.mark.parametrize("keys", ["", "a", "abcd", "abcdefghijklm"])
def test_each_key_is_told_once_in_a_round_so_many_a_sample(keys: str) -> None:
    told = told_of(keys)
    for _ in range(2):
        told.begin_round()
        rows = []
        while not told.round_is_over:
            rows.append(sample(told))
        assert sorted(key for row in rows for key in row) == sorted(keys)
        assert max(map(len, rows), default=0) <= TURNS


def test_between_two_rounds_nothing_that_stands_still_is_told() -> None:
    told = told_of("abc")
    assert told.round_is_over
    assert sample(told) == []


def test_one_that_moves_all_the_time_takes_nobodys_turn_and_has_none_of_its_own() -> None:
    told = told_of("abcdefg")
    told.begin_round()
    rows = []
    while not told.round_is_over:
        told.moved("b")
        rows.append(sample(told))
    assert sorted(key for row in rows for key in row if key != "b") == list("acdefg")
    assert all("b" in row for row in rows)


def test_those_told_longest_ago_come_first() -> None:
    told = told_of("abcd")
    told.told("a", 1)
    told.begin_round()
    assert sample(told) == ["b", "c", "d"]
    assert sample(told) == ["a"]


def test_what_had_moved_before_a_round_is_looked_at_before_the_round_is_over() -> None:
    told: EmittedMarks[str, int] = EmittedMarks()
    for key in "abcd":
        told.moved(key)
    told.begin_round()
    told.moved("a")
    told.moved("late")
    assert sample(told, moved=2) == ["a", "b"]
    assert not told.round_is_over
    assert sample(told, moved=2) == ["c", "d"]
    assert told.round_is_over, "what moves from here on is for the next round"
    assert sample(told, moved=2) == ["late"]


def test_what_went_is_not_waited_for() -> None:
    told = told_of("abc")
    told.begin_round()
    assert told.forget("b")
    assert told.forget("c")
    assert not told.forget("c")
    assert sample(told) == ["a"]
    assert told.round_is_over
    assert told.get("c") is None
    assert len(told) == 1


def test_a_round_does_not_begin_before_the_one_before_is_over() -> None:
    told = told_of("a")
    told.begin_round()
    with pytest.raises(AssertionError, match="the one before is over"):
        told.begin_round()


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["moved", "forget"]), st.sampled_from("abcdefgh")),
            st.tuples(st.sampled_from(["sample", "round"]), st.just("")),
        )
    )
)
def test_at_the_end_of_a_round_all_that_was_there_at_its_begin_was_told_or_went(
    steps: list[tuple[str, str]],
) -> None:
    told: EmittedMarks[str, int] = EmittedMarks()
    owed: set[str] = set()
    for what, key in steps:
        if what == "moved":
            told.moved(key)
        elif what == "forget":
            told.forget(key)
            told.looked_at([key])
            owed.discard(key)
        elif what == "sample":
            owed.difference_update(sample(told, moved=2))
        elif told.round_is_over:
            assert not owed
            known = [one for one in "abcdefgh" if one in told]
            waiting = list(told.due(turns=None, moved=None))
            told.begin_round()
            owed = {*known, *waiting}
    for _ in range(20):
        owed.difference_update(sample(told, moved=2))
    assert told.round_is_over
    assert not owed


@given(st.lists(st.sampled_from("abcdefgh")), st.text("abcdefgh"), st.booleans())
def test_several_that_moved_are_noted_as_one_after_the_other_would_be(
    before: list[str], moving: str, round_begins: bool
) -> None:
    """Those that waited before the round stay where they are; nobody waits twice."""
    alone, together = told_of("abcd"), told_of("abcd")
    for told in (alone, together):
        for key in before:
            told.moved(key)
        if round_begins:
            told.begin_round()
    for key in moving:
        alone.moved(key)
    together.all_moved(moving)

    assert together.waiting_count == alone.waiting_count
    for turns in (0, 2, None):
        assert list(together.due(turns=turns, moved=None).items()) == list(
            alone.due(turns=turns, moved=None).items()
        )


def test_between_two_rounds_those_that_moved_are_due_in_the_order_in_which_they_did() -> None:
    told = told_of("abcd")
    told.all_moved("cab")
    assert told.due(turns=TURNS, moved=2) == {"c": False, "a": False}
    assert list(told.due(turns=TURNS, moved=None)) == ["c", "a", "b"]
