"""SQL dialect and connection types for client modules that write to user databases.

Absent on purpose: drivers and connections. The user opens them and passes them in, so that nothing
is imported that is not used.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Protocol


class SqlDialect(Enum):
    """The databases whose rules are known here."""

    SQLITE = "?"
    POSTGRESQL = "%s"

    @property
    def parameter(self) -> str:
        """How a statement's parameter is written."""
        return self.value

    @property
    def bytes_type(self) -> str:
        """The type of a column that holds bytes."""
        return "BLOB" if self is SqlDialect.SQLITE else "BYTEA"


class SqlConnection(Protocol):
    """A DB-API connection that is not in autocommit mode: `sqlite3` or `psycopg`."""

    def cursor(self) -> Any:
        """A new cursor of this connection's transaction."""
        ...

    def commit(self) -> object:
        """End the transaction, keep what it wrote."""
        ...

    def rollback(self) -> object:
        """End the transaction, drop what it wrote."""
        ...

    def close(self) -> object:
        """Give the connection back."""
        ...
