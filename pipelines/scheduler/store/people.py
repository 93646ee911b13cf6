"""Stores users with their permissions and password hashes, and audits each change.

Invariant: once there is an administrator, there is always one: the last cannot be removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import sqlalchemy as sa

from engine.foundation.errors import MustBe, RuleBroken
from pipelines.database.database import Database, insert_missing
from pipelines.scheduler.diffs import brief, changes, detail_of
from pipelines.scheduler.passwords import NO_PASSWORD, password_hash
from pipelines.scheduler.refusals import exists_already, no_such, nothing_changed
from pipelines.scheduler.roles import Actor
from pipelines.scheduler.store.audit import Change, note
from pipelines.scheduler.store.tables import AnyRow, job_groups, job_users

USERS_MAX: Final = 10_000
NAME_CHARS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class User:
    """A user as he is shown."""

    name: str
    is_admin: bool
    group_ids: tuple[int, ...]
    """Groups whose jobs he may see and change; an administrator those of all."""
    has_password: bool
    """Without one he cannot sign in to pages; the command line asks for none."""


def users(database: Database) -> list[User]:
    """All users, by name."""
    with database.reading() as connection:
        rows = connection.execute(sa.select(job_users).order_by(job_users.c.name)).all()
    return [
        User(row.name, row.is_admin, _groups(row), row.password_hash != NO_PASSWORD) for row in rows
    ]


def actor_of(database: Database, name: str) -> Actor | None:
    """The user of a name, with his rights; None: nobody."""
    with database.reading() as connection:
        row = connection.execute(sa.select(job_users).where(job_users.c.name == name)).one_or_none()
    return None if row is None else actor_from(row)


def actor_from(row: AnyRow) -> Actor:
    """The user in a row."""
    return Actor(row.name, row.is_admin, frozenset(_groups(row)))


def has_users(database: Database) -> bool:
    """Is there anybody whom pages may know?"""
    with database.reading() as connection:
        return connection.scalar(sa.select(job_users.c.name).limit(1)) is not None


def has_administrator(database: Database) -> bool:
    """Is there one? Before there is, nobody has rights to be asked for."""
    with database.reading() as connection:
        return _admin_count(connection) > 0


def is_name(name: str) -> bool:
    """May somebody be called so?"""
    is_written_well = name.isascii() and name.isprintable() and " " not in name
    return is_written_well and 1 <= len(name) <= NAME_CHARS_MAX


def add_user(
    database: Database,
    name: str,
    change: Change,
    *,
    is_admin: bool = False,
    group_ids: Iterable[int] = (),
    password: str | None = None,
) -> None:
    """Make a user. Raises ConfigError for a name that there is, and for a group that is not."""
    if not is_name(name):
        raise MustBe("user", name[:64], "1 to 64 letters of ASCII, without spaces")
    kept = NO_PASSWORD if password is None else password_hash(password)
    with database.writing() as connection:
        there = connection.execute(sa.select(job_users.c.name)).scalars().all()
        if name in there:
            raise exists_already("user", name)
        if len(there) >= USERS_MAX:
            rule = f"there are {USERS_MAX:,} users, and no more may be: remove one first"
            raise RuleBroken("user", name, rule)
        listed = _checked(connection, group_ids)
        new = {"name": name, "password_hash": kept, "is_admin": is_admin}
        made = connection.execute(
            insert_missing(connection, job_users).values(group_ids=json.dumps(listed), **new)
        )
        if not made.rowcount:  # Somebody else was quicker.
            raise exists_already("user", name)
        note(connection, change, "add", f"user:{name}", detail=_detail(None, (is_admin, listed)))


def edit_user(
    database: Database,
    name: str,
    change: Change,
    *,
    is_admin: bool | None = None,
    group_ids: Iterable[int] | None = None,
) -> None:
    """Change his rights; None leaves them. Raises ConfigError for the last administrator's, and
    when they are so already."""
    with database.writing() as connection:
        row = _locked(connection, name)
        becomes = row.is_admin if is_admin is None else is_admin
        listed = list(_groups(row)) if group_ids is None else _checked(connection, group_ids)
        if (becomes, listed) == (row.is_admin, sorted(_groups(row))):
            raise nothing_changed("rights")
        if row.is_admin and not becomes:
            _keep_one(connection, name)
        connection.execute(
            sa.update(job_users)
            .where(job_users.c.name == name)
            .values(is_admin=becomes, group_ids=json.dumps(listed))
        )
        detail = _detail((row.is_admin, _groups(row)), (becomes, listed))
        note(connection, change, "edit", f"user:{name}", detail=detail)


def set_password(database: Database, name: str, password: str | None, change: Change) -> None:
    """Give him another password; None: none, so that he cannot sign in."""
    kept = NO_PASSWORD if password is None else password_hash(password)
    with database.writing() as connection:
        _locked(connection, name)
        connection.execute(
            sa.update(job_users).where(job_users.c.name == name).values(password_hash=kept)
        )
        note(connection, change, "password", f"user:{name}", detail="" if kept else "none")


def remove_user(database: Database, name: str, change: Change) -> None:
    """Remove him. Raises ConfigError for the last administrator."""
    with database.writing() as connection:
        row = _locked(connection, name)
        if row.is_admin:
            _keep_one(connection, name)
        connection.execute(sa.delete(job_users).where(job_users.c.name == name))
        detail = _detail((row.is_admin, _groups(row)), None)
        note(connection, change, "remove", f"user:{name}", detail=detail)


def _locked(connection: sa.Connection, name: str) -> AnyRow:
    """His row. All are locked, so that of two administrators one stays."""
    rows = connection.execute(
        sa.select(job_users).order_by(job_users.c.name).with_for_update()
    ).all()
    found = next((row for row in rows if row.name == name), None)
    if found is None:
        raise no_such("user", name)
    return found


def _keep_one(connection: sa.Connection, name: str) -> None:
    if _admin_count(connection) == 1:
        rule = f"user {name!r} is the last administrator: make another one first"
        raise RuleBroken("user", name, rule)


def _admin_count(connection: sa.Connection) -> int:
    admins = sa.select(sa.func.count()).select_from(job_users).where(job_users.c.is_admin)
    return connection.scalar(admins) or 0


def _checked(connection: sa.Connection, group_ids: Iterable[int]) -> list[int]:
    wanted = sorted(set(group_ids))
    there = connection.scalars(
        sa.select(job_groups.c.group_id).where(job_groups.c.group_id.in_(wanted))
    ).all()
    unknown = [one for one in wanted if one not in there]
    if unknown:
        raise no_such("group", unknown[0])
    return wanted


def _groups(row: AnyRow) -> tuple[int, ...]:
    return tuple(json.loads(row.group_ids))


_Rights: TypeAlias = tuple[bool, Sequence[int]]


def _detail(before: _Rights | None, after: _Rights | None) -> str:
    """What became of his rights; None: he was not there, or is not any more."""
    first, second = (
        {} if one is None else {"is_admin": one[0], "group_ids": brief("group_ids", list(one[1]))}
        for one in (before, after)
    )
    return detail_of(changes(first, second))
