"""Row D5: a message written with the work is sent, whoever dies where; copies carry one key.

The process "dies" by an exception that nothing holds up, before and after every statement, commit
and send; SQLite and PostgreSQL, and a broker of its own process.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from engine.client import Producer, SendResult
from engine.client.outbox.outbox_table import OutboxTable
from engine.client.outbox.sending import OutboxRun, send_outbox
from engine.client.sql import SqlConnection, SqlDialect
from engine.foundation.errors import ConfigError
from engine.foundation.limits import BODY_BYTES_MAX, OUTBOX_REFUSALS_MAX
from engine.protocol.message import Message, MessageExt
from engine.runtime import system_runtime
from pipelines.scheduler.executor import JobContext
from tests.integration.alerting.stores import emptied, postgresql_address
from tests.integration.client.cluster_users import (
    Seen,
    client_config,
    consuming,
    eventually,
    producing,
)
from tests.integration.client.stories import make_topic
from tests.interop.our_engine import OurEngine, our_engine

ROOT = Path(__file__).parents[3]
KEYS = ("order-a", "order-b")


class Died(BaseException):
    """The process is gone; no handler may hold it up."""


class Life:
    """Does so many steps, then it is over."""

    def __init__(self, steps: int = 1_000_000) -> None:
        self.left = steps

    def step(self) -> None:
        if self.left == 0:
            raise Died
        self.left -= 1

    @contextmanager
    def steps(self) -> Iterator[None]:
        """Something that may never begin, or end without anybody hearing of it."""
        self.step()
        yield
        self.step()


class MortalCursor:
    """A cursor whose statements are steps of a life."""

    def __init__(self, cursor: Any, life: Life) -> None:
        self._cursor, self._life = cursor, life

    def execute(self, *statement: Any) -> object:
        with self._life.steps():
            return self._cursor.execute(*statement)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


class MortalConnection:
    """A connection whose statements and commits are steps of a life; the dead commit nothing."""

    def __init__(self, connection: Any, life: Life) -> None:
        self._connection, self._life = connection, life
        self._cursors: list[Any] = []
        self.rollback = connection.rollback

    def cursor(self) -> MortalCursor:
        self._cursors.append(self._connection.cursor())
        return MortalCursor(self._cursors[-1], self._life)

    def close(self) -> None:
        for cursor in self._cursors:  # Else what it has not read to its end keeps the file locked,
            cursor.close()  # which the end of a process would not.
        self._connection.close()

    def commit(self) -> None:
        with self._life.steps():
            self._connection.commit()


class MortalProducer(Producer):
    """A producer whose sends are steps of a life."""

    life = Life()

    async def send(self, message: Message, **place: Any) -> SendResult:
        with self.life.steps():
            return await super().send(message, **place)


class Shop:
    """Orders, and the outbox beside them."""

    def __init__(self, connect: Callable[[], Any], dialect: SqlDialect) -> None:
        self.connect, self.dialect = connect, dialect
        self.table(Life()).prepare()
        with closing(connect()) as connection:
            connection.cursor().execute("CREATE TABLE orders (number TEXT PRIMARY KEY)")
            connection.commit()

    def table(self, life: Life) -> OutboxTable:
        def mortal() -> SqlConnection:
            return MortalConnection(self.connect(), life)

        return OutboxTable(system_runtime(), mortal, self.dialect)

    def order(self, life: Life, topic: str, key: str, number: int) -> None:
        """The business: an order and its message, in one transaction."""
        connection = MortalConnection(self.connect(), life)
        place = self.dialect.parameter
        try:
            cursor = connection.cursor()
            cursor.execute(f"INSERT INTO orders VALUES ({place})", (f"{key}:{number}",))
            message = Message(topic, json.dumps([key, number]).encode())
            message.keys = key
            self.table(life).write(cursor, message)
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
        finally:
            connection.close()

    def orders(self) -> list[str]:
        return [row[0] for row in self.ask("SELECT number FROM orders")]

    def ask(self, statement: str) -> list[Any]:
        with closing(self.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            rows = list(cursor.fetchall()) if cursor.description else []
            connection.commit()
        return rows

    def leases_end(self) -> None:
        """As when half a minute has passed."""
        self.ask("UPDATE outbox_messages SET due_ms = 0 WHERE state = 'WAITING'")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurEngine]:
    with our_engine(tmp_path_factory.mktemp("outbox")) as engine:
        yield engine


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgresql_address() as address:
        yield address


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(lambda: sqlite3.connect(tmp_path / "shop.db"), SqlDialect.SQLITE)


@pytest.fixture(params=[SqlDialect.SQLITE, SqlDialect.POSTGRESQL], ids=lambda dialect: dialect.name)
def shop_of_either(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    if request.param is SqlDialect.SQLITE:
        return Shop(lambda: sqlite3.connect(tmp_path / "shop.db"), SqlDialect.SQLITE)
    address = emptied(request.getfixturevalue("server"))
    return Shop(lambda: psycopg.connect(address), SqlDialect.POSTGRESQL)


async def once(shop: Shop, producer: Producer, life: Life, **limits: int) -> OutboxRun:
    return await send_outbox(system_runtime(), shop.table(life), producer, **limits)


async def read_back(engine: OurEngine, topic: str, count: int) -> list[MessageExt]:
    """What the topic holds, as soon as that many different ones of it were read."""
    seen = Seen()
    async with consuming(engine.name_server, f"reads-{topic}", {topic: seen}):
        await eventually(lambda: len(set(seen.bodies)) >= count, f"{count} messages of {topic}")
    return sorted(seen.messages, key=lambda message: (message.queue_id, message.queue_offset))


async def test_whoever_dies_at_whatever_step_each_order_is_sent_and_in_its_place(
    shop: Shop, engine: OurEngine
) -> None:
    await each_order_is_sent(shop, engine)


@pytest.mark.slow
async def test_whoever_dies_so_it_is_with_a_server_of_databases(
    server: str, engine: OurEngine
) -> None:
    address = emptied(server)
    await each_order_is_sent(Shop(lambda: psycopg.connect(address), SqlDialect.POSTGRESQL), engine)


async def each_order_is_sent(shop: Shop, engine: OurEngine) -> None:
    """The business and the sender die at each of their steps, one after the other, and go on."""
    topic = f"orders-{shop.dialect.name}".lower()
    await make_topic(engine, topic, queues=2)
    producer = MortalProducer(system_runtime(), client_config(engine.name_server), "shop")
    await producer.start()
    numbers = dict.fromkeys(KEYS, 0)
    steps = deaths_of_business = deaths_of_sender = 0
    while True:
        life = MortalProducer.life = Life(steps)
        try:
            for key in KEYS:
                numbers[key] += 1
                shop.order(life, topic, key, numbers[key])
        except Died:
            deaths_of_business += 1
            steps += 1
            continue
        for key in KEYS:  # Something behind the first row of each key.
            numbers[key] += 1
            shop.order(Life(), topic, key, numbers[key])
        try:
            run = await once(shop, producer, life)
        except (Died, BaseExceptionGroup):  # A group of the dead, and of nobody else.
            deaths_of_sender += 1
            steps += 1
            shop.leases_end()
            MortalProducer.life = Life()
            await once(shop, producer, Life())
        else:
            break
    assert (run.failed, run.standing.waiting, run.standing.poison) == (0, 0, 0)
    assert deaths_of_business == 12, "begun and ended: two orders, of two statements and a commit"
    assert deaths_of_sender > 40
    committed = shop.orders()
    claims = shop.ask("SELECT sum(claims) FROM outbox_messages WHERE state = 'SENT'")[0][0]
    messages = await read_back(engine, topic, len(committed))
    await producer.stop()

    arrived = [(message.keys, *json.loads(message.body)) for message in messages]
    assert {f"{key}:{number}" for _, key, number in arrived} == set(committed), (
        "none lost or invented"
    )
    assert all(business_key == key for business_key, key, _ in arrived)
    ids: dict[str, set[str | None]] = {}
    for message in messages:
        ids.setdefault(bytes(message.body).decode(), set()).add(message.uniq_key)
    assert all(len(copies) == 1 for copies in ids.values()), "copies carry one UNIQ_KEY"
    assert len(committed) < len(arrived) <= claims, "some were sent twice, and all such are counted"
    sys.stdout.write(
        f"{deaths_of_business + deaths_of_sender} deaths, {len(committed)} orders, "
        f"{len(arrived)} messages\n"
    )
    for key in KEYS:
        in_order = [number for _, of_key, number in arrived if of_key == key]
        assert in_order == sorted(in_order), "copies stand beside each other"


async def test_a_row_that_no_broker_takes_is_refused_and_holds_up_only_its_own_key(
    shop: Shop, engine: OurEngine
) -> None:
    topic = f"poison-{shop.dialect.name}".lower()
    await make_topic(engine, topic, queues=1)
    table = shop.table(Life())
    written = [("fat", b"x" * (BODY_BYTES_MAX + 1)), ("fat", b"behind it"), ("thin", b"beside it")]
    with closing(shop.connect()) as connection:
        cursor = connection.cursor()
        for key, body in written:
            table.write(cursor, Message(topic, body, {"KEYS": key}))
        connection.commit()
    async with producing(engine.name_server, "shop") as producer:
        runs = []
        for _ in range(3):
            runs.append(await once(shop, producer, Life()))
            shop.leases_end()
            if runs[-1].standing.poison:  # On a slow machine one run tries it twice.
                break
        assert [run.sent for run in runs] == [1, 0, 0][: len(runs)]
        (held,) = runs[-1].poison
        assert (held.topic, held.business_key) == (topic, "fat")
        assert "4194304" in held.error.replace(",", "")
        assert str(runs[-1]) == "0 sent, 1 not yet, 1 waiting, 1 poison"

        assert table.send_again(held.row_id)
        assert not table.send_again(held.row_id), "it waits again already"
        for _ in range(3):
            shop.leases_end()
            await once(shop, producer, Life())
        assert table.drop(held.row_id)
        assert str(await once(shop, producer, Life())) == "1 sent, 0 not yet, 0 waiting"
    assert [bytes(m.body) for m in await read_back(engine, topic, 2)] == [
        b"beside it",
        b"behind it",
    ]
    assert table.forget_before(1 << 50) == 3


async def test_rows_of_before_that_no_broker_gives_to_consumers_are_poison_and_are_not_sent(
    shop: Shop, engine: OurEngine
) -> None:
    topic = f"before-{shop.dialect.name}".lower()
    await make_topic(engine, topic, queues=1)
    table = shop.table(Life())
    wrong = {"system": "SCHEDULE_TOPIC_XXXX", "illegal": "or/ders", "half": topic}
    with closing(shop.connect()) as connection:
        cursor = connection.cursor()
        for key in (*wrong, "right"):
            table.write(cursor, Message(topic, b"x", {"KEYS": key}))
        for key, of in wrong.items():
            half = json.dumps({"KEYS": key} | ({"TRAN_MSG": "true"} if key == "half" else {}))
            row = (of, half, key)
            mark = "?" if shop.dialect is SqlDialect.SQLITE else "%s"
            change = f"topic = {mark}, properties = {mark} WHERE business_key = {mark}"
            cursor.execute(f"UPDATE outbox_messages SET {change}", row)
        connection.commit()
    sent = 0
    async with producing(engine.name_server, "shop") as producer:
        for _ in range(OUTBOX_REFUSALS_MAX):
            run = await once(shop, producer, Life())
            sent += run.sent
            shop.leases_end()
    assert (sent, run.standing.waiting, run.standing.poison) == (1, 0, 3)
    errors = {held.business_key: held.error for held in table.poison()}
    assert "brokers alone write this" in errors["system"]
    assert "half message" in errors["half"]
    assert [message.keys for message in await read_back(engine, topic, 1)] == ["right"]


async def test_rows_outlast_a_cluster_that_is_gone_and_a_run_has_an_end(
    shop: Shop, engine: OurEngine
) -> None:
    topic = f"gone-{shop.dialect.name}".lower()
    await make_topic(engine, topic, queues=1)
    for number in range(5):
        shop.order(Life(), topic, KEYS[0], number)
    async with producing("127.0.0.1:1", "shop") as producer:
        for _ in range(4):
            shop.leases_end()
            run = await once(shop, producer, Life())
            assert (run.sent, run.failed, run.standing.waiting) == (0, 1, 5)
    (due_ms, written_ms, row) = shop.ask(
        "SELECT due_ms, written_ms, told FROM outbox_messages ORDER BY row_id"
    )[0]
    assert due_ms - written_ms > 8_000, "8 s after the fourth failure"
    assert row
    async with producing(engine.name_server, "shop") as producer:
        assert (await once(shop, producer, Life())).sent == 0, "nor is a row behind it sent"
        shop.leases_end()
        assert (await once(shop, producer, Life(), rows_max=3)).sent == 3
        assert (await once(shop, producer, Life())).sent == 2


async def test_two_senders_at_once_send_each_row_once(
    shop_of_either: Shop, engine: OurEngine
) -> None:
    shop = shop_of_either
    topic = f"pair-{shop.dialect.name}".lower()
    await make_topic(engine, topic, queues=2)
    for number in range(40):
        shop.order(Life(), topic, f"order-{number % 8}", number)
    async with producing(engine.name_server, "shop") as producer:
        runs = await asyncio.gather(*(once(shop, producer, Life()) for _ in range(2)))
        runs.append(await once(shop, producer, Life()))
    assert sum(run.sent for run in runs) == 40
    assert not any(run.lost_claims or run.failed for run in runs)
    messages = await read_back(engine, topic, 40)
    arrived = [json.loads(message.body) for message in messages]
    for key in {key for key, _ in arrived}:
        numbers = [number for of_key, number in arrived if of_key == key]
        assert numbers == sorted(set(numbers))


def test_what_cannot_be_kept_with_the_work_is_refused(shop: Shop) -> None:
    table = shop.table(Life())
    with closing(shop.connect()) as connection:
        with pytest.raises(ConfigError, match="business key"):
            table.write(connection.cursor(), Message("t", b"x"))
        connection.isolation_level = None
        with pytest.raises(ConfigError, match="autocommit"):
            table.write(connection.cursor(), Message("t", b"x", {"KEYS": "k"}))


def test_so_it_is_with_a_server_of_databases(server: str) -> None:
    address = emptied(server)
    shop = Shop(lambda: psycopg.connect(address), SqlDialect.POSTGRESQL)
    with (
        closing(psycopg.connect(address, autocommit=True)) as connection,
        pytest.raises(ConfigError, match="autocommit"),
    ):
        shop.table(Life()).write(connection.cursor(), Message("t", b"x", {"KEYS": "k"}))


async def test_the_job_of_the_example_sends_and_fails_while_there_is_poison(
    shop: Shop, engine: OurEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "examples"))
    monkeypatch.setenv("OUTBOX_NAME_SERVER", engine.name_server)
    monkeypatch.setenv("OUTBOX_DATABASE", str(tmp_path / "example.db"))
    example: Any = importlib.import_module("outbox_job")
    await make_topic(engine, example.TOPIC, queues=2)
    table = example.outbox_of(str(tmp_path / "example.db"))
    for number in range(4):
        example.take_order(str(tmp_path / "example.db"), table, f"customer-{number % 2}")

    def job() -> JobContext:
        now = datetime(2026, 3, 1, tzinfo=UTC)
        context = JobContext(1, 1, "", now, now, True, 0, 1, _write=lines.append)
        example.send_outbox_job(context)
        return context

    lines: list[str] = []
    done = await asyncio.to_thread(job)
    assert (done.code, done.message) == (200, "4 sent, 0 not yet, 0 waiting")
    messages = await read_back(engine, example.TOPIC, 4)
    orders = [(json.loads(message.body)["order"], message.keys) for message in messages]
    assert sorted(orders) == [(n + 1, f"customer-{n % 2}") for n in range(4)]

    with closing(sqlite3.connect(tmp_path / "example.db")) as connection:
        table.write(connection.cursor(), Message(example.TOPIC, b"", {"KEYS": "nobody"}))
        connection.commit()
    while not table.poison():
        failed = await asyncio.to_thread(job)
        with closing(sqlite3.connect(tmp_path / "example.db")) as connection:
            connection.execute("UPDATE outbox_messages SET due_ms = 0 WHERE state = 'WAITING'")
            connection.commit()
    assert failed.code == 500
    assert any("key nobody" in line for line in lines)
