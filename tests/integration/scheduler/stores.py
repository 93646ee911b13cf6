"""Databases and jobs as tests of the scheduler need them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from pipelines.database.database import Database
from pipelines.scheduler.job_settings import JobSettings
from pipelines.scheduler.run_life import FAILED, OK, RunEvent
from pipelines.scheduler.store import groups, jobs, passes, registry, results, sending
from pipelines.scheduler.store.audit import Change

NOW_MS = 1_780_000_000_000
SECOND_MS = 1_000
MINUTE_MS = 60_000
APP = "lag-reports"
ADDRESSES = tuple(f"http://10.0.0.{number}:9999/" for number in (1, 2, 3))
HOSTILE = "\x00\ud800\u202e<b>';DROP TABLE jobs--\n"


def settings(**fields: Any) -> JobSettings:
    each_minute = {"schedule_kind": "FIX_RATE", "schedule_text": "60", "handler": "report"}
    return JobSettings(**{"title": "a report"} | each_minute | fields)


def by(author: str = "ann", now_ms: int = NOW_MS) -> Change:
    return Change(author, now_ms)


def a_group(database: Database, addresses: Iterable[str] = ADDRESSES) -> int:
    """A group whose executors have just registered."""
    group_id = groups.add_group(database, APP, by())
    for address in addresses:
        registry.beat(database, APP, address, now_ms=NOW_MS)
    return group_id


def started(database: Database, group_id: int, **fields: Any) -> int:
    """A job that is active: its next time is a minute after NOW_MS."""
    job_id = jobs.add_job(database, group_id, settings(**fields), by())
    jobs.start_job(database, job_id, by())
    return job_id


@contextmanager
def refusing(database: Database, table: str, condition: str) -> Iterator[None]:
    """Meanwhile the database takes no row of the table that meets the condition, as by the hand of
    another user of it."""
    with database.reading() as connection:
        is_sqlite = connection.dialect.name == "sqlite"
    if is_sqlite:
        made = [
            f"CREATE TRIGGER refused_{event.lower()} BEFORE {event} ON {table} "
            f"WHEN {condition.replace('{row}', 'NEW.')} "
            "BEGIN SELECT RAISE(ABORT, 'refused by another hand'); END"
            for event in ("INSERT", "UPDATE")
        ]
        undone = ["DROP TRIGGER refused_insert", "DROP TRIGGER refused_update"]
    else:
        sql = condition.replace("{row}", "")
        made = [f"ALTER TABLE {table} ADD CONSTRAINT refused CHECK (NOT ({sql})) NOT VALID"]
        undone = [f"ALTER TABLE {table} DROP CONSTRAINT refused"]
    by_hand(database, *made)
    try:
        yield
    finally:
        by_hand(database, *undone)


def by_hand(database: Database, *statements: str) -> None:
    """SQL as another user of the database writes it."""
    with database.writing() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def send(
    database: Database, claims: Iterable[passes.Claim], now_ms: int, **fields: Any
) -> sending.Batch:
    numbers = count()
    return sending.begin_sending(
        database, claims, now_ms=now_ms, entropy=lambda: next(numbers), **fields
    )


def answered(database: Database, batch: sending.Batch, event: RunEvent, now_ms: int) -> None:
    code = OK if event is RunEvent.ACCEPT else FAILED
    sending.note_call_ends(
        database,
        [sending.CallEnd(one.log_id, one.token, event, code) for one in batch.sendings],
        now_ms=now_ms,
    )


def note_result(database: Database, log_id: int, code: int, now_ms: int) -> int:
    return results.note_results(database, [results.Result(log_id, code)], now_ms=now_ms)
