"""Opens and migrates the database that holds all state outside the lake.

It migrates the tables to this version and maps its errors to ours, grouped by what the caller can
do about them. SQLite keeps a write-ahead log, syncs each commit and waits LOCK_WAIT_S for a lock,
which a writing transaction takes at its beginning, so that none fails half-way for having read
first. PostgreSQL has the same bound; one that falls silent is given up (`bounded_server`).

Invariant: migrations run under a lock and in one transaction: of several processes that open a new
database one makes the tables, and a killed one leaves none. Absent on purpose: retries, a way back,
and parameters or passwords in the text of an error.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from engine.foundation.errors import ClusterError, ConfigError, StorageError
from pipelines.database.migrations import NEWEST, VERSIONS
from pipelines.database.sqlite_file import SqliteFile

FILE_NAME: Final = "tidemark.db"
LOCK_WAIT_S: Final = 5
"""How long somebody else may hold a lock before the database counts as locked."""

CONNECT_WAIT_S: Final = 5
STATEMENT_WAIT_S: Final = 30
SILENCE_WAIT_S: Final = STATEMENT_WAIT_S + 5
"""A server says within STATEMENT_WAIT_S what came of a question; later it is stopped or cut off."""

CONNECTIONS_MAX: Final = 5
"""Of one process; who finds none free waits LOCK_WAIT_S."""

_MIGRATING: Final = 7_420_563_018_112
"""Number of the advisory lock under which PostgreSQL databases are migrated."""

_BUGS: Final = (sa.exc.ProgrammingError, sa.exc.IntegrityError, sa.exc.DataError)
_NO_TABLES: Final = ("42P01", "3F000")
"""PostgreSQL has no such table, or schema: those of this version were there, so they were taken
away since, as by who brings back a dump. SQLite has no word of its own for it."""

_ALLOWED: Final = "sqlite:///PATH or postgresql://USER@HOST:PORT/NAME"
HOME: Final = "TIDEMARK_HOME"
"""The variable that names the home folder."""
Insert = postgresql.Insert | sqlite.Insert


class StoreUnavailable(StorageError):
    """The database is locked, gone or full. Nothing is half done; whether a transaction that was
    just being committed is there is unknown: load again, decide again, and store what is new.
    """


class StoreTooNew(StorageError):
    """The database was changed by a later version of Tidemark, which this one does not know."""


class LeadHeld(ClusterError):
    """Another process leads; the message says which. `sight` is what was seen of its lease."""

    def __init__(self, message: str, sight: tuple[int, int, int]) -> None:
        super().__init__(message)
        self.sight = sight


class LeadLost(ClusterError):
    """Another process took the lead over: what this one decided is not stored."""


class _Undone(Exception):
    """Ends the transaction of a rehearsal."""


class Database:
    """An open database. Its methods may block: call them beside an event loop."""

    def __init__(
        self,
        engine: sa.Engine,
        file: SqliteFile | None = None,
        *,
        is_trial: bool = False,
        within: sa.Connection | None = None,
    ) -> None:
        """`file`: that of a SQLite database. `within`: the transaction of a rehearsal, of which all
        others are parts."""
        self._file: Final = file
        self._reader: Final = engine
        self._writer: Final = engine.execution_options(tidemark_writes=True)
        self._within: Final = within
        self.is_trial: Final = is_trial

    @classmethod
    def at(cls, address: str) -> Database:
        """Open the database at this address, and bring its tables to this version.

        Raises ConfigError for an address that is none, StoreUnavailable when nobody answers there,
        and StoreTooNew for tables of a later version.
        """
        database = cls(*_engine(address))
        try:
            with database.writing() as connection:
                _migrate(connection)
        except BaseException:
            database.close()
            raise
        if database._file is not None:
            database._file.is_made()
        return database

    @classmethod
    def in_folder(cls, home: Path) -> Database:
        """The SQLite database of a home folder, which only its owner may read."""
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreUnavailable(f"{home} cannot be made ({error.strerror})") from error
        return cls.at(f"sqlite:///{home / FILE_NAME}")

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """One transaction that sees one moment on SQLite, and committed rows on PostgreSQL."""
        if self._within is not None:
            with _as_ours():
                yield self._within
            return
        with _as_ours(), self._reader.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """One transaction, committed at the end of the block, undone when that raises."""
        if self._within is not None:
            with _as_ours(), self._within.begin_nested():
                yield self._within
            return
        with _as_ours(), self._writer.begin() as connection:
            yield connection

    @contextmanager
    def rehearsal(self) -> Iterator[Database]:
        """The same database, all of whose transactions are parts of one that is undone at the end
        of the block: what takes several steps is tried, and read back, before it is undone. Others
        wait for their turn to write meanwhile. Use it in one thread.
        """
        with suppress(_Undone), self._in_one(is_trial=True) as rehearsed:
            yield rehearsed
            raise _Undone

    def together(self) -> AbstractContextManager[Database]:
        """The same, committed at the end of the block, and undone when that raises."""
        return self._in_one(is_trial=False)

    @contextmanager
    def _in_one(self, *, is_trial: bool) -> Iterator[Database]:
        with _as_ours(), self._writer.begin() as connection:
            yield Database(self._reader, self._file, is_trial=is_trial, within=connection)

    @property
    def opened(self) -> int:
        """Another number than before: another database may be there, and what was known of the
        first must be read anew. Of a server's it stays."""
        return 0 if self._file is None else self._file.opened

    def close(self) -> None:
        """Give the connections back."""
        self._reader.dispose()


