"""Elects a leader per role using a lease with a fencing token.

A leader says that it is there each time it stores something, and in between. One whose lease is
over, or that was seen to say nothing for as long as a lease lasts, is followed by whoever asks
next. Clocks decide only how soon: what a leader stores names its token, and the token of one that
was followed is refused for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from pipelines.database.database import Database, LeadHeld, LeadLost
from pipelines.database.tables import leads

Sight = tuple[int, int, int]
"""Token and end of a lease as they were seen, and when, in µs of the own clock."""

_NOBODY: Final = ""


@dataclass(frozen=True, slots=True)
class Lead:
    """The lead of a role, as long as nobody follows. Whoever loses it asks anew."""

    role: str
    token: int
    lasts_us: int
    """How long after each sign of life the lease is over."""


def acquire(
    database: Database,
    role: str,
    holder: str,
    *,
    now_us: int,
    lasts_us: int,
    watched: Sight | None = None,
) -> Lead:
    """Lead, or raise LeadHeld with who does.

    `watched` is the sight of an earlier refusal: a lease that has not moved since, for as long as
    it lasts, is taken over though it claims to last longer (a clock was set).
    """
    assert lasts_us > 0, "a lease lasts"
    with database.writing() as connection:
        row = connection.execute(
            sa.select(leads).where(leads.c.role == role).with_for_update()
        ).one_or_none()
        mine = {"holder": holder, "expires_us": now_us + lasts_us}
        if row is None:
            try:
                with connection.begin_nested():
                    connection.execute(sa.insert(leads).values(role=role, token=1, **mine))
            except IntegrityError as error:  # Another was quicker; both saw no row.
                raise LeadHeld(
                    f"another process has just begun as {role}", (0, 0, now_us)
                ) from error
            return Lead(role, 1, lasts_us)
        sight = (row.token, row.expires_us, now_us)
        if watched is not None and watched[:2] == sight[:2]:
            sight = watched
        is_over = row.holder == _NOBODY or row.expires_us <= now_us
        if not is_over and now_us - sight[2] < lasts_us:
            raise LeadHeld(f"{row.holder} does the {role}, and one does at a time", sight)
        token = row.token + 1
        connection.execute(sa.update(leads).where(leads.c.role == role).values(token=token, **mine))
        return Lead(role, token, lasts_us)


def renew(database: Database, lead: Lead, *, now_us: int) -> None:
    """Say that the leader is there; raises LeadLost when it was followed."""
    with database.writing() as connection:
        fence(connection, lead, now_us=now_us)


def release(database: Database, lead: Lead) -> None:
    """Give the lead back: the next one need not wait."""
    with database.writing() as connection:
        connection.execute(
            sa.update(leads)
            .where(leads.c.role == lead.role, leads.c.token == lead.token)
            .values(holder=_NOBODY, expires_us=0)
        )


def holder_of(database: Database, role: str, *, now_us: int) -> str | None:
    """The leader, as far as the lease says."""
    with database.reading() as connection:
        row = connection.execute(sa.select(leads).where(leads.c.role == role)).one_or_none()
    return None if row is None or row.expires_us <= now_us else str(row.holder)


def fence(connection: sa.Connection, lead: Lead, *, now_us: int) -> None:
    """Renew the lease in an open transaction, which no other leader's overlaps; raises LeadLost."""
    done = connection.execute(
        sa.update(leads)
        .where(leads.c.role == lead.role, leads.c.token == lead.token, leads.c.holder != _NOBODY)
        .values(expires_us=now_us + lead.lasts_us)
    )
    if done.rowcount != 1:
        raise LeadLost(f"another process leads as {lead.role} by now")
