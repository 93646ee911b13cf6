"""Log files of runs, as XXL-Job lays them out, and pages of them from a given line on.

`logs/yyyy-MM-dd/<logId>.log`, UTC days. A log is bounded: what a handler prints beyond
LOG_BYTES_MAX is read and dropped, and one line says so. A line that has no end yet is left for the
next page while its run is at work, so that who goes on after the last line sees each once.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final

from pipelines.scheduler.wire.messages import LogPage, LogRequest

LOG_BYTES_MAX: Final = 16 * 1024 * 1024
RETENTION_DAYS_MIN: Final = 3
"""Fewer mean: for ever. XXL-Job's rule."""
MISSING: Final = b"\n-- lines are missing: the disk did not take them --\n"
CHUNK_BYTES: Final = 65_536
_log = logging.getLogger(__name__)
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
PAGE_BYTES_MAX: Final = 512 * 1024
"""A page ends with the line that reaches it; the reader asks for what follows."""
LINE_BYTES_MAX: Final = 64 * 1024
"""What a longer line has beyond is not shown."""
NOT_THERE: Final = "readLog fail, logFile not exists"


class LogFile:
    """The log of one run, while it is written."""

    def __init__(self, path: Path, *, bytes_max: int = LOG_BYTES_MAX) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file: BinaryIO = path.open("ab", buffering=0)
        self._missing = False
        self._left = bytes_max - (self._file.tell() if self._file.seekable() else 0)

    def write(self, printed: bytes) -> None:
        """Add to the log, as far as it may grow. What the disk does not take is missing, and once
        there is room again the log says so: a run does not fail for its log."""
        if self._left <= 0:
            return
        if self._missing and self._taken(MISSING) < len(MISSING):
            return
        self._missing = self._taken(printed[: self._left]) < len(printed[: self._left])
        self._left -= len(printed)
        if self._left <= 0:
            self._taken(b"\n-- the log is full: what follows is not kept --\n")

    def say(self, text: str) -> None:
        """A line of the executor's own, with the time."""
        now = datetime.now(UTC).isoformat(sep=" ", timespec="milliseconds")
        self.write(f"{now} [executor] {text}\n".encode("utf-8", "replace"))

    def _taken(self, content: bytes) -> int:
        """How many bytes the disk has taken."""
        try:
            return self._file.write(content) or 0
        except OSError as error:
            if not self._missing:
                _log.warning("%s cannot be written: %s", self._file.name, error)
            return 0

    def close(self) -> None:
        """Nothing more is written."""
        self._file.close()


class LogFiles:
    """The logs of one executor."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "logs"

    def open(self, log_id: int, log_time_ms: int) -> LogFile:
        """The log of a run, to be written on. Raises OSError."""
        return LogFile(self._path(log_id, log_time_ms))

    def page(self, request: LogRequest, *, is_finished: bool) -> LogPage:
        """The lines that were asked for."""
        path = self._path(request.log_id, request.log_time_ms)
        try:
            with path.open("rb") as file:
                return page_of(_chunks(file), from_line=request.from_line, is_finished=is_finished)
        except FileNotFoundError:
            return not_there(request.from_line)

    def tidy(self, *, today: date, retention_days: int) -> list[str]:
        """Remove the days that are too old; return them."""
        if retention_days < RETENTION_DAYS_MIN:
            return []
        oldest = (today - timedelta(days=retention_days)).isoformat()
        try:
            days = [path.name for path in self._folder.iterdir() if _DAY.fullmatch(path.name)]
        except FileNotFoundError:  # No run has a log yet, or somebody has removed them all.
            return []
        gone = sorted(day for day in days if day < oldest)
        for day in gone:
            shutil.rmtree(self._folder / day, ignore_errors=True)
        return gone

    def _path(self, log_id: int, log_time_ms: int) -> Path:
        day = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=log_time_ms)
        return self._folder / day.date().isoformat() / f"{log_id}.log"


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def page_of(chunks: Iterable[bytes], *, from_line: int, is_finished: bool) -> LogPage:
    """The page that begins at a line; the first is 1. Beyond the end it is empty and names the last
    line that there is.
    """
    begin = max(1, from_line)
    shown: list[bytes] = []
    shown_bytes = 0
    is_cut = False
    rest = iter(chunks)
    last, first = _passed(rest, begin - 1)
    for line, is_whole in _lines(chain((first,), rest)):
        if not is_whole and not is_finished:
            break
        if shown_bytes >= PAGE_BYTES_MAX:
            is_cut = True
            break
        last += 1
        if last >= begin:
            shown.append(line)
            shown_bytes += len(line)
    return LogPage(
        from_line,
        last,
        b"".join(shown).decode("utf-8", "replace"),
        is_end=is_finished and not is_cut,
    )


def not_there(from_line: int) -> LogPage:
    """The page of a log that is not there, or not any more."""
    return LogPage(from_line, 0, NOT_THERE, is_end=True)


def _passed(chunks: Iterator[bytes], lines: int) -> tuple[int, bytes]:
    """Pass over chunks in which none but the first `lines` lines begin, counting alone: a log may
    have millions of them. How many lines those had, and with which bytes to go on."""
    passed, begun = 0, b""
    for chunk in chunks:
        count = chunk.count(b"\n")
        if passed + count >= lines:
            return passed, chunk
        passed += count
        begun = chunk.rpartition(b"\n")[2] if count else begun or chunk
    return passed, begun  # Of a line that has no end: that it is there is what counts.


def _lines(chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Each line with its end, and whether it has one."""
    held = b""
    is_cut = False
    for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            whole = held if is_cut else held + part
            yield whole[:LINE_BYTES_MAX] + b"\n", True
            held, is_cut = b"", False
        if not is_cut:
            held = (held + rest)[:LINE_BYTES_MAX]
            is_cut = len(held) == LINE_BYTES_MAX
    if held:
        yield held, False
