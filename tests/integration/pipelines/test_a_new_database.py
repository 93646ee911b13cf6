"""A SQLite database that several processes open for the first time at one moment."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pipelines.database.database import Database
from pipelines.database.sqlite_file import SqliteFile


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Who has just begun to write to the file, which keeps no write-ahead log yet."""
    path = tmp_path / "tidemark.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as first:
        first.execute("BEGIN IMMEDIATE")
        yield first


def test_who_comes_second_waits_for_who_has_just_begun(
    begun: sqlite3.Connection, tmp_path: Path
) -> None:
    ends = threading.Timer(0.3, begun.execute, ("COMMIT",))
    ends.start()
    opened = Database.at(f"sqlite:///{tmp_path / 'tidemark.db'}")
    ends.join()
    with opened.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    opened.close()


def test_who_waits_too_long_is_refused(begun: sqlite3.Connection, tmp_path: Path) -> None:
    path = tmp_path / "tidemark.db"
    with (
        closing(sqlite3.connect(path)) as second,
        pytest.raises(sqlite3.OperationalError, match="database is locked"),
    ):
        SqliteFile(path, lock_wait_s=0).write_ahead(second)
    assert begun.in_transaction
