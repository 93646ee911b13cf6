"""Lag of every queue, in messages and in time: one row per report of a group's state on a queue.

Place in the walk: staged group_watermarks → gold consumer_lag. A projection, plus a look back of a
minute for the trend.

Invariant: a lag that is not known is null and `unknown_reason` says why; nothing is clamped, so a
committed offset beyond the end of the log shows as a negative lag. Lag in a queue that nobody may
read any more (at or above readQueueNums) is UNREADABLE: no consumer can work it off. Absent on
purpose: interpolation. The engine tells the store time of the very message at the committed offset.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from pipelines.catalogue import CONSUMER_LAG
from pipelines.frames.contract import QUEUE_KEY, as_declared
from pipelines.settings import MS_US, SECOND_US, TREND_US

TREND_SPAN_US_MIN: Final = 10 * SECOND_US
"""A trend needs an older row at least this far back."""
STEADY_PER_MINUTE: Final = 10
STEADY_SHARE: Final = 20 * 60
"""STEADY: the lag changes by at most STEADY_PER_MINUTE, or by one part in STEADY_SHARE of it, a
minute: in an hour by a twentieth.
"""
_MINUTE_US: Final = 60 * SECOND_US


def consumer_lag(watermarks: DataFrame) -> DataFrame:
    """One row per (group, topic, broker, queue, grid second) at which something changed, at least
    each 30 s.
    """
    # Strictly older rows only: rows of one instant may lie on both sides of a cut.
    last_minute = Window.partitionBy(*QUEUE_KEY).orderBy("event_us").rangeBetween(-TREND_US, -1)
    known = F.when(F.col("lag_messages").isNotNull(), F.struct("event_us", "seq", "lag_messages"))
    with_oldest = watermarks.withColumn("oldest", F.min(known).over(last_minute))
    with_trend = with_oldest.where("is_new").withColumn("change", _change_per_minute())
    rows = with_trend.withColumn("trend", trend_of(F.col("change"), F.col("lag_messages")))
    time_lag_ms = F.expr(f"time_lag_us div {MS_US}")
    return as_declared(
        rows.withColumns(
            {
                "observed_us": F.col("event_us"),
                "time_lag_ms": time_lag_ms,
                "time_lag_error_ms": F.when(F.col("time_lag_us").isNotNull(), 0),
                "provenance": _provenance(),
                "unknown_reason": _unknown_reason(),
                "inflight_messages": F.col("pulled") - F.col("committed"),
                "lag_change_per_minute": F.col("change"),
                "drain_time_ms": F.when(
                    (F.col("trend") == "SHRINKING") & (F.col("lag_messages") > 0),
                    F.expr("(lag_messages * 60000) div (-change)"),
                ),
            }
        ),
        CONSUMER_LAG,
    )


def trend_of(change_per_minute: Column, lag: Column) -> Column:
    """GROWING, STEADY or SHRINKING; null when the change is unknown."""
    allowance = F.greatest(F.lit(STEADY_PER_MINUTE), F.floor(F.abs(lag) / STEADY_SHARE))
    return (
        F.when(change_per_minute.isNull(), None)
        .when(F.abs(change_per_minute) <= allowance, "STEADY")
        .when(change_per_minute > 0, "GROWING")
        .otherwise("SHRINKING")
    )


def _change_per_minute() -> Column:
    span_us = F.col("event_us") - F.col("oldest.event_us")
    change = F.expr(
        f"((lag_messages - oldest.lag_messages) * {_MINUTE_US}) div (event_us - oldest.event_us)"
    )
    return F.when(span_us >= TREND_SPAN_US_MIN, change)


def _provenance() -> Column:
    return (
        F.when(~F.col("is_broadcast") & (F.col("committed_state") == "UNREADABLE"), "UNREADABLE")
        .when(F.col("time_lag_us").isNotNull(), "EXACT")
        .when(~F.col("is_broadcast") & (F.col("committed_state") == "PURGED"), "PURGED")
        .otherwise("UNKNOWN")
    )


def _unknown_reason() -> Column:
    state = F.col("committed_state")
    return (
        F.when(F.col("is_broadcast"), "BROADCAST")
        .when(state == "NONE", "NO_OFFSET")
        .when(state == "PURGED", "PURGED")
        .when(F.col("time_lag_us").isNull(), "STORE_TIME_NOT_TOLD")
    )
