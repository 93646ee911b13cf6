"""One cycle: read the cut, compute every mart, append its rows.

Place in the walk: called by the stream and by replay, with a plan that is already recorded.

Invariant: the rows written are a function of bronze, of the plan and of the evaluation's figures; running a cycle twice
writes once. Absent on purpose: choosing what to read, waiting, and progress lines.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pipelines.bronze import BronzeRows, read_bronze
from pipelines.catalogue import (
    CONSUMER_LAG,
    DEAD_LETTERS,
    EMITTER_HEALTH,
    REBALANCES,
    GoldTable,
)
from pipelines.gold import append_gold
from pipelines.lake import Lake
from pipelines.marks import Plan
from pipelines.marts.consumer_lag import consumer_lag
from pipelines.marts.dead_letters import dead_letters
from pipelines.marts.emitter_health import emitter_health
from pipelines.marts.rebalances import rebalances
from pipelines.settings import Evaluation
from pipelines.staging import sources

WRITERS: Final = 3
"""Marts computed at the same time: their planning overlaps with the writing of others."""


@dataclass(frozen=True, slots=True)
class Frames:
    """What marts are made from, staged; every frame holds the cut and its look-back."""

    group_watermarks: DataFrame
    rebalance_events: DataFrame
    retry_steps: DataFrame
    shipments: DataFrame
    row_numbers: DataFrame


@dataclass(frozen=True, slots=True)
class Mart:
    """A gold table, how it is made, and the bronze tables without whose new rows it has none."""

    table: GoldTable
    make: Callable[[Frames], DataFrame]
    fed_by: tuple[str, ...]
    """Empty: time alone may bring rows."""


MARTS: Final = (
    Mart(CONSUMER_LAG, lambda on: consumer_lag(on.group_watermarks), ("group_watermarks",)),
    Mart(REBALANCES, lambda on: rebalances(on.rebalance_events), ("rebalance_events",)),
    Mart(DEAD_LETTERS, lambda on: dead_letters(on.retry_steps), ("retry_dlq_flow",)),
    Mart(
        EMITTER_HEALTH,
        lambda on: emitter_health(on.shipments, on.row_numbers),
        ("shipments",),
    ),
)


def run_cycle(
    spark: SparkSession, source: Lake, target: Lake, plan: Plan, evaluation: Evaluation
) -> dict[str, int]:
    """Carry out `plan`: rows written per gold table."""
    rows = read_bronze(source, plan.cuts, look_back_us=evaluation.look_back_us)
    frames = stage(spark, rows)
    due = [mart for mart in MARTS if _is_due(mart, rows)]
    with ThreadPoolExecutor(WRITERS) as writers:
        counts = writers.map(
            lambda mart: append_gold(mart.make(frames), target, mart.table, plan), due
        )
        return dict(zip((mart.table.name for mart in due), counts, strict=True))


def stage(spark: SparkSession, rows: BronzeRows) -> Frames:
    """Hand the rows to Spark, one frame per table, staged."""

    def frame(table: pa.Table) -> DataFrame:
        # One chunk: Spark 4.2 takes a table whose first chunk is empty for an empty table.
        return spark.createDataFrame(table.combine_chunks())

    bronze = {name: frame(table) for name, table in rows.tables.items()}
    return Frames(
        group_watermarks=sources.stage_group_watermarks(bronze["group_watermarks"]),
        rebalance_events=sources.stage_rebalance_events(bronze["rebalance_events"]),
        retry_steps=sources.stage_retry_dlq_flow(bronze["retry_dlq_flow"]),
        shipments=sources.stage_shipments(bronze["shipments"]),
        row_numbers=frame(rows.row_numbers),
    )


def _is_due(mart: Mart, rows: BronzeRows) -> bool:
    return not mart.fed_by or any(rows.new_rows(name) for name in mart.fed_by)
