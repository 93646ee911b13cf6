"""A cycle's Spark job: executors read and split the files of its cut, executors judge the buckets.

Place in the walk: the driver's one call a cycle. Two stages: a reading task takes some files and
yields their rows by bucket, packed; Spark brings each bucket's parts together; a judging task
computes it and writes its gold and state. What comes back is names of files.

Invariant: the driver holds what grows with files and buckets, never with rows
(docs/adr/0027-executors-judge-and-the-driver-commits.md). Absent on purpose: meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from pipelines.cycles.work import BucketDone, Part, WorkOrder, judge, read
from pipelines.tail import AddedFile

READ_BYTES: Final = 8 << 20
"""A reading task takes files of about so many bytes."""

_PARTS: Final = pa.schema([("bucket", pa.int32()), ("table", pa.string()), ("rows", pa.binary())])
_DONE: Final = pa.schema([("done", pa.string())])


def run_job(spark: SparkSession, order: WorkOrder) -> list[BucketDone]:
    """Carry out a work order: what every bucket has made."""
    tasks, buckets = max(1, len(order.readings)), order.buckets
    parts = spark.range(0, tasks, 1, tasks).mapInArrow(
        partial(_read, order), "bucket int, table string, rows binary"
    )
    gathered = parts.repartitionById(buckets, F.col("bucket"))
    told = gathered.mapInArrow(partial(_judge, order), "done string").toArrow()
    done = [BucketDone.from_json(text) for text in told["done"].to_pylist()]
    assert sorted(one.bucket for one in done) == list(range(buckets)), "every bucket answers once"
    return done


def readings_of(
    files: Mapping[str, Sequence[AddedFile]],
) -> tuple[tuple[tuple[str, str], ...], ...]:
    """The files of a cut, dealt out to reading tasks of about READ_BYTES each."""
    tasks: list[list[tuple[str, str]]] = [[]]
    filled_bytes = 0
    for table, of_table in files.items():
        for file in of_table:
            if filled_bytes >= READ_BYTES:
                tasks.append([])
                filled_bytes = 0
            tasks[-1].append((table, file.path))
            filled_bytes += file.size_bytes
    return tuple(tuple(task) for task in tasks)


def _read(order: WorkOrder, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for task in batch.column("id").to_pylist():
            for bucket, table, rows in read(order, task):
                yield pa.record_batch([[bucket], [table], [rows]], schema=_PARTS)


def _judge(order: WorkOrder, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    parts: dict[int, list[Part]] = {}
    for batch in batches:
        for row in batch.to_pylist():
            parts.setdefault(row["bucket"], []).append((row["bucket"], row["table"], row["rows"]))
    for bucket, of_bucket in sorted(parts.items()):
        yield pa.record_batch([[judge(order, bucket, of_bucket).as_json()]], schema=_DONE)
