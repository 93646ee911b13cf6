"""Row G6: a PostgreSQL that stands still is given up, and answers when it goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from pipelines.database import bounded_server
from pipelines.database.database import SILENCE_WAIT_S, STATEMENT_WAIT_S, Database, StoreUnavailable
from tests.integration.alerting.stores import address_of
from tests.integration.client.database_servers import Stoppable, stoppable_postgresql

pytestmark = pytest.mark.timeout(120)
SILENCE_S = 1.0


@pytest.fixture
def server() -> Iterator[Stoppable]:
    with stoppable_postgresql() as one:
        yield one


@pytest.fixture
def database(server: Stoppable) -> Iterator[Database]:
    address = sa.make_url(address_of(server.address)).set(drivername="postgresql+psycopg")
    engine = sa.create_engine(address)
    bounded_server.bound(engine, silence_s=SILENCE_S)
    one = Database(engine)
    yield one
    one.close()


def asked(database: Database, question: str = "SELECT 1") -> object:
    with database.writing() as connection:
        return connection.scalar(sa.text(question))


def test_a_question_amid_a_transaction_has_an_end(server: Stoppable, database: Database) -> None:
    def half_done() -> None:
        with database.writing() as connection:
            connection.execute(sa.text("CREATE TABLE half_done (number INT)"))
            server.freeze()
            connection.execute(sa.text("SELECT 1"))

    with pytest.raises(StoreUnavailable, match="no answer for 1 s"):
        half_done()
    server.go_on()

    assert asked(database, "SELECT to_regclass('half_done')") is None


def test_a_connection_that_was_kept_is_tried_before_it_is_used(server: Stoppable) -> None:
    database = Database.at(address_of(server.address))
    assert asked(database) == 1
    server.freeze()
    with pytest.raises(StoreUnavailable, match="timeout expired"):
        asked(database)
    server.go_on()

    assert asked(database) == 1
    database.close()


def test_who_says_something_now_and_then_is_not_silent(database: Database) -> None:
    slowly = "FOR turn IN 1..5 LOOP PERFORM pg_sleep(0.4); RAISE NOTICE 'at work'; END LOOP;"
    began_s = time.monotonic()
    with database.writing() as within:
        within.execute(sa.text(f"DO $$ BEGIN {slowly} END $$"))
    assert time.monotonic() - began_s > SILENCE_S


def test_a_server_has_the_time_to_say_itself_that_a_question_was_too_long() -> None:
    assert SILENCE_WAIT_S > STATEMENT_WAIT_S
