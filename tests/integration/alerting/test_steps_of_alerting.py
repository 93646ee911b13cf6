"""What alerting knows is stored whole, by the leader alone, on SQLite and on PostgreSQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from engine.foundation.errors import ConfigError
from pipelines.alerting.alerts import State, entry_of
from pipelines.alerting.store import changes, people
from pipelines.alerting.store.steps import Cursor, GroupAt, Step, load, take
from pipelines.alerting.store.tidying import tidy
from pipelines.database import database as opening
from pipelines.database import leads, operations
from pipelines.database.database import Database, LeadHeld, LeadLost, StoreTooNew, StoreUnavailable
from pipelines.database.leads import Lead
from pipelines.database.limits import (
    NOTICES_KEPT_US,
    RESOLVED_KEPT_US,
    SILENCES_KEPT_US,
    WAITING_MAX,
)
from pipelines.database.tables import Ended, Kept, metadata, notices
from pipelines.scheduler.store import tables as scheduler_tables
from tests.integration.alerting.stores import (
    LAKE,
    NOW_US,
    SECOND_US,
    a_notice,
    an_alert,
    emptied,
    postgresql_address,
    resolved,
    sqlite_address,
)

TTL_US = 15 * SECOND_US
HOSTILE = "\x00\ud800\u202e<b>';DROP TABLE alerts--\n"
GROUP = GroupAt("on-call", HOSTILE)


@pytest.fixture(scope="module")
def a_postgresql() -> Iterator[str]:
    with postgresql_address() as address:
        yield address


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return sqlite_address(tmp_path)
    return emptied(request.getfixturevalue("a_postgresql"))


@pytest.fixture
def database(address: str) -> Iterator[Database]:
    opened = Database.at(address)
    yield opened
    opened.close()


def leading(database: Database, holder: str = "one", now_us: int = NOW_US) -> leads.Lead:
    return leads.acquire(database, "alerts", holder, now_us=now_us, lasts_us=TTL_US)


def kept(database: Database) -> list[tuple[str, str]]:
    with database.reading() as connection:
        rows = connection.execute(
            sa.select(notices.c.notice_id, notices.c.state).order_by(notices.c.seq)
        )
        return [(row.notice_id, row.state) for row in rows]


def test_changes_that_many_write_at_once_are_numbered_without_a_gap(database: Database) -> None:
    entry = entry_of(an_alert(), "ACKED", observed_us=NOW_US, recorded_us=NOW_US, author=HOSTILE)

    def write(_: int) -> None:
        with database.writing() as connection:
            changes.record(connection, LAKE, [entry, entry])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(10)))
    with pytest.raises(LeadLost):  # What is not stored leaves no gap either.
        take(database, LAKE, Step(entries=[entry]), lead=Lead("r", 1, 1), now_us=NOW_US)
    write(0)
    waiting = changes.waiting(database, LAKE, rows_max=100)
    assert waiting is not None
    assert [seq for seq, _ in waiting.entries] == list(range(1, 23))
    assert all(one == entry for _, one in waiting.entries)
    changes.carried(database, LAKE, waiting.history, seq=20)
    changes.carried(database, LAKE, "another", seq=22)
    left = changes.waiting(database, LAKE, rows_max=100)
    assert left is not None
    assert [seq for seq, _ in left.entries] == [21, 22]


def test_a_step_is_read_as_it_was_stored_whatever_texts_are_in_it(database: Database) -> None:
    alert = an_alert(
        labels={HOSTILE: HOSTILE}, annotations={"summary": HOSTILE}, figures={"of": float("inf")}
    )
    step = Step(
        alerts=[alert, resolved(1)],
        groups={GROUP: '{"number": 1}'},
        notices=[a_notice(group_key=HOSTILE, alerts=(alert,))],
        cursor=Cursor("run-1", 7),
    )

    take(database, LAKE, step, lead=leading(database), now_us=NOW_US)

    held = load(database, LAKE)
    assert set(map(str, held.alerts)) == {str(alert), str(resolved(1))}
    assert held.cursor == Cursor("run-1", 7)
    assert held.groups == {GROUP: '{"number": 1}'}
    assert kept(database) == [("n1", Kept.WAITING)]
    assert load(database, "another lake").alerts == ()


def test_a_later_step_changes_what_an_earlier_one_left(database: Database) -> None:
    lead = leading(database)
    first = Step(
        alerts=[an_alert(0), an_alert(1), an_alert(2)],
        groups={GROUP: "1", GroupAt("mail", "g"): "1"},
        cursor=Cursor("run-1", 1),
    )
    take(database, LAKE, first, lead=lead, now_us=NOW_US)
    then = Step(
        alerts=[resolved(0)],
        forgotten=[an_alert(1).fingerprint],
        groups={GROUP: "2"},
        ended_groups=[GroupAt("mail", "g")],
        cursor=Cursor("run-1", 2),
    )

    take(database, LAKE, then, lead=lead, now_us=NOW_US)

    held = load(database, LAKE)
    assert {alert.fingerprint: alert.state for alert in held.alerts} == {
        an_alert(0).fingerprint: State.RESOLVED,
        an_alert(2).fingerprint: State.FIRING,
    }
    assert held.groups == {GROUP: "2"}
    assert held.cursor == Cursor("run-1", 2)


def test_a_notice_that_is_there_already_is_not_stored_again(database: Database) -> None:
    lead = leading(database)
    for _ in range(2):
        step = Step(notices=[a_notice("n1"), a_notice("n2")])
        take(database, LAKE, step, lead=lead, now_us=NOW_US)

    assert kept(database) == [("n1", Kept.WAITING), ("n2", Kept.WAITING)]


def test_a_step_that_cannot_be_stored_whole_leaves_nothing(database: Database) -> None:
    lead = leading(database)
    twice = [a_notice("n1"), a_notice("n1")]
    step = Step(alerts=[an_alert()], notices=twice, cursor=Cursor("run-1", 1))

    with pytest.raises(sa.exc.IntegrityError):
        take(database, LAKE, step, lead=lead, now_us=NOW_US)

    assert load(database, LAKE).alerts == ()
    assert load(database, LAKE).cursor is None
    assert kept(database) == []


def test_a_leader_that_was_followed_stores_nothing_more(database: Database) -> None:
    first = leading(database, "one")
    with pytest.raises(LeadHeld, match="one does the alerts"):
        leading(database, "two", NOW_US + TTL_US - 1)
    second = leading(database, "two", NOW_US + TTL_US)

    with pytest.raises(LeadLost):
        take(database, LAKE, Step(alerts=[an_alert()]), lead=first, now_us=NOW_US)
    with pytest.raises(LeadLost):
        leads.renew(database, first, now_us=NOW_US + TTL_US)

    take(database, LAKE, Step(alerts=[an_alert(1)]), lead=second, now_us=NOW_US + TTL_US)
    assert [alert.labels["queue"] for alert in load(database, LAKE).alerts] == ["1"]


def test_storing_keeps_the_lead_and_giving_it_back_frees_it(database: Database) -> None:
    first = leading(database, "one")
    take(database, LAKE, Step(), lead=first, now_us=NOW_US + 10 * SECOND_US)
    with pytest.raises(LeadHeld):
        leading(database, "two", NOW_US + TTL_US)

    leads.release(database, first)

    assert leads.holder_of(database, "alerts", now_us=NOW_US) is None
    second = leading(database, "two", NOW_US + TTL_US)
    assert second.token == first.token + 1
    assert leads.holder_of(database, "alerts", now_us=NOW_US + TTL_US) == "two"
    with pytest.raises(LeadLost):
        leads.renew(database, first, now_us=NOW_US)


def test_a_lease_of_a_clock_that_was_ahead_is_over_once_it_was_watched(database: Database) -> None:
    hour_us = 3_600 * SECOND_US
    leading(database, "ahead", NOW_US + hour_us)

    with pytest.raises(LeadHeld) as seen:
        leading(database, "two", NOW_US)
    with pytest.raises(LeadHeld) as again:
        leads.acquire(
            database,
            "alerts",
            "two",
            now_us=NOW_US + TTL_US - 1,
            lasts_us=TTL_US,
            watched=seen.value.sight,
        )
    lead = leads.acquire(
        database,
        "alerts",
        "two",
        now_us=NOW_US + TTL_US,
        lasts_us=TTL_US,
        watched=again.value.sight,
    )
    assert lead.token == 2


def test_of_many_that_ask_at_once_one_leads(address: str) -> None:
    def ask(number: int) -> int | None:
        opened = Database.at(address)
        try:
            return leading(opened, f"process {number}").token
        except LeadHeld:
            return None
        finally:
            opened.close()

    with ThreadPoolExecutor(6) as threads:
        tokens = list(threads.map(ask, range(6)))

    assert sorted(token for token in tokens if token is not None) == [1]


def test_the_tables_that_migrations_make_are_those_that_the_code_uses(
    database: Database, address: str
) -> None:
    tables = {**metadata.tables, **scheduler_tables.metadata.tables}
    made = sa.MetaData()
    engine = sa.create_engine(address)
    made.reflect(engine)
    indexes = {
        name: {index["name"] for index in sa.inspect(engine).get_indexes(name)} for name in tables
    }
    engine.dispose()

    for name, table in tables.items():
        there = made.tables[name]
        assert {column.name: (column.nullable, column.primary_key) for column in table.columns} == {
            column.name: (column.nullable, column.primary_key) for column in there.columns
        }
        assert {index.name for index in table.indexes} <= indexes[name]
    assert made.tables.keys() - tables.keys() == {"tidemark_versions"}


def test_a_database_of_a_later_version_is_refused_and_left_alone(address: str) -> None:
    Database.at(address).close()
    _say_version(address, "9999")

    with pytest.raises(StoreTooNew, match=r"later version \(9999\): update Tidemark"):
        Database.at(address)


def _say_version(address: str, version: str) -> None:
    engine = sa.create_engine(address)
    with engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE tidemark_versions SET version_num = :version"), {"version": version}
        )
    engine.dispose()


def test_a_locked_database_is_an_error_after_a_bounded_wait_and_nothing_is_half_done(
    address: str, database: Database
) -> None:
    lead = leading(database)
    if address.startswith("sqlite"):
        other: Any = sqlite3.connect(address.removeprefix("sqlite:///"), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
    else:
        other = psycopg.connect(address)
        other.execute("LOCK TABLE leads IN ACCESS EXCLUSIVE MODE")
    try:
        with pytest.raises(StoreUnavailable, match="lock"):
            take(database, LAKE, Step(alerts=[an_alert()]), lead=lead, now_us=NOW_US)
    finally:
        other.rollback()
        other.close()

    assert load(database, LAKE).alerts == ()
    take(database, LAKE, Step(alerts=[an_alert()]), lead=lead, now_us=NOW_US)
    assert len(load(database, LAKE).alerts) == 1


def test_a_database_that_is_gone_is_named_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable) as refused:
        Database.at("postgresql://somebody:canary-secret@127.0.0.1:1/none")
    assert "canary-secret" not in str(refused.value)
    with pytest.raises(StoreUnavailable):
        Database.at(f"sqlite:///{tmp_path}/missing/tidemark.db")


@pytest.mark.parametrize(
    "address",
    ["canary-secret", "mysql://a:canary-secret@h/n", "sqlite://", "sqlite:///:memory:", "", "x://"],
)
def test_an_address_that_is_none_is_refused_without_telling_it(address: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Database.at(address)
    assert "canary-secret" not in str(refused.value)


def test_a_home_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    home = tmp_path / "100% mine"

    Database.in_folder(home).close()

    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / opening.FILE_NAME).exists()


def test_beyond_the_limit_the_oldest_of_a_group_is_replaced_and_its_news_is_kept(
    database: Database,
) -> None:
    lead = leading(database)
    notice = a_notice("old", group_key="A", alerts=(resolved(1), an_alert(2)))
    crowd = [a_notice(f"c{at}", group_key=f"group {at}") for at in range(WAITING_MAX - 1)]
    take(database, LAKE, Step(notices=[notice, *crowd]), lead=lead, now_us=NOW_US)

    newer = a_notice("new", group_key="A", alerts=(an_alert(3),))
    take(database, LAKE, Step(notices=[newer]), lead=lead, now_us=NOW_US)

    states = dict(kept(database))
    assert states.pop("old") == Kept.REPLACED
    assert set(states.values()) == {Kept.WAITING}
    with database.reading() as connection:
        body = connection.scalar(sa.select(notices.c.body).where(notices.c.notice_id == "new"))
    assert body is not None
    assert resolved(1).fingerprint in body
    assert an_alert(2).fingerprint not in body


def test_silences_are_kept_until_they_end_and_can_be_ended_early(database: Database) -> None:
    silence = people.Silence(
        "s1", HOSTILE, HOSTILE, NOW_US, NOW_US + 100, NOW_US, None, '{"matchers": []}'
    )
    people.add_silence(database, LAKE, silence)

    assert people.silences_of(database, LAKE) == (silence,)
    with pytest.raises(ConfigError, match="no silence has yet"):
        people.add_silence(database, LAKE, silence)
    with pytest.raises(ConfigError, match="after its begin"):
        people.add_silence(database, LAKE, replace(silence, silence_id="s2", to_us=NOW_US))
    assert not people.expire_silence(database, LAKE, "s1", now_us=NOW_US + 100)
    assert people.expire_silence(database, LAKE, "s1", now_us=NOW_US + 50)
    assert not people.expire_silence(database, LAKE, "s1", now_us=NOW_US + 51)
    assert people.silences_of(database, LAKE, ending_after_us=NOW_US + 50) == ()
    (ended,) = people.silences_of(database, LAKE)
    assert ended.expired_us == NOW_US + 50


def test_the_last_acknowledgement_of_an_alert_counts_and_goes_with_it(database: Database) -> None:
    lead = leading(database)
    alert = an_alert()
    take(database, LAKE, Step(alerts=[alert]), lead=lead, now_us=NOW_US)
    first = people.Ack(alert.fingerprint, alert.active_at_us, "anna", HOSTILE, NOW_US)
    last = replace(first, author="bert", acked_us=NOW_US + 1)
    for ack in (first, last):
        people.acknowledge(database, LAKE, ack)

    assert people.acks_of(database, LAKE) == (last,)
    gone = Step(forgotten=[alert.fingerprint])
    take(database, LAKE, gone, lead=lead, now_us=NOW_US)
    tidy(database, LAKE, now_us=NOW_US)
    assert people.acks_of(database, LAKE) == ()


def test_an_operation_ends_once_or_runs_out_of_time(database: Database, address: str) -> None:
    end_us = NOW_US + 60 * SECOND_US
    for name in ("a", "b"):
        operations.begin(database, name, "replay", now_us=NOW_US, expires_us=end_us)
    with pytest.raises(ConfigError, match="no operation has yet"):
        operations.begin(database, "a", "replay", now_us=NOW_US, expires_us=end_us)

    assert operations.end(database, "a", Ended.DONE, result=HOSTILE, now_us=NOW_US + 1)
    assert not operations.end(database, "a", Ended.FAILED, result="again", now_us=NOW_US + 2)
    assert not operations.end(database, "b", Ended.DONE, result="late", now_us=end_us)

    later = Database.at(address)
    done = operations.operation(later, "a", now_us=NOW_US + 5)
    running = operations.running(later, "replay", now_us=NOW_US + 5)
    over = operations.operation(later, "b", now_us=end_us)
    later.close()
    assert done is not None
    assert (done.state, done.result, done.ended_us) == (Ended.DONE, HOSTILE, NOW_US + 1)
    assert [operation.operation_id for operation in running] == ["b"]
    assert over is not None
    assert (over.state, over.ended_us) == (Ended.EXPIRED, end_us)


def test_what_is_over_is_forgotten_and_what_is_open_stays(database: Database) -> None:
    lead = leading(database)
    step = Step(alerts=[an_alert(0), resolved(1)], notices=[a_notice("n1"), a_notice("n2")])
    take(database, LAKE, step, lead=lead, now_us=NOW_US)
    with database.writing() as connection:
        connection.execute(
            sa.update(notices)
            .where(notices.c.notice_id == "n1")
            .values(state=Kept.DELIVERED.value, ended_us=NOW_US)
        )
    silence = people.Silence("s1", "a", "c", NOW_US, NOW_US + 1, NOW_US, None, "{}")
    people.add_silence(database, LAKE, silence)
    operations.begin(database, "o", "replay", now_us=NOW_US, expires_us=NOW_US + 1)

    assert tidy(database, LAKE, now_us=NOW_US + RESOLVED_KEPT_US) == 0
    assert tidy(database, LAKE, now_us=NOW_US + RESOLVED_KEPT_US + NOTICES_KEPT_US) == 3
    assert tidy(database, LAKE, now_us=NOW_US + SILENCES_KEPT_US + 2) == 1

    assert [alert.labels["queue"] for alert in load(database, LAKE).alerts] == ["0"]
    assert kept(database) == [("n2", Kept.WAITING)]
