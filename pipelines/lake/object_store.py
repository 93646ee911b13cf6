"""Reads a lake's tables from an object store with Spark, without a Hadoop file system.

Place in the walk: `tm.spark()`. Executors read data files by the same client as cycles do, so one
set of credentials and no further jar is needed; a lake on a disk is read by Delta's own source.
Invariant: a data frame is one version of its table, that of the moment it was made. Absent on
purpose: writing, and pushing of filters into files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from pipelines.lake.data_files import DataFiles
from pipelines.lake.lake import Lake
from pipelines.lake.tail import snapshot


def read_table(spark: SparkSession, lake: Lake, address: str) -> DataFrame:
    """A table of the lake as it is now."""
    if "://" not in lake.root:
        return spark.read.format("delta").load(address)
    files, _ = snapshot(lake, address, {})
    schema = from_arrow_schema(pa.schema(lake.table(address).schema().to_arrow()))
    named = [(file.path, json.dumps(dict(file.partition))) for file in files]
    paths = spark.createDataFrame(named, "path STRING, partition STRING")
    reading = _rows_of(lake, address, to_arrow_schema(schema, timezone="UTC"))
    return paths.mapInArrow(reading, schema)


def _rows_of(
    lake: Lake, address: str, wanted: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What executors do: paths of files come in, the files' rows go out."""

    def read(named: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = DataFiles(lake)
        for one in (row for batch in named for row in batch.to_pylist()):
            data = files.read(f"{address}/{one['path']}")
            rows = pq.read_table(pa.BufferReader(data))
            values = json.loads(one["partition"])
            columns = [
                rows[field.name].cast(field.type)
                if field.name in rows.column_names
                else pa.array([values.get(field.name)] * rows.num_rows).cast(field.type)
                for field in wanted
            ]
            yield from pa.table(columns, schema=wanted).to_batches()

    return read
