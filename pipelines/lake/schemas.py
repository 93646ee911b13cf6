"""Builds Arrow schemas from declared columns and serialises tables as Arrow streams.

Place in the walk: beside everything that reads or writes a table without Spark, in the driver and
in executors. Invariant: timestamps are microseconds UTC; what is read from a stream equals what was
written, dictionaries included. What travels is compressed: each byte of it passes through a JVM
four times. Files of the state are mapped, and not compressed but for tables that hardly outlive a
cycle. Absent on purpose: Delta, and Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from engine.telemetry.shipper.arrow_schemas import ARROW_TYPES
from engine.telemetry.tables import Column

KEY_TEXT: Final = pa.dictionary(pa.int32(), pa.string())
"""Texts that repeat: clusters, groups, topics, clients. In facts and in states alike."""

QUEUE: Final = ("cluster", "broker", "group", "topic", "queue_id")
"""The columns that name a queue as a group reads it, in gold."""


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """The declared columns in Arrow's types; timestamps are microseconds UTC."""
    return pa.schema(
        [pa.field(column.name, ARROW_TYPES[column.type], column.nullable) for column in columns]
    )


def write_stream(sink: pa.NativeFile, rows: pa.Table, *, compression: str | None = None) -> None:
    """Append the rows to a sink as one stream, a dictionary and a chunk a column. `compression` is
    one of Arrow's, or none.
    """
    whole = rows.unify_dictionaries().combine_chunks()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, whole.schema, options=options) as stream:
        stream.write_table(whole)


def read_stream(data: pa.Buffer) -> pa.Table:
    """The rows of a stream, without a copy where the bytes can be used as they are."""
    with pa.ipc.open_stream(data) as stream:
        return stream.read_all()
