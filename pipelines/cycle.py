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
    GoldTable,
)
from pipelines.gold import append_gold, earlier_rows, open_windows, to_spark
from pipelines.lake import Lake
from pipelines.marks import Plan
from pipelines.marts.consumer_lag import consumer_lag
from pipelines.marts.dead_letters import dead_letters
from pipelines.marts.duplicate_risk import duplicate_risk_windows
from pipelines.marts.emitter_health import emitter_health
from pipelines.marts.group_state import group_state
from pipelines.marts.offset_violations import offset_violations
from pipelines.marts.ownership import ownership
from pipelines.marts.queue_rules import judged_queues
from pipelines.marts.queue_states import REWIND_MEMORY_US, falls_of, observed_queues
from pipelines.marts.rebalances import rebalances
from pipelines.marts.risk_events import risk_events
from pipelines.marts.stalled_windows import stalled_windows
from pipelines.marts.ticks import evaluation_ticks
from pipelines.marts.verdicts import verdicts
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
    shipments: DataFrame
    row_numbers: DataFrame
    activity: DataFrame
    cuts: DataFrame
    open_stalls: DataFrame
    open_owners: DataFrame
    open_risks: DataFrame
    past_violations: DataFrame


@dataclass(frozen=True, slots=True)
class Shared:
    """Frames that several marts are made from."""

    frames: Frames
    boots: DataFrame
    violations: DataFrame
    shown: DataFrame
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class Mart:
    """A gold table, how it is made, and the bronze tables without whose new rows it has none."""

    table: GoldTable
    make: Callable[[Shared], DataFrame]
    fed_by: tuple[str, ...]
    """Empty: time alone may bring rows."""


def _duplicate_risk(on: Shared) -> DataFrame:
    frames = on.frames
    events = risk_events(
        watermarks=frames.group_watermarks,
        events=frames.rebalance_events,
        samples=frames.client_windows,
        redeliveries=frames.redeliveries,
        violations=on.violations,
        lifecycle=frames.lifecycle,
        open_risks=frames.open_risks,
    )
    return duplicate_risk_windows(events, on.shown, frames.retry_steps, frames.open_risks)


MARTS: Final = (
    Mart(STALLED_WINDOWS, lambda on: stalled_windows(on.shown, on.evaluation), ()),
    Mart(DUPLICATE_RISK_WINDOWS, _duplicate_risk, ()),
    Mart(GROUP_STATE, lambda on: group_state(on.shown, on.evaluation), ()),
    Mart(CONSUMER_LAG, lambda on: consumer_lag(on.frames.group_watermarks), ("group_watermarks",)),
    Mart(OFFSET_VIOLATIONS, lambda on: on.violations, ("consume_offsets",)),
    Mart(
        OWNERSHIP,
        lambda on: ownership(on.frames.rebalance_events, on.boots, on.frames.open_owners),
        ("rebalance_events", "lifecycle"),
    ),
    Mart(REBALANCES, lambda on: rebalances(on.frames.rebalance_events), ("rebalance_events",)),
    Mart(DEAD_LETTERS, lambda on: dead_letters(on.frames.retry_steps), ("retry_dlq_flow",)),
    Mart(
        EMITTER_HEALTH,
        lambda on: emitter_health(on.frames.shipments, on.frames.row_numbers),
        ("shipments",),
    ),
)


def run_cycle(
    spark: SparkSession, source: Lake, target: Lake, plan: Plan, evaluation: Evaluation
) -> dict[str, int]:
    """Carry out `plan`: rows written per gold table."""
    rows = read_bronze(source, plan.cuts, look_back_us=evaluation.look_back_us)
    shared = share(stage(spark, rows, target, plan), evaluation)
    due = [mart for mart in MARTS if _is_due(mart, rows)]
    with ThreadPoolExecutor(WRITERS) as writers:
        counts = writers.map(
            lambda mart: append_gold(mart.make(shared), target, mart.table, plan), due
        )
        return dict(zip((mart.table.name for mart in due), counts, strict=True))


