"""Inserts and upserts of rows that several processes may write at once.

Place in the walk: below whoever inserts. Deleting a row and inserting it anew does not do: two
transactions that both find nothing to delete both insert, and PostgreSQL refuses the second.

Absent on purpose: a database that is neither SQLite nor PostgreSQL; `Database.at` opens none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

Insert = postgresql.Insert | sqlite.Insert


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