@contextmanager
def _as_ours() -> Iterator[None]:
    """Errors of the database as StoreUnavailable, but for those that are bugs of ours."""
    try:
        yield
    except DBAPIError as error:
        if isinstance(error, _BUGS) and getattr(error.orig, "sqlstate", "") not in _NO_TABLES:
            raise
        text = " ".join(str(error.orig).split())
        raise StoreUnavailable(f"the database does not do what it is asked: {text}") from error
    except sa.exc.TimeoutError as error:
        raise StoreUnavailable("all connections to the database are in use") from error


def _engine(address: str) -> tuple[sa.Engine, SqliteFile | None]:
    try:
        url = sa.make_url(address)
        if url.get_backend_name() == "sqlite":
            return _sqlite(url)
        if url.get_backend_name() == "postgresql":
            return _postgresql(url), None
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise ConfigError("database", "***", _ALLOWED) from error
    except ModuleNotFoundError as error:
        raise ConfigError(
            "database", url.get_backend_name(), "PostgreSQL needs `pip install tidemark[guards]`"
        ) from error
    raise ConfigError("database", url.get_backend_name(), _ALLOWED)


def _sqlite(url: sa.URL) -> tuple[sa.Engine, SqliteFile]:
    if url.drivername not in {"sqlite", "sqlite+pysqlite"} or url.query:
        raise ConfigError("database", url.drivername, _ALLOWED)
    if not url.database or url.database == ":memory:":
        raise ConfigError("database", "in memory", "a file: what was decided outlives its process")
    file = SqliteFile(Path(url.database), lock_wait_s=LOCK_WAIT_S)
    engine = file.engine(connections_max=CONNECTIONS_MAX)
    event.listen(engine, "connect", lambda connection, _: file.write_ahead(connection))
    event.listen(engine, "connect", _sync_each_commit)
    event.listen(engine, "begin", _begin_sqlite)
    return engine, file


def _sync_each_commit(connection: sqlite3.Connection, _: object) -> None:
    connection.execute("PRAGMA synchronous=FULL").close()


def _begin_sqlite(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("tidemark_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _postgresql(url: sa.URL) -> sa.Engine:
    if url.drivername not in {"postgresql", "postgresql+psycopg"}:
        raise ConfigError("database", url.drivername, _ALLOWED)
    bounds = {
        "lock_timeout": LOCK_WAIT_S,
        "statement_timeout": STATEMENT_WAIT_S,
        "idle_in_transaction_session_timeout": STATEMENT_WAIT_S,
    }
    options = " ".join(f"-c {name}={seconds}s" for name, seconds in bounds.items())
    from pipelines.database import bounded_server  # noqa: PLC0415 - only who uses it has it

    engine = sa.create_engine(
        url.set(drivername="postgresql+psycopg"),
        connect_args={
            "connect_timeout": CONNECT_WAIT_S,
            "options": options,
            **bounded_server.SOCKET_BOUNDS,
        },
        pool_size=CONNECTIONS_MAX,
        max_overflow=0,
        pool_timeout=LOCK_WAIT_S,
        pool_pre_ping=True,
        hide_parameters=True,
    )
    bounded_server.bound(engine, silence_s=SILENCE_WAIT_S)
    return engine


def _migrate(connection: sa.Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATING)))
    if _revisions(connection) == {NEWEST}:
        return
    # What only a migration needs takes each command a tenth of its time to load.
    from pipelines.database.migrating import migrate  # noqa: PLC0415

    migrate(connection)


def _revisions(connection: sa.Connection) -> set[str]:
    """Which versions the tables say that they are of: one, or none in a new database."""
    if not sa.inspect(connection).has_table(VERSIONS):
        return set()
    rows = connection.execute(
        sa.select(sa.column("version_num", sa.String())).select_from(sa.table(VERSIONS))
    )
    return set(rows.scalars())


def now_us() -> int:
    """µs since 1970, by the clock of this machine."""
    return time.time_ns() // 1000


def home_folder() -> Path:
    """Where state is kept that is not the lake's."""
    return Path(os.environ.get(HOME) or Path.home() / ".tidemark")


def opened(database: str | None) -> Database:
    """The database at an address, else that of the home folder; as `Database` raises."""
    return Database.in_folder(home_folder()) if database is None else Database.at(database)


def insert_missing(connection: sa.Connection, table: sa.Table) -> Insert:
    """An insertion that leaves alone what is there by any of the table's unique keys."""
    return _insert(connection, table).on_conflict_do_nothing()


def upsert(connection: sa.Connection, table: sa.Table, row: Mapping[str, Any]) -> Insert:
    """An insertion that makes the row of the same primary key what it is given to be."""
    key = [column.name for column in table.primary_key]
    made = _insert(connection, table).values(row)
    values = {name: made.excluded[name] for name in row if name not in key}
    return made.on_conflict_do_update(index_elements=key, set_=values)


def _insert(connection: sa.Connection, table: sa.Table) -> Insert:
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)
