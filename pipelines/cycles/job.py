"""Spark job for a cycle: executors split its files into buckets and judge each bucket.

Place in the walk: the driver's one call a cycle. A reading task yields rows by bucket, packed;
Spark brings each bucket's parts together; a judging task writes its gold and state, and names of
files come back. Of a small cut each judging task reads the files itself. Invariant: the driver
holds what grows with files and buckets, never with rows
(docs/adr/0027-executors-judge-and-the-driver-commits.md).
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Final

from pyspark.sql import SparkSession

from engine.foundation.errors import LakeError, TidemarkError
from pipelines.cycles import task_failures
from pipelines.cycles.buckets import packed, unpacked
from pipelines.cycles.work import BucketDone, Part, WorkOrder, judge, read
from pipelines.lake.tail import AddedFile
from pipelines.marts.declared import steps

READ_BYTES: Final = 8 << 20
"""A reading task takes files of about so many bytes."""

WAKE: Final = ""
"""Name of a part without rows: it brings a bucket to work in a cycle that has no facts for it."""

UNREADABLE: Final = "unreadable"
"""Name of a part that is no rows: why there are none."""

SHARED_BYTES: Final = 1 << 20
"""A cut whose files are this small, times the buckets, is read by every judging task for itself:
that costs less than a stage and a shuffle.
"""


def run_job(
    spark: SparkSession, order: WorkOrder, *, shared_bytes: int = SHARED_BYTES
) -> list[BucketDone]:
    """Carry out a work order: what every bucket has made."""
    context, buckets = spark.sparkContext, order.buckets
    if order.read_bytes * buckets <= shared_bytes:
        parts_read = context.range(0, buckets, 1, buckets).mapPartitions(
            partial(_read_and_judge, order)
        )
    else:
        tasks = max(1, len(order.readings))
        parts = context.range(0, tasks, 1, tasks).mapPartitions(partial(_read, order))
        parts_read = parts.partitionBy(buckets, _own).mapPartitions(partial(_judge, order))
    done = [BucketDone.from_json(text) for text in task_failures.done(parts_read.collect())]
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


@cache
def _settle() -> None:
    """What a worker process has imported stays: the collector need not look through it again and
    again, which took 4 % of a large cycle.
    """
    steps()
    gc.freeze()


def _read(order: WorkOrder, tasks: Iterable[int]) -> Iterator[tuple[int, tuple[str, bytes]]]:
    """Rows by bucket; of files that cannot be read, why, for the first bucket to report."""
    _settle()
    try:
        for task in tasks:
            if task == 0:
                yield from ((bucket, (WAKE, b"")) for bucket in range(order.buckets))
            for bucket, table, rows in read(order, task):
                yield bucket, (table, packed(rows))
    except TidemarkError as error:
        yield 0, (UNREADABLE, str(error).encode())


def _own(bucket: int) -> int:
    """The partition of a bucket: that of its number."""
    return bucket


def _judge(order: WorkOrder, read_rows: Iterable[tuple[int, tuple[str, bytes]]]) -> Iterator[str]:
    _settle()
    return task_failures.reported(lambda: _judged(order, read_rows))


def _judged(order: WorkOrder, read_rows: Iterable[tuple[int, tuple[str, bytes]]]) -> Iterator[str]:
    parts: dict[int, list[Part]] = {}
    for bucket, (table, rows) in read_rows:
        if table == UNREADABLE:
            raise LakeError(rows.decode())
        of_bucket = parts.setdefault(bucket, [])
        if table != WAKE:
            of_bucket.append((bucket, table, unpacked(rows)))
    for bucket, of_bucket in sorted(parts.items()):
        yield judge(order, bucket, of_bucket).as_json()


def _read_and_judge(order: WorkOrder, buckets: Iterable[int]) -> Iterator[str]:
    _settle()
    return task_failures.reported(lambda: _each_judged(order, buckets))


def _each_judged(order: WorkOrder, buckets: Iterable[int]) -> Iterator[str]:
    for own in buckets:
        rows = (part for task in range(len(order.readings)) for part in read(order, task))
        yield judge(order, own, (part for part in rows if part[0] == own)).as_json()
