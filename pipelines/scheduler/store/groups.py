"""Stores executor groups with their addresses and access tokens.

Invariant: an application has one group, and a token belongs to one. Tokens are given to nobody but
the centre that sends them: what is shown of a group says only whether it has one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from engine.foundation.errors import MustBe, RuleBroken
from pipelines.database.database import Database
from pipelines.scheduler.diffs import brief, changes, detail_of
from pipelines.scheduler.refusals import exists_already, group_with_jobs, no_such, nothing_changed
from pipelines.scheduler.store.audit import Change, note
from pipelines.scheduler.store.registry import addresses_in
from pipelines.scheduler.store.tables import AnyRow, job_groups, job_users, jobs
from pipelines.scheduler.wire.addresses import Address
from pipelines.scheduler.wire.tokens import TOKEN_CHARS_MAX

TITLE_CHARS_MAX: Final = 255
ADDRESSES_MAX: Final = 1_000
TOKEN_CHARS_MIN: Final = 16


@dataclass(frozen=True, slots=True)
class Group:
    """Executors that run the same handlers."""

    group_id: int
    app_name: str
    title: str
    manual_addresses: tuple[str, ...] | None
    """Where they are; None: they register themselves."""
    has_token: bool = False
    """Have they an access token of their own?"""


def add_group(
    database: Database,
    app_name: str,
    change: Change,
    *,
    title: str = "",
    manual_addresses: Sequence[str] | None = None,
    token: str | None = None,
) -> int:
    """A new group's number; raises ConfigError when the application has one."""
    try:
        with database.writing() as connection:
            return insert_group(
                connection,
                app_name,
                change,
                title=title,
                manual_addresses=manual_addresses,
                token=token,
            )
    except IntegrityError as error:
        raise exists_already("group", app_name, key="app_name") from error


def insert_group(
    connection: sa.Connection,
    app_name: str,
    change: Change,
    *,
    title: str = "",
    manual_addresses: Sequence[str] | None = None,
    token: str | None = None,
) -> int:
    """The same within a transaction; raises IntegrityError when the application has one."""
    if not app_name or len(app_name) > 64 or not app_name.isascii() or not app_name.isprintable():
        raise MustBe("app_name", app_name[:64], "1 to 64 letters of ASCII")
    values = _values(title or app_name, manual_addresses)
    _check_token(connection, token, None)
    group_id: int = connection.execute(
        sa.insert(job_groups)
        .values(app_name=app_name, access_token=token, changed_ms=change.now_ms, **values)
        .returning(job_groups.c.group_id)
    ).scalar_one()
    values_in_words = {"app_name": app_name, **_auditable(values), "token": _whose(token)}
    note(
        connection,
        change,
        "add",
        f"group:{group_id}",
        detail=detail_of(changes({}, values_in_words)),
    )
    return group_id


def edit_group(
    database: Database,
    group_id: int,
    change: Change,
    *,
    title: str,
    manual_addresses: Sequence[str] | None,
) -> None:
    """Give a group another title, or other addresses (None: those that register). Raises
    ConfigError when both are as they are."""
    values = _values(title, manual_addresses)
    with database.writing() as connection:
        before = _auditable_row(_locked(connection, group_id))
        made = changes(before, _auditable(values))
        if not made:
            raise nothing_changed()
        connection.execute(
            sa.update(job_groups)
            .where(job_groups.c.group_id == group_id)
            .values(changed_ms=change.now_ms, **values)
        )
        note(connection, change, "edit", f"group:{group_id}", detail=detail_of(made))


def set_token(database: Database, group_id: int, token: str | None, change: Change) -> None:
    """Give a group's executors a token of their own; None: the common one is theirs again."""
    with database.writing() as connection:
        had = _locked(connection, group_id).access_token
        _check_token(connection, token, group_id)
        connection.execute(
            sa.update(job_groups)
            .where(job_groups.c.group_id == group_id)
            .values(access_token=token, changed_ms=change.now_ms)
        )
        detail = detail_of({"token": (_whose(had), _whose(token))})
        note(connection, change, "token", f"group:{group_id}", detail=detail)


