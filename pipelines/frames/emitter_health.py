"""Is telemetry gapless and unique? What each shipment promised against what bronze holds.

Place in the walk: staged shipments and the (emitter, seq) of every bronze table → gold
emitter_health.

Invariant: a shipment that is complete has rows_expected = rows_found = rows_distinct. Absent on
purpose: a row per pipeline cycle. Shipments are facts, so the same rows come out however cycles
were cut.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from pipelines.catalogue import EMITTER_HEALTH
from pipelines.frames.contract import as_declared


def emitter_health(shipments: DataFrame, row_numbers: DataFrame) -> DataFrame:
    """One row per shipment that carried rows.

    `row_numbers`: emitter and seq of every bronze row, all tables.
    """
    carried = shipments.where("is_new").where(F.col("seq_to") >= F.col("seq_from"))
    marks = carried.select(
        "emitter", F.col("seq_from").alias("seq"), F.struct("seq_from", "seq_to").alias("shipment")
    )
    found = row_numbers.select(
        "emitter", "seq", F.lit(None).cast("struct<seq_from:long,seq_to:long>").alias("shipment")
    )
    # A row belongs to the last shipment that begins at or before it: a window, not a range join.
    up_to_here = (
        Window.partitionBy("emitter")
        .orderBy("seq", F.col("shipment").isNull())
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    assigned = (
        marks.withColumn("is_row", F.lit(False))
        .unionByName(found.withColumn("is_row", F.lit(True)))
        .withColumn("shipment", F.last("shipment", ignorenulls=True).over(up_to_here))
    )
    inside = assigned.where("is_row").where(F.col("seq") <= F.col("shipment.seq_to"))
    counts = inside.groupBy("emitter", F.col("shipment.seq_to").alias("seq_to")).agg(
        F.count("*").alias("rows_found"), F.countDistinct("seq").alias("rows_distinct")
    )
    rows = carried.join(counts, on=["emitter", "seq_to"], how="left")
    return as_declared(
        rows.withColumns(
            {
                "observed_us": F.col("event_us_to"),
                "rows_expected": F.col("seq_to") - F.col("seq_from") + 1,
                "rows_found": F.coalesce("rows_found", F.lit(0)),
                "rows_distinct": F.coalesce("rows_distinct", F.lit(0)),
            }
        ),
        EMITTER_HEALTH,
    )
