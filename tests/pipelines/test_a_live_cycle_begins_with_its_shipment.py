"""When the cycles of a live run begin: with a shipment, and at a distance from each other."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.analytics.bronze import BronzeAtScale
from pipelines.base.settings import Pace
from pipelines.cycles.driver import Driver, Progress
from pipelines.cycles.live import POLL_S, REMOTE_POLL_S, only_driver, poll_s_of, run_live
from pipelines.lake.lake import Lake
from tests.pipelines.in_process import SHORT, driver_of

KEYS = np.arange(32)
CYCLE_MS = 3_000


@dataclass(slots=True)
class Run:
    """A live run over a lake to which somebody ships, with the moments of both."""

    folder: Path
    shipped_s: list[float] = field(default_factory=list)
    begun_s: list[float] = field(default_factory=list)
    """Of each cycle that found something."""
    asked: int = 0
    """How often the run has asked whether it is wanted: before its first look, and behind it."""

    def over(self, bronze: BronzeAtScale, ships: list[Callable[[Run], bool]]) -> None:
        """Until there is a cycle for each shipment; each is sent as soon as its condition holds."""
        waiting, deadline_s = list(ships), time.monotonic() + 60

        def wanted() -> bool:
            assert time.monotonic() < deadline_s, f"{len(self.begun_s)} cycles after a minute"
            self.asked += 1
            if waiting and waiting[0](self):
                waiting.pop(0)
                bronze.ship(5 * (len(self.shipped_s) + 2), KEYS)
                self.shipped_s.append(time.monotonic())
            return len(self.begun_s) < len(ships)

        with only_driver(Lake.at(str(self.folder))) as lease:
            run_live(
                lambda: Watched(driver_of(self.folder, evaluation=SHORT), self.begun_s),
                lease,
                pace=Pace(cycle_ms=CYCLE_MS),
                wanted=wanted,
                say=lambda progress: None,
                say_failure=fail,
            )


@dataclass(frozen=True, slots=True)
class Watched:
    """A driver that notes when those of its cycles began that found something."""

    driver: Driver
    begun_s: list[float]

    def next_cycle(self) -> Progress | None:
        begun_s = time.monotonic()
        progress = self.driver.next_cycle()
        if progress is not None:
            self.begun_s.append(begun_s)
        return progress


def fail(sentence: str) -> None:
    raise AssertionError(sentence)


def a_lake(folder: Path) -> BronzeAtScale:
    """With a first shipment that is judged already."""
    bronze = BronzeAtScale(Lake.at(str(folder)), len(KEYS))
    bronze.ship(5, KEYS)
    assert driver_of(folder, evaluation=SHORT).next_cycle() is not None
    return bronze


def test_a_shipment_that_comes_while_nothing_is_new_begins_a_cycle_at_once(tmp_path: Path) -> None:
    run = Run(tmp_path / "lake")
    run.over(a_lake(run.folder), [lambda run: run.asked > 1])
    assert run.begun_s[0] - run.shipped_s[0] < CYCLE_MS / 1000 / 3


def test_a_shipment_that_comes_during_a_cycle_waits_for_the_distance_of_cycles(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path / "lake")
    run.over(a_lake(run.folder), [lambda _: True, lambda run: bool(run.begun_s)])
    first_s, second_s = run.begun_s
    assert second_s - first_s >= CYCLE_MS / 1000


@dataclass(slots=True)
class Always:
    """Cycles that take no time, of which there is always another one; and a lease of them."""

    rows: int
    begun_s: list[float] = field(default_factory=list)
    asked: int = 0
    """How often the run has asked whether it is wanted: more than once a cycle, and it waits."""
    is_held: bool = True
    is_lost: bool = False

    def next_cycle(self) -> Progress:
        self.begun_s.append(time.monotonic())
        return Progress(len(self.begun_s), self.rows, {}, 0, 0.0)

    def found_nothing(self) -> None:
        raise AssertionError("there is always another cycle")

    def run(self, cycles: int, pace: Pace) -> None:
        def wanted() -> bool:
            self.asked += 1
            return len(self.begun_s) < cycles

        run_live(
            lambda: self,
            self,
            pace=pace,
            wanted=wanted,
            say=lambda _: None,
            say_failure=fail,
        )


def test_cycles_that_take_no_time_begin_at_their_distance() -> None:
    always = Always(rows=3)
    always.run(3, Pace(cycle_ms=200))
    distances_s = np.diff(always.begun_s)
    assert min(distances_s) >= 0.2


def test_a_backlog_is_worked_off_without_a_distance() -> None:
    always = Always(rows=100)
    always.run(3, Pace(cycle_ms=500, rows_per_cycle=100))
    assert always.asked == 3 + 1


def test_an_object_store_is_asked_less_often_than_a_disk() -> None:
    assert poll_s_of(Lake("/data/lake")) == POLL_S
    assert poll_s_of(Lake("s3://bucket/lake")) == REMOTE_POLL_S > POLL_S
