"""Measures row throughput when all marts replay a generated lake into a separate lake.

    python -m bench.replay [--keys N] [--seconds S]

Prints one table: bronze rows, gold rows, wall and CPU seconds, rows a second of each; the first
cycle (a cold JVM, cold workers) and the others apart. A cycle takes what a minute ships.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.analytics.bronze import BronzeAtScale
from bench.analytics.cost import Clock, Spent
from bench.bars import REPLAY_RATE
from pipelines.base.settings import Evaluation, Pace
from pipelines.cycles.driver import Driver, on_spark
from pipelines.lake.lake import Lake
from pipelines.lake.session import open_session

SHIPPED_S = 60


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some cycles together."""

    what: str
    rows: int
    """Of bronze."""
    gold_rows: int
    spent: Spent

    @property
    def rows_per_s(self) -> float:
        """By the wall clock."""
        return self.rows / self.spent.wall_s


def main() -> None:
    """Write a lake, replay it, print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.replay")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=300)
    options = parser.parse_args()
    table = Table(title=f"replay, {options.keys} queues, local[2]; bar: {REPLAY_RATE} of the rest")
    for name in ("part", "bronze rows", "gold rows", "wall s", "CPU s", "rows/s", "rows/CPU s"):
        table.add_column(name, justify="left" if name == "part" else "right")
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder:
        for one in measure(Path(folder), options.keys, options.seconds):
            spent = (f"{one.spent.wall_s:.1f}", f"{one.spent.cpu_s:.1f}")
            rates = (f"{one.rows_per_s:.0f}", f"{one.rows / one.spent.cpu_s:.0f}")
            table.add_row(one.what, str(one.rows), str(one.gold_rows), *spent, *rates)
    Console(width=140).print(table)


def measure(folder: Path, keys: int, seconds: int) -> list[Stretch]:
    """Write a lake of so many seconds and replay it: the first cycle, and the others."""
    lake, side = Lake.at(str(folder / "lake")), Lake.at(str(folder / "side"))
    write_bronze(lake, keys, seconds)
    spark = open_session()
    pace = Pace(rows_per_cycle=keys * SHIPPED_S)
    driver = Driver(on_spark(spark), lake, side, evaluation=Evaluation(), pace=pace)
    first, others = _cycle(driver), _nothing("the others")
    assert first is not None, "there is something to replay"
    while (one := _cycle(driver)) is not None:
        others = _sum(others, one)
    spark.stop()
    return [first, others] if others.rows else [first]


def write_bronze(lake: Lake, keys: int, seconds: int) -> None:
    """A lake in which each key moves in each second, shipped minute by minute."""
    bronze = BronzeAtScale(lake, keys)
    for begin in range(0, seconds, SHIPPED_S):
        bronze.ship_seconds(iter(range(begin, min(begin + SHIPPED_S, seconds))), np.arange(keys))


def _cycle(driver: Driver) -> Stretch | None:
    clock = Clock()
    progress = driver.next_cycle()
    if progress is None:
        return None
    gold_rows = sum(progress.gold_rows.values())
    return Stretch("first cycle, cold", progress.bronze_rows, gold_rows, clock.spent())


def _nothing(what: str) -> Stretch:
    return Stretch(what, 0, 0, Spent(0.0, 0.0))


def _sum(some: Stretch, one: Stretch) -> Stretch:
    spent = Spent(some.spent.wall_s + one.spent.wall_s, some.spent.cpu_s + one.spent.cpu_s)
    return Stretch(some.what, some.rows + one.rows, some.gold_rows + one.gold_rows, spent)


if __name__ == "__main__":
    main()
