"""One cycle: read the cut, compute every mart, append its rows.

Place in the walk: called by the stream and by replay, with a plan that is already recorded.

Invariant: the rows written are a function of bronze, of the plan and of the evaluation's figures;
running a cycle twice writes once. Absent on purpose: choosing what to read, waiting, and progress
lines.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from pipelines.bronze import BronzeRows, read_bronze
from pipelines.catalogue import (
    CONSUMER_LAG,
    DEAD_LETTERS,
    DUPLICATE_RISK_WINDOWS,
    EMITTER_HEALTH,
    GROUP_STATE,
    OFFSET_VIOLATIONS,
    OWNERSHIP,
    REBALANCES,
    STALLED_WINDOWS,
)
from pipelines.frames.consumer_lag import consumer_lag
from pipelines.frames.dead_letters import dead_letters
from pipelines.frames.duplicate_risk import (
    delivered_once_more,
    duplicate_risk_windows,
    from_events,
)
from pipelines.frames.emitter_health import emitter_health
from pipelines.frames.exposures import exposures
from pipelines.frames.group_state import group_state
from pipelines.frames.offset_violations import offset_violations
from pipelines.frames.ownership import ownership
from pipelines.frames.queue_rules import judged_queues
from pipelines.frames.queue_states import REWIND_MEMORY_US, falls_of, observed_queues
from pipelines.frames.rebalances import rebalances
from pipelines.frames.risk_events import risk_events
from pipelines.frames.stalled_windows import stalled_windows
from pipelines.frames.ticks import evaluation_ticks
from pipelines.frames.verdicts import verdicts
from pipelines.gold import append_gold, earlier_rows, open_windows, to_spark
from pipelines.lake import Lake
from pipelines.marks import Plan
from pipelines.marts.mart import GoldTable
from pipelines.schemas import arrow_schema
from pipelines.settings import Evaluation
from pipelines.staging import sources

WRITERS: Final = 3
"""Marts computed at the same time: their planning overlaps with the writing of others."""


TICK_TABLES: Final = (STALLED_WINDOWS.name, GROUP_STATE.name)
"""Their rows belong to the cut in which their tick lies, those of the others to the one with their
seq.
"""


@dataclass(frozen=True, slots=True)
class Frames:
    """What marts are made from, staged; every frame holds the cut and its look-back."""

    group_watermarks: DataFrame
    consume_offsets: DataFrame
    rebalance_events: DataFrame
    client_windows: DataFrame
    retry_steps: DataFrame
    redeliveries: DataFrame
    lifecycle: DataFrame
    boots: DataFrame
    shipments: DataFrame
    row_numbers: DataFrame
    activity: DataFrame
    cuts: DataFrame


@dataclass(frozen=True, slots=True)
class Carried:
    """What earlier cycles have left open where the cut begins."""

    stalls: pa.Table
    owners: pa.Table
    exposures: pa.Table
    risks: pa.Table
    violations: pa.Table


Makers = dict[GoldTable, Callable[[], DataFrame]]
"""The marts that may have rows in this cycle, and how each is made."""


def run_cycle(
    spark: SparkSession, source: Lake, target: Lake, plan: Plan, *, evaluation: Evaluation
) -> dict[str, int]:
    """Carry out `plan`: rows written per gold table."""
    rows = read_bronze(source, plan.cuts, look_back_us=evaluation.look_back_us)
    frames = stage(spark, rows, plan)
    carried = read_carried(target, plan)
    makers = _row_makers(frames, carried, rows)
    makers.update(_judging_makers(frames, carried, rows, evaluation))
    with ThreadPoolExecutor(WRITERS) as writers:
        counts = writers.map(
            lambda table: append_gold(makers[table](), target, table, plan), makers
        )
        return dict(zip((table.name for table in makers), counts, strict=True))


def stage(spark: SparkSession, rows: BronzeRows, plan: Plan) -> Frames:
    """Hand the rows to Spark, a staged frame per table."""
    bronze = {name: to_spark(spark, table) for name, table in rows.tables.items()}
    lifecycle = sources.stage_lifecycle(bronze["lifecycle"])
    return Frames(
        group_watermarks=sources.stage_group_watermarks(bronze["group_watermarks"]),
        consume_offsets=sources.stage_consume_offsets(bronze["consume_offsets"]),
        rebalance_events=sources.stage_rebalance_events(bronze["rebalance_events"]),
        client_windows=sources.stage_client_windows(bronze["client_windows"]),
        retry_steps=sources.stage_retry_dlq_flow(bronze["retry_dlq_flow"]),
        redeliveries=sources.stage_redeliveries(bronze["redeliveries"]),
        lifecycle=lifecycle,
        boots=lifecycle.where(F.col("kind") == "BOOT"),
        shipments=sources.stage_shipments(bronze["shipments"]),
        row_numbers=to_spark(spark, rows.row_numbers),
        activity=to_spark(spark, rows.activity),
        cuts=to_spark(spark, _cuts_table(plan)),
    )


def read_carried(target: Lake, plan: Plan) -> Carried:
    """Open intervals and remembered falls, as gold tells them at the mark."""
    cuts = plan.cuts
    oldest_us = min((cut.time_from_us for cut in cuts), default=0)
    on_ticks = open_windows(target, DUPLICATE_RISK_WINDOWS, cuts, on_ticks=True)
    on_rows = open_windows(target, DUPLICATE_RISK_WINDOWS, cuts, on_ticks=False)
    is_exposure = pc.field("basis") == "EXPOSURE"
    return Carried(
        stalls=open_windows(target, STALLED_WINDOWS, cuts, on_ticks=True),
        owners=open_windows(target, OWNERSHIP, cuts, on_ticks=False),
        exposures=on_ticks.filter(is_exposure),
        risks=on_rows.filter(~is_exposure),
        violations=earlier_rows(
            target,
            OFFSET_VIOLATIONS,
            cuts,
            on_ticks=False,
            not_before_us=max(0, oldest_us - 2 * REWIND_MEMORY_US),
        ),
    )


def _row_makers(frames: Frames, carried: Carried, rows: BronzeRows) -> Makers:
    """Marts that follow rows: without new ones they have none."""
    spark = frames.cuts.sparkSession
    makers: Makers = {}
    if rows.has_new("group_watermarks"):
        makers[CONSUMER_LAG] = lambda: consumer_lag(frames.group_watermarks)
    if rows.has_new("rebalance_events"):
        makers[REBALANCES] = lambda: rebalances(frames.rebalance_events)
    if rows.has_new("rebalance_events") or rows.has_new("lifecycle"):
        owners = to_spark(spark, carried.owners)
        makers[OWNERSHIP] = lambda: ownership(frames.rebalance_events, frames.boots, owners)
    if rows.has_new("retry_dlq_flow", _IS_DEAD):
        makers[DEAD_LETTERS] = lambda: dead_letters(frames.retry_steps)
    if rows.has_new("shipments"):
        makers[EMITTER_HEALTH] = lambda: emitter_health(frames.shipments, frames.row_numbers)
    return makers


def _judging_makers(
    frames: Frames, carried: Carried, rows: BronzeRows, evaluation: Evaluation
) -> Makers:
    """Marts that judge queues, and those that take what was judged further."""
    spark = frames.cuts.sparkSession
    makers: Makers = {}
    broken = arrow_schema(OFFSET_VIOLATIONS.columns).empty_table()
    if rows.has_new("consume_offsets", _BREAKS_A_LAW):
        broken = offset_violations(
            frames.consume_offsets,
            frames.redeliveries,
            frames.rebalance_events,
            frames.lifecycle,
        ).toArrow()
    violations = to_spark(spark, broken)
    if broken.num_rows:
        makers[OFFSET_VIOLATIONS] = lambda: violations
    falls = falls_of(violations.unionByName(to_spark(spark, carried.violations)))
    shown = judge(frames, falls, to_spark(spark, carried.stalls), evaluation)
    makers[GROUP_STATE] = lambda: group_state(shown, evaluation)
    is_troubled = not shown.where(F.col("is_bad") | F.col("was_bad")).isEmpty()
    if is_troubled:
        makers[STALLED_WINDOWS] = lambda: stalled_windows(shown, evaluation)
    parts = []
    if is_troubled or carried.exposures.num_rows:
        parts.append(exposures(shown, to_spark(spark, carried.exposures)))
    if rows.has_new("retry_dlq_flow", _IS_DELIVERED):
        parts.append(delivered_once_more(frames.retry_steps))
    if broken.num_rows or carried.risks.num_rows or _puts_at_risk(rows):
        parts.append(from_events(_events(frames, violations, to_spark(spark, carried.risks))))
    if parts:
        revisions = reduce(DataFrame.unionByName, parts)
        makers[DUPLICATE_RISK_WINDOWS] = lambda: duplicate_risk_windows(revisions)
    return makers


def judge(
    frames: Frames, falls: DataFrame, open_stalls: DataFrame, evaluation: Evaluation
) -> DataFrame:
    """Every queue at every new tick, judged; settled, since several marts start from it."""
    ticks = evaluation_ticks(frames.cuts, frames.activity, frames.boots, evaluation)
    observed = observed_queues(
        watermarks=frames.group_watermarks,
        samples=frames.client_windows,
        falls=falls,
        ticks=ticks,
        known=open_stalls,
        evaluation=evaluation,
    )
    return verdicts(judged_queues(observed, evaluation), open_stalls).localCheckpoint()


def _events(frames: Frames, violations: DataFrame, open_risks: DataFrame) -> DataFrame:
    return risk_events(
        watermarks=frames.group_watermarks,
        events=frames.rebalance_events,
        samples=frames.client_windows,
        redeliveries=frames.redeliveries,
        violations=violations,
        lifecycle=frames.lifecycle,
        open_risks=open_risks,
    )


def _puts_at_risk(rows: BronzeRows) -> bool:
    return (
        rows.has_new("redeliveries")
        or rows.has_new("rebalance_events", _IS_DEPARTURE)
        or rows.has_new("lifecycle", _IS_SHOCK)
    )


_BREAKS_A_LAW: Final = pc.field("accepted") & (
    (pc.field("offset") < pc.field("previous_offset"))
    | (pc.field("offset") > pc.field("max_offset"))
    | (pc.field("offset") < pc.field("min_offset"))
)
_IS_DEAD: Final = pc.field("step") == "DEAD_LETTERED"
_IS_DELIVERED: Final = pc.field("step").isin(["DELIVERED", "SENT_AGAIN"])
_IS_DEPARTURE: Final = pc.field("kind").isin(["LEFT", "EXPIRED", "REVOKED"])
_IS_SHOCK: Final = pc.field("kind").isin(["BOOT", "DAMAGED_FILE"])


def _cuts_table(plan: Plan) -> pa.Table:
    return pa.table(
        {
            "emitter": pa.array([cut.emitter for cut in plan.cuts], pa.string()),
            "time_from_us": pa.array([cut.time_from_us for cut in plan.cuts], pa.int64()),
            "time_to_us": pa.array([cut.time_to_us for cut in plan.cuts], pa.int64()),
        }
    )
