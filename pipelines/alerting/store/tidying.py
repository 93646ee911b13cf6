"""Deletes old rows: resolved alerts, sent notices, expired silences and ended operations.

Invariant: nothing that is open goes. A call removes at most ROWS_PER_TIDYING alerts and as many
notices, so that it holds up nobody; it is called often.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from pipelines.alerting.alerts import State
from pipelines.database.database import Database
from pipelines.database.limits import (
    NOTICES_KEPT_MAX,
    NOTICES_KEPT_US,
    OPERATIONS_KEPT_US,
    RESOLVED_KEPT_MAX,
    RESOLVED_KEPT_US,
    ROWS_PER_TIDYING,
    SILENCES_KEPT_US,
)
from pipelines.database.tables import Kept, acks, alerts, notices, operations, silences

_OVER = (Kept.DELIVERED.value, Kept.REPLACED.value, Kept.GIVEN_UP.value)


def tidy(database: Database, lake: str, *, now_us: int) -> int:
    """Forget what was kept for long enough; how many rows."""
    with database.writing() as connection:
        is_resolved = (alerts.c.lake == lake) & (alerts.c.state == State.RESOLVED.value)
        is_over = (notices.c.lake == lake) & notices.c.state.in_(_OVER)
        return (
            _oldest_go(
                connection,
                (alerts.c.fingerprint, sa.func.coalesce(alerts.c.resolved_at_us, 0), is_resolved),
                kept=(RESOLVED_KEPT_MAX, now_us - RESOLVED_KEPT_US),
            )
            + _oldest_go(
                connection,
                (notices.c.seq, notices.c.ended_us, is_over),
                kept=(NOTICES_KEPT_MAX, now_us - NOTICES_KEPT_US),
            )
            + _acks_without_an_alert(connection, lake)
            + _ended(connection, silences, silences.c.to_us < now_us - SILENCES_KEPT_US)
            + _ended(connection, operations, operations.c.expires_us < now_us - OPERATIONS_KEPT_US)
        )


def _oldest_go(
    connection: sa.Connection,
    of: tuple[sa.Column[Any], sa.ColumnElement[int], sa.ColumnElement[bool]],
    *,
    kept: tuple[int, int],
) -> int:
    """Rows of a key, ordered by their end: those beyond the newest `kept[0]`, and those that ended
    before `kept[1]`.
    """
    key, end, is_over = of
    kept_max, before_us = kept
    count = connection.scalar(sa.select(sa.func.count()).select_from(key.table).where(is_over)) or 0
    rows = connection.execute(
        sa.select(key, end).where(is_over).order_by(end, key).limit(ROWS_PER_TIDYING)
    ).all()
    excess = count - kept_max
    gone = [row[0] for at, row in enumerate(rows) if at < excess or row[1] < before_us]
    if gone:
        connection.execute(sa.delete(key.table).where(is_over, key.in_(gone)))
    return len(gone)


def _acks_without_an_alert(connection: sa.Connection, lake: str) -> int:
    there = sa.select(alerts.c.fingerprint).where(alerts.c.lake == lake)
    gone = (acks.c.lake == lake) & acks.c.fingerprint.not_in(there)
    return connection.execute(sa.delete(acks).where(gone)).rowcount


def _ended(connection: sa.Connection, table: sa.Table, is_over: sa.ColumnElement[bool]) -> int:
    return connection.execute(sa.delete(table).where(is_over)).rowcount
