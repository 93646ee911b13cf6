"""Tables as Arrow streams: how rows travel between executors, and lie in the state's files.

Place in the walk: parts of buckets (`buckets`) and keyed state (`keyed_state`). Invariant: what is
read equals what was written, dictionaries included. Absent on purpose: compression; Spark's shuffle
does it, and a file of the state is mapped.
"""

from __future__ import annotations

import pyarrow as pa


def write_stream(sink: pa.NativeFile, rows: pa.Table) -> None:
    """Append the rows to a sink as one stream, a dictionary and a chunk a column."""
    whole = rows.unify_dictionaries().combine_chunks()
    with pa.ipc.new_stream(sink, whole.schema) as stream:
        stream.write_table(whole)


def read_stream(data: pa.Buffer) -> pa.Table:
    """The rows of a stream, without a copy where the bytes can be used as they are."""
    with pa.ipc.open_stream(data) as stream:
        return stream.read_all()