def stage(spark: SparkSession, rows: BronzeRows, target: Lake, plan: Plan) -> Frames:
    """Hand the rows to Spark, a staged frame per table; and what earlier cycles left open."""

    def frame(table: pa.Table) -> DataFrame:
        return to_spark(spark, table)

    bronze = {name: frame(table) for name, table in rows.tables.items()}
    oldest_us = min((cut.time_from_us for cut in plan.cuts), default=0)
    violations = earlier_rows(
        target,
        OFFSET_VIOLATIONS,
        plan.cuts,
        on_ticks=False,
        not_before_us=max(0, oldest_us - 2 * REWIND_MEMORY_US),
    )
    return Frames(
        group_watermarks=sources.stage_group_watermarks(bronze["group_watermarks"]),
        consume_offsets=sources.stage_consume_offsets(bronze["consume_offsets"]),
        rebalance_events=sources.stage_rebalance_events(bronze["rebalance_events"]),
        client_windows=sources.stage_client_windows(bronze["client_windows"]),
        retry_steps=sources.stage_retry_dlq_flow(bronze["retry_dlq_flow"]),
        redeliveries=sources.stage_redeliveries(bronze["redeliveries"]),
        lifecycle=sources.stage_lifecycle(bronze["lifecycle"]),
        shipments=sources.stage_shipments(bronze["shipments"]),
        row_numbers=frame(rows.row_numbers),
        activity=frame(rows.activity),
        cuts=frame(_cuts_table(plan)),
        open_stalls=frame(open_windows(target, STALLED_WINDOWS, plan.cuts, on_ticks=True)),
        open_owners=frame(open_windows(target, OWNERSHIP, plan.cuts, on_ticks=False)),
        open_risks=frame(_open_risks(target, plan)),
        past_violations=frame(violations),
    )


def share(frames: Frames, evaluation: Evaluation) -> Shared:
    """The frames, and what several marts need of them."""
    violations = offset_violations(
        frames.consume_offsets, frames.redeliveries, frames.rebalance_events
    )
    boots = frames.lifecycle.where(F.col("kind") == "BOOT")
    ticks = evaluation_ticks(frames.cuts, frames.activity, boots, evaluation)
    observed = observed_queues(
        frames.group_watermarks,
        frames.client_windows,
        falls_of(frames.past_violations.unionByName(violations)),
        ticks,
        frames.open_stalls,
        evaluation=evaluation,
    )
    judged = verdicts(judged_queues(observed, evaluation), frames.open_stalls)
    # Computed once here: three marts start from it, and their plans begin with it.
    shown = judged.localCheckpoint()
    return Shared(frames, boots, violations, shown, evaluation)


def _open_risks(target: Lake, plan: Plan) -> pa.Table:
    """Open windows at the mark: exposures are judged on ticks, all others follow rows."""
    table = DUPLICATE_RISK_WINDOWS
    on_ticks = open_windows(target, table, plan.cuts, on_ticks=True)
    on_rows = open_windows(target, table, plan.cuts, on_ticks=False)
    is_exposure = pc.field("basis") == "EXPOSURE"
    return pa.concat_tables([on_ticks.filter(is_exposure), on_rows.filter(~is_exposure)])


def _cuts_table(plan: Plan) -> pa.Table:
    return pa.table(
        {
            "emitter": pa.array([cut.emitter for cut in plan.cuts], pa.string()),
            "time_from_us": pa.array([cut.time_from_us for cut in plan.cuts], pa.int64()),
            "time_to_us": pa.array([cut.time_to_us for cut in plan.cuts], pa.int64()),
        }
    )


def _is_due(mart: Mart, rows: BronzeRows) -> bool:
    return not mart.fed_by or any(rows.new_rows(name) for name in mart.fed_by)
