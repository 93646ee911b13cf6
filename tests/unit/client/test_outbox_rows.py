"""What an outbox takes, in the business's own transaction (SQLite)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from engine.client.outbox import OutboxTable
from engine.client.sql import SqlDialect
from engine.foundation.errors import ConfigError
from engine.protocol.copy_room import ROOMY_BYTES
from engine.protocol.message import Message
from engine.runtime import system_runtime


def test_a_message_that_no_broker_would_take_is_refused_when_it_is_written(tmp_path: Path) -> None:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "shop.db")

    table = OutboxTable(system_runtime(), connect, SqlDialect.SQLITE)
    table.prepare()
    with closing(connect()) as connection:
        cursor = connection.cursor()
        table.write(cursor, Message("T", b"x", {"KEYS": "k", "a": "b" * (ROOMY_BYTES - 200)}))
        with pytest.raises(ConfigError, match=r"properties='3.* bytes'.*belong into the body"):
            table.write(cursor, Message("T", b"x", {"KEYS": "k", "a": "b" * 32_000}))
        connection.commit()
        assert cursor.execute("SELECT count(*) FROM outbox_messages").fetchone() == (1,)
