"""Turns of marks that stand still: each is emitted once a round, however many move meanwhile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.broker.reporting.dirty_marks import EmittedMarks

TURNS = 3


def marks_of(keys: str) -> EmittedMarks[str, int]:
    marks: EmittedMarks[str, int] = EmittedMarks()
    for key in keys:
        marks.emitted(key, 0)
    return marks


def sample(marks: EmittedMarks[str, int], *, moved: int | None = None) -> list[str]:
    """One sample that finds every moved key changed: what it emits."""
    due = marks.due(turns=TURNS, moved=moved)
    for key in due:
        marks.looked_at([key])
        marks.emitted(key, 1)
    return list(due)


@pytest.mark.parametrize("keys", ["", "a", "abcd", "abcdefghijklm"])
def test_each_key_is_emitted_once_in_a_round_so_many_a_sample(keys: str) -> None:
    marks = marks_of(keys)
    for _ in range(2):
        marks.begin_round()
        rows = []
        while not marks.round_is_over:
            rows.append(sample(marks))
        assert sorted(key for row in rows for key in row) == sorted(keys)
        assert max(map(len, rows), default=0) <= TURNS


def test_between_two_rounds_nothing_that_stands_still_is_emitted() -> None:
    marks = marks_of("abc")
    assert marks.round_is_over
    assert sample(marks) == []


def test_one_that_moves_all_the_time_takes_nobodys_turn_and_has_none_of_its_own() -> None:
    marks = marks_of("abcdefg")
    marks.begin_round()
    rows = []
    while not marks.round_is_over:
        marks.moved("b")
        rows.append(sample(marks))
    assert sorted(key for row in rows for key in row if key != "b") == list("acdefg")
    assert all("b" in row for row in rows)


def test_those_emitted_longest_ago_come_first() -> None:
    marks = marks_of("abcd")
    marks.emitted("a", 1)
    marks.begin_round()
    assert sample(marks) == ["b", "c", "d"]
    assert sample(marks) == ["a"]


def test_what_had_moved_before_a_round_is_looked_at_before_the_round_is_over() -> None:
    marks: EmittedMarks[str, int] = EmittedMarks()
    for key in "abcd":
        marks.moved(key)
    marks.begin_round()
    marks.moved("a")
    marks.moved("late")
    assert sample(marks, moved=2) == ["a", "b"]
    assert not marks.round_is_over
    assert sample(marks, moved=2) == ["c", "d"]
    assert marks.round_is_over, "what moves from here on is for the next round"
    assert sample(marks, moved=2) == ["late"]


def test_what_went_is_not_waited_for() -> None:
    marks = marks_of("abc")
    marks.begin_round()
    assert marks.forget("b")
    assert marks.forget("c")
    assert not marks.forget("c")
    assert sample(marks) == ["a"]
    assert marks.round_is_over
    assert marks.get("c") is None
    assert len(marks) == 1


def test_a_round_does_not_begin_before_the_one_before_is_over() -> None:
    marks = marks_of("a")
    marks.begin_round()
    with pytest.raises(AssertionError, match="the one before is over"):
        marks.begin_round()


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["moved", "forget"]), st.sampled_from("abcdefgh")),
            st.tuples(st.sampled_from(["sample", "round"]), st.just("")),
        )
    )
)
def test_at_the_end_of_a_round_all_that_was_there_at_its_begin_was_emitted_or_went(
    steps: list[tuple[str, str]],
) -> None:
    marks: EmittedMarks[str, int] = EmittedMarks()
    owed: set[str] = set()
    for what, key in steps:
        if what == "moved":
            marks.moved(key)
        elif what == "forget":
            marks.forget(key)
            marks.looked_at([key])
            owed.discard(key)
        elif what == "sample":
            owed.difference_update(sample(marks, moved=2))
        elif marks.round_is_over:
            assert not owed
            known = [one for one in "abcdefgh" if one in marks]
            waiting = list(marks.due(turns=None, moved=None))
            marks.begin_round()
            owed = {*known, *waiting}
    for _ in range(20):
        owed.difference_update(sample(marks, moved=2))
    assert marks.round_is_over
    assert not owed


@given(st.lists(st.sampled_from("abcdefgh")), st.text("abcdefgh"), st.booleans())
def test_several_that_moved_are_noted_as_one_after_the_other_would_be(
    before: list[str], moving: str, round_begins: bool
) -> None:
    """Those that waited before the round stay where they are; nobody waits twice."""
    alone, together = marks_of("abcd"), marks_of("abcd")
    for marks in (alone, together):
        for key in before:
            marks.moved(key)
        if round_begins:
            marks.begin_round()
    for key in moving:
        alone.moved(key)
    together.all_moved(moving)

    assert together.waiting_count == alone.waiting_count
    for turns in (0, 2, None):
        assert list(together.due(turns=turns, moved=None).items()) == list(
            alone.due(turns=turns, moved=None).items()
        )


def test_between_two_rounds_those_that_moved_are_due_in_the_order_in_which_they_did() -> None:
    marks = marks_of("abcd")
    marks.all_moved("cab")
    assert marks.due(turns=TURNS, moved=2) == {"c": False, "a": False}
    assert list(marks.due(turns=TURNS, moved=None)) == ["c", "a", "b"]
