"""Row D2 (b): business key and result committed together are exactly once, also under kill -9, on
SQLite and PostgreSQL; the Redis guard is not, and this shows its window.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from engine.protocol.message import MessageExt
from tests.integration.client.cluster_users import eventually, producing, text
from tests.integration.client.database_servers import postgresql, redis_server
from tests.integration.client.stories import make_topic
from tests.interop.our_engine import OurEngine, our_engine

ROOT = Path(__file__).parents[3]
IDS = [f"payment-{number}" for number in range(5)]


@contextmanager
def cards_in_sqlite(folder: Path) -> Iterator[tuple[str, Callable[[], list[str]]]]:
    """Where the cards are, and a look at the payments they were issued for."""
    where = str(folder / "cards.db")

    def ask(statement: str) -> list[Any]:
        connection = sqlite3.connect(where)
        try:
            with connection:
                return connection.execute(statement).fetchall()
        finally:
            connection.close()

    ask("CREATE TABLE cards (payment_id TEXT)")
    yield where, lambda: [row[0] for row in ask("SELECT payment_id FROM cards")]


@contextmanager
def cards_in_postgresql(_folder: Path) -> Iterator[tuple[str, Callable[[], list[str]]]]:
    """As `cards_in_sqlite`."""
    with postgresql() as where:
        with psycopg.connect(where) as connection:
            connection.execute("CREATE TABLE cards (payment_id TEXT)")

        def cards() -> list[str]:
            with psycopg.connect(where) as connection:
                return [row[0] for row in connection.execute("SELECT payment_id FROM cards")]

        yield where, cards


@contextmanager
def cards_in_redis(_folder: Path) -> Iterator[tuple[str, Callable[[], list[str]]]]:
    """As `cards_in_sqlite`."""
    with redis_server() as port, redis.Redis(port=port) as client:
        yield str(port), lambda: [card.decode() for card in client.lrange("cards", 0, -1)]


STORES: dict[str, Callable[[Path], AbstractContextManager[tuple[str, Callable[[], list[str]]]]]] = {
    "sqlite": cards_in_sqlite,
    "postgresql": cards_in_postgresql,
    "redis": cards_in_redis,
}


@pytest.fixture(scope="module")
def guarded_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurEngine]:
    """An engine of this module's own: its delay level 1 is half a second."""
    folder = tmp_path_factory.mktemp("guarded")
    with our_engine(folder, "--set", "messageDelayLevel=500ms 1s 2s") as engine:
        yield engine


async def consumer_process(*arguments: str) -> asyncio.subprocess.Process:
    """A guarded consumer."""
    return await asyncio.create_subprocess_exec(
        *("setpriv", "--pdeathsig", "KILL", sys.executable),
        *("-m", "tests.integration.client.guarded_consumer", *arguments),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )


async def ended(process: asyncio.subprocess.Process) -> int:
    """Its exit code."""
    async with asyncio.timeout(60):
        code = await process.wait()
    process._transport.close()  # type: ignore[attr-defined]
    return code


async def play(engine: OurEngine, store: str, where: str) -> None:
    """Payments, some sent twice, and a consumer that is killed at both edges of its commit."""
    group = f"till-{store}"
    await make_topic(engine, group, queues=1)
    async with producing(engine.name_server, "payments") as producer:
        for payment in [*IDS, IDS[0], IDS[3]]:
            await producer.send(text(group, f"card for {payment}", KEYS=payment))
    arguments = (engine.name_server, group, store, where)
    for dies in ("before-commit", "after-commit"):
        assert await ended(await consumer_process(*arguments, dies)) == -9
    last = await consumer_process(*arguments, "never")
    assert last.stdout is not None
    seen: list[str] = []
    try:
        async with asyncio.timeout(60):  # One that was under work at a kill is seen once more.
            while len(seen) < len(IDS) + 2 or set(seen) != set(IDS):
                seen.append((await last.stdout.readline()).decode().strip())
    finally:
        last.terminate()
        await ended(last)


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_one_payment_one_card_whenever_the_consumer_is_killed(
    store: str, guarded_engine: OurEngine, tmp_path: Path
) -> None:
    with STORES[store](tmp_path) as (where, cards):
        asyncio.run(play(guarded_engine, store, where))
        assert sorted(cards()) == IDS


def test_killed_between_work_and_mark_the_redis_guard_issues_a_second_card(
    guarded_engine: OurEngine, tmp_path: Path
) -> None:
    with STORES["redis"](tmp_path) as (where, cards):
        asyncio.run(play(guarded_engine, "redis", where))
        issued = cards()
        assert sorted(dict.fromkeys(issued)) == IDS
        assert len(issued) > len(IDS), "were this exactly once, RedisGuard's words would be wrong"


async def test_the_example_of_the_paid_card_issues_one_card_for_each_payment(
    guarded_engine: OurEngine, tmp_path: Path
) -> None:
    place = ROOT / "docs" / "examples" / "paid_cards.py"
    spec = importlib.util.spec_from_file_location("paid_cards", place)
    assert spec is not None
    assert spec.loader is not None
    example: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.TOPIC = "paid-cards"
    database = str(tmp_path / "cards.db")
    asked_for: list[MessageExt] = []
    key_of = example.payment_id_of
    example.payment_id_of = lambda message: asked_for.append(message) or key_of(message)
    await make_topic(guarded_engine, example.TOPIC, queues=2)

    arrived = asyncio.create_task(eventually(lambda: len(asked_for) == 6, "all six notices arrive"))
    await example.main(guarded_engine.name_server, database, arrived)
    assert example.cards_of(database) == [(f"member-{n}", f"payment-{n}") for n in range(3)]
