"""A run asks before each cycle whether the lake's driver is still this process."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError

from engine.foundation.errors import LakeError
from pipelines.base.settings import Evaluation, Pace
from pipelines.cycles.driver import Driver
from pipelines.cycles.live import run_live
from tests.pipelines.bronze_lake import BronzeWriter
from tests.pipelines.in_process import driver_of


@dataclass
class Leased:
    """A lease of which a store says this."""

    is_held: bool
    is_lost: bool
    idle: int = 0
    """How often it heard that there is nothing new."""

    def found_nothing(self) -> None:
        self.idle += 1


def ran(lake: Path, lease: Leased, *, looks: int) -> list[str]:
    """Cycles announced while somebody looked so often whether the run is wanted."""
    writer = BronzeWriter(lake)
    writer.at(0)
    writer.report("lifecycle", kind="BOOT", clean=False)
    writer.ship()
    seen: list[str] = []
    asked = itertools.count()

    def begin() -> Driver:
        return driver_of(lake, evaluation=Evaluation())

    run_live(
        begin,
        lease,
        pace=Pace(cycle_ms=100),
        wanted=lambda: next(asked) < looks,
        say=lambda progress: seen.append(str(progress)),
        say_failure=seen.append,
    )
    return seen


def test_whoever_holds_the_lease_computes(tmp_path: Path) -> None:
    assert len(ran(tmp_path, Leased(is_held=True, is_lost=False), looks=1)) == 1


def test_a_driver_to_which_nothing_comes_says_so_and_one_at_work_does_not(tmp_path: Path) -> None:
    lease = Leased(is_held=True, is_lost=False)
    ran(tmp_path, lease, looks=1)
    assert lease.idle == 0, "it had a cycle"
    ran(tmp_path / "other", lease, looks=6)
    assert lease.idle >= 1


def test_nothing_is_computed_while_the_lease_cannot_be_renewed(tmp_path: Path) -> None:
    assert ran(tmp_path, Leased(is_held=False, is_lost=False), looks=4) == []


def test_a_driver_that_was_replaced_ends_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="computed by another process now; this one ends"):
        ran(tmp_path, Leased(is_held=False, is_lost=True), looks=4)


def test_a_store_that_fails_at_the_first_look_is_logged_and_asked_again(tmp_path: Path) -> None:
    seen: list[str] = []
    asked = itertools.count()
    full = iter([DeltaError("no space left on device")])

    def begin() -> Driver:
        for error in full:
            raise error
        return driver_of(tmp_path, evaluation=Evaluation())

    writer = BronzeWriter(tmp_path)
    writer.at(0)
    writer.report("lifecycle", kind="BOOT", clean=False)
    writer.ship()
    run_live(
        begin,
        Leased(is_held=True, is_lost=False),
        pace=Pace(cycle_ms=100),
        wanted=lambda: next(asked) < 100 and not any("cycle 1" in line for line in seen),
        say=lambda progress: seen.append(str(progress)),
        say_failure=seen.append,
    )
    assert seen[0] == "no space left on device; trying again in 1 s"
    assert seen[1].startswith("cycle 1: ")


def test_a_lake_that_is_not_this_runs_is_refused_at_once(tmp_path: Path) -> None:
    def begin() -> Driver:
        raise LakeError("gold of another version")

    with pytest.raises(LakeError, match="gold of another version"):
        run_live(
            begin,
            Leased(is_held=True, is_lost=False),
            pace=Pace(),
            wanted=lambda: True,
            say=str,
            say_failure=str,
        )
