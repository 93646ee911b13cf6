"""Who is far behind when somebody begins to look is never called well: it is too early to say, and
then it is told what is wrong.
"""

from __future__ import annotations

import pytest

from tests.pipelines.marts.played_group import played, states, steady


@pytest.mark.parametrize(
    ("produced", "consumed", "behind", "told_s"),
    [
        (1000, 995, 1_045_000, 310),  # 17 minutes behind, and falling further.
        (100, 100, 60_000, 440),  # Ten minutes behind, and holding.
        (1000, 999.95, 1_045_000, 440),  # Falling behind by 180 messages an hour.
    ],
)
def test_a_backlog_that_nobody_knew_is_unknown_until_its_course_is_known(
    produced: float, consumed: float, behind: int, told_s: int
) -> None:
    work = steady(
        produced=produced, consumed=consumed, behind=behind, commit_s=5, seconds=told_s + 30
    )
    [first, then] = states(played(work))
    assert first[1] == "UNKNOWN"
    assert then[1] == "SLOW"
    assert then[0] <= told_s


def test_a_backlog_that_is_worked_off_is_catching_up_after_the_first_window() -> None:
    work = steady(produced=100, consumed=300, behind=60_000, commit_s=5, seconds=120)
    [first, then] = states(played(work))
    assert (first[1], then[1]) == ("UNKNOWN", "CATCHING_UP")
    assert then[0] <= 45


def test_who_is_well_from_the_first_is_well() -> None:
    work = steady(produced=100, consumed=100, behind=0, commit_s=5, seconds=120)
    assert [state for _, state in states(played(work))] == ["OK"]
