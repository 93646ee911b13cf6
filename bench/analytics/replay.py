"""Benchmark `replay`: bronze rows per second in a replay that writes all gold tables.

A generated lake is replayed into a separate one. A cycle takes what a minute ships; the first one
(a cold JVM, cold workers) does not count. Scaled, there are fewer keys.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench.analytics.bronze import BronzeAtScale
from bench.analytics.cost import Clock
from bench.analytics.figures import Figure
from bench.bars import REPLAY_RATE
from pipelines.base.settings import Evaluation, Pace
from pipelines.cycles.driver import Driver, on_spark
from pipelines.lake.lake import Lake
from pipelines.lake.session import open_session

SHIPPED_S = 60
KEYS, SECONDS = 10_000, 5 * SHIPPED_S


def measure(folder: Path, scale: float) -> list[Figure]:
    """The cycles behind the first, which is that of a JVM that was just started."""
    keys = max(16, round(KEYS * scale))
    lake, side = Lake.at(str(folder / "lake")), Lake.at(str(folder / "side"))
    write_bronze(lake, keys, SECONDS)
    spark = open_session()
    pace = Pace(rows_per_cycle=keys * SHIPPED_S)
    driver = Driver(on_spark(spark), lake, side, evaluation=Evaluation(), pace=pace)
    first = driver.next_cycle()
    assert first is not None, "there is something to replay"
    clock, rows, gold_rows = Clock(), 0, 0
    while (progress := driver.next_cycle()) is not None:
        rows += progress.bronze_rows
        gold_rows += sum(progress.gold_rows.values())
    spent = clock.spent()
    spark.stop()
    return [
        Figure(
            f"replay, {keys:,} keys, {rows:,} rows of bronze, on two cores",
            rows / spent.wall_s,
            "rows/s",
            REPLAY_RATE,
            wall_s=spent.wall_s,
            cpu_s=spent.cpu_s,
            note=f"{rows / spent.cpu_s:,.0f} a CPU second; {gold_rows:,} gold rows",
        )
    ]


def write_bronze(lake: Lake, keys: int, seconds: int) -> None:
    """A lake in which each key moves in each second, shipped minute by minute."""
    bronze = BronzeAtScale(lake, keys)
    for begin in range(0, seconds, SHIPPED_S):
        bronze.ship_seconds(iter(range(begin, min(begin + SHIPPED_S, seconds))), np.arange(keys))
