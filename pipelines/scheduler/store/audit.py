"""Audit log: records who changed what, in the same transaction as the change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from pipelines.database.database import Database
from pipelines.scheduler.diffs import Changes
from pipelines.scheduler.store.tables import AnyRow, job_audit

AUDIT_SHOWN_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Change:
    """The author and the moment of a change."""

    author: str
    now_ms: int
    expects: str | None = None
    """The version of the job that he looks at; None: whatever it is."""


@dataclass(frozen=True, slots=True)
class Noted:
    """A change that was made."""

    audit_id: int
    """Greater than that of each one before."""
    at_ms: int
    author: str
    action: str
    subject: str
    """`job:7`, `group:2`, `user:ann`, `run:9`."""
    detail: str


def note(
    connection: sa.Connection, change: Change, action: str, subject: str, *, detail: str = ""
) -> None:
    """Write down who did what."""
    note_all(connection, change, action, [(subject, detail)])


def note_all(
    connection: sa.Connection, change: Change, action: str, entries: Sequence[tuple[str, str]]
) -> None:
    """Write down who did the same to several subjects; each comes with its detail."""
    if entries:
        connection.execute(
            sa.insert(job_audit),
            [
                {
                    "at_ms": change.now_ms,
                    "author": change.author,
                    "action": action,
                    "subject": subject,
                    "detail": detail,
                }
                for subject, detail in entries
            ],
        )


def audit_of(
    database: Database, subject: str | None = None, *, before: int | None = None
) -> list[Noted]:
    """The changes of one subject, or of all; those before a number, if given; the newest first,
    AUDIT_SHOWN_MAX at most."""
    wanted = sa.select(job_audit).order_by(job_audit.c.audit_id.desc()).limit(AUDIT_SHOWN_MAX)
    if subject is not None:
        wanted = wanted.where(job_audit.c.subject == subject)
    if before is not None:
        wanted = wanted.where(job_audit.c.audit_id < before)
    with database.reading() as connection:
        return [_noted(row) for row in connection.execute(wanted)]


def last_noted(database: Database) -> int:
    """The number of the newest change; 0: there is none."""
    with database.reading() as connection:
        return connection.scalar(sa.select(sa.func.max(job_audit.c.audit_id))) or 0


def noted_since(database: Database, audit_id: int) -> list[Noted]:
    """The changes after one, the oldest first; AUDIT_SHOWN_MAX at most."""
    wanted = sa.select(job_audit).where(job_audit.c.audit_id > audit_id)
    with database.reading() as connection:
        rows = connection.execute(wanted.order_by(job_audit.c.audit_id).limit(AUDIT_SHOWN_MAX))
        return [_noted(row) for row in rows]


def changes_in(noted: Noted) -> Changes:
    """The old and the new of what was noted; none, where its detail is a sentence."""
    try:
        pairs = json.loads(noted.detail)
    except ValueError:
        return {}
    return {name: (pair[0], pair[1]) for name, pair in pairs.items()}


def _noted(row: AnyRow) -> Noted:
    return Noted(row.audit_id, row.at_ms, row.author, row.action, row.subject, row.detail)
