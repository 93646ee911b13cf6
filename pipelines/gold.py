"""Writing gold, and reading back the little of it that a cycle carries on from.

Place in the walk: the end of a cycle, and the start of the next. Spark writes, delta-rs reads.

Invariant: a mart's rows of a cycle are one append with the transaction (mart/run id, cycle), given
as options of that write: Delta skips it when it is there already. What is carried is what earlier
cycles wrote, never this one: so a cycle that is run again starts from the same place. Absent on
purpose: MERGE. Windows are appended as revisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from pipelines.catalogue import SPARK_TABLES
from pipelines.lake import Lake, sql_moment, sql_text
from pipelines.marks import Cut, Plan
from pipelines.marts.mart import GoldTable
from pipelines.schemas import arrow_schema
from pipelines.session import spark_schema

CREATORS: Final = 3
PARTITION: Final = "observed_date"
PROPERTIES: Final = {"delta.checkpointInterval": "50", "delta.enableDeletionVectors": "false"}


def create_gold(spark: SparkSession, lake: Lake) -> None:
    """Make the gold tables that do not exist yet, with their NOT NULL columns declared to Delta."""
    missing = [table for table in SPARK_TABLES if not lake.exists(lake.gold(table.name))]
    with ThreadPoolExecutor(CREATORS) as creators:
        for _ in creators.map(lambda table: _create(spark, lake, table), missing):
            pass  # Draining the results raises what a thread has raised.


def _create(spark: SparkSession, lake: Lake, table: GoldTable) -> None:
    builder = (
        DeltaTable.createIfNotExists(spark)
        .location(spark_address(lake.gold(table.name)))
        .comment(table.grain)
        .addColumns(spark_schema(table.columns))
        .partitionedBy(PARTITION)
    )
    for name, value in PROPERTIES.items():
        builder = builder.property(name, value)
    builder.execute()


def append_gold(rows: DataFrame, lake: Lake, table: GoldTable, plan: Plan) -> int:
    """Append a mart's rows of a cycle exactly once; return how many. No rows, no write.

    The rows pass through the driver, which a cycle's bound allows: computing them once and looking
    at their number costs a fifth of what an append of nothing costs.
    """
    computed = rows.toArrow()
    if computed.num_rows:
        (
            to_spark(rows.sparkSession, computed)
            .coalesce(1)
            .write.format("delta")
            .mode("append")
            .option("txnAppId", f"{table.name}/{plan.run_id}")
            .option("txnVersion", plan.cycle)
            .save(spark_address(lake.gold(table.name)))
        )
    return int(computed.num_rows)


def to_spark(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Arrow rows as a frame.

    One chunk: Spark 4.2 takes a table whose first chunk is empty for an empty table, and fails on
    one without any chunk.
    """
    whole = rows.combine_chunks() if rows.num_rows else rows.schema.empty_table()
    return spark.createDataFrame(whole)


def open_windows(lake: Lake, table: GoldTable, cuts: Sequence[Cut], *, on_ticks: bool) -> pa.Table:
    """The newest revision of every interval that was open where the cuts begin.

    Rows of this very cycle, written before it was interrupted, lie beyond the marks and are left
    out: by tick for marts that judge ticks, by seq for those that follow rows.
    """
    schema = arrow_schema(table.columns)
    if not lake.exists(lake.gold(table.name)):
        return schema.empty_table()
    rows = earlier_rows(lake, table, cuts, on_ticks=on_ticks)
    newest = rows.group_by("window_id").aggregate([("revision", "max")])
    newest = newest.rename_columns({"revision_max": "revision"})
    last = rows.join(
        newest.select(["window_id", "revision"]), ["window_id", "revision"], join_type="inner"
    )
    return last.filter(pc.equal(last["state"], "OPEN")).select(schema.names).cast(schema)


def earlier_rows(
    lake: Lake,
    table: GoldTable,
    cuts: Sequence[Cut],
    *,
    on_ticks: bool,
    not_before_us: int | None = None,
) -> pa.Table:
    """Rows of a gold table that cycles before these cuts have written."""
    seq = "seq" if "seq" in table.column_names else "seq_to"
    wanted = ["false"]
    for cut in cuts:
        if on_ticks:
            before = f"observed_at <= {sql_moment(cut.time_from_us)}"
        else:
            before = f"{seq} <= {cut.seq_from}"
        wanted.append(f"(emitter = {sql_text(cut.emitter)} AND {before})")
    condition = f"({' OR '.join(wanted)})"
    if not_before_us is not None:
        condition += f" AND observed_at >= {sql_moment(not_before_us)}"
    return lake.rows(lake.gold(table.name), condition, table.columns)


def spark_address(address: str) -> str:
    """The same address in Spark's words: its S3 file system is called s3a."""
    return "s3a://" + address.removeprefix("s3://") if address.startswith("s3://") else address
