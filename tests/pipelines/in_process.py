"""Work orders carried out in this process: what Spark does with them, without Spark."""

from __future__ import annotations

from pathlib import Path

from pipelines.cycles.driver import Driver
from pipelines.cycles.work import BucketDone, WorkOrder, judge, read
from pipelines.lake import Lake
from pipelines.settings import Evaluation, Pace


def in_process(order: WorkOrder) -> list[BucketDone]:
    """Every reading task, then every bucket."""
    parts = [part for task in range(max(1, len(order.readings))) for part in read(order, task)]
    return [
        judge(order, bucket, [part for part in parts if part[0] == bucket])
        for bucket in range(order.buckets)
    ]


def driver_of(
    lake: Path,
    *,
    evaluation: Evaluation,
    target: Path | None = None,
    rows_per_cycle: int = 1_000_000,
    buckets: int = 2,
) -> Driver:
    """A driver over a lake, whose work this process does."""
    return Driver(
        in_process,
        Lake.at(str(lake)),
        Lake.at(str(target or lake)),
        evaluation=evaluation,
        pace=Pace(rows_per_cycle=rows_per_cycle, buckets=buckets),
    )


def run_to_the_end(driver: Driver) -> int:
    """Cycles until bronze is used up; how many."""
    cycles = 0
    while driver.next_cycle() is not None:
        cycles += 1
    return cycles
