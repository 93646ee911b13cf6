"""Runs rules' SQL queries in a child process, so that a costly one affects only its rule.

    python -m pipelines.alerting.sql_queries SECONDS BYTES

Place in the walk: `evaluating` asks with the rows of one look. A question, or an answer, is a
length, a head as JSON, and rows as Arrow's stream of each table.

Invariant: whatever a query does, the process that watches goes on, and the query's rule is the only
one that could not be evaluated. A query that took too much rests for REST_S, so that it does not
hold up each look. Absent on purpose: rules with a condition, whose rows are bounded as they are.
"""

from __future__ import annotations

import io
import json
import resource
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Any, Final, Self

import polars as pl

from pipelines.alerting.sql import answered

ANSWER_ROWS_MAX: Final = 1_000_000
_LENGTH: Final = struct.Struct(">Q")
QUERY_S: Final = 10.0
"""How long a query may take; the shipped ones take milliseconds."""
MEMORY_BYTES_MAX: Final = 2 << 30
"""Of a query, with the rows that it is asked over."""
REST_S: Final = 300
"""How long a query that took too much is not tried again."""
_MODULE: Final = "pipelines.alerting.sql_queries"
_MIB: Final = 1 << 20


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


class TooDear(ValueError):
    """The query took more time or memory than it may, and rests."""


@dataclass(slots=True, kw_only=True, eq=False)
class Queries:
    """The process, started when a query comes, and again after one that ended it. For one thread
    at a time; an end of its block ends it.
    """

    query_s: float = QUERY_S
    memory_bytes_max: int = MEMORY_BYTES_MAX
    now_s: Callable[[], float] = time.monotonic
    _child: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _resting: dict[str, tuple[float, str]] = field(default_factory=dict, init=False)
    """By its text: until when a query rests, and why."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    @property
    def child_pid(self) -> int | None:
        """The process, while there is one."""
        return None if self._child is None else self._child.pid

    def answered(self, sql: str, rows: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
        """The answer to a query over rows of tables, by their names. Raises ValueError for what the
        engine does not take, and TooDear for what took too much.
        """
        now_s = self.now_s()
        self._resting = {text: rest for text, rest in self._resting.items() if rest[0] > now_s}
        if sql in self._resting:
            raise TooDear(self._resting[sql][1])
        child = self._running()
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            write_rows(child.stdin, {"sql": sql}, rows)
            head, answers = read_rows(child.stdout)
        except (OSError, EOFError) as error:
            why = self._why(self._end())
            self._resting[sql] = (self.now_s() + REST_S, why)
            raise TooDear(why) from error
        if "error" in head:
            raise ValueError(head["error"])
        return answers["answer"]

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is not None and self._child.poll() is not None:
            self._end()  # Somebody else has ended it.
        if self._child is None:
            # What an engine without memory says of its stack is nothing to read.
            self._child = subprocess.Popen(
                [sys.executable, "-m", _MODULE, str(self.query_s), str(self.memory_bytes_max)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        return self._child

    def _end(self) -> int:
        """End the process, if there is one; how it ended."""
        child, self._child = self._child, None
        if child is None:
            return 0
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.close()
        with suppress(OSError):  # What was not read is lost with it.
            child.stdin.close()
        try:
            return child.wait(self.query_s)
        except subprocess.TimeoutExpired:
            child.kill()
            return child.wait()

    def _why(self, code: int) -> str:
        again = f"it is tried again in {REST_S // 60} minutes"
        if code == -signal.SIGALRM:
            return f"the query took longer than the {self.query_s:g} s that it may: {again}"
        if code in {-signal.SIGABRT, -signal.SIGKILL}:
            most = f"{self.memory_bytes_max // _MIB:,} MiB"
            return f"the query took more memory than the {most} that it may: {again}"
        return f"the process of the query ended with {code}: {again}"


if __name__ == "__main__":
    main()
