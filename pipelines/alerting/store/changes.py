"""Ordered SQL log of alert changes, each encoded as JSON.

Place in the walk: a step, and what people say, write here in their own transaction; `history`
appends it to the lake, and says so. Invariant: numbers are given under the lock of one row and
stored with what they number: whoever sees a change sees all before it. What was written is read as
the same value. Absent on purpose: the lake, and versions of bodies: a field that is added gets a
default.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from engine.foundation.errors import StorageError
from pipelines.alerting.alerts import Alert, Entry, Notice
from pipelines.database.database import Database
from pipelines.database.limits import CHANGES_WAITING_MAX
from pipelines.database.tables import changes, histories

_log = logging.getLogger(__name__)
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Waiting:
    """Changes that are not known to be in the lake, the oldest first."""

    history: str
    last_seq: int
    """Number of the newest change that there is."""
    carried_seq: int
    """Number of the newest one that is known to be in the lake."""
    entries: tuple[tuple[int, Entry], ...]
    """With their numbers."""


def record(connection: sa.Connection, lake: str, entries: Sequence[Entry]) -> None:
    """Number changes and store them, in an open transaction."""
    if not entries:
        return
    last, carried = _numbered(connection, lake, len(entries))
    first = last - len(entries) + 1
    rows = [
        {"lake": lake, "seq": seq, "body": entry_text(entry)}
        for seq, entry in enumerate(entries, start=first)
    ]
    connection.execute(sa.insert(changes), rows)
    if last - carried > CHANGES_WAITING_MAX:
        _make_room(connection, lake, last - CHANGES_WAITING_MAX)


def waiting(database: Database, lake: str, *, rows_max: int) -> Waiting | None:
    """The oldest changes that the lake may not have; None when there never was one."""
    with database.reading() as connection:
        at = connection.execute(sa.select(histories).where(histories.c.lake == lake)).one_or_none()
        if at is None:
            return None
        rows = connection.execute(
            sa.select(changes.c.seq, changes.c.body)
            .where(changes.c.lake == lake, changes.c.seq > at.carried_seq)
            .order_by(changes.c.seq)
            .limit(rows_max)
        ).all()
    entries = tuple((row.seq, entry_of(row.body)) for row in rows)
    return Waiting(at.history, at.last_seq, at.carried_seq, entries)


def waiting_count(database: Database, lake: str) -> int:
    """How many changes the lake is not known to have."""
    with database.reading() as connection:
        return (
            connection.scalar(
                sa.select(sa.func.count()).select_from(changes).where(changes.c.lake == lake)
            )
            or 0
        )


def carried(database: Database, lake: str, history: str, *, seq: int) -> None:
    """The lake has all changes of this history up to that number: they need not wait here."""
    mine = (histories.c.lake == lake) & (histories.c.history == history)
    with database.writing() as connection:
        done = connection.execute(
            sa.update(histories)
            .where(mine, histories.c.carried_seq < seq, histories.c.last_seq >= seq)
            .values(carried_seq=seq)
        )
        if done.rowcount:
            connection.execute(
                sa.delete(changes).where(changes.c.lake == lake, changes.c.seq <= seq)
            )


def begin_anew(database: Database, lake: str, history: str) -> None:
    """Go on under another name: the lake knows this one from a life that the database forgot."""
    with database.writing() as connection:
        connection.execute(
            sa.update(histories)
            .where(histories.c.lake == lake, histories.c.history == history)
            .values(history=_new_name())
        )


def _numbered(connection: sa.Connection, lake: str, count: int) -> tuple[int, int]:
    """The last of so many new numbers, and the newest one that the lake has."""
    of_lake = histories.c.lake == lake
    more = sa.update(histories).where(of_lake).values(last_seq=histories.c.last_seq + count)
    if connection.execute(more).rowcount == 0:
        begun = {"lake": lake, "history": _new_name(), "last_seq": 0, "carried_seq": 0}
        try:
            with connection.begin_nested():
                connection.execute(sa.insert(histories).values(begun))
        except IntegrityError:
            pass  # Another was quicker: both go on from its row.
        connection.execute(more)
    last, known = connection.execute(
        sa.select(histories.c.last_seq, histories.c.carried_seq).where(of_lake)
    ).one()
    return int(last), int(known)


def _make_room(connection: sa.Connection, lake: str, seq: int) -> None:
    gone = connection.execute(
        sa.delete(changes).where(changes.c.lake == lake, changes.c.seq <= seq)
    ).rowcount
    if gone:
        _log.error(
            "the lake takes no changes of alerts, and more than %d wait: the oldest %d are gone "
            "from history; their numbers, up to %d, are missing there",
            CHANGES_WAITING_MAX,
            gone,
            seq,
        )


def _new_name() -> str:
    return secrets.token_hex(8)


def alert_text(alert: Alert) -> str:
    """The alert as it is stored."""
    return json.dumps(_plain(alert))


def alert_of(text: str) -> Alert:
    """The alert that was stored; raises StorageError when it is none."""
    return value_of(text, Alert)


def notice_text(notice: Notice) -> str:
    """The notice as it is stored."""
    return json.dumps(_plain(notice))


def notice_of(text: str) -> Notice:
    """The notice that was stored; raises StorageError when it is none."""
    return value_of(text, Notice)


def entry_text(entry: Entry) -> str:
    """The change as it is stored."""
    return json.dumps(_plain(entry))


def entry_of(text: str) -> Entry:
    """The change that was stored; raises StorageError when it is none."""
    return value_of(text, Entry)


def _plain(value: Alert | Notice | Entry) -> Any:
    return msgspec.to_builtins(value)


def value_of(text: str, kind: type[Value]) -> Value:
    """What was stored as JSON; raises StorageError when it is none of this kind."""
    try:
        return msgspec.convert(json.loads(text), kind)
    except ValueError as error:
        raise StorageError(f"the database holds no {kind.__name__.lower()}: {error}") from error
