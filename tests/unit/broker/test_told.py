"""Turns of marks that stand still: each is told once in a round, however many move meanwhile."""

from __future__ import annotations

import pytest

from engine.broker.sampling import Told

ROUND = 6


def samples(told: Told[str, int], count: int, *, moving: str = "") -> list[list[str]]:
    """What is told in each of `count` samples: those whose turn it is, and who moves."""
    rows = []
    for number in range(count):
        due = [*told.next_in_round(), *([moving] if moving else [])]
        for key in due:
            told.note(key, number)
        rows.append(due)
    return rows


@pytest.mark.parametrize("keys", ["", "a", "abcd", "abcdefghijklm"])
def test_each_key_is_told_once_in_a_round_and_no_sample_tells_many_more(keys: str) -> None:
    told: Told[str, int] = Told(ROUND)
    for key in keys:
        told.note(key, 0)
    rows = samples(told, 2 * ROUND)
    assert sorted(key for row in rows[:ROUND] for key in row) == sorted(keys)
    assert sorted(key for row in rows[ROUND:] for key in row) == sorted(keys)
    assert max(len(row) for row in rows) <= len(keys) // ROUND + 1


def test_one_that_moves_all_the_time_takes_nobodys_turn() -> None:
    told: Told[str, int] = Told(ROUND)
    for key in "abcd":
        told.note(key, 0)
    rows = samples(told, 2 * ROUND, moving="b")
    still = [key for row in rows[:ROUND] for key in row if key != "b"]
    assert set(still) == {"a", "c", "d"}


def test_what_went_has_no_turn() -> None:
    told: Told[str, int] = Told(1)
    for key in "abc":
        told.note(key, 0)
    assert told.forget("b")
    assert told.forget("c")
    assert not told.forget("c")
    assert list(told.next_in_round()) == ["a"]
    assert told.get("c") is None
