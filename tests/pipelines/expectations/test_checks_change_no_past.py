"""An answer as of a moment is the same before and after checks that are run later: sentence, rows
and digest. What these find is said beside it, and of answers about now in its place.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from expectations.rounds import Wishes, check_round
from pipelines import tm
from pipelines.tm.handle import LakeHandle
from pipelines.tm.results import Result
from tests.checked_lake import CheckedLake, in_this_process
from tests.gold_lake import write_gold_lake

QUESTIONS = (
    *("groups", "stalls", "why", "duplicates", "rollbacks", "ownership", "rebalances"),
    *("dead_letters", "replaced", "emitters"),
)
OF_A_GROUP = ("lag", "stalls", "why", "duplicates")


def asked(handle: LakeHandle, as_of: int | datetime | str | None) -> dict[str, Result]:
    """Every question, about everybody and about a group."""
    found = {name: getattr(handle, name)(as_of=as_of) for name in QUESTIONS}
    found |= {
        f"{name} of ghost": getattr(handle, name)("ghost", as_of=as_of) for name in OF_A_GROUP
    }
    return found


def answers(handle: LakeHandle, as_of: int | datetime | str) -> dict[str, tuple[str, str]]:
    """What is answered, to the byte."""
    return {name: (one.verdict, one.digest) for name, one in asked(handle, as_of).items()}


@pytest.fixture
def lake(tmp_path: Path) -> CheckedLake:
    """Two cycles behind the story; the first one has a group that is ahead of its queue."""
    found = CheckedLake(write_gold_lake(tmp_path / "lake"))
    found.watermark(group="ghost", committed=200_007, processed=200_007, max_offset=200_000)
    found.complete()
    found.watermark()
    found.complete()
    return found


def check(lake: CheckedLake) -> None:
    """`tidemark check`, now."""
    clock = lambda: datetime.now(UTC)  # noqa: E731
    check_round(lake.lake, in_this_process, Wishes(), clock=clock)


def test_a_check_that_is_run_later_changes_no_answer_as_of_a_moment(lake: CheckedLake) -> None:
    handle = tm.connect(lake.lake.root)
    before = {as_of: answers(handle, as_of) for as_of in (2, 3, lake.moment, "2s")}
    now = asked(handle, None)

    check(lake)

    after = {as_of: answers(handle, as_of) for as_of in before}
    assert after == before
    assert "ithheld" not in str(after)
    since = handle.groups(as_of=3)
    assert since.found_since.startswith(
        "Checks that ran since withhold a part of this: ghost, because "
    )
    assert since.found_since in repr(since)
    assert handle.stalls("billing", as_of=3).found_since == ""
    later = asked(handle, None)
    assert {name for name, one in later.items() if one.verdict != now[name].verdict} >= {
        *("groups", "stalls", "why", "duplicates", "rollbacks"),
        *("lag of ghost", "stalls of ghost", "why of ghost", "duplicates of ghost"),
    }
    assert "1 group is withheld: ghost, because " in later["stalls"].verdict


def test_a_check_that_was_kept_before_a_cycle_is_known_to_it(lake: CheckedLake) -> None:
    check(lake)
    lake.watermark()
    lake.complete()
    handle = tm.connect(lake.lake.root)

    assert "1 group is withheld: ghost, because " in handle.stalls(as_of=4).verdict
    assert handle.stalls(as_of=4).found_since == ""
    assert "ithheld" not in handle.stalls(as_of=3).verdict
