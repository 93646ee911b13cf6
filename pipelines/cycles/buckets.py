"""Hash buckets: which partition of a cycle works on which rows.

Place in the walk: executors that read bronze files split their rows here; each part travels to the
partition of its bucket as one value, so that Spark moves few large values instead of many rows.

Invariant: the bucket of a group depends on its cluster and name alone, that of an emitter on its
name, in every process and for good. Absent on purpose: Spark.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from pipelines.cycles.streams import read_stream, write_stream
from pipelines.marts.keys import numbered
from pipelines.marts.mart import Positions
from pipelines.staging.facts import Reach

PART_ROWS_MAX: Final = 65_536
"""Rows of one value that travels: some ten megabytes."""


def bucket_of(*names: str, buckets: int) -> int:
    """The bucket of a cluster and group, or of an emitter."""
    return zlib.crc32("\0".join(names).encode()) % buckets


def split(rows: pa.Table, reach: Reach, buckets: int) -> Iterator[tuple[int, pa.Table]]:
    """The rows of a bronze table, bucket by bucket, in parts of bounded size."""
    if not rows.num_rows:
        return
    if reach is Reach.ALL or buckets == 1:
        chosen = range(buckets)
        parts: Iterator[tuple[int, pa.Table]] = ((bucket, rows) for bucket in chosen)
    else:
        key = ("emitter",) if reach is Reach.EMITTER else ("cluster", "group")
        parts = _hashed(rows, key, buckets)
    for bucket, part in parts:
        for start in range(0, part.num_rows, PART_ROWS_MAX):
            yield bucket, part.slice(start, PART_ROWS_MAX)


def _hashed(rows: pa.Table, key: Sequence[str], buckets: int) -> Iterator[tuple[int, pa.Table]]:
    numbers, first = numbered(rows, key)
    names = rows.select(list(key)).take(pa.array(first)).to_pylist()
    of_number = np.array([bucket_of(*one.values(), buckets=buckets) for one in names], np.int64)
    of_row = of_number[numbers]
    for bucket in np.unique(of_row):
        yield int(bucket), rows.filter(pa.array(of_row == bucket))


def within(rows: pa.Table, cuts: dict[str, tuple[int, int]]) -> pa.Table:
    """The rows of emitters whose seq lies in (from, to]; others are not of this cycle."""
    if not rows.num_rows:
        return rows
    numbers, first = numbered(rows, ("emitter",))
    names = rows["emitter"].take(pa.array(first)).to_pylist()
    bounds = np.array([cuts.get(name, (0, 0)) for name in names], np.int64)
    seqs: Positions = np.asarray(rows["seq"])
    wanted = (seqs > bounds[numbers, 0]) & (seqs <= bounds[numbers, 1])
    return rows if wanted.all() else rows.filter(pa.array(wanted))


def packed(rows: pa.Table) -> bytes:
    """Rows as one value."""
    sink = pa.BufferOutputStream()
    write_stream(sink, rows)
    return bytes(sink.getvalue())


def unpacked(value: bytes) -> pa.Table:
    """The reverse."""
    return read_stream(pa.py_buffer(value))
