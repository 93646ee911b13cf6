"""The table of work and its history: SQLite and PostgreSQL, by SQLAlchemy.

Each change is one statement that names the status and the claim it expects, or one transaction that
begins with such a statement. So it happens once, whoever else tries, and nobody waits for a lock.

Invariant: a row is in the table of work or in the history, never in both and never in none.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Iterable
from typing import Any, Final

import sqlalchemy as sa

from file_conversion.rules import CLAIMABLE, FAILURES_MAX, Row, Status, shard_of

ERROR_CHARS_MAX: Final = 500
LOST: Final = "nothing was heard of whoever had it"

_METADATA: Final = sa.MetaData()
_NUMBER: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
WORK: Final = sa.Table(
    "conversions",
    _METADATA,
    sa.Column("id", _NUMBER, primary_key=True),
    sa.Column("source", sa.Text, nullable=False, unique=True),
    sa.Column("status", sa.SmallInteger, nullable=False, default=int(Status.NEW)),
    sa.Column("claim", sa.Text, nullable=False, default=""),
    sa.Column("claimed_ms", sa.BigInteger, nullable=False, default=0),
    sa.Column("claims", sa.Integer, nullable=False, default=0),
    sa.Column("failures", sa.Integer, nullable=False, default=0),
    sa.Column("losses", sa.Integer, nullable=False, default=0),
    sa.Column("error", sa.Text, nullable=False, default=""),
    sa.Index("conversions_by_status", "status", "id"),
    sqlite_autoincrement=True,  # Else the number of a row that has moved is given again.
)
HISTORY: Final = sa.Table(
    "conversion_history",
    _METADATA,
    sa.Column("id", _NUMBER, primary_key=True, autoincrement=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("status", sa.SmallInteger, nullable=False),
    sa.Column("claims", sa.Integer, nullable=False),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("losses", sa.Integer, nullable=False),
    sa.Column("converted_ms", sa.BigInteger, nullable=False),
)


def opened(address: str) -> sa.Engine:
    """The database; a file of SQLite's is waited for while another writes."""
    patience = {"timeout": 30} if address.startswith("sqlite") else {}
    return sa.create_engine(address, connect_args=patience)


def prepare(engine: sa.Engine) -> None:
    """Make the tables; once, before the executors start."""
    _METADATA.create_all(engine)


def add(engine: sa.Engine, sources: Iterable[str]) -> None:
    """Files to convert."""
    with engine.begin() as connection:
        connection.execute(WORK.insert(), [{"source": source} for source in sources])


def waiting(engine: sa.Engine, shard_index: int, shard_total: int, *, rows_max: int) -> list[Row]:
    """Rows of a shard that may be taken, the oldest first."""
    return _rows(
        engine,
        WORK.c.status.in_(CLAIMABLE),
        WORK.c.failures <= FAILURES_MAX,
        shard_of(WORK.c.id, shard_total) == shard_index,
        rows_max=rows_max,
    )


def hopeless(engine: sa.Engine, *, rows_max: int) -> list[Row]:
    """Rows that have failed too often to be tried with the others."""
    return _rows(
        engine, WORK.c.status.in_(CLAIMABLE), WORK.c.failures > FAILURES_MAX, rows_max=rows_max
    )


def claim(engine: sa.Engine, row: Row, *, now_ms: int) -> str | None:
    """Take a row; the word that proves it, or None when another was quicker. It begins with the
    machine and the process, for people who ask who has the row."""
    word = f"{socket.gethostname()} {os.getpid()} {secrets.token_hex(8)}"
    is_ours = _changed(
        engine,
        WORK.c.id == row.row_id,
        WORK.c.status.in_(CLAIMABLE),
        status=int(Status.TAKEN),
        claim=word,
        claimed_ms=now_ms,
        claims=WORK.c.claims + 1,
    )
    return word if is_ours else None


def succeed(engine: sa.Engine, row: Row, word: str, *, target: str, now_ms: int) -> bool:
    """The result is in the store: the row moves to the history. Was it still ours?"""
    moved = [WORK.c.id, WORK.c.source, WORK.c.status, WORK.c.claims, WORK.c.failures, WORK.c.losses]
    with engine.begin() as connection:
        done = connection.execute(
            WORK.update().where(*_held(row, word)).values(status=int(Status.DONE))
        )
        if done.rowcount != 1:
            return False
        entry = sa.select(
            *moved, sa.literal(target), sa.cast(sa.literal(now_ms), sa.BigInteger)
        ).where(WORK.c.id == row.row_id)
        columns = [*(column.name for column in moved), "target", "converted_ms"]
        connection.execute(HISTORY.insert().from_select(columns, entry))
        connection.execute(WORK.delete().where(WORK.c.id == row.row_id))
    return True


def fail(engine: sa.Engine, row: Row, word: str, error: str) -> bool:
    """The conversion failed: somebody may try again. Was it still ours?"""
    return bool(
        _changed(
            engine,
            *_held(row, word),
            status=int(Status.FAILED),
            claim="",
            failures=WORK.c.failures + 1,
            error=error[:ERROR_CHARS_MAX],
        )
    )


def give_back_stuck(engine: sa.Engine, *, claimed_before_ms: int) -> int:
    """Take rows from those who were silent since before then; how many. It counts as a failure,
    too: a file that kills whoever converts it comes to an end."""
    return _changed(
        engine,
        WORK.c.status == int(Status.TAKEN),
        WORK.c.claimed_ms < claimed_before_ms,
        status=int(Status.FAILED),
        claim="",
        failures=WORK.c.failures + 1,
        losses=WORK.c.losses + 1,
        error=LOST,
    )


def _held(row: Row, word: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (WORK.c.id == row.row_id, WORK.c.status == int(Status.TAKEN), WORK.c.claim == word)


def _rows(engine: sa.Engine, *which: sa.ColumnElement[bool], rows_max: int) -> list[Row]:
    asked = sa.select(WORK.c.id, WORK.c.source).where(*which).order_by(WORK.c.id).limit(rows_max)
    with engine.connect() as connection:
        return [Row(row_id, source) for row_id, source in connection.execute(asked)]


def _changed(engine: sa.Engine, *which: sa.ColumnElement[bool], **values: Any) -> int:
    with engine.begin() as connection:
        return connection.execute(WORK.update().where(*which).values(**values)).rowcount


if __name__ == "__main__":
    prepare(opened(sys.argv[1]))
    add(opened(sys.argv[1]), sys.argv[2:])
