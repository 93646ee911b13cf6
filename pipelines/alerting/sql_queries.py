"""Runs the SQL query of a rule over rows of tables, and is the child process that does so.

    python -m pipelines.alerting.sql_queries SECONDS BYTES

Place in the walk: rules try theirs without rows; `queries` starts the child, and writes it one
question after another: a length, a head as JSON, and rows as Arrow's stream of each table.

Invariant: a query has as much memory and time as it may take, and what takes more ends the child
alone. Absent on purpose: what its ends mean; `queries` says so.
"""

from __future__ import annotations

import io
import json
import resource
import signal
import struct
import sys
from collections.abc import Callable, Mapping
from typing import IO, Any, Final

import polars as pl

Answering = Callable[[str, Mapping[str, pl.DataFrame]], pl.DataFrame]
"""A query and the rows of its tables by their names → its answer. Raises ValueError."""
ANSWER_ROWS_MAX: Final = 1_000_000
_LENGTH: Final = struct.Struct(">Q")


def answered(sql: str, rows: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """The answer to a query over the rows of tables."""
    return pl.SQLContext(frames=dict(rows), eager=True).execute(sql)


def write_rows(out: IO[bytes], head: Mapping[str, Any], rows: Mapping[str, pl.DataFrame]) -> None:
    """One question or answer. Raises OSError when nobody reads it."""
    streams: dict[str, bytes] = {}
    for name, frame in rows.items():
        stream = io.BytesIO()
        frame.write_ipc_stream(stream)
        streams[name] = stream.getvalue()
    sizes = {name: len(stream) for name, stream in streams.items()}
    text = json.dumps({**head, "rows": sizes}).encode()
    out.writelines((_LENGTH.pack(len(text)), text, *streams.values()))
    out.flush()


def read_rows(source: IO[bytes]) -> tuple[dict[str, Any], dict[str, pl.DataFrame]]:
    """One of them. Raises EOFError when there is none, or not all of it."""
    (length,) = _LENGTH.unpack(_exactly(source, _LENGTH.size))
    head: dict[str, Any] = json.loads(_exactly(source, length))
    sizes = head.pop("rows")
    return head, {
        name: pl.read_ipc_stream(io.BytesIO(_exactly(source, size))) for name, size in sizes.items()
    }


def _exactly(source: IO[bytes], size: int) -> bytes:
    found = source.read(size)
    if len(found) < size:
        raise EOFError
    return found


def _answer(sql: str, rows: Mapping[str, pl.DataFrame]) -> tuple[dict[str, str], pl.DataFrame]:
    try:
        answer = answered(sql, rows)
    except (pl.exceptions.PolarsError, ValueError, TypeError) as error:
        return {"error": str(error)}, pl.DataFrame()
    if answer.height > ANSWER_ROWS_MAX:
        fault = f"the query brings {answer.height:,} rows: {ANSWER_ROWS_MAX:,} are the most"
        return {"error": fault}, pl.DataFrame()
    return {}, answer


def main() -> None:
    """Answer until nobody asks. A query takes so many seconds, and bytes with its rows, at most."""
    query_s, memory_bytes_max = float(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes_max, memory_bytes_max))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for who asks.
    while True:
        try:
            question, rows = read_rows(sys.stdin.buffer)
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_REAL, query_s)  # Then SIGALRM ends this process.
        head, answer = _answer(question["sql"], rows)
        signal.setitimer(signal.ITIMER_REAL, 0)
        write_rows(sys.stdout.buffer, head, {"answer": answer})


if __name__ == "__main__":
    main()
