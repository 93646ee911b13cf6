"""Claims due notices for a single sender and records the outcome of each delivery.

Invariant: at most one sender a receiver, for as long as claims last and the clocks of the processes
agree; within a group the older notice goes first. A claim that is over frees its notice. One who
comes late to say that it was delivered is believed; one who comes late with a failure is not, for
another has taken the notice by then.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from engine.foundation.errors import StorageError
from pipelines.alerting.alerts import Notice
from pipelines.alerting.outbox.outcomes import (
    DELAY_MAX_US,
    Delivered,
    Outcome,
    Trouble,
    after,
    is_due,
)
from pipelines.alerting.store.changes import notice_of
from pipelines.database.database import Database
from pipelines.database.limits import TEXT_CHARS_MAX
from pipelines.database.tables import Kept, notices, receivers

CLAIM_MAX_US: Final = 120_000_000
"""No claim lasts longer: one that seems to was made by a clock that has been set since."""

_OPEN: Final = (Kept.WAITING.value, Kept.SENDING.value)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A notice that is this sender's until its claim is over."""

    lake: str
    seq: int
    claim: str
    notice: Notice
    tries: int
    """This one included."""
    until_us: int


@dataclass(frozen=True, slots=True)
class ReceiverState:
    """How a receiver is doing."""

    receiver: str
    waiting: int
    oldest_us: int | None
    """Since when the oldest waits."""
    failures: int
    """Since something was delivered."""
    last_error: str | None
    replaced: int
    given_up: int


def with_something_due(database: Database, lake: str, *, now_us: int) -> tuple[str, ...]:
    """Receivers to which something may be sent now."""
    with database.reading() as connection:
        rows = connection.execute(
            sa.select(notices.c.receiver, receivers.c.rest_until_us, receivers.c.claimed_until_us)
            .select_from(
                notices.outerjoin(
                    receivers,
                    (receivers.c.lake == notices.c.lake)
                    & (receivers.c.receiver == notices.c.receiver),
                )
            )
            .where(_is_due(lake, now_us=now_us))
            .group_by(notices.c.receiver, receivers.c.rest_until_us, receivers.c.claimed_until_us)
            .order_by(notices.c.receiver)
        ).all()
    return tuple(
        row.receiver
        for row in rows
        if is_due(row.rest_until_us or 0, now_us=now_us)
        and not _is_claimed(row.claimed_until_us or 0, now_us=now_us)
    )


def claim_next(
    database: Database, lake: str, receiver: str, claim: str, *, now_us: int, lasts_us: int
) -> Claimed | None:
    """The next notice for a receiver, if one is due and nobody else sends to it; `claim` is a text
    that no other claim has.
    """
    assert 0 < lasts_us <= CLAIM_MAX_US, "a claim lasts, and not for ever"
    with database.writing() as connection:
        at = (receivers.c.lake == lake) & (receivers.c.receiver == receiver)
        row = connection.execute(sa.select(receivers).where(at).with_for_update()).one_or_none()
        if row is None:
            try:
                with connection.begin_nested():
                    connection.execute(
                        sa.insert(receivers).values(
                            lake=lake,
                            receiver=receiver,
                            claimed_until_us=0,
                            failures=0,
                            rest_until_us=0,
                        )
                    )
            except IntegrityError:  # Another process has just begun with it.
                return None
        elif _is_claimed(row.claimed_until_us, now_us=now_us) or not is_due(
            row.rest_until_us, now_us=now_us
        ):
            return None
        found = connection.execute(_first_due(lake, receiver, now_us=now_us)).one_or_none()
        if found is None:
            return None
        try:
            notice = notice_of(found.body)
        except StorageError as error:
            _give_up(connection, found.seq, str(error), now_us=now_us)
            return None
        until_us = now_us + lasts_us
        connection.execute(
            sa.update(notices)
            .where(notices.c.seq == found.seq)
            .values(state=Kept.SENDING.value, tries=found.tries + 1, claim=claim)
        )
        connection.execute(
            sa.update(receivers).where(at).values(claim=claim, claimed_until_us=until_us)
        )
    return Claimed(lake, found.seq, claim, notice, found.tries + 1, until_us)


