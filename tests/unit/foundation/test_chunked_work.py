"""Names sorted in steps are sorted names, and a step sorts so many of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.foundation import chunked_work
from engine.foundation.chunked_work import (
    LOOKED_AT_PER_STEP,
    LOOKS_PER_DROP,
    SORTED_PER_STEP,
    dropped_in_steps,
    sorted_in_steps,
)
from tests.steps import outcome


@given(st.lists(st.text(max_size=5)), st.integers(1, 7))
def test_in_any_number_of_steps_they_are_sorted(names: list[str], per_step: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunked_work, "SORTED_PER_STEP", per_step)
        assert outcome(sorted_in_steps(names)) == sorted(names)


def test_many_names_take_many_steps_and_few_none() -> None:
    names = [f"{number:06}" for number in reversed(range(4 * SORTED_PER_STEP))]
    assert len(list(sorted_in_steps(names))) == 5, "a step for each run, and one to merge them"
    assert list(sorted_in_steps(names[:SORTED_PER_STEP])) == []


def test_what_goes_is_dropped_in_steps_and_what_others_take_meanwhile_is_no_fault() -> None:
    table = dict.fromkeys(range(2 * LOOKED_AT_PER_STEP))
    steps = dropped_in_steps(table, lambda number: number < LOOKED_AT_PER_STEP)
    next(steps)
    assert 2 * LOOKED_AT_PER_STEP - len(table) == -(-LOOKED_AT_PER_STEP // (1 + LOOKS_PER_DROP))
    del table[LOOKED_AT_PER_STEP - 1]
    assert len(list(steps)) >= LOOKS_PER_DROP, "what goes takes longer than a look"
    assert list(table) == list(range(LOOKED_AT_PER_STEP, 2 * LOOKED_AT_PER_STEP))
