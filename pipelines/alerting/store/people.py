"""Stores the silences and acknowledgements that users create.

No lead is needed: pages and commands write here, and the leader reads it with each step.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from engine.foundation.errors import MustBe
from pipelines.alerting.alerts import ACKED, entry_of
from pipelines.alerting.store import changes
from pipelines.alerting.store.changes import alert_of
from pipelines.database.database import Database, upsert
from pipelines.database.tables import acks, alerts, silences


@dataclass(frozen=True, slots=True)
class Silence:
    """Nobody is notified of alerts that match, from one moment to another."""

    silence_id: str
    author: str
    comment: str
    from_us: int
    to_us: int
    created_us: int
    expired_us: int | None
    """When somebody ended it early."""
    body: str
    """Opaque JSON: what it matches, how it recurs."""


@dataclass(frozen=True, slots=True)
class Ack:
    """Somebody has seen the alert that became active at `active_at_us`."""

    fingerprint: str
    active_at_us: int
    author: str
    comment: str
    acked_us: int


def add_silence(database: Database, lake: str, silence: Silence) -> None:
    """Keep a silence; raises ConfigError when its id is taken or it ends before it begins."""
    if silence.to_us <= silence.from_us:
        raise MustBe("to", silence.to_us, f"a moment after its begin, {silence.from_us}")
    values = {name: getattr(silence, name) for name in Silence.__slots__}
    try:
        with database.writing() as connection:
            connection.execute(sa.insert(silences).values(lake=lake, **values))
    except IntegrityError as error:
        raise MustBe("id", silence.silence_id, "one that no silence has yet") from error


def expire_silence(database: Database, lake: str, silence_id: str, *, now_us: int) -> bool:
    """End a silence; False when there is none of that id that had not ended."""
    with database.writing() as connection:
        done = connection.execute(
            sa.update(silences)
            .where(
                silences.c.lake == lake,
                silences.c.silence_id == silence_id,
                silences.c.expired_us.is_(None),
                silences.c.to_us > now_us,
            )
            .values(expired_us=now_us)
        )
    return done.rowcount == 1


def silences_of(database: Database, lake: str, *, ending_after_us: int = 0) -> tuple[Silence, ...]:
    """Silences that end, or were ended, after a moment; those that begin later too."""
    ends = sa.func.coalesce(silences.c.expired_us, silences.c.to_us)
    with database.reading() as connection:
        rows = connection.execute(
            sa.select(silences)
            .where(silences.c.lake == lake, ends > ending_after_us)
            .order_by(silences.c.from_us, silences.c.silence_id)
        ).all()
    return tuple(
        Silence(**{name: getattr(row, name) for name in Silence.__slots__}) for row in rows
    )


def acknowledge(database: Database, lake: str, ack: Ack) -> None:
    """Keep an acknowledgement; the last one of an alert counts."""
    values = {name: getattr(ack, name) for name in Ack.__slots__}
    with database.writing() as connection:
        connection.execute(upsert(connection, acks, {"lake": lake, **values}))
        body = connection.scalar(
            sa.select(alerts.c.body).where(
                alerts.c.lake == lake, alerts.c.fingerprint == ack.fingerprint
            )
        )
        alert = None if body is None else alert_of(body)
        if alert is not None and alert.active_at_us == ack.active_at_us:
            said = entry_of(
                alert,
                ACKED,
                observed_us=ack.acked_us,
                recorded_us=ack.acked_us,
                author=ack.author,
                comment=ack.comment,
            )
            changes.record(connection, lake, [said])


def acks_of(database: Database, lake: str) -> tuple[Ack, ...]:
    """All that are kept: those whose alert is gone are forgotten with it."""
    with database.reading() as connection:
        rows = connection.execute(
            sa.select(acks).where(acks.c.lake == lake).order_by(acks.c.acked_us, acks.c.fingerprint)
        ).all()
    return tuple(Ack(**{name: getattr(row, name) for name in Ack.__slots__}) for row in rows)
