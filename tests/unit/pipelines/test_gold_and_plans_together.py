"""Plans, state and gold belong together: where a part was lost, or put back from an older copy,
nothing goes on from it, and no answer is made from what is left.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from engine.foundation.errors import LakeError
from pipelines import tm
from pipelines.base.settings import Evaluation
from tests.pipelines.bronze_lake import BronzeWriter
from tests.pipelines.in_process import driver_of

CYCLES = 3


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A broker boots; each of three cycles has a shipment, which emitter_health counts."""
    writer, home = BronzeWriter(tmp_path), tmp_path
    for second in range(CYCLES):
        writer.at(second)
        writer.report("lifecycle", kind="BOOT", clean=False)
        writer.ship()
        assert driver_of(home, evaluation=Evaluation()).next_cycle() is not None
    return home


def forget_commits(table: Path, *, count: int = 1) -> None:
    """Put a table back to what it was so many commits ago."""
    for entry in sorted((table / "_delta_log").glob("*.json"))[-count:]:
        entry.unlink()


def test_a_whole_lake_is_gone_on_with_and_answers(lake: Path) -> None:
    assert driver_of(lake, evaluation=Evaluation()).next_cycle() is None
    assert len(tm.connect(lake).emitters()) == 1
    assert len(tm.connect(lake).stalls()) == 0


def test_gold_that_was_put_back_to_an_older_copy_is_no_answer_and_no_beginning(lake: Path) -> None:
    forget_commits(lake / "gold" / "emitter_health")
    said = "emitter_health is older than its plans"
    with pytest.raises(LakeError, match=said):
        driver_of(lake, evaluation=Evaluation())
    with pytest.raises(LakeError, match=said):
        tm.connect(lake).emitters()
    with pytest.raises(LakeError, match=said):
        tm.connect(lake).emitters(as_of=CYCLES)


def test_of_a_gold_table_that_is_gone_nothing_is_reported(lake: Path) -> None:
    shutil.rmtree(lake / "gold" / "stalled_windows")
    with pytest.raises(LakeError, match="gold/stalled_windows is gone: version 0 was written"):
        tm.connect(lake).stalls()


def test_plans_that_were_put_back_to_an_older_copy_skip_no_rows(lake: Path) -> None:
    forget_commits(lake / "state" / "plans", count=2)
    with pytest.raises(LakeError, match="gold has cycle 3, but its plans say cycle 2"):
        driver_of(lake, evaluation=Evaluation())
