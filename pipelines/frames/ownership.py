"""Who read which queue, from when until when, as revisions: opened by ASSIGNED, closed by what took
the queue away.

Place in the walk: staged rebalance_events and boots of the broker, and the intervals open at the
mark → gold ownership.

Invariant: one interval per queue and client at a time; an assignment told twice opens one. Two
clients may own a queue at the same time: that is a finding (double ownership), not a conflict to be
repaired here.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from pipelines.catalogue import OWNERSHIP
from pipelines.frames.contract import QUEUE_KEY, as_declared, window_id

_HOLDING: Final = (*QUEUE_KEY, "client_id")


def ownership(events: DataFrame, boots: DataFrame, open_intervals: DataFrame) -> DataFrame:
    """One row per revision of an interval in which one client read one queue for a group."""
    told = _told(events.where("is_new"))
    held = told.where(F.col("step") == "ASSIGNED").select("cluster", "broker", *_HOLDING)
    carried = _carried(open_intervals)
    holdings = held.unionByName(carried.select("cluster", "broker", *_HOLDING)).distinct()
    steps = (
        told.unionByName(_departures(events.where("is_new"), holdings))
        .unionByName(_stops(boots.where("is_new"), holdings))
        .unionByName(carried)
    )
    of_holding = Window.partitionBy(*_HOLDING).orderBy("seq", "place")
    starts = F.col("step").isin("ASSIGNED", "CARRIED")
    with_before = steps.withColumn(
        "was_held", F.coalesce(F.lag(starts).over(of_holding), F.lit(False))
    )
    counted = with_before.where(starts != F.col("was_held"))
    number = F.sum(F.when(starts, 1).otherwise(0)).over(of_holding)
    up_to_now = of_holding.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    opening = F.when(starts, F.struct("opened_at_us", "inferred"))
    revisions = counted.withColumns(
        {"number": number, "opening": F.last(opening, ignorenulls=True).over(up_to_now)}
    ).where(F.col("step") != "CARRIED")
    is_end = ~F.col("step").isin("ASSIGNED")
    rows = revisions.withColumns(
        {
            "observed_us": F.col("event_us"),
            "opened_us": F.col("opening.opened_at_us"),
            "inferred": F.col("opening.inferred"),
            "revision": F.when(is_end, 2).otherwise(1),
            "state": F.when(is_end, "CLOSED").otherwise("OPEN"),
            "closed_at": F.when(is_end, F.timestamp_micros("event_us")),
            "ended_by": F.when(is_end, F.col("step")),
            "committed_at_end": F.when(is_end, F.col("committed")),
            "pulled_at_end": F.when(is_end, F.col("pulled")),
        }
    ).withColumns(
        {
            "opened_at": F.timestamp_micros("opened_us"),
            "window_id": window_id("ownership", *_HOLDING, "opened_us"),
        }
    )
    return as_declared(rows, OWNERSHIP)


def _told(events: DataFrame) -> DataFrame:
    """Assignments and revocations, one row per queue named."""
    named = events.where(F.col("kind").isin("ASSIGNED", "REVOKED") & F.col("client_id").isNotNull())
    return named.withColumn("queue", F.explode("queues")).select(
        "cluster",
        "broker",
        "emitter",
        "group",
        F.col("queue.topic").alias("topic"),
        F.col("queue.queue_id").alias("queue_id"),
        "client_id",
        "seq",
        # In one report the end of the old reader precedes the beginning of the new one.
        F.lit(1).alias("place"),
        "event_us",
        F.col("kind").alias("step"),
        "inferred",
        F.col("event_us").alias("opened_at_us"),
        F.col("queue.committed").alias("committed"),
        F.col("queue.pulled").alias("pulled"),
    )


def _departures(events: DataFrame, holdings: DataFrame) -> DataFrame:
    """A client that left ends everything it held, with the offsets of the queues that the broker
    named.
    """
    gone = events.where(F.col("kind").isin("LEFT", "EXPIRED"))
    queue = F.col("queue")
    named = gone.select(
        "emitter", "group", "client_id", "seq", F.explode("queues").alias("queue")
    ).select(
        "emitter",
        "group",
        "client_id",
        "seq",
        queue["topic"].alias("topic"),
        queue["queue_id"].alias("queue_id"),
        queue["committed"].alias("committed"),
        queue["pulled"].alias("pulled"),
    )
    ended = gone.select(
        "emitter", "group", "client_id", "seq", "event_us", F.col("kind").alias("step")
    ).join(holdings, on=["emitter", "group", "client_id"], how="inner")
    return ended.join(named, on=[*_HOLDING, "seq"], how="left").withColumns(
        {
            "place": F.lit(2),
            "inferred": F.lit(False),
            "opened_at_us": F.lit(None).cast("long"),
        }
    )


def _stops(boots: DataFrame, holdings: DataFrame) -> DataFrame:
    """A broker that boots has ended every interval of its life before."""
    return (
        boots.select("emitter", "seq", "event_us")
        .join(holdings, on="emitter", how="inner")
        .withColumns(
            {
                "place": F.lit(0),
                "step": F.lit("BROKER_STOP"),
                "inferred": F.lit(False),
                "opened_at_us": F.lit(None).cast("long"),
                "committed": F.lit(None).cast("long"),
                "pulled": F.lit(None).cast("long"),
            }
        )
    )


def _carried(open_intervals: DataFrame) -> DataFrame:
    """Intervals open at the mark, as the step that opened them."""
    opened_us = F.unix_micros("opened_at")
    return open_intervals.select(
        "cluster",
        "broker",
        *_HOLDING,
        "seq",
        F.lit(0).alias("place"),
        opened_us.alias("event_us"),
        F.lit("CARRIED").alias("step"),
        "inferred",
        opened_us.alias("opened_at_us"),
        F.lit(None).cast("long").alias("committed"),
        F.lit(None).cast("long").alias("pulled"),
    )
