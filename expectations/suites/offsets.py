"""Laws of consume offsets: they never fall unexplained, and never pass the end of the queue.

Each law is checked twice: on the gold table that states it, and independently on the accepted
offset reports in bronze, so that a fault in the mart shows as a disagreement.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import polars as pl

from expectations.check import Check, Severity, Subject
from expectations.custom import no_breach
from expectations.reading import CheckedLake

QUEUE: Final = ("cluster", "broker", "group", "topic", "queue_id")
SUITE: Final = "offsets"


def gold_offsets(lake: CheckedLake, _now: datetime) -> Subject:
    """One row per queue a group reads: unexplained violations, and by how much max is passed."""
    lag = lake.gold("consumer_lag", [*QUEUE, "committed", "max_offset"])
    violations = lake.gold("offset_violations", [*QUEUE, "law", "explained", "delta"])
    falls = violations.filter((pl.col("law") == "MONOTONIC") & ~pl.col("explained"))
    rows = (
        lag.group_by(QUEUE)
        .agg((pl.col("committed") - pl.col("max_offset")).max().alias("beyond_max"))
        .join(_counted(falls, "unexplained_falls"), on=QUEUE, how="full", coalesce=True)
        .with_columns(
            pl.col("unexplained_falls").fill_null(0),
            pl.col("beyond_max").fill_null(0).clip(lower_bound=0),
        )
        .sort(QUEUE)
    )
    explained = violations.filter(pl.col("explained")).height
    return Subject(
        "offset_violations",
        rows,
        QUEUE,
        lag.height + violations.height,
        lake.version("offset_violations"),
        f"{rows.height} queues hold; {explained} breaches are explained by another fact",
    )


def bronze_offsets(lake: CheckedLake, _now: datetime) -> Subject:
    """One row per queue: falls that neither the report, a restart nor gold accounts for."""
    columns = [
        *QUEUE,
        "broker_epoch",
        "offset",
        "previous_offset",
        "path",
        "accepted",
        "max_offset",
    ]
    reports = lake.bronze("consume_offsets", columns).filter("accepted").sort("emitter", "seq")
    falls = _falls(reports)
    known = lake.gold("offset_violations", ["emitter", "seq", "law", "explained"])
    accounted = known.filter(pl.col("explained") & (pl.col("law") == "MONOTONIC"))
    open_falls = falls.filter(~pl.col("explains_itself")).join(
        accounted, on=["emitter", "seq"], how="anti"
    )
    judged = _judged_to(lake)
    missing = falls.join(judged, on="emitter", how="inner").filter(
        (pl.col("seq") <= pl.col("judged_to")) & ~pl.col("starts_anew")
    )
    missing = missing.join(known, on=["emitter", "seq"], how="anti")
    rows = (
        reports.group_by(QUEUE)
        .agg(
            (pl.col("offset") - pl.col("max_offset")).max().alias("beyond_max"),
            pl.len().alias("reports"),
        )
        .join(_counted(open_falls, "unexplained_falls"), on=QUEUE, how="left")
        .join(_counted(missing, "falls_not_in_gold"), on=QUEUE, how="left")
        .with_columns(
            pl.col("unexplained_falls", "falls_not_in_gold").fill_null(0),
            pl.col("beyond_max").fill_null(0).clip(lower_bound=0),
        )
        .sort(QUEUE)
    )
    return Subject(
        "consume_offsets",
        rows,
        QUEUE,
        reports.height,
        lake.version("consume_offsets"),
        f"{rows.height} queues hold in {reports.height:,} accepted reports; "
        f"{falls.height} falls, each with its cause",
    )


def _falls(reports: pl.DataFrame) -> pl.DataFrame:
    """Accepted reports that are lower than the accepted report before them, in the order of seq, or
    than what the broker says it held.

    By seq and not by time: equal times and a clock that was set back would make false falls.
    """
    over = [*QUEUE, "emitter"]
    before = reports.with_columns(
        pl.col("offset").shift(1).over(over).alias("previous"),
        pl.col("broker_epoch").shift(1).over(over).alias("epoch_before"),
    )
    # A restart answers from the offsets file, a deleted offset from nothing: in neither case is
    # the report lower than what the broker held, so gold has no violation of it either. Lower
    # than what it held is a fall, however young the broker: whether a restart accounts for it is
    # told by gold, which knows how the broker stopped.
    is_below_held = (pl.col("offset") < pl.col("previous_offset")).fill_null(value=False)
    starts_anew = ~is_below_held & (
        (pl.col("broker_epoch") != pl.col("epoch_before"))
        | (pl.col("path") == "RESTORE")
        | pl.col("previous_offset").is_null()
    )
    return before.filter((pl.col("offset") < pl.col("previous")) | is_below_held).with_columns(
        starts_anew.alias("starts_anew"),
        (starts_anew | (pl.col("path") == "RESET")).alias("explains_itself"),
    )


def _judged_to(lake: CheckedLake) -> pl.DataFrame:
    """Up to which seq gold has looked at each emitter."""
    return (
        lake.gold("emitter_health", ["emitter", "seq_to"])
        .group_by("emitter")
        .agg(pl.col("seq_to").max().alias("judged_to"))
    )


def _counted(rows: pl.DataFrame, name: str) -> pl.DataFrame:
    return rows.group_by(QUEUE).agg(pl.len().alias(name))


OFFSETS: Final = (
    Check(
        "offsets_never_fall_unexplained",
        SUITE,
        Severity.CRITICAL,
        gold_offsets,
        no_breach("unexplained_falls"),
    ),
    Check(
        "committed_at_most_max",
        SUITE,
        Severity.CRITICAL,
        gold_offsets,
        no_breach("beyond_max"),
    ),
    Check(
        "reported_offsets_never_fall_unexplained",
        SUITE,
        Severity.CRITICAL,
        bronze_offsets,
        no_breach("unexplained_falls"),
    ),
    Check(
        "reported_offsets_at_most_max",
        SUITE,
        Severity.CRITICAL,
        bronze_offsets,
        no_breach("beyond_max"),
    ),
    Check(
        "every_fall_is_in_gold",
        SUITE,
        Severity.CRITICAL,
        bronze_offsets,
        no_breach("falls_not_in_gold"),
    ),
)
