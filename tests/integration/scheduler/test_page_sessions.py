"""Sessions of pages in both databases: they outlive a process, and end with what they rest on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from pipelines.database.database import Database
from pipelines.scheduler.passwords import NO_PASSWORD
from pipelines.scheduler.roles import Action, Actor, may
from pipelines.scheduler.store import groups, people, sessions
from pipelines.scheduler.store.audit import audit_of
from pipelines.scheduler.store.tables import job_users, page_sessions
from tests.integration.scheduler.stores import NOW_MS, by

PASSWORD = "correct horse battery"
KEPT = "scrypt$as if$it were$one"
"""What is kept of a password is not looked into here."""


def somebody(database: Database, name: str = "ann", group: str = "hers") -> int:
    """A user of one group, who has a password."""
    group_id = groups.add_group(database, group, by())
    people.add_user(database, name, by(), group_ids=[group_id])
    give(database, name, KEPT)
    return group_id


def give(database: Database, name: str, kept: str) -> None:
    with database.writing() as connection:
        connection.execute(
            sa.update(job_users).where(job_users.c.name == name).values(password_hash=kept)
        )


def session(database: Database, name: str = "ann", now_ms: int = NOW_MS) -> str:
    token = sessions.begin_session(database, name, KEPT, now_ms=now_ms)
    assert token is not None
    return token


def count(database: Database) -> int:
    with database.reading() as connection:
        return connection.scalar(sa.select(sa.func.count()).select_from(page_sessions)) or 0


def test_a_session_is_his_who_signed_in_with_the_rights_of_now(database: Database) -> None:
    group_id = somebody(database)
    token = session(database)
    actor = sessions.actor_by(database, token, now_ms=NOW_MS)
    assert actor == Actor("ann", group_ids=frozenset({group_id}))
    assert len(token) >= 43, "256 bits"
    with database.reading() as connection:
        [row] = connection.execute(sa.select(page_sessions)).all()
    assert token not in str(row), "the database does not have what signs in"
    for other in ("", "x", token[:-1], token + "x", token * 9, row.token_sha256, "\x00", "\ud800"):
        assert sessions.actor_by(database, other, now_ms=NOW_MS) is None
    assert next(one.action for one in audit_of(database, "user:ann")) == "sign in"


ENDINGS: dict[str, Callable[[Database], None]] = {
    "another password": lambda database: people.set_password(database, "ann", PASSWORD, by()),
    "no password": lambda database: people.set_password(database, "ann", None, by()),
    "more rights": lambda database: people.edit_user(database, "ann", by(), is_admin=True),
    "fewer groups": lambda database: people.edit_user(database, "ann", by(), group_ids=[]),
    "his group removed": lambda database: groups.remove_group(
        database, min(people.users(database)[0].group_ids), by()
    ),
    "he is removed": lambda database: people.remove_user(database, "ann", by()),
    "he is another of that name": lambda database: [
        people.remove_user(database, "ann", by()),
        people.add_user(database, "ann", by()),
    ],
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_session_ends_with_what_it_rests_on(database: Database, ending: str) -> None:
    somebody(database)
    token = session(database)
    ENDINGS[ending](database)
    assert sessions.actor_by(database, token, now_ms=NOW_MS) is None
    assert count(database) == 0, "it does not come back"


def test_it_ends_when_it_is_idle_and_at_the_latest_after_a_week(database: Database) -> None:
    somebody(database)
    idle, used = session(database), session(database)
    step_ms = sessions.IDLE_MS - 1
    now_ms = NOW_MS
    while now_ms + step_ms < NOW_MS + sessions.LIFE_MS:
        now_ms += step_ms
        assert sessions.actor_by(database, used, now_ms=now_ms) is not None, now_ms
    assert sessions.actor_by(database, idle, now_ms=NOW_MS + sessions.IDLE_MS) is None
    assert sessions.actor_by(database, used, now_ms=NOW_MS + sessions.LIFE_MS) is None


def test_who_signs_out_is_out_and_others_are_not(database: Database) -> None:
    somebody(database)
    one, other = session(database), session(database)
    assert sessions.end_session(database, one, now_ms=NOW_MS)
    assert not sessions.end_session(database, one, now_ms=NOW_MS)
    assert sessions.actor_by(database, one, now_ms=NOW_MS) is None
    assert sessions.actor_by(database, other, now_ms=NOW_MS) is not None
    assert [row.action for row in audit_of(database, "user:ann")][:3] == [
        "sign out", "sign in", "sign in"
    ]  # fmt: skip


def test_a_user_has_so_many_and_no_more_and_old_ones_are_forgotten(database: Database) -> None:
    somebody(database)
    first = session(database)
    tokens = [session(database, now_ms=NOW_MS + at) for at in range(1, sessions.SESSIONS_MAX + 1)]
    assert sessions.actor_by(database, first, now_ms=NOW_MS + 99) is None
    assert all(sessions.actor_by(database, one, now_ms=NOW_MS + 99) for one in tokens)
    assert count(database) == sessions.SESSIONS_MAX
    session(database, now_ms=NOW_MS + 2 * sessions.IDLE_MS)
    assert count(database) == 1


def test_a_password_that_was_changed_while_it_was_looked_at_lets_nobody_in(
    database: Database,
) -> None:
    somebody(database)
    for kept in (NO_PASSWORD, "scrypt$another"):
        assert sessions.begin_session(database, "ann", kept, now_ms=NOW_MS) is None
    assert sessions.begin_session(database, "eve", KEPT, now_ms=NOW_MS) is None
    give(database, "ann", NO_PASSWORD)
    assert sessions.begin_session(database, "ann", NO_PASSWORD, now_ms=NOW_MS) is None
    assert count(database) == 0


@pytest.mark.parametrize("name", ["eve", "", "x" * 500, "\x00", "\ud800", "a b", "ä"])
def test_a_failure_is_written_down_whatever_the_name_is(database: Database, name: str) -> None:
    assert sessions.kept_password(database, name) == NO_PASSWORD
    sessions.note_failure(database, name, now_ms=NOW_MS)
    [noted] = [one for one in audit_of(database) if one.action == "sign in failed"]
    assert noted.detail == name[:64]
    assert noted.subject == ("user:eve" if name == "eve" else "user:?")


def test_who_only_looks_changes_nothing() -> None:
    looker = Actor("", is_admin=True, only_looks=True)
    allowed = {action for action in Action if may(looker, action, 7)}
    assert allowed == {Action.SEE_JOBS}
