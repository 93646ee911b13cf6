"""Assigns a cycle's rows to partitions by hashing their group or emitter.

Place in the walk: executors that read bronze files split their rows here; each part travels to the
partition of its bucket as one value, so that Spark moves few large values instead of many rows.

Invariant: the bucket of a group depends on its cluster and name alone, that of an emitter on its
name, in every process and for good. Absent on purpose: Spark.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

import numpy as np
import pyarrow as pa

from pipelines.lake.schemas import read_stream, write_stream
from pipelines.marts.keys import as_text
from pipelines.marts.mart import Positions
from pipelines.staging.facts import Reach

PART_ROWS_MAX: Final = 65_536
"""Rows of one value that travels: some ten megabytes."""

COMPRESSION: Final = "lz4"
"""Of parts: a tenth of the bytes go through Spark."""

TEXTS_MANY: Final = 1_000
"""A dictionary of fewer texts is not worth a look."""

MARKED_MAX: Final = 1_000_000
"""Combinations of names among which the present ones are found by marks: sorting them costs more,
but takes no room for those that are not there.
"""


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
    of_row = _buckets_of(rows, key, buckets)
    whole = rows.unify_dictionaries().combine_chunks()
    for bucket in np.flatnonzero(np.bincount(of_row, minlength=buckets)):
        yield int(bucket), _taken(whole, np.flatnonzero(of_row == bucket))


def _taken(rows: pa.Table, places: Positions) -> pa.Table:
    """Some rows of a table of one chunk a column, with the texts that they have: else the names of
    all groups would travel with each part, to be read and compared by each bucket.
    """
    chosen = pa.array(places)
    columns = []
    for column in rows.columns:
        values = column.chunk(0)
        is_one_text = pa.types.is_dictionary(values.type) and len(values.dictionary) == 1
        if values.null_count == len(values) or (is_one_text and not values.null_count):
            columns.append(values.slice(0, len(places)))  # All the same, whichever they are.
        else:
            columns.append(_fewer_texts(values.take(chosen)))
    return pa.table(columns, schema=rows.schema)


def _fewer_texts(values: pa.Array) -> pa.Array:
    """The same values; of a dictionary most of which they do not need, with what they need."""
    if not pa.types.is_dictionary(values.type) or len(values.dictionary) < TEXTS_MANY:
        return values
    codes = np.asarray(values.indices.fill_null(0)).astype(np.int64)
    present, compact = _compact(codes, len(values.dictionary))
    if 2 * len(present) > len(values.dictionary):
        return values
    indices = pa.array(compact, values.type.index_type, mask=np.asarray(values.is_null()))
    return pa.DictionaryArray.from_arrays(indices, values.dictionary.take(pa.array(present)))


def _buckets_of(rows: pa.Table, key: Sequence[str], buckets: int) -> Positions:
    """Per row its bucket. A name is hashed once, however many rows have it."""
    codes = np.zeros(rows.num_rows, np.int64)
    texts: list[list[str]] = []
    for name in key:
        column = as_text(rows[name]).unify_dictionaries().combine_chunks()
        codes = codes * max(1, len(column.dictionary)) + np.asarray(column.indices)
        texts.append(column.dictionary.to_pylist())
    present, of_row = _compact(codes, math.prod(len(names) for names in texts))
    *begins, ends = [[name.encode() for name in names] for names in texts]
    first, last = np.divmod(present, max(1, len(ends)))
    # As bucket_of does, but the sum of what lies before the last name is taken once.
    before = [zlib.crc32(b"\0".join((*name, b""))) for name in product(*begins)]
    pairs = zip(first.tolist(), last.tolist(), strict=True)
    sums = [zlib.crc32(ends[at], before[of]) for of, at in pairs]
    return (np.array(sums, np.int64) % buckets)[of_row]


def _compact(codes: Positions, size: int) -> tuple[Positions, Positions]:
    """The different ones of `codes`, all below `size`, and per code which of them it is."""
    if size > max(MARKED_MAX, 4 * len(codes)):
        return np.unique(codes, return_inverse=True)
    is_present = np.zeros(size, bool)
    is_present[codes] = True
    present = np.flatnonzero(is_present)
    place = np.empty(size, np.int64)
    place[present] = np.arange(len(present))
    return present, place[codes]


def within(rows: pa.Table, cuts: dict[str, tuple[int, int]]) -> pa.Table:
    """The rows of emitters whose seq lies in (from, to]; others are not of this cycle."""
    if not rows.num_rows:
        return rows
    emitters = as_text(rows["emitter"]).unify_dictionaries().combine_chunks()
    bounds = np.array([cuts.get(name, (0, 0)) for name in emitters.dictionary.to_pylist()])
    least, most = bounds[0] if len(bounds) == 1 else bounds[np.asarray(emitters.indices)].T
    seqs: Positions = np.asarray(rows["seq"])
    wanted = (seqs > least) & (seqs <= most)
    return rows if wanted.all() else rows.filter(pa.array(wanted))


def packed(rows: pa.Table) -> bytes:
    """Rows as one value."""
    sink = pa.BufferOutputStream()
    write_stream(sink, rows, compression=COMPRESSION)
    return bytes(sink.getvalue())


def unpacked(value: bytes) -> pa.Table:
    """The reverse."""
    return read_stream(pa.py_buffer(value))
