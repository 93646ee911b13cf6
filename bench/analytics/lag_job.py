"""Benchmark `lag-job`: compares our CPU time with DuckDB's for the lag of 5,000,000 commits.

Both read the same bronze files, both write parquet: a row a commit with its lag in messages and in
time, and how the lag has changed within the last minute. Ours is a cycle of the real driver into an
empty lake, so it judges queues and groups, keeps state and commits besides, which DuckDB does not.
Both live in one process, are warm, and take turns; which begins alternates, and a ratio is the
median of the pairs. A check compares the rows of both. Scaled, the commits are fewer.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import numpy as np
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from bench.analytics.bronze import BronzeAtScale
from bench.analytics.cost import Clock, Spent
from bench.analytics.figures import Figure
from bench.bars import LAG_JOB_CPU_RATIO
from pipelines.base.settings import Evaluation, Pace
from pipelines.cycles.driver import Driver, on_spark
from pipelines.lake.lake import Lake
from pipelines.lake.session import open_session
from pipelines.reading.catalogue import CONSUMER_LAG

KEYS = 100_000
SECONDS = 50
PAIRS = 5
WARM_PAIRS = 1
BUCKETS = 4

LAG = """
COPY (
    WITH facts AS (
        SELECT *,
            coalesce(message_model = 'BROADCASTING', false) AS is_broadcast,
            greatest(event_time - store_time_at_committed, INTERVAL 0 SECOND) AS waited
        FROM read_parquet($files)
    ),
    lags AS (
        SELECT *,
            CASE WHEN NOT is_broadcast AND committed_state <> 'NONE'
                THEN max_offset - committed END AS lag_messages,
            CASE WHEN is_broadcast THEN NULL
                WHEN committed_state IN ('EXACT', 'UNREADABLE') THEN epoch_us(waited) // 1000
                WHEN committed_state = 'AT_END' THEN 0 END AS time_lag_ms
        FROM facts
    )
    SELECT event_time AS observed_at, cluster, broker, emitter, "group", topic, queue_id, seq,
        lag_messages, time_lag_ms, committed, persisted, pulled, min_offset, max_offset,
        pulled - committed AS inflight_messages, last_commit_time, last_pull_time, last_puller,
        lag_messages - first_value(lag_messages IGNORE NULLS) OVER lately AS lag_change
    FROM lags
    WINDOW lately AS (
        PARTITION BY emitter, "group", topic, queue_id ORDER BY event_time
        RANGE BETWEEN INTERVAL 60 SECOND PRECEDING AND CURRENT ROW
    )
) TO $into (FORMAT parquet, COMPRESSION zstd)
"""
SUMS = (
    "SELECT count(*), sum(lag_messages), sum(time_lag_ms), max(time_lag_ms), sum(committed) "
    "FROM read_parquet($files)"
)


def measure(folder: Path, scale: float) -> list[Figure]:
    """The ratio."""
    keys = max(1_000, round(KEYS * scale))
    source = Lake.at(str(folder / "lake"))
    rows = BronzeAtScale(source, keys).ship_seconds(iter(range(1, SECONDS + 1)), np.arange(keys))
    spark, other = open_session(), duckdb.connect(config={"threads": 2})
    spent: dict[str, list[Spent]] = {"ours": [], "theirs": []}
    for number in range(WARM_PAIRS + PAIRS):
        target, into = Lake.at(str(folder / f"ours-{number}")), folder / f"theirs-{number}.parquet"
        for side in sorted(spent, reverse=bool(number % 2)):
            clock = Clock()
            if side == "ours":
                _by_spark(spark, source, target, rows)
            else:
                _by_duckdb(other, source, into)
            if number >= WARM_PAIRS:
                spent[side].append(clock.spent())
        files = DeltaTable(target.gold(CONSUMER_LAG.name)).file_uris()
        same = _sums(other, files), _sums(other, [str(into)])
        if same[0] != same[1]:
            raise SystemExit(f"our lag {same[0]} is not DuckDB's {same[1]}")
    spark.stop()
    pairs = zip(spent["ours"], spent["theirs"], strict=True)
    ratio = median(ours.cpu_s / theirs.cpu_s for ours, theirs in pairs)
    cpu = {side: median(one.cpu_s for one in times) for side, times in spent.items()}
    return [
        Figure(
            f"lag job on {rows:,} commits, Spark ÷ DuckDB, CPU time",
            ratio,
            "",
            LAG_JOB_CPU_RATIO,
            wall_s=median(one.wall_s for one in spent["ours"]),
            cpu_s=cpu["ours"],
            note=f"{cpu['ours']:.1f} : {cpu['theirs']:.1f} CPU s, middle of {PAIRS} pairs",
        )
    ]


def _by_spark(spark: SparkSession, source: Lake, target: Lake, rows: int) -> None:
    pace = Pace(rows_per_cycle=rows, buckets=BUCKETS)
    driver = Driver(on_spark(spark), source, target, evaluation=Evaluation(), pace=pace)
    progress = driver.next_cycle()
    assert progress is not None, "there is something to judge"
    assert progress.bronze_rows == rows


def _by_duckdb(other: duckdb.DuckDBPyConnection, source: Lake, into: Path) -> None:
    files = DeltaTable(source.bronze("group_watermarks")).file_uris()
    other.execute(LAG, {"files": files, "into": str(into)})


def _sums(other: duckdb.DuckDBPyConnection, files: list[str]) -> tuple[Any, ...]:
    found: tuple[Any, ...] = other.execute(SUMS, {"files": files}).fetchall()[0]
    return found
