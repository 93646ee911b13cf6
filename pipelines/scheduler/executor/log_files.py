"""Run log files, laid out by UTC day as in XXL-Job: `logs/yyyy-MM-dd/<logId>.log`.

A log is bounded: what a handler prints beyond LOG_BYTES_MAX is read and dropped, and one line says
so. A day's folder is removed when it is old enough.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Final

from pipelines.scheduler.executor.log_pages import not_there, page_of
from pipelines.scheduler.wire.messages import LogPage, LogRequest

LOG_BYTES_MAX: Final = 16 * 1024 * 1024
RETENTION_DAYS_MIN: Final = 3
"""Fewer mean: for ever. XXL-Job's rule."""
MISSING: Final = b"\n-- lines are missing: the disk did not take them --\n"
CHUNK_BYTES: Final = 65_536
_log = logging.getLogger(__name__)
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")


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
