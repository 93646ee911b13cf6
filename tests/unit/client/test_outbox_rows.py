"""What an outbox takes, in the business's own transaction (SQLite)."""

from __future__ import annotations

import importlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from engine.client.outbox import OutboxTable, send_outbox
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


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        (Message("or/ders", b"x", {"KEYS": "k"}), r"topic='or/ders' .*legal"),
        (Message("t" * 300, b"x", {"KEYS": "k"}), "topic='ttt"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x", {"KEYS": "k"}), "brokers alone write this"),
        (Message("RMQ_SYS_TRANS_HALF_TOPIC", b"x", {"KEYS": "k"}), "brokers alone write this"),
        (Message("T", b"x", {"KEYS": "k", "TRAN_MSG": "True"}), "TRAN_MSG='True' .*half message"),
        (Message("T", b"x", {"KEYS": "k", "a": "1\x022"}), "property 'a'"),
    ],
    ids=["illegal", "long", "system", "half topic", "half", "separator"],
)
def test_a_message_that_brokers_never_give_to_consumers_is_refused_when_it_is_written(
    tmp_path: Path, message: Message, refusal: str
) -> None:
    table = OutboxTable(
        system_runtime(), lambda: sqlite3.connect(tmp_path / "shop.db"), SqlDialect.SQLITE
    )
    table.prepare()
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        with pytest.raises(ConfigError, match=refusal):
            table.write(connection.cursor(), message)
        assert connection.execute("SELECT count(*) FROM outbox_messages").fetchone() == (0,)
        table.write(connection.cursor(), Message("T", b"x", {"KEYS": "k", "TRAN_MSG": "false"}))


def test_jobs_written_for_the_earlier_name_of_the_sending_module_go_on_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match=r"from engine\.client\.outbox$"):
        earlier = importlib.import_module("engine.client.outbox_sending")
    assert earlier.send_outbox is send_outbox
