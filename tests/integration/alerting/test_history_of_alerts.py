"""Every change of an alert is in the lake once, whatever is killed when."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable

from engine.foundation.errors import LakeError
from pipelines.alerting.alerts import Entry, State, entry_of
from pipelines.alerting.history import Carrier, HistoryTable
from pipelines.alerting.store import changes, people
from pipelines.alerting.store.steps import Step, take
from pipelines.cycles.plan import PLANS
from pipelines.database import leads
from pipelines.database.database import Database
from pipelines.lake.lake import Lake
from pipelines.reading.alert_history import open_alerts
from pipelines.upkeep.plan import Writer
from pipelines.upkeep.settings import Upkeep
from pipelines.upkeep.table_facts import look, tables_of
from tests.integration.alerting.stores import LAKE, NOW_US, SECOND_US, an_alert, sqlite_address

ROOT = Path(__file__).parents[3]
HOSTILE = "\x00\ud800\u202e<b>';DROP TABLE alerts--\n"


class Killed(BaseException):
    """The process is no more."""


class Fragile(HistoryTable):
    """The table, and a process that dies before or after it takes something."""

    dies_before = dies_after = False

    def append(self, history: str, entries: Sequence[tuple[int, Entry]]) -> None:
        if self.dies_before:
            raise Killed
        super().append(history, entries)
        if self.dies_after:
            raise Killed


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database.at(sqlite_address(tmp_path))
    yield opened
    opened.close()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    (tmp_path / "lake").mkdir()
    return Lake.at(str(tmp_path / "lake"))


def entry(queue: int = 0, kind: str = "FIRED", **changed: object) -> Entry:
    alert = an_alert(queue, **changed)
    return entry_of(alert, kind, observed_us=NOW_US, recorded_us=NOW_US)


def note(database: Database, *entries: Entry) -> None:
    with database.writing() as connection:
        changes.record(connection, LAKE, entries)


def rows_in(lake: Lake) -> pl.DataFrame:
    frame = pl.from_arrow(DeltaTable(lake.gold("alerts")).to_pyarrow_table())
    assert isinstance(frame, pl.DataFrame)
    return frame.sort("history", "seq")


def numbers(lake: Lake) -> list[int]:
    return rows_in(lake)["seq"].to_list()


def left(database: Database) -> int:
    waits = changes.waiting(database, LAKE, rows_max=1_000)
    return 0 if waits is None else len(waits.entries)


@pytest.mark.parametrize("moment", ["dies_before", "dies_after"])
def test_who_is_killed_about_the_append_leaves_every_change_once(
    database: Database, lake: Lake, moment: str
) -> None:
    note(database, entry(1), entry(2))
    fragile = Fragile(lake)
    setattr(fragile, moment, True)
    with pytest.raises(Killed):
        Carrier(database, LAKE, fragile).carry()
    assert left(database) == 2
    note(database, entry(3))
    Carrier(database, LAKE, HistoryTable(lake)).carry()
    assert numbers(lake) == [1, 2, 3]
    assert left(database) == 0


def test_of_two_that_would_append_the_same_one_fails_and_nothing_is_there_twice(
    database: Database, lake: Lake
) -> None:
    note(database, entry(1))
    first, second = HistoryTable(lake), HistoryTable(lake)
    waits = changes.waiting(database, LAKE, rows_max=10)
    assert waits is not None
    assert first.taken(waits.history) == second.taken(waits.history) == 0
    first.append(waits.history, waits.entries)
    with pytest.raises(LakeError, match="takes no changes of alerts"):
        second.append(waits.history, waits.entries)
    assert second.taken(waits.history) == 1
    assert numbers(lake) == [1]


KILLS = """
import os, signal, sys
from pipelines.alerting.history import Carrier, HistoryTable
from pipelines.database.database import Database
from pipelines.cycles.plan import PLANS
from pipelines.lake.lake import Lake

class Table(HistoryTable):
    def append(self, history, entries):
        if sys.argv[4] == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        super().append(history, entries)
        os.kill(os.getpid(), signal.SIGKILL)

