"""Who is behind when somebody begins to look is never called well: it is too early to say, and then
what is wrong is said; of one that is far behind, at once.
"""

from __future__ import annotations

import pytest

from pipelines.base.settings import Evaluation
from tests.pipelines.marts.played_group import played, states, steady


@pytest.mark.parametrize(
    ("produced", "consumed", "behind", "reported_s"),
    [
        (1000, 995, 250_000, 310),  # Four minutes behind, and falling further.
        (100, 100, 25_000, 440),  # As far behind, and holding.
        (1000, 999.95, 250_000, 440),  # Falling behind by 180 messages an hour.
        (1000, 995, 1_045_000, 45),  # 17 minutes behind: ten times what is allowed, and more.
        (100, 100, 31_000, 45),  # Five minutes behind, and holding.
        (1000, 1005, 400_000, 45),  # Gaining so slowly that nobody can know it by then.
    ],
)
def test_a_backlog_that_nobody_knew_is_unknown_until_its_course_is_known(
    produced: float, consumed: float, behind: int, reported_s: int
) -> None:
    work = steady(
        produced=produced, consumed=consumed, behind=behind, commit_s=5, seconds=reported_s + 20
    )
    [first, then] = states(played(work))
    assert first[1] == "UNKNOWN"
    assert then[1] == "SLOW"
    assert then[0] <= reported_s


@pytest.mark.parametrize("far_times", [9, 21])
def test_how_far_behind_is_slow_at_once_is_a_setting(far_times: int) -> None:
    """Ten minutes behind, and holding: twenty times the 30 s that are allowed."""
    work = steady(produced=100, consumed=100, behind=60_000, commit_s=5, seconds=80)
    found = states(played(work, Evaluation(far_times=far_times)))
    assert [state for _, state in found] == (["UNKNOWN", "SLOW"] if far_times < 20 else ["UNKNOWN"])


def test_a_backlog_that_is_worked_off_is_catching_up_after_the_first_window() -> None:
    work = steady(produced=100, consumed=300, behind=60_000, commit_s=5, seconds=120)
    [first, then] = states(played(work))
    assert (first[1], then[1]) == ("UNKNOWN", "CATCHING_UP")
    assert then[0] <= 45


def test_who_is_well_from_the_first_is_well() -> None:
    work = steady(produced=100, consumed=100, behind=0, commit_s=5, seconds=120)
    assert [state for _, state in states(played(work))] == ["OK"]
