"""A store is emptied, put back from older copies, killed and shipped in any order: the lake gets
every row of the present store once, and none is passed off as another.
"""

from __future__ import annotations

import random
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from engine.foundation.errors import LakeError
from engine.runtime import system_runtime
from engine.telemetry.shipper.bronze_table import BronzeTable
from engine.telemetry.shipper.shipper import Shipper
from engine.telemetry.shipper.spool_reader import SpoolReader
from engine.telemetry.tables import TABLES
from tests.integration.telemetry.bronze_rows import (
    Row,
    assert_exactly_once,
    read_all,
    read_bronze,
)
from tests.integration.telemetry.shipping import MASTER, Setting, event, report, texts
from tests.integration.telemetry.test_shipper_crash_points import Died, DyingDisk
from tests.seeds import seeded

SEGMENT_BYTES = 400
STEPS = 30


class Story:
    """`reported` is what the present store has written; `all_reported` what any store has."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.choice = random.Random(seed)
        self.setting = Setting(folder)
        self.setting.clock.us = 1_700_000_000_000_000
        self.copies: list[tuple[Path, list[int], int]] = []
        """Of each its folder, what was reported by then, and the last seq."""
        self.reported: list[int] = []
        self.number = 0
        self.shipper: Shipper | None = None
        self.boot()

    def boot(self) -> None:
        self.setting.clock.us += self.choice.randint(1_000, 10_000_000)
        self.setting.telemetry = self.setting.boot(segment_bytes=SEGMENT_BYTES)
        self.report()

    def report(self) -> None:
        """Facts of two tables."""
        for _ in range(self.choice.randint(1, 4)):
            self.number += 1
            self.reported.append(self.number)
            number = self.number
            self.setting.report(
                event(str(number)) if self.choice.random() < 0.5 else report(number)
            )
        if self.choice.random() < 0.3:
            self.setting.telemetry.tick()

    def empty(self) -> None:
        self.setting.disk.die()
        shutil.rmtree(self.setting.store)
        self.reported = []
        self.boot()

    def copy(self) -> None:
        place = self.setting.store.with_name(f"copy-{len(self.copies)}")
        shutil.copytree(self.setting.store, place)
        self.copies.append((place, list(self.reported), self.setting.telemetry.next_seq - 1))

    def put_back(self) -> None:
        if not self.copies:
            return
        self.setting.disk.die()
        shutil.rmtree(self.setting.store)
        place, reported, last_seq = self.choice.choice(self.copies)
        shutil.copytree(place, self.setting.store)
        arrived = self.arrived()
        is_late = any(row["seq"] > last_seq for row in self.own_rows())
        self.reported = [number for number in reported if number in arrived or not is_late]
        if self.choice.random() < 0.3:
            with suppress(LakeError):
                self.ship()  # Before any broker has begun with it.
        self.boot()

    def ship(self) -> None:
        self.shipper = None
        self.setting.ship()

    def ship_on(self) -> None:
        """By a shipper that outlives whatever happens to the store."""
        self.shipper = self.shipper or self.setting.shipper()
        for _ in range(2):
            self.shipper.ship()

    def ship_and_die(self) -> None:
        self.shipper = None
        disk = DyingDisk(self.choice.randint(1, 40))
        try:
            lake = str(self.setting.lake)
            runtime = replace(system_runtime(), disk=disk)
            Shipper(runtime, str(self.setting.spool), lake, {}).ship_all()
        except Died:
            pass

    def ship_half(self) -> None:
        """One table has its rows of a shipment, then the shipper dies."""
        self.ship()
        self.report()
        shipments = read_bronze(self.setting.lake, "shipments")
        horizon = max(row["seq_to"] for row in shipments)
        reader = SpoolReader(system_runtime().disk, str(self.setting.spool))
        reader.seek(horizon + 1)
        run = reader.read(1_000)
        assert run is not None
        table = TABLES[min(run.rows)]
        address = str(self.setting.lake / "bronze" / table.name)
        BronzeTable(table, address, {}).append(run.speaker, run.rows[min(run.rows)])

    def own_rows(self) -> list[Row]:
        if not self.setting.lake.exists():
            return []
        tables = (table.name for table in TABLES if table.name != "shipments")
        return [row for name in tables for row in read_bronze(self.setting.lake, name)]

    def arrived(self) -> list[int]:
        """The numbers of the facts that are in the lake."""
        rows = [row for row in self.own_rows() if row.get("kind") != "SPOOL_LOSS"]
        return [row["offset"] if "offset" in row else int(row["detail"]) for row in rows]

    def check(self) -> None:
        self.ship()
        arrived = self.arrived()
        assert len(arrived) == len(set(arrived)), "nothing twice"
        assert not set(self.reported) - set(arrived), "nothing lost"
        assert set(arrived) <= set(range(1, self.number + 1))
        seqs = [row["seq"] for row in self.own_rows()]
        assert len(seqs) == len(set(seqs))
        horizon = 0
        for row in read_bronze(self.setting.lake, "shipments"):
            assert row["seq_from"] == horizon + 1 + row["skipped"]
            horizon = row["seq_to"]
            promised = range(row["seq_from"], row["seq_to"] + 1)
            assert set(seqs).issuperset(promised), "a shipment has all its rows"


@seeded(5)
def test_whatever_happens_to_a_store_its_rows_arrive_once(tmp_path: Path, seed: int) -> None:
    story = Story(tmp_path, seed)
    steps = [
        *(story.report, story.boot, story.empty, story.copy, story.put_back),
        *(story.ship, story.ship_on, story.ship_and_die, story.ship_half),
    ]
    for _ in range(STEPS):
        story.choice.choice(steps)()
    story.check()


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    setting = Setting(tmp_path)
    setting.clock.us = 1_700_000_000_000_000
    setting.telemetry = setting.boot()
    return setting


def test_an_emptied_store_goes_on_behind_its_earlier_rows(setting: Setting) -> None:
    setting.report(event("one"), event("two"))
    setting.ship()
    setting.report(event("lost with the store"))
    shutil.rmtree(setting.store)
    setting.clock.us += 1_000
    setting.telemetry = setting.boot()
    setting.report(event("three"))
    setting.ship()
    assert texts(setting) == ["one", "two", "three"]
    rows = read_all(setting.lake)
    assert assert_exactly_once(rows, MASTER.emitter) == 3
    first, second = (row for row in rows["shipments"])
    assert second["seq_from"] == setting.clock.us, "the time is the seq that a life begins with"
    assert second["skipped"] == second["seq_from"] - first["seq_to"] - 1 > 0


def test_an_older_copy_of_a_store_goes_on_behind_what_was_shipped_since(
    setting: Setting, tmp_path: Path
) -> None:
    setting.report(event("one"), event("two"))
    setting.ship()
    shutil.copytree(setting.store, tmp_path / "copy")
    setting.report(*(event(f"of another time {number}") for number in range(5)))
    setting.ship()
    setting.disk.die()
    shutil.rmtree(setting.store)
    (tmp_path / "copy").rename(setting.store)
    assert setting.ship() == 0, "nothing that is not there"
    setting.clock.us += 1_000
    setting.telemetry = setting.boot()
    setting.report(*(event(f"new {number}") for number in range(9)))
    setting.ship()
    assert texts(setting)[7:] == [f"new {number}" for number in range(9)], (
        "as many as were reported"
    )
    assert assert_exactly_once(read_all(setting.lake), MASTER.emitter) == 16
    assert len(list(setting.spool.glob("*.seg"))) == 1, "what is shipped is dropped"


@pytest.mark.parametrize("others", [1, 3, 9])
def test_a_copy_whose_clock_has_gone_back_is_refused_whatever_it_writes(
    setting: Setting, tmp_path: Path, others: int
) -> None:
    setting.report(event("one"))
    setting.ship()
    shutil.copytree(setting.store, tmp_path / "copy")
    setting.report(*(event(f"of another time {number}") for number in range(3)))
    setting.ship()
    setting.disk.die()
    shutil.rmtree(setting.store)
    (tmp_path / "copy").rename(setting.store)
    setting.clock.us -= 1_000_000
    setting.telemetry = setting.boot()
    setting.report(*(event(f"other {number}") for number in range(others)))
    with pytest.raises(LakeError, match="is not the one in spool"):
        setting.ship()


def test_a_clock_that_went_back_by_less_than_a_life_does_no_harm(setting: Setting) -> None:
    setting.report(event("one"))
    setting.clock.us += 3_600_000_000
    setting.report(event("two"))
    setting.ship()
    shutil.rmtree(setting.store)
    setting.clock.us -= 3_000_000_000
    setting.telemetry = setting.boot()
    setting.report(event("three"))
    setting.ship()
    assert texts(setting) == ["one", "two", "three"]


def test_an_observer_whose_store_was_emptied_goes_on_in_the_life_that_it_observes(
    setting: Setting,
) -> None:
    for text in ("one", "two"):
        shutil.rmtree(setting.store)
        setting.clock.us += 1_000
        setting.telemetry = setting.boot(broker_epoch=7)
        setting.report(event(text), event(f"after {text}"))
        setting.ship()
    assert texts(setting) == ["one", "after one", "two", "after two"]
    rows = read_all(setting.lake)
    assert assert_exactly_once(rows, MASTER.emitter) == 4
    assert {row["broker_epoch"] for row in rows["lifecycle"]} == {7}


def test_rows_that_another_store_has_overtaken_are_passed_over_and_said_to_be(
    setting: Setting, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    setting.report(event("one"))
    setting.ship()
    setting.report(event("too late"))
    shutil.copytree(setting.store, tmp_path / "copy")
    shutil.rmtree(setting.store)
    setting.clock.us += 1_000
    setting.telemetry = setting.boot()
    setting.report(event("of another store"))
    setting.ship()
    setting.disk.die()
    shutil.rmtree(setting.store)
    (tmp_path / "copy").rename(setting.store)
    setting.clock.us += 1_000
    setting.telemetry = setting.boot()
    setting.report(event("two"))
    setting.ship()
    assert texts(setting) == ["one", "of another store", "two"]
    assert "rows up to that one that are not in the lake are lost" in caplog.text
    caplog.clear()
    setting.report(event("three"))
    setting.ship()
    assert caplog.text == "", "once"


def test_a_shipper_that_runs_while_an_older_copy_is_laid_over_the_store_refuses_what_collides(
    setting: Setting, tmp_path: Path
) -> None:
    shipper = setting.shipper()
    setting.report(event("one"))
    shipper.ship()
    shutil.copytree(setting.spool, tmp_path / "copy")
    setting.report(event("two"), event("three"))
    shipper.ship()
    setting.disk.die()
    shutil.rmtree(setting.spool)
    (tmp_path / "copy").rename(setting.spool)
    setting.clock.us -= 1_000_000
    setting.telemetry = setting.boot()
    setting.report(event("other two"), event("other three"))
    assert shipper.ship() == 0
    with pytest.raises(LakeError, match="is not the one in spool"):
        shipper.ship()


def test_a_shipper_that_runs_while_the_store_is_replaced_refuses_what_collides(
    setting: Setting,
) -> None:
    shipper = setting.shipper()
    setting.report(event("one"), event("two"))
    shipper.ship()
    shutil.rmtree(setting.spool)
    setting.clock.us -= 1
    setting.telemetry = setting.boot()
    setting.report(event("other one"), event("other two"))
    assert shipper.ship() == 0
    with pytest.raises(LakeError, match="is not the one in spool"):
        shipper.ship()
