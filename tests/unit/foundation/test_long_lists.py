"""Names sorted in steps are sorted names, and a step sorts so many of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.foundation import long_lists
from engine.foundation.long_lists import SORTED_PER_STEP, sorted_in_steps
from tests.steps import outcome


@given(st.lists(st.text(max_size=5)), st.integers(1, 7))
def test_in_any_number_of_steps_they_are_sorted(names: list[str], per_step: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_lists, "SORTED_PER_STEP", per_step)
        assert outcome(sorted_in_steps(names)) == sorted(names)


def test_many_names_take_many_steps_and_few_none() -> None:
    names = [f"{number:06}" for number in reversed(range(4 * SORTED_PER_STEP))]
    assert len(list(sorted_in_steps(names))) == 5, "a step for each run, and one to merge them"
    assert list(sorted_in_steps(names[:SORTED_PER_STEP])) == []
