"""Stores sign-in sessions for pages, each with a token that only the browser holds.

A token is 256 random bits; the database has its SHA-256, so that who reads the database signs in as
nobody. Invariant: rights are never kept here. A session is over when it was not used for IDLE_MS,
at the latest after LIFE_MS, at a sign-out, and as soon as its user's password, rights or existence
change. Absent on purpose: cookies, and how often one may try.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

import sqlalchemy as sa

from pipelines.database.database import Database
from pipelines.scheduler.passwords import NO_PASSWORD
from pipelines.scheduler.roles import Actor
from pipelines.scheduler.store.audit import Change, note
from pipelines.scheduler.store.people import actor_from, is_name
from pipelines.scheduler.store.tables import AnyRow, job_users, page_sessions

HOUR_MS: Final = 3_600_000
IDLE_MS: Final = 12 * HOUR_MS
LIFE_MS: Final = 7 * 24 * HOUR_MS
SEEN_EACH_MS: Final = 60_000
"""How often the use of a session is written down: looking at a page writes nothing else."""
SESSIONS_MAX: Final = 20
"""Of one user; beyond it the one that was not used for longest is over."""
TOKEN_CHARS_MAX: Final = 64

assert SEEN_EACH_MS < IDLE_MS < LIFE_MS, "a session that is used does not end for being idle"


def kept_password(database: Database, name: str) -> str:
    """What is kept of his password; NO_PASSWORD for somebody who has none, or whom nobody knows."""
    wanted = name if is_name(name) else ""  # PostgreSQL refuses to look for some characters.
    with database.reading() as connection:
        kept = connection.scalar(
            sa.select(job_users.c.password_hash).where(job_users.c.name == wanted)
        )
    return kept or NO_PASSWORD


def begin_session(database: Database, name: str, kept: str, *, now_ms: int) -> str | None:
    """A new session's token, of a user whose password was found right against what was `kept`;
    None when that is not his any more.
    """
    token = secrets.token_urlsafe(32)
    with database.writing() as connection:
        user = connection.execute(
            sa.select(job_users).where(job_users.c.name == name).with_for_update()
        ).one_or_none()
        if user is None or kept == NO_PASSWORD or user.password_hash != kept:
            return None
        _forget_old(connection, name, now_ms)
        connection.execute(
            sa.insert(page_sessions).values(
                token_sha256=_digest(token),
                name=name,
                standing=_standing(user),
                created_ms=now_ms,
                seen_ms=now_ms,
                expires_ms=now_ms + LIFE_MS,
            )
        )
        note(connection, Change(name, now_ms), "sign in", f"user:{name}")
    return token


def actor_by(database: Database, token: str, *, now_ms: int) -> Actor | None:
    """The user of a session, with his rights as they are now; None: it is none, or it is over."""
    if not token or len(token) > TOKEN_CHARS_MAX:
        return None
    digest = _digest(token)
    with database.reading() as connection:
        kept = connection.execute(
            sa.select(page_sessions).where(page_sessions.c.token_sha256 == digest)
        ).one_or_none()
        if kept is None:
            return None
        user = connection.execute(
            sa.select(job_users).where(job_users.c.name == kept.name)
        ).one_or_none()
    if not _holds(kept, user, now_ms):
        with database.writing() as connection:
            _end(connection, digest)
        return None
    if now_ms - kept.seen_ms >= SEEN_EACH_MS:
        with database.writing() as connection:
            connection.execute(
                sa.update(page_sessions)
                .where(page_sessions.c.token_sha256 == digest, page_sessions.c.seen_ms < now_ms)
                .values(seen_ms=now_ms)
            )
    assert user is not None, "a session holds of a user that there is"
    return actor_from(user)


def end_session(database: Database, token: str, *, now_ms: int) -> bool:
    """Its user signs out; was there such a session?"""
    with database.writing() as connection:
        digest = _digest(token[: TOKEN_CHARS_MAX + 1])
        name = connection.scalar(
            sa.select(page_sessions.c.name).where(page_sessions.c.token_sha256 == digest)
        )
        if name is None:
            return False
        _end(connection, digest)
        note(connection, Change(name, now_ms), "sign out", f"user:{name}")
        return True


def note_failure(database: Database, name: str, *, now_ms: int) -> None:
    """Write down that somebody tried to sign in by this name, and was not let in."""
    subject = f"user:{name}" if is_name(name) else "user:?"
    with database.writing() as connection:
        note(connection, Change("", now_ms), "sign in failed", subject, detail=name[:64])


def _holds(kept: AnyRow, user: AnyRow | None, now_ms: int) -> bool:
    if user is None or now_ms >= min(kept.expires_ms, kept.seen_ms + IDLE_MS):
        return False
    return hmac.compare_digest(kept.standing, _standing(user))


def _standing(user: AnyRow) -> str:
    parts = f"{user.name}\n{user.password_hash}\n{user.is_admin}\n{user.group_ids}"
    return hashlib.sha256(parts.encode()).hexdigest()


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _end(connection: sa.Connection, digest: str) -> None:
    connection.execute(sa.delete(page_sessions).where(page_sessions.c.token_sha256 == digest))


def _forget_old(connection: sa.Connection, name: str, now_ms: int) -> None:
    """Leave room for one more of this user, and none that is over of anybody."""
    sessions = page_sessions.c
    is_over = (sessions.expires_ms <= now_ms) | (sessions.seen_ms <= now_ms - IDLE_MS)
    connection.execute(sa.delete(page_sessions).where(is_over))
    his = connection.scalars(
        sa.select(sessions.token_sha256)
        .where(sessions.name == name)
        .order_by(sessions.seen_ms.desc(), sessions.token_sha256)
    ).all()
    for digest in his[SESSIONS_MAX - 1 :]:
        _end(connection, digest)
