"""Accepted offset reports that broke a law of offsets, each with the fact that accounts for it, if
one does.

Place in the walk: staged consume_offsets, redeliveries, rebalance_events and lifecycle → gold
offset_violations, which the expectations assert on and the stall rules take their falls from.

Laws: MONOTONIC (an offset never falls), AT_MOST_MAX (never beyond the queue's end), AT_LEAST_MIN
(never before its first kept message). Invariant: a cause is only ever a fact reported before the
violation. Absent on purpose: forgiveness. An explained violation is a row like any other, with
`explained` true.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from pipelines.catalogue import OFFSET_VIOLATIONS
from pipelines.frames.contract import QUEUE_KEY, as_declared
from pipelines.frames.shocks import broker_died, log_cut, offsets_lost
from pipelines.settings import SECOND_US

CAUSE_SPAN_US: Final = 60 * SECOND_US
"""A restart that cost the broker something, or a replay, accounts for violations this long."""
MOVE_SPAN_US: Final = 20 * SECOND_US
"""A queue that changed hands does for this long: both readers have reported by then."""
MOVES: Final = ("ASSIGNED", "REVOKED", "LEFT", "EXPIRED")


def offset_violations(
    reports: DataFrame, redeliveries: DataFrame, events: DataFrame, lifecycle: DataFrame
) -> DataFrame:
    """One row per accepted offset report and law it broke."""
    broken = _broken(reports)
    with_replay = _with_last(broken, redeliveries, QUEUE_KEY, "replay_us")
    moves = events.where(F.col("kind").isin(*MOVES))
    with_move = _with_last(with_replay, moves, ("emitter", "group"), "move_us")
    shocks = lifecycle.where(broker_died() | offsets_lost() | log_cut())
    with_shock = _with_last(with_move, shocks, ("emitter", "broker_epoch"), "shock_us")
    rows = with_shock.withColumn("cause", _cause())
    return as_declared(
        rows.withColumns(
            {
                "observed_us": F.col("event_us"),
                "explained": F.col("cause") != "UNEXPLAINED",
            }
        ),
        OFFSET_VIOLATIONS,
    )


def _broken(reports: DataFrame) -> DataFrame:
    offset = F.col("offset")
    deltas = {
        "MONOTONIC": F.col("previous_offset") - offset,
        "AT_MOST_MAX": offset - F.col("max_offset"),
        "AT_LEAST_MIN": F.col("min_offset") - offset,
    }
    laws = F.array(
        *(F.struct(F.lit(law).alias("law"), by.alias("delta")) for law, by in deltas.items())
    )
    broken = F.filter(laws, lambda one: one["delta"] > 0)
    return (
        reports.where(F.col("is_new") & F.col("accepted"))
        .withColumn("broken", F.explode(broken))
        .withColumns({"law": F.col("broken.law"), "delta": F.col("broken.delta")})
    )


def _with_last(rows: DataFrame, facts: DataFrame, key: tuple[str, ...], name: str) -> DataFrame:
    """Add when the last of `facts` with the same key was reported before each row."""
    before = (
        Window.partitionBy(*key)
        .orderBy("seq")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    known = facts.select(*key, "seq", F.col("event_us").alias("fact_us"))
    return (
        rows.withColumn("is_row", F.lit(True))
        .unionByName(known, allowMissingColumns=True)
        .withColumn(name, F.last("fact_us", ignorenulls=True).over(before))
        .where("is_row")
        .drop("is_row", "fact_us")
    )


def _cause() -> Column:
    def lately(moment: str, span_us: int = CAUSE_SPAN_US) -> Column:
        return F.coalesce(F.col("event_us") - F.col(moment) <= span_us, F.lit(False))

    return (
        F.when(F.col("path") == "RESET", "RESET")
        .when((F.col("path") == "RESTORE") | lately("shock_us"), "BROKER_RESTART")
        .when(lately("replay_us"), "REPLAY")
        .when((F.col("trigger") == "HAND_OVER") | lately("move_us", MOVE_SPAN_US), "HAND_OVER")
        .otherwise("UNEXPLAINED")
    )
