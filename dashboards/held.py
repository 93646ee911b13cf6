"""What is known between two reports of a queue: pure functions over lag rows.

A queue is reported when it changed, and each 30 s in any case. So between two reports nothing
changed: messages behind stay what they were, and when something waits, its time lag grows second
by second, exactly. After 30 s without a report nothing is known: that is a gap, never the old
value drawn on.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import polars as pl

REPORTED_EACH: Final = timedelta(seconds=30)
QUEUE: Final = ("broker", "group", "topic", "queue_id")
_BEFORE_NEXT: Final = timedelta(milliseconds=1)
_SHORT: Final = timedelta(seconds=2)
"""Gaps up to here are no wider than the grid on which queues are reported."""


def held_cells(rows: pl.LazyFrame, *, until: datetime, step: timedelta) -> pl.LazyFrame:
    """Largest time lag and largest lag of a group's queues per bucket of `step`, up to `until`."""
    reported = (
        rows.sort("observed_at", "seq")
        .group_by(*QUEUE, pl.col("observed_at").dt.truncate(step).alias("bucket"))
        .agg(
            pl.col("time_lag_ms").max().alias("most_ms"),
            pl.col("lag_messages").max().alias("most"),
            pl.col("time_lag_ms").last().alias("last_ms"),
            pl.col("lag_messages").last().alias("last"),
            pl.col("observed_at").last().alias("last_at"),
        )
        .sort(*QUEUE, "bucket")
    )
    following = pl.col("bucket").shift(-1).over(QUEUE).fill_null(until + _BEFORE_NEXT)
    ends = pl.min_horizontal(following, pl.col("bucket") + REPORTED_EACH)
    buckets = ((ends - pl.col("bucket")) / step).ceil().cast(pl.Int64).clip(lower_bound=1)
    held = reported.with_columns(pl.int_ranges(0, buckets).alias("ahead")).explode("ahead")
    moment = pl.col("bucket") + pl.col("ahead") * pl.lit(step)
    waited_ms = (moment - pl.col("last_at")).dt.total_milliseconds()
    waits = pl.col("last") > 0
    return (
        held.with_columns(
            moment.alias("bucket"),
            pl.when(pl.col("ahead") == 0)
            .then("most_ms")
            .when(waits)
            .then(pl.col("last_ms") + waited_ms)
            .otherwise("last_ms")
            .alias("time_lag_ms"),
            pl.when(pl.col("ahead") == 0).then("most").otherwise("last").alias("lag_messages"),
        )
        .group_by("group", "bucket")
        .agg(pl.col("time_lag_ms").max(), pl.col("lag_messages").max())
        .sort("group", "bucket")
    )


def held_line(rows: pl.DataFrame) -> pl.DataFrame:
    """Points of one queue's lines (observed_at, time_lag_ms, lag_messages): the reports, the end of
    each stretch between two, and a break where nothing is known."""
    points = rows.sort("observed_at", "seq").select("observed_at", "time_lag_ms", "lag_messages")
    gap = pl.col("observed_at").shift(-1) - pl.col("observed_at")
    wide = points.with_columns(gap.alias("gap")).filter(pl.col("gap") > _SHORT)
    stays = pl.min_horizontal(pl.col("gap"), pl.lit(REPORTED_EACH)) - _BEFORE_NEXT
    waited_ms = stays.dt.total_milliseconds()
    ends = wide.select(
        pl.col("observed_at") + stays,
        pl.when(pl.col("lag_messages") > 0)
        .then(pl.col("time_lag_ms") + waited_ms)
        .otherwise("time_lag_ms")
        .alias("time_lag_ms"),
        "lag_messages",
    )
    breaks = wide.filter(pl.col("gap") > REPORTED_EACH + _SHORT).select(
        pl.col("observed_at") + REPORTED_EACH,
        pl.lit(None, pl.Int64).alias("time_lag_ms"),
        pl.lit(None, pl.Int64).alias("lag_messages"),
    )
    return pl.concat([points, ends, breaks]).sort("observed_at")
