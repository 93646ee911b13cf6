"""Detects whether the file of an open SQLite database has been moved or replaced.

Place in the walk: below `database`. SQLite goes on with the file that it has open, wherever that is
by now: what is stored there would be lost. So a connection counts as broken as soon as its path
leads elsewhere.

Invariant: the file is made by who opens it first, and never again: one that was taken away comes
back, and must not be met by an empty one in its place. Absent on purpose: what follows (`opened`).
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Final
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

_Identity = tuple[int, int]
_TRY_AGAIN_S: Final = 0.01


class SqliteFile:
    """Opens connections to one path."""

    def __init__(self, path: Path, *, lock_wait_s: int) -> None:
        self._path = path.absolute()
        self._lock_wait_s = lock_wait_s
        self._is_made = False
        self._last: _Identity | None = None
        self.opened = 0
        """How many files that path has led to. The one who meets another is refused once: what he
        knows is of the file before."""

    def engine(self, *, connections_max: int) -> sa.Engine:
        """An engine whose connections are to what the path leads to now."""
        engine = sa.create_engine(
            "sqlite://",
            creator=self._connect,
            poolclass=sa.pool.QueuePool,
            pool_size=connections_max,
            max_overflow=0,
            pool_timeout=self._lock_wait_s,
            hide_parameters=True,
        )
        event.listen(engine, "connect", self._note)
        event.listen(engine, "checkout", self._check)
        return engine

    def write_ahead(self, connection: sqlite3.Connection) -> None:
        """Have the file keep a write-ahead log. It waits for locks itself: SQLite reports at once
        that a new file is locked when somebody else has just begun to write to it."""
        until_s = time.monotonic() + self._lock_wait_s
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL").close()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= until_s:
                    raise
                time.sleep(_TRY_AGAIN_S)
            else:
                return

    def is_made(self) -> None:
        """Its tables are there: from now on it is opened, and not made."""
        self._is_made = True

    def _connect(self) -> sqlite3.Connection:
        mode = "rw" if self._is_made else "rwc"
        if self._is_made and self._identity() is None:
            raise sqlite3.OperationalError(f"{self._path} is gone")
        connection = sqlite3.connect(
            f"file:{quote(str(self._path))}?mode={mode}",
            uri=True,
            timeout=self._lock_wait_s,
            check_same_thread=False,
            isolation_level=None,  # Or sqlite3 begins transactions of its own.
        )
        found = self._identity()
        if found != self._last:
            is_first, self._last = self._last is None, found
            self.opened += 1
            if not is_first:  # Whoever asks now knows the other file.
                connection.close()
                raise sqlite3.OperationalError(f"{self._path} is another file than it was")
        return connection

    def _note(self, _: sqlite3.Connection, entry: ConnectionPoolEntry) -> None:
        entry.info["file"] = self._last

    def _check(
        self, _: sqlite3.Connection, entry: ConnectionPoolEntry, __: PoolProxiedConnection
    ) -> None:
        if entry.info["file"] != self._identity():
            raise InvalidatePoolError("its path leads elsewhere")

    def _identity(self) -> _Identity | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino
