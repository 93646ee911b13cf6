"""Work orders carried out in this process: what Spark does with them, without Spark."""

from __future__ import annotations

import sys
from pathlib import Path

from pipelines.base.settings import Evaluation, Pace
from pipelines.cycles.buckets import packed, unpacked
from pipelines.cycles.driver import Driver, Job
from pipelines.cycles.live import only_driver, run_live
from pipelines.cycles.work import BucketDone, WorkOrder, judge, read
from pipelines.lake.lake import Lake

SHORT = Evaluation(window_ms=10_000, slide_ms=2_000)
"""The demo's figures: stories need not be long."""


def in_process(order: WorkOrder) -> list[BucketDone]:
    """Every reading task, then every bucket."""
    parts = [
        (bucket, table, unpacked(packed(rows)))
        for task in range(len(order.readings))
        for bucket, table, rows in read(order, task)
    ]
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
    job: Job = in_process,
) -> Driver:
    """A driver over a lake, whose work this process does, or `job`."""
    return Driver(
        job,
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


def main() -> None:
    """Compute a lake's gold for good, telling of each cycle: LAKE ROWS_PER_CYCLE."""
    lake, rows_per_cycle = sys.argv[1:]
    pace = Pace(cycle_ms=100, rows_per_cycle=int(rows_per_cycle))

    def begin() -> Driver:
        return driver_of(Path(lake), evaluation=SHORT, rows_per_cycle=int(rows_per_cycle))

    def print_line(what: object) -> None:
        sys.stdout.write(f"{what}\n")
        sys.stdout.flush()

    print_line("begun")
    with only_driver(Lake.at(lake)) as lease:
        run_live(
            begin, lease, pace=pace, wanted=lambda: True, say=print_line, say_failure=print_line
        )


if __name__ == "__main__":
    main()
