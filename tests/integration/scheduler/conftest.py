"""One database of each kind for the tests of this folder, emptied before each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from pipelines.database.database import Database
from pipelines.scheduler.store import tables
from tests.integration.alerting.stores import postgresql_address, sqlite_address


@pytest.fixture(scope="package")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    opened = Database.at(sqlite_address(tmp_path_factory.mktemp("database")))
    yield opened
    opened.close()


@pytest.fixture(scope="package")
def on_postgresql() -> Iterator[Database]:
    with postgresql_address() as address:
        opened = Database.at(address)
        yield opened
        opened.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> Database:
    """One database of each kind for all tests, without rows."""
    opened: Database = request.getfixturevalue(f"on_{request.param}")
    with opened.writing() as connection:
        for table in tables.metadata.sorted_tables:
            if table is not tables.schedule_locks:
                connection.execute(sa.delete(table))
    return opened
