"""What a crash would repeat as long as commits stand still: [committed, pulled), judged on ticks.

Place in the walk: judged queue states → revisions with the basis EXPOSURE → duplicate_risk_windows.
An exposure opens at the first tick that shows it, is revised when its range has changed on the
ten-second grid, and is closed at the first tick without it. One that was open when the cycle began
is carried in from gold. Invariant: cutting the ticks into other cycles gives the same revisions.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from pipelines.frames.contract import QUEUE_KEY, QUEUE_PLACE
from pipelines.frames.duplicate_risk import as_revisions
from pipelines.frames.group_state import PERIOD_US


def exposures(shown: DataFrame, open_exposures: DataFrame) -> DataFrame:
    """One row per revision of an interval in which a crash would have repeated messages.

    While commits stand still and messages are pulled beyond them, that is [committed, pulled).
    """
    points = _points_of_change(_exposed_ticks(shown, open_exposures))
    of_island = Window.partitionBy(*QUEUE_KEY, "island").orderBy("tick_us")
    carried_range = F.when(
        _is_carried(),
        F.struct(
            F.col("exposed.from_offset").alias("committed"),
            F.col("exposed.to_offset").alias("pulled"),
        ),
    )
    before = F.coalesce(
        F.last("range", ignorenulls=True).over(
            of_island.rowsBetween(Window.unboundedPreceding, -1)
        ),
        carried_range,
    )
    revised = points.withColumn("range_before", before).where(
        F.col("range").isNull() | ~F.col("range").eqNullSafe(F.col("range_before"))
    )
    opened = F.when(_is_carried(), F.col("exposed.opened_us")).otherwise(
        F.first("tick_us").over(of_island)
    )
    earlier = F.when(_is_carried(), F.col("exposed.revision")).otherwise(0)
    revision = (earlier + F.row_number().over(of_island)).cast("int")
    return as_revisions(_told(revised, opened=opened, revision=revision))


def _exposed_ticks(shown: DataFrame, open_exposures: DataFrame) -> DataFrame:
    """Ticks with `is_exposed`, `was_exposed`, and the exposure carried in as `exposed`."""
    carried = open_exposures.select(
        *QUEUE_KEY,
        F.struct(
            F.unix_micros("opened_at").alias("opened_us"),
            "revision",
            "from_offset",
            "to_offset",
            "client_id",
        ).alias("exposed"),
    )
    of_queue = Window.partitionBy(*QUEUE_KEY).orderBy("tick_us")
    is_exposed = (
        F.col("is_bad")
        & F.col("rule").isin("STALLED", "STOPPED")
        & F.coalesce(F.col("now.pulled") > F.col("now.committed"), F.lit(False))
    )
    return (
        shown.join(F.broadcast(carried), on=list(QUEUE_KEY), how="left")
        .withColumn("is_exposed", is_exposed)
        .withColumn(
            "was_exposed",
            F.coalesce(F.lag("is_exposed").over(of_queue), F.col("exposed").isNotNull()),
        )
    )


def _points_of_change(ticks: DataFrame) -> DataFrame:
    """Ticks at which an exposure begins, ends or may be revised, numbered by `island`."""
    of_queue = Window.partitionBy(*QUEUE_KEY).orderBy("tick_us")
    begins = F.col("is_exposed") & ~F.col("was_exposed")
    ends = ~F.col("is_exposed") & F.col("was_exposed")
    goes_on = F.col("is_exposed") & F.col("was_exposed") & (F.col("tick_us") % PERIOD_US == 0)
    return ticks.where(begins | ends | goes_on).withColumns(
        {
            "island": F.sum(F.when(begins, 1).otherwise(0)).over(of_queue),
            "range": F.when(F.col("is_exposed"), F.struct("now.committed", "now.pulled")),
        }
    )


def _is_carried() -> Column:
    """Does the point belong to the exposure that was open when the cycle began?"""
    return (F.col("island") == 0) & F.col("exposed").isNotNull()


def _told(revised: DataFrame, *, opened: Column, revision: Column) -> DataFrame:
    last = F.coalesce("range", "range_before")
    return revised.select(
        "emitter",
        *QUEUE_PLACE,
        opened.alias("opened_us"),
        revision.alias("revision"),
        F.lit("EXPOSURE").alias("basis"),
        F.lit("CONSUMER_CRASH").alias("cause"),
        F.coalesce("now.last_puller", "exposed.client_id").alias("client_id"),
        F.lit(None).cast("string").alias("next_client_id"),
        last["committed"].alias("from_offset"),
        last["pulled"].alias("to_offset"),
        F.lit(None).cast("long").alias("certain"),
        F.when(F.col("is_exposed"), F.col("sample.held_count")).cast("long").alias("uncertain"),
        F.lit(None).cast("long").alias("redelivered_from"),
        F.lit(None).cast("long").alias("redelivered_to"),
        F.lit(0).cast("long").alias("redelivered"),
        F.col("tick_us").alias("observed_us"),
        F.coalesce("now.seq", "carried.seq").alias("seq"),
        F.when(F.col("is_exposed"), "OPEN").otherwise("CLOSED").alias("state"),
        F.when(F.col("is_exposed"), "OPENED").otherwise("PASSED").alias("told_by"),
        F.lit(None).cast("string").alias("message_id"),
    )
