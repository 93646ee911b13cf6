"""Reads tables from a running MySQL or MariaDB server in one consistent snapshot.

Nothing is written there: the transaction is READ ONLY. Values come as the texts that a dump has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from engine.foundation.errors import MustBe, RuleBroken, Unreachable
from pipelines.scheduler.importing.mysql_dump import Row

CONNECT_WAIT_S: Final = 5
READ_WAIT_S: Final = 60
ROWS_AT_ONCE: Final = 1_000
_NO_DRIVER: Final = "a server cannot be imported: `pip install tidemark[imports]` first"
_ALLOWED: Final = "mysql://USER@HOST:PORT/NAME or mariadb://…"


class Server:
    """The tables of one database, within one transaction."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def rows(self, table: str) -> Iterator[Row]:
        """The rows of a table, by its first column; none when there is no such table."""
        if not sa.inspect(self._connection).has_table(table):
            return
        found = self._connection.execution_options(yield_per=ROWS_AT_ONCE).execute(
            sa.text(f"SELECT * FROM `{table}` ORDER BY 1")  # noqa: S608 - one of ours
        )
        for row in found.mappings():
            yield {name.lower(): _text(value) for name, value in row.items()}

    def tables(self, names: Collection[str]) -> dict[str, list[Row]]:
        """All rows of some tables."""
        return {name: list(self.rows(name)) for name in names}


@contextmanager
def server(address: str, password: str | None) -> Iterator[Server]:
    """The database at an address. Raises ConfigError for what is no address, and Unreachable."""
    engine = _engine(address, password)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            yield Server(connection)
            connection.rollback()
    except SQLAlchemyError as error:
        why = " ".join(str(getattr(error, "orig", None) or error).split())
        raise Unreachable(f"the database that is to be imported cannot be read: {why}") from error
    finally:
        engine.dispose()


def _engine(address: str, password: str | None) -> sa.Engine:
    try:
        url = sa.make_url(address)
        if url.get_backend_name() not in {"mysql", "mariadb"} or not url.database:
            raise MustBe("import", "***", _ALLOWED)
        url = url.set(drivername="mysql+pymysql")
        if password is not None:
            url = url.set(password=password)
        waits: dict[str, Any] = {"connect_timeout": CONNECT_WAIT_S, "read_timeout": READ_WAIT_S}
        return sa.create_engine(
            url.update_query_dict({"charset": "utf8mb4"}),
            connect_args=waits,
            poolclass=sa.NullPool,
            hide_parameters=True,
        )
    except (ArgumentError, ValueError) as error:
        raise MustBe("import", "***", _ALLOWED) from error
    except ModuleNotFoundError as error:
        raise RuleBroken("import", "a server", _NO_DRIVER) from error


def _text(value: object) -> str | None:
    if value is None:
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
