"""Rows a second of a replay: a made lake of many queues, all marts, into a side lake.

    python -m bench.replay [--keys N] [--seconds S]

Prints one table: bronze rows, gold rows, wall and CPU seconds, rows a second of each; the first
cycle (a cold JVM, cold workers) and the others apart. A cycle takes what a minute ships.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.analytics.bronze import BronzeAtScale
from bench.analytics.cost import Clock, Spent
from bench.bars import REPLAY_RATE
from pipelines.cycles.driver import Driver, on_spark
from pipelines.lake import Lake
from pipelines.session import open_session
from pipelines.settings import Evaluation, Pace

SHIPPED_S = 60


def main() -> None:
    """Write a lake, replay it, print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.replay")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder:
        lake = Lake.at(str(Path(folder) / "lake"))
        bronze = BronzeAtScale(lake, options.keys)
        for second in range(0, options.seconds, SHIPPED_S):
            seconds = range(second, min(second + SHIPPED_S, options.seconds))
            bronze.ship_seconds(iter(seconds), np.arange(options.keys))
        Console(width=140).print(_replayed(lake, Lake.at(str(Path(folder) / "side")), options.keys))


def _replayed(lake: Lake, side: Lake, keys: int) -> Table:
    pace = Pace(rows_per_cycle=keys * SHIPPED_S)
    spark = open_session()
    driver = Driver(on_spark(spark), lake, side, evaluation=Evaluation(), pace=pace)
    table = Table(title=f"replay, {keys} queues, local[2]; bar: {REPLAY_RATE} of the others")
    for name in ("part", "bronze rows", "gold rows", "wall s", "CPU s", "rows/s", "rows/CPU s"):
        table.add_column(name, justify="left" if name == "part" else "right")
    parts: dict[str, list[tuple[int, int, Spent]]] = {"first cycle, cold": [], "the others": []}
    while True:
        clock = Clock()
        progress = driver.next_cycle()
        if progress is None:
            break
        part = "the others" if progress.cycle > 1 else "first cycle, cold"
        done = (progress.bronze_rows, sum(progress.gold_rows.values()), clock.spent())
        parts[part].append(done)
    for name, cycles in parts.items():
        rows, gold = sum(one[0] for one in cycles), sum(one[1] for one in cycles)
        wall_s = sum(one[2].wall_s for one in cycles)
        cpu_s = sum(one[2].cpu_s for one in cycles)
        if cycles:
            spent = (f"{wall_s:.1f}", f"{cpu_s:.1f}")
            rates = (f"{rows / wall_s:.0f}", f"{rows / cpu_s:.0f}")
            table.add_row(name, str(rows), str(gold), *spent, *rates)
    spark.stop()
    return table


if __name__ == "__main__":
    main()