def remove_group(database: Database, group_id: int, change: Change) -> None:
    """Remove a group without jobs, from the rights of users too."""
    with database.writing() as connection:
        row = _locked(connection, group_id)
        there = sa.select(sa.func.count()).select_from(jobs).where(jobs.c.group_id == group_id)
        if job_count := connection.scalar(there):
            raise group_with_jobs(row.app_name, job_count)
        for user in connection.execute(sa.select(job_users).with_for_update()).all():
            listed = json.loads(user.group_ids)
            if group_id in listed:
                listed.remove(group_id)
                connection.execute(
                    sa.update(job_users)
                    .where(job_users.c.name == user.name)
                    .values(group_ids=json.dumps(listed))
                )
        connection.execute(sa.delete(job_groups).where(job_groups.c.group_id == group_id))
        values = {
            "app_name": row.app_name,
            **_auditable_row(row),
            "token": _whose(row.access_token),
        }
        note(
            connection, change, "remove", f"group:{group_id}", detail=detail_of(changes(values, {}))
        )


def groups(database: Database) -> tuple[Group, ...]:
    """All groups, by number."""
    with database.reading() as connection:
        rows = connection.execute(sa.select(job_groups).order_by(job_groups.c.group_id)).all()
    return tuple(_group(row) for row in rows)


def group_of(database: Database, group_id: int) -> Group:
    """A group; raises ConfigError when there is none of that number."""
    with database.reading() as connection:
        row = connection.execute(
            sa.select(job_groups).where(job_groups.c.group_id == group_id)
        ).one_or_none()
    if row is None:
        raise no_such("group", group_id)
    return _group(row)


def tokens_of_apps(database: Database) -> dict[str, str]:
    """The access tokens of those applications that have one of their own."""
    with database.reading() as connection:
        rows = connection.execute(
            sa.select(job_groups.c.app_name, job_groups.c.access_token).where(
                job_groups.c.access_token.is_not(None)
            )
        ).all()
    return {row.app_name: row.access_token for row in rows}


def own_token(database: Database, job_id: int) -> tuple[str, str] | None:
    """The application of a job and its token, if its executors have one of their own."""
    with database.reading() as connection:
        row = connection.execute(
            sa.select(job_groups.c.app_name, job_groups.c.access_token)
            .join(jobs, jobs.c.group_id == job_groups.c.group_id)
            .where(jobs.c.job_id == job_id, job_groups.c.access_token.is_not(None))
        ).one_or_none()
    return None if row is None else (row.app_name, row.access_token)


def _auditable(values: Mapping[str, Any]) -> dict[str, Any]:
    """A group as the audit shows its changes; its token never appears."""
    manual = values["manual_addresses"]
    addresses = None if manual is None else brief("addresses", json.loads(manual))
    return {"title": values["title"], "addresses": addresses}


def _auditable_row(row: AnyRow) -> dict[str, Any]:
    return _auditable({"title": row.title, "manual_addresses": row.manual_addresses})


def _whose(token: str | None) -> str:
    return "the common one" if token is None else "one of its own"


def _group(row: AnyRow) -> Group:
    manual = None if row.manual_addresses is None else addresses_in(row.manual_addresses)
    return Group(row.group_id, row.app_name, row.title, manual, row.access_token is not None)


def _locked(connection: sa.Connection, group_id: int) -> AnyRow:
    row = connection.execute(
        sa.select(job_groups).where(job_groups.c.group_id == group_id).with_for_update()
    ).one_or_none()
    if row is None:
        raise no_such("group", group_id)
    return row


def _values(title: str, manual_addresses: Sequence[str] | None) -> dict[str, Any]:
    if not title.strip() or len(title) > TITLE_CHARS_MAX:
        raise MustBe("title", title[:64], f"1 to {TITLE_CHARS_MAX} characters")
    if manual_addresses is None:
        return {"title": title, "manual_addresses": None}
    if not 1 <= len(manual_addresses) <= ADDRESSES_MAX:
        raise MustBe("addresses", len(manual_addresses), f"1 to {ADDRESSES_MAX:,}")
    found = [Address.parse(address).text for address in manual_addresses]
    return {"title": title, "manual_addresses": json.dumps(found)}


def _check_token(connection: sa.Connection, token: str | None, group_id: int | None) -> None:
    if token is None:
        return
    is_written_well = token.isascii() and token.isprintable() and " " not in token
    if not is_written_well or not TOKEN_CHARS_MIN <= len(token) <= TOKEN_CHARS_MAX:
        allowed = f"{TOKEN_CHARS_MIN} to {TOKEN_CHARS_MAX} printable characters of ASCII"
        raise MustBe("access token", "***", allowed)
    others = connection.execute(
        sa.select(job_groups.c.group_id, job_groups.c.access_token).where(
            job_groups.c.access_token.is_not(None)
        )
    )
    if any(row.access_token == token and row.group_id != group_id for row in others):
        rule = "another group has this access token: give each group its own"
        raise RuleBroken("access token", "***", rule)
