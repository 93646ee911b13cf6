"""Databases, alerts and notices as tests of alerting need them."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from pipelines.alerting.alerts import Alert, Notice, State, fingerprint_of
from tests.integration.client.database_servers import postgresql
from tests.sqlite_databases import laid_in

LAKE = "file:///lake"
NOW_US = 1_780_000_000_000_000
SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US


@contextmanager
def postgresql_address() -> Iterator[str]:
    """A new database on a running PostgreSQL, as the address that a user would give."""
    server, name = _server_of_all(), f"tests_{next(_NUMBERS)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            yield address_of(server.replace("dbname=postgres", f"dbname={name}"))
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


_NUMBERS = count()


@cache
def _server_of_all() -> str:
    """One server for all tests of a process: to make one takes a second, a database in it 0.1."""
    held = ExitStack()
    atexit.register(held.close)
    return held.enter_context(postgresql())


def address_of(text: str) -> str:
    """What psycopg connects with, as a user would write it."""
    parts = dict(part.split("=") for part in text.split())
    return f"postgresql://{parts['user']}@{parts['host']}:{parts['port']}/{parts['dbname']}"


def emptied(address: str) -> str:
    """The same PostgreSQL without any table."""
    with psycopg.connect(address) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return address


def sqlite_address(folder: Path) -> str:
    return laid_in(folder)


def an_alert(queue: int = 0, **changed: Any) -> Alert:
    """A stall of one queue."""
    labels = {"cluster": "shop", "group": "payments", "queue": str(queue)}
    fields: dict[str, Any] = {
        "fingerprint": fingerprint_of("StalledWindow", labels),
        "rule": "StalledWindow",
        "severity": "critical",
        "owner": "payments-team",
        "labels": labels,
        "annotations": {"summary": f"queue {queue} stands still"},
        "figures": {"messages": 57, "time_lag_s": 12.5, "head": None},
        "state": State.FIRING,
        "reason": "",
        "active_at_us": NOW_US - 60 * SECOND_US,
        "fired_at_us": NOW_US - 30 * SECOND_US,
        "resolved_at_us": None,
        "last_true_us": NOW_US,
    }
    return Alert(**fields | changed)


def resolved(alert_of_queue: int = 0) -> Alert:
    return an_alert(alert_of_queue, state=State.RESOLVED, resolved_at_us=NOW_US)


def a_notice(notice_id: str = "n1", **changed: Any) -> Notice:
    fields: dict[str, Any] = {
        "notice_id": notice_id,
        "receiver": "on-call",
        "group_key": '{}:{group="payments"}',
        "group_labels": {"group": "payments"},
        "alerts": (an_alert(),),
        "truncated_alerts": 0,
        "created_us": NOW_US,
    }
    return Notice(**fields | changed)
