"""A run asks before each cycle whether the lake's driver is still this process."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.foundation.errors import LakeError
from pipelines.cycles.driver import Driver
from pipelines.cycles.live import run_live
from pipelines.settings import Evaluation, Pace
from tests.pipelines.bronze_lake import BronzeWriter
from tests.pipelines.in_process import driver_of


@dataclass
class Leased:
    """A lease of which a store says this."""

    is_held: bool
    is_lost: bool


def ran(lake: Path, lease: Leased, *, looks: int) -> list[str]:
    """Cycles told while somebody looked so often whether the run is wanted."""
    writer = BronzeWriter(lake)
    writer.at(0)
    writer.report("lifecycle", kind="BOOT", clean=False)
    writer.ship()
    told: list[str] = []
    asked = itertools.count()

    def begin() -> Driver:
        return driver_of(lake, evaluation=Evaluation())

    run_live(
        begin,
        lease,
        pace=Pace(cycle_ms=100),
        wanted=lambda: next(asked) < looks,
        tell=lambda progress: told.append(str(progress)),
        tell_failure=told.append,
    )
    return told


def test_whoever_holds_the_lease_computes(tmp_path: Path) -> None:
    assert len(ran(tmp_path, Leased(is_held=True, is_lost=False), looks=1)) == 1


def test_nothing_is_computed_while_the_lease_cannot_be_renewed(tmp_path: Path) -> None:
    assert ran(tmp_path, Leased(is_held=False, is_lost=False), looks=4) == []


def test_a_driver_that_was_replaced_ends_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="computed by another process now; this one ends"):
        ran(tmp_path, Leased(is_held=False, is_lost=True), looks=4)
