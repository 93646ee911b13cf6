"""Benchmark `p13`: one cycle that writes all of gold for a million keys with ten facts each.

One cycle of the real driver over bronze that lies there, on two cores; it runs several times one
after the other, each into a new lake, and the median by CPU time is reported. Spark has judged a
small lake before: the bar is for a pipeline that runs, not for the start of a JVM. Scaled, there
are fewer keys.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from bench.analytics.bronze import BronzeAtScale
from bench.analytics.cost import Clock, Spent
from bench.analytics.figures import Figure
from bench.bars import TEN_FACTS_CPU, TEN_FACTS_WALL
from pipelines.base.settings import Evaluation, Pace
from pipelines.cycles.driver import Driver, Progress, on_spark
from pipelines.lake.lake import Lake
from pipelines.lake.session import open_session

KEYS = 1_000_000
FACTS = 10
SLIDE_S = 5
"""A fact of each key at each tick."""
RUNS = 5
WARM_KEYS = 2_000
BUCKETS = 8
"""Four for each core, so that the columns of one bucket fit where they are computed."""


def measure(folder: Path, scale: float) -> list[Figure]:
    """Wall and CPU time of the cycle."""
    keys = max(WARM_KEYS, round(KEYS * scale))
    spark = open_session()
    few, many = bronze(folder / "few", WARM_KEYS), bronze(folder / "many", keys)
    for number in range(2):
        judged(spark, few, folder / f"warm-{number}")
    runs = []
    for number in range(RUNS):
        gold = folder / f"gold-{number}"
        runs.append(judged(spark, many, gold))
        shutil.rmtree(gold)
    spark.stop()
    progress, spent = sorted(runs, key=lambda run: run[1].cpu_s)[RUNS // 2]
    between = " to ".join(f"{end(run[1].cpu_s for run in runs):.1f}" for end in (min, max))
    gold_rows = sum(progress.gold_rows.values())
    what = f"{keys:,} keys, ten facts each, judged, gold written"
    note = f"{progress.bronze_rows:,} rows in, {gold_rows:,} out"
    wall_s, cpu_s = spent.wall_s, spent.cpu_s
    return [
        Figure(f"{what}: wall", wall_s, "s", TEN_FACTS_WALL, wall_s, cpu_s, note),
        Figure(
            f"{what}: CPU",
            *(cpu_s, "CPU s", TEN_FACTS_CPU, wall_s, cpu_s),
            f"the middle one of {RUNS} runs of {between}",
        ),
    ]


def bronze(folder: Path, keys: int) -> tuple[Lake, int]:
    """A lake with the bronze of so many keys, and its rows."""
    lake = Lake.at(str(folder))
    seconds = iter(range(SLIDE_S, SLIDE_S * (FACTS + 1), SLIDE_S))
    return lake, BronzeAtScale(lake, keys).ship_seconds(seconds, np.arange(keys))


def judged(spark: SparkSession, of: tuple[Lake, int], gold: Path) -> tuple[Progress, Spent]:
    """Judge all of a bronze in one cycle, into a lake of its own."""
    source, rows = of
    pace = Pace(rows_per_cycle=rows, buckets=BUCKETS)
    target = Lake.at(str(gold))
    driver = Driver(on_spark(spark), source, target, evaluation=Evaluation(), pace=pace)
    clock = Clock()
    progress = driver.next_cycle()
    spent = clock.spent()
    assert progress is not None, "there is something to judge"
    assert progress.bronze_rows == rows
    return progress, spent
