"""The guard by itself: one transaction for key and result, and what it refuses.

Feature rows: D2 (b).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from engine.client.consuming.idempotence import RedisGuard, SqlGuard, once_per_key
from engine.client.consuming.listeners import ConsumeConcurrentlyStatus, ConsumeContext
from engine.client.sql import SqlDialect
from engine.foundation.errors import ClusterError, ConfigError, KeyReused
from engine.foundation.limits import GUARD_KEYS_KEPT_MS
from engine.protocol.message import MessageExt, MessageQueue
from engine.runtime import system_runtime


@pytest.fixture
def database(tmp_path: Path) -> str:
    """A file with an empty table of results."""
    place = str(tmp_path / "results.db")
    connection = sqlite3.connect(place)
    connection.execute("CREATE TABLE results (value TEXT)")
    connection.commit()
    connection.close()
    return place


def guard_of(database: str, **settings: Any) -> SqlGuard:
    guard = SqlGuard(lambda: sqlite3.connect(database, **settings), "till", SqlDialect.SQLITE)
    guard.prepare()
    return guard


def writing(value: str) -> Callable[[Any], None]:
    return lambda cursor: cursor.execute("INSERT INTO results VALUES (?)", (value,))


def rows(database: str, table: str = "results") -> list[Any]:
    connection = sqlite3.connect(database)
    try:
        return connection.execute(f"SELECT * FROM {table}").fetchall()
    finally:
        connection.close()


def test_the_second_arrival_of_a_key_does_nothing(database: str) -> None:
    guard = guard_of(database)
    assert guard.once("k", b"paid", writing("card"), now_ms=1)
    assert not guard.once("k", b"paid", writing("card"), now_ms=2)
    assert rows(database) == [("card",)]
    other = SqlGuard(lambda: sqlite3.connect(database), "another scope", SqlDialect.SQLITE)
    assert other.once("k", b"paid", writing("other"), now_ms=3)


def test_work_that_fails_leaves_neither_key_nor_result(database: str) -> None:
    guard = guard_of(database)

    def fails(cursor: Any) -> None:
        writing("half")(cursor)
        raise OSError("no paper")

    with pytest.raises(OSError, match="no paper"):
        guard.once("k", b"paid", fails, now_ms=1)
    assert rows(database) == rows(database, "consumed_keys") == []
    assert guard.once("k", b"paid", writing("card"), now_ms=2)


def test_a_known_key_with_another_content_is_refused(database: str) -> None:
    guard = guard_of(database)
    guard.once("k", b"pay 7", writing("card"), now_ms=1)
    with pytest.raises(KeyReused, match="'k' of till was consumed with another content"):
        guard.once("k", b"pay 8", writing("card"), now_ms=2)
    assert rows(database) == [("card",)]


def test_a_connection_that_commits_by_itself_is_refused_before_the_work(database: str) -> None:
    guard = guard_of(database, isolation_level=None)
    with pytest.raises(ConfigError, match="one transaction"):
        guard.once("k", b"", writing("card"), now_ms=1)
    assert rows(database) == []


def test_of_many_at_once_with_one_key_one_does_the_work(database: str) -> None:
    guard = guard_of(database, timeout=30)
    with ThreadPoolExecutor(8) as pool:
        done = list(
            pool.map(lambda _: guard.once("k", b"paid", writing("card"), now_ms=1), range(16))
        )
    assert sorted(done) == [False] * 15 + [True]
    assert rows(database) == [("card",)]


def test_keys_are_forgotten_after_their_time(database: str) -> None:
    guard = guard_of(database)
    for number in range(3):
        guard.once(f"{number}", b"", writing(f"{number}"), now_ms=number)
    assert guard.forget_before(2) == 2
    assert guard.once("0", b"", writing("again"), now_ms=GUARD_KEYS_KEPT_MS)


def message(body: bytes, **properties: str) -> MessageExt:
    return MessageExt("paid", body, dict(properties))


def test_a_batch_is_acknowledged_up_to_the_message_that_failed(database: str) -> None:
    guard = guard_of(database)

    def work(received: MessageExt, cursor: Any) -> None:
        if received.body == b"bad":
            raise ValueError("bad")
        writing(received.body.decode())(cursor)

    listen: Any = once_per_key(system_runtime(), guard, lambda m: m.keys, work)
    context = ConsumeContext(MessageQueue("paid", "b", 0))
    batch = [message(b"1", KEYS="1"), message(b"bad", KEYS="2"), message(b"3", KEYS="3")]
    answer = asyncio.run(listen(batch, context))
    assert answer is ConsumeConcurrentlyStatus.CONSUME_SUCCESS
    assert context.ack_index == 0
    assert rows(database) == [("1",)]
    with pytest.raises(ValueError, match="bad"):
        asyncio.run(listen(batch[1:], context))
    with pytest.raises(ConfigError, match="without one it is unguarded"):
        asyncio.run(listen([message(b"x")], context))


class RedisOfOne:
    """The three commands that the guard uses, without expiry; `decoding` answers in text."""

    def __init__(self, *, decoding: bool) -> None:
        self.held: dict[str, bytes] = {}
        self._decoding = decoding

    def set(self, name: str, value: str, *, px: int, nx: bool = False) -> bool:
        if nx and name in self.held:
            return False
        self.held[name] = value.encode()
        return True

    def get(self, name: str) -> bytes | str | None:
        found = self.held.get(name)
        return found.decode() if found is not None and self._decoding else found

    def delete(self, name: str) -> None:
        self.held.pop(name, None)


@pytest.mark.parametrize("decoding", [False, True])
def test_the_redis_guard_skips_what_is_done_and_waits_for_what_is_claimed(decoding: bool) -> None:
    redis = RedisOfOne(decoding=decoding)
    worked: list[Any] = []
    guard = RedisGuard(redis, "till")
    assert guard.once("k", b"paid", worked.append, now_ms=1)
    assert not guard.once("k", b"paid", worked.append, now_ms=1)
    with pytest.raises(KeyReused):
        guard.once("k", b"other", worked.append, now_ms=1)
    redis.held["consumed:till:mine"] = b"claimed"
    with pytest.raises(ClusterError, match="is claimed"):
        guard.once("mine", b"paid", worked.append, now_ms=1)
    assert worked == [redis]

    def fails(_handle: Any) -> None:
        raise OSError("printer")

    with pytest.raises(OSError, match="printer"):
        guard.once("l", b"paid", fails, now_ms=1)
    assert guard.once("l", b"paid", worked.append, now_ms=1)


@pytest.mark.parametrize("setting", ["lease_ms", "kept_ms"])
def test_a_redis_guard_without_time_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match=f"{setting}=0"):
        RedisGuard(RedisOfOne(decoding=False), "till", **{setting: 0})