Carrier(Database.at(sys.argv[1]), sys.argv[2], Table(Lake.at(sys.argv[3]))).carry()
"""


def test_kill_minus_nine_before_and_after_the_append_leaves_every_change_once(
    database: Database, lake: Lake, tmp_path: Path
) -> None:
    for number, moment in enumerate(("before", "after"), start=1):
        note(database, entry(number))
        done = subprocess.run(
            [sys.executable, "-c", KILLS, sqlite_address(tmp_path), LAKE, lake.root, moment],
            cwd=ROOT,
            check=False,
        )
        assert done.returncode == -9
    Carrier(database, LAKE, HistoryTable(lake)).carry()
    assert numbers(lake) == [1, 2]


def test_changes_wait_while_the_lake_takes_none_and_go_when_it_does(
    database: Database, tmp_path: Path
) -> None:
    (tmp_path / "lake").write_text("no folder")
    lake = Lake.at(str(tmp_path / "lake"))
    carrier = Carrier(database, LAKE, HistoryTable(lake))
    note(database, entry(1))
    with pytest.raises(LakeError):
        carrier.carry()
    (tmp_path / "lake").unlink()
    (tmp_path / "lake").mkdir()
    note(database, entry(2))
    assert carrier.carry() == 2
    assert numbers(lake) == [1, 2]


def test_a_database_put_back_from_a_copy_goes_on_as_another_history_and_loses_nothing(
    database: Database, lake: Lake
) -> None:
    note(database, entry(1))
    with database.reading() as connection:
        before = connection.exec_driver_sql("SELECT history, last_seq FROM histories").one()
    note(database, entry(2), entry(3))
    Carrier(database, LAKE, HistoryTable(lake)).carry()
    with database.writing() as connection:
        connection.exec_driver_sql("UPDATE histories SET last_seq = 1, carried_seq = 0")
    Carrier(database, LAKE, HistoryTable(lake)).carry()
    note(database, entry(4))
    Carrier(database, LAKE, HistoryTable(lake)).carry()
    rows = rows_in(lake)
    assert rows.filter(history=before.history)["seq"].to_list() == [1, 2, 3]
    assert rows.filter(pl.col("history") != before.history)["seq"].to_list() == [2]


def test_a_table_that_was_moved_away_begins_with_what_waits(database: Database, lake: Lake) -> None:
    note(database, entry(1))
    Carrier(database, LAKE, HistoryTable(lake)).carry()
    other = Lake.at(f"{lake.root}-anew")
    note(database, entry(2))
    pl.DataFrame({"cycle": [1]}).write_delta(other.state(PLANS))
    Carrier(database, LAKE, HistoryTable(other)).carry()
    assert numbers(other) == [2]


def test_where_a_lake_is_gone_no_table_is_made_and_changes_wait_until_it_is_back(
    database: Database, lake: Lake
) -> None:
    note(database, entry(1))
    carrier = Carrier(database, LAKE, HistoryTable(lake))
    carrier.carry()
    root = Path(lake.root)
    root.rename(root.with_name("away"))
    note(database, entry(2))
    for one in (carrier, Carrier(database, LAKE, HistoryTable(lake))):
        with pytest.raises(LakeError, match="gone"):
            one.carry()
    assert not root.exists()
    root.with_name("away").rename(root)
    carrier.carry()
    assert numbers(lake) == [1, 2]


def test_a_step_and_an_ack_write_their_changes_in_the_same_transaction(
    database: Database, lake: Lake
) -> None:
    lead = leads.acquire(database, "alerts", "one", now_us=NOW_US, lasts_us=SECOND_US)
    alert = an_alert(1, annotations={"summary": HOSTILE})
    fired = entry_of(alert, "FIRED", observed_us=NOW_US, recorded_us=NOW_US)
    take(database, LAKE, Step([alert], entries=[fired]), lead=lead, now_us=NOW_US)
    ack = people.Ack(alert.fingerprint, alert.active_at_us, "ann", HOSTILE, NOW_US + SECOND_US)
    people.acknowledge(database, LAKE, ack)
    late = people.Ack(alert.fingerprint, alert.active_at_us - 1, "bob", "", NOW_US)
    people.acknowledge(database, LAKE, late)  # Of the one before: its alert is over.
    Carrier(database, LAKE, HistoryTable(lake)).carry()
    rows = rows_in(lake)
    assert rows["kind"].to_list() == ["FIRED", "ACKED"]
    assert rows["comment"].to_list() == [None, "\x00?\u202e<b>';DROP TABLE alerts--\n"]
    now = open_alerts(rows)
    assert now.select("fingerprint", "state", "acked_by").rows() == [
        (alert.fingerprint, "FIRING", "ann")
    ]


def test_upkeep_knows_the_table_and_drops_days_that_are_too_old(
    database: Database, lake: Lake
) -> None:
    note(database, entry(1), entry(2, state=State.RESOLVED, resolved_at_us=NOW_US))
    Carrier(database, LAKE, HistoryTable(lake)).carry()
    (table,) = tables_of(lake)
    _, facts = look(lake, table)
    assert (table.name, facts.writer) == ("gold/alerts", Writer.DELTA_RS)
    assert facts.partition_column == "observed_date"
    assert Upkeep().days_of(table.name) == 400
