"""Tables as Arrow streams: the format between executors and in the state's files.

Place in the walk: parts of buckets (`buckets`) and keyed state (`keyed_state`). Invariant: what is
read equals what was written, dictionaries included. What travels is compressed here: each byte of
it passes through a JVM four times. Files of the state are mapped, and not compressed but for tables
that hardly outlive a cycle.
"""

from __future__ import annotations

import pyarrow as pa


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
