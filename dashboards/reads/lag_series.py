"""Pure functions that fill in a queue's lag between consecutive reports.

A queue is reported when it changed, and in any case once in the snapshot period. So between two
reports nothing changed: messages behind stay what they were, and when something waits, its time lag
grows second by second, exactly. Without a report in that period, or from the moment on at which its
emitter fell silent, nothing is known: that is a gap, never the old value drawn on. Points that
stand for a slot of rows say up to when they grow (`pipelines.reading.long_ranges.GROWS_UNTIL`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import polars as pl

from pipelines.reading.long_ranges import GROWS_UNTIL
from pipelines.reading.reading import LOOK_BACK

QUEUE: Final = ("cluster", "broker", "group", "topic", "queue_id")
_BEFORE_NEXT: Final = timedelta(milliseconds=1)
_SHORT: Final = timedelta(seconds=2)
"""Gaps up to here are no wider than the grid on which queues are reported."""
NO_SILENCE: Final = pl.DataFrame(
    schema={
        "emitter": pl.String,
        "since": pl.Datetime("us", "UTC"),
        "until": pl.Datetime("us", "UTC"),
    }
)


def known_until(rows: pl.LazyFrame, silences: pl.DataFrame, *, at: str) -> pl.LazyFrame:
    """Rows with `known_until`: up to when a report made `at` some moment speaks for its queue."""
    begins = silences.select("emitter", pl.col("since").alias("silent_from")).sort("silent_from")
    return (
        rows.sort(at)
        .join_asof(
            begins.lazy(),
            left_on=at,
            right_on="silent_from",
            by="emitter",
            strategy="forward",
            check_sortedness=False,  # Both are sorted by time; polars cannot see it per emitter.
        )
        .with_columns(pl.min_horizontal(pl.col(at) + LOOK_BACK, "silent_from").alias("known_until"))
        .drop("silent_from")
    )


def held_cells(
    rows: pl.LazyFrame,
    *,
    until: datetime,
    step: timedelta,
    silences: pl.DataFrame = NO_SILENCE,
) -> pl.LazyFrame:
    """Largest time lag and largest lag of a group's queues per bucket of `step`, up to `until`."""
    reported = (
        known_until(_growing(rows), silences, at="observed_at")
        .sort("observed_at", "seq")
        .group_by(*QUEUE, pl.col("observed_at").dt.truncate(step).alias("bucket"))
        .agg(
            pl.col("time_lag_ms").max().alias("most_ms"),
            pl.col("lag_messages").max().alias("most"),
            pl.col("time_lag_ms").last().alias("last_ms"),
            pl.col("lag_messages").last().alias("last"),
            pl.col("observed_at").last().alias("last_at"),
            pl.col("known_until", GROWS_UNTIL).last(),
        )
        .sort(*QUEUE, "bucket")
    )
    following = pl.col("bucket").shift(-1).over(QUEUE).fill_null(until + _BEFORE_NEXT)
    ends = pl.min_horizontal(following, pl.col("known_until"))
    buckets = ((ends - pl.col("bucket")) / step).ceil().cast(pl.Int64).clip(lower_bound=1)
    held = reported.with_columns(pl.int_ranges(0, buckets).alias("ahead")).explode("ahead")
    moment = pl.col("bucket") + pl.col("ahead") * pl.lit(step)
    waited_ms = _waited_ms(moment, "last_at")
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
        .group_by("cluster", "group", "bucket")
        .agg(pl.col("time_lag_ms").max(), pl.col("lag_messages").max())
        .sort("cluster", "group", "bucket")
    )


def held_line(
    rows: pl.DataFrame,
    *,
    silences: pl.DataFrame = NO_SILENCE,
    since: datetime | None = None,
    until: datetime | None = None,
) -> pl.DataFrame:
    """Points of one queue's lines (observed_at, time_lag_ms, lag_messages): the reports, the end of
    each stretch between two, and a break where nothing is known.

    From `since` on: what was reported before holds into the range; up to `until`, beyond the last
    report.
    """
    columns = ("observed_at", "time_lag_ms", "lag_messages")
    growing = _growing(rows.lazy())
    reports = known_until(growing, silences, at="observed_at").sort("observed_at", "seq").collect()
    points = reports.select(*columns, "known_until", GROWS_UNTIL)
    end = pl.lit(until, pl.Datetime("us", "UTC"))
    following = pl.coalesce(pl.col("observed_at").shift(-1), end + _BEFORE_NEXT)
    wide = points.with_columns(following.alias("next")).filter(
        pl.col("next") - pl.col("observed_at") > _SHORT
    )
    stays = pl.min_horizontal(pl.col("next"), pl.col("known_until")) - _BEFORE_NEXT
    ends = wide.select(*_held_at(stays), "lag_messages")
    breaks = wide.filter(pl.col("next") > pl.col("known_until") + _SHORT).select(
        pl.col("known_until").alias("observed_at"),
        pl.lit(None, pl.Int64).alias("time_lag_ms"),
        pl.lit(None, pl.Int64).alias("lag_messages"),
    )
    line = pl.concat([points.select(columns), ends.select(columns), breaks.select(columns)])
    line = line.sort("observed_at")
    return line if since is None else _from(line, points, since)


def _growing(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Rows with `grows_until`: single rows grow up to the next one."""
    if GROWS_UNTIL in rows.collect_schema().names():
        return rows
    return rows.with_columns(pl.lit(None, pl.Datetime("us", "UTC")).alias(GROWS_UNTIL))


def _waited_ms(moment: pl.Expr, at: str) -> pl.Expr:
    """How long the time lag has grown by a moment."""
    grown = pl.min_horizontal(moment, GROWS_UNTIL) - pl.col(at)
    return grown.dt.total_milliseconds().clip(lower_bound=0)


def _held_at(moment: pl.Expr) -> list[pl.Expr]:
    waited_ms = _waited_ms(moment, "observed_at")
    grown = (
        pl.when(pl.col("lag_messages") > 0)
        .then(pl.col("time_lag_ms") + waited_ms)
        .otherwise("time_lag_ms")
    )
    return [moment.alias("observed_at"), grown.alias("time_lag_ms")]


def _from(line: pl.DataFrame, points: pl.DataFrame, since: datetime) -> pl.DataFrame:
    """The line without what lies before the range; it begins with what held there."""
    begin = pl.lit(since, pl.Datetime("us", "UTC"))
    last = points.filter(pl.col("observed_at") < since).tail(1)
    held = last.filter(pl.col("known_until") > since).select(*_held_at(begin), "lag_messages")
    return pl.concat([held.select(line.columns), line.filter(pl.col("observed_at") >= since)])