def settle(
    database: Database, claimed: Claimed, outcome: Outcome, *, now_us: int, chance: float
) -> None:
    """Note what came of a claim, and give the receiver back."""
    with database.writing() as connection:
        at = (receivers.c.lake == claimed.lake) & (receivers.c.receiver == claimed.notice.receiver)
        row = connection.execute(sa.select(receivers).where(at).with_for_update()).one()
        notice = notices.c.seq == claimed.seq
        if isinstance(outcome, Delivered):
            connection.execute(
                sa.update(notices)
                .where(notice, notices.c.state.in_(_OPEN))
                .values(state=Kept.DELIVERED.value, ended_us=now_us, claim=None, last_error=None)
            )
            freed: dict[str, Any] = {"failures": 0, "rest_until_us": 0, "last_error": None}
        else:
            failures = row.failures + (outcome.trouble is not Trouble.REFUSED)
            created_us = connection.scalar(sa.select(notices.c.created_us).where(notice))
            then = after(
                outcome,
                tries=claimed.tries,
                failures=failures,
                created_us=now_us if created_us is None else created_us,
                now_us=now_us,
                chance=chance,
            )
            freed = {
                "failures": failures,
                "rest_until_us": then.rest_until_us,
                "last_error": then.error,
            }
            ended = {"state": Kept.GIVEN_UP.value, "ended_us": now_us}
            waits = {"state": Kept.WAITING.value, "due_us": then.due_us}
            connection.execute(
                sa.update(notices)
                .where(notice, notices.c.claim == claimed.claim, notices.c.state.in_(_OPEN))
                .values(claim=None, last_error=then.error, **(ended if then.is_given_up else waits))
            )
            if then.is_given_up:
                _log.error(
                    "notice %s for receiver %s is given up after %d tries (%s)",
                    claimed.notice.notice_id,
                    claimed.notice.receiver,
                    claimed.tries,
                    then.error,
                )
        connection.execute(
            sa.update(receivers)
            .where(at, receivers.c.claim == claimed.claim)
            .values(claim=None, claimed_until_us=0, **freed)
        )


def states_of(database: Database, lake: str) -> tuple[ReceiverState, ...]:
    """Every receiver that ever got a notice, and what waits for it."""
    waits = notices.c.state.in_(_OPEN)
    with database.reading() as connection:
        counted = connection.execute(
            sa.select(
                notices.c.receiver,
                sa.func.count().filter(waits).label("waiting"),
                sa.func.min(notices.c.created_us).filter(waits).label("oldest_us"),
                sa.func.count().filter(notices.c.state == Kept.REPLACED.value).label("replaced"),
                sa.func.count().filter(notices.c.state == Kept.GIVEN_UP.value).label("given_up"),
            )
            .where(notices.c.lake == lake)
            .group_by(notices.c.receiver)
            .order_by(notices.c.receiver)
        ).all()
        known = {
            row.receiver: row
            for row in connection.execute(sa.select(receivers).where(receivers.c.lake == lake))
        }
    return tuple(
        ReceiverState(
            row.receiver,
            row.waiting,
            row.oldest_us,
            known[row.receiver].failures if row.receiver in known else 0,
            known[row.receiver].last_error if row.receiver in known else None,
            row.replaced,
            row.given_up,
        )
        for row in counted
    )


def is_empty(database: Database, lake: str, of: Collection[str] | None = None) -> bool:
    """Does nothing wait, for these receivers or for any?"""
    waits = (notices.c.lake == lake) & notices.c.state.in_(_OPEN)
    if of is not None:
        waits &= notices.c.receiver.in_(of)
    with database.reading() as connection:
        return connection.execute(sa.select(notices.c.seq).where(waits).limit(1)).first() is None


def _is_claimed(until_us: int, *, now_us: int) -> bool:
    return now_us < until_us <= now_us + CLAIM_MAX_US


def _give_up(connection: sa.Connection, seq: int, error: str, *, now_us: int) -> None:
    _log.error("a notice of the outbox is given up: %s", error)
    connection.execute(
        sa.update(notices)
        .where(notices.c.seq == seq)
        .values(state=Kept.GIVEN_UP.value, ended_us=now_us, last_error=error[:TEXT_CHARS_MAX])
    )


def _is_due(lake: str, *, now_us: int) -> sa.ColumnElement[bool]:
    """As `is_due`, in SQL."""
    has_come = (notices.c.due_us <= now_us) | (notices.c.due_us > now_us + DELAY_MAX_US)
    return (notices.c.lake == lake) & notices.c.state.in_(_OPEN) & has_come


def _first_due(lake: str, receiver: str, *, now_us: int) -> sa.Select[tuple[int, int, str]]:
    """The oldest that is due and has no older one of its group before it."""
    older = notices.alias("older")
    has_older = sa.exists().where(
        older.c.lake == lake,
        older.c.receiver == receiver,
        older.c.group_id == notices.c.group_id,
        older.c.state.in_(_OPEN),
        older.c.seq < notices.c.seq,
    )
    return (
        sa.select(notices.c.seq, notices.c.tries, notices.c.body)
        .where(
            _is_due(lake, now_us=now_us),
            notices.c.receiver == receiver,
            ~has_older,
        )
        .order_by(notices.c.seq)
        .limit(1)
    )
