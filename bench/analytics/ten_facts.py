"""Benchmark `p13`: one cycle that writes all of gold for a million keys with ten facts each.

One cycle of the real driver over bronze that lies there, on two cores; it runs on several lakes one
after the other, and the median by CPU time is reported. Spark has judged a small lake before: the
bar is for a pipeline that runs, not for the start of a JVM. Scaled, there are fewer keys.
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
    for number in range(2):
        judged(spark, folder / f"warm-{number}", WARM_KEYS)
    runs = []
    for number in range(RUNS):
        lake = folder / f"lake-{number}"
        runs.append(judged(spark, lake, keys))
        shutil.rmtree(lake)
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


def judged(spark: SparkSession, folder: Path, keys: int) -> tuple[Progress, Spent]:
    """Write the bronze of so many keys, and judge it in one cycle."""
    lake = Lake.at(str(folder))
    seconds = iter(range(SLIDE_S, SLIDE_S * (FACTS + 1), SLIDE_S))
    rows = BronzeAtScale(lake, keys).ship_seconds(seconds, np.arange(keys))
    pace = Pace(rows_per_cycle=rows, buckets=BUCKETS)
    driver = Driver(on_spark(spark), lake, lake, evaluation=Evaluation(), pace=pace)
    clock = Clock()
    progress = driver.next_cycle()
    spent = clock.spent()
    assert progress is not None, "there is something to judge"
    assert progress.bronze_rows == rows
    return progress, spent
