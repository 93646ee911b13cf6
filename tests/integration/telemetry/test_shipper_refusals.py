"""What the shipper refuses, in one sentence, and what it mends after a power cut."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from engine.foundation.errors import ConfigError, LakeError
from engine.foundation.observing import LifecycleEvent
from engine.runtime import system_runtime
from engine.telemetry.shipper.bronze_table import BronzeTable
from engine.telemetry.shipper.shipper import sole_shipper
from engine.telemetry.shipper.spool_reader import SpoolReader
from engine.telemetry.tables import BY_NAME, TABLES
from tests.integration.telemetry.bronze_rows import assert_exactly_once, read_all
from tests.integration.telemetry.shipping import MASTER, Setting, event, run_shipper, texts


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


# What it refuses


def damage_log_away(setting: Setting) -> None:
    shutil.rmtree(setting.log("lifecycle", 0).parent)


def damage_commit(setting: Setting) -> None:
    setting.log("lifecycle", 2).write_text('{"add":')


def damage_empty_commit(setting: Setting) -> None:
    setting.log("lifecycle", 2).write_text("")


def damage_gap(setting: Setting) -> None:
    setting.log("lifecycle", 1).unlink()


def damage_lost_end(setting: Setting) -> None:
    setting.log("lifecycle", 2).unlink()


def damage_table_gone(setting: Setting) -> None:
    shutil.rmtree(setting.lake / "bronze" / "lifecycle")


def damage_file_for_a_folder(setting: Setting) -> None:
    shutil.rmtree(setting.lake)
    setting.lake.write_text("not a lake")


def damage_foreign_table(setting: Setting) -> None:
    shutil.rmtree(setting.lake / "bronze" / "lifecycle")
    write_deltalake(setting.lake / "bronze" / "lifecycle", pa.table({"a": [1]}))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (damage_log_away, "holds files but no Delta log"),
        (damage_commit, "is damaged, although it was whole once"),
        (damage_empty_commit, "is damaged, although it was whole once"),
        (damage_gap, "cannot be used as table lifecycle"),
        (damage_lost_end, "lost commits"),
        (damage_table_gone, "but 2 was shipped"),
        (damage_file_for_a_folder, "cannot be used as table"),
        (damage_foreign_table, "is not our table lifecycle"),
    ],
)
def test_a_half_written_lake_is_refused_and_the_spool_keeps_everything_for_the_repaired_one(
    setting: Setting, tmp_path: Path, damage: Callable[[Setting], None], sentence: str
) -> None:
    for text in ("one", "two"):
        setting.report(event(text))
        setting.ship()
    setting.report(event("three"))
    shutil.copytree(setting.lake, tmp_path / "copy")
    damage(setting)
    with pytest.raises(LakeError, match=sentence) as refused:
        setting.ship()
    assert "\n" not in str(refused.value)

    if setting.lake.is_dir():
        shutil.rmtree(setting.lake)
    else:
        setting.lake.unlink()
    (tmp_path / "copy").rename(setting.lake)
    assert setting.ship() == 1
    assert texts(setting) == ["one", "two", "three"]


def test_the_command_says_one_sentence_and_ends_with_1(setting: Setting) -> None:
    setting.report(event("one"))
    setting.ship()
    damage_log_away(setting)
    done = run_shipper(setting, "--once")
    assert done.returncode == 1
    assert done.stdout == ""
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("tidemark shipper: ")
    assert "Put its _delta_log back or move the folder away" in sentence


def test_a_lake_that_vanishes_while_shipping_stops_the_shipper_without_a_new_half(
    setting: Setting,
) -> None:
    shipper = setting.shipper()
    setting.report(event("one"))
    shipper.ship()
    setting.lake.rename(setting.lake.with_name("away"))
    setting.report(event("two"))
    with pytest.raises(LakeError, match="the spool keeps everything"):
        shipper.ship()
    assert not setting.lake.exists()
    setting.lake.with_name("away").rename(setting.lake)
    setting.ship()
    assert texts(setting) == ["one", "two"]


def test_a_deleted_lake_is_made_again_while_the_spool_still_has_everything(
    setting: Setting,
) -> None:
    setting.report(event("one"))
    setting.ship()
    shutil.rmtree(setting.lake)
    assert setting.ship() == 1
    assert texts(setting) == ["one"]


def test_another_lake_is_refused_once_segments_were_dropped(setting: Setting) -> None:
    setting.telemetry = setting.boot(segment_bytes=1)
    for number in range(3):
        setting.report(event(f"fact {number}"))
    setting.ship()
    setting.ship()
    shutil.rmtree(setting.lake)
    with pytest.raises(LakeError, match=r"up to seq 0, spool .* begins behind 2"):
        setting.ship()


@pytest.mark.parametrize("behind_us", [1, 2, 100])
def test_another_spool_of_the_same_name_is_refused_when_its_clock_is_behind(
    setting: Setting, behind_us: int
) -> None:
    setting.clock.us = 1_000
    setting.telemetry = setting.boot()
    setting.report(event("one"), event("two"))
    setting.ship()
    shutil.rmtree(setting.spool)
    setting.clock.us -= behind_us
    setting.telemetry = setting.boot()
    assert setting.ship() == 0, "nothing to refuse yet"
    for text in ("other one", "other two", "other three"):
        setting.report(event(text))
        with pytest.raises(LakeError, match=r"is not the one in spool .* start it again"):
            setting.ship()
    assert texts(setting) == ["one", "two"]
    setting.clock.us = 2_000
    setting.telemetry = setting.boot()
    setting.report(event("three"))
    setting.ship()
    assert texts(setting) == ["one", "two", "three"], "as it was asked to do"


def test_a_second_shipper_on_one_spool_is_refused(setting: Setting) -> None:
    with sole_shipper(str(setting.spool)):
        with (
            pytest.raises(ConfigError, match="one shipper per spool"),
            sole_shipper(str(setting.spool)),
        ):
            pass
        done = run_shipper(setting)
        assert done.returncode == 1
        assert "one shipper per spool" in done.stderr
    assert run_shipper(setting, "--once").returncode == 0


def test_shipping_once_needs_a_store_that_exists(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    shutil.rmtree(setting.store)
    done = run_shipper(setting, "--once")
    assert done.returncode == 1
    assert "the store folder of a broker that has run" in done.stderr


def test_a_value_that_must_be_known_but_is_not_stops_the_shipper_and_names_the_row(
    setting: Setting,
) -> None:
    kind: Any = None
    setting.report(event("one"), LifecycleEvent(kind, "no kind"))
    with pytest.raises(LakeError, match=r"lifecycle\.kind must be known, but is not in row 2"):
        setting.ship()


# After a power cut: delta-rs syncs nothing, so what was not synced by us may be torn


def tear_entry(entry: Path, data: Path) -> None:
    del data
    entry.write_text("")


def tear_entry_half(entry: Path, data: Path) -> None:
    del data
    entry.write_bytes(entry.read_bytes()[:-40])


def tear_data(entry: Path, data: Path) -> None:
    del entry
    data.write_bytes(bytes(data.stat().st_size))


def tear_data_away(entry: Path, data: Path) -> None:
    del entry
    data.unlink()


@pytest.mark.parametrize("tear", [tear_entry, tear_entry_half, tear_data, tear_data_away])
def test_commits_torn_by_a_power_cut_are_set_aside_and_come_again_from_the_spool(
    setting: Setting, tear: Callable[[Path, Path], None]
) -> None:
    setting.report(event("one"))
    setting.ship()
    setting.report(event("two"))
    reader = SpoolReader(system_runtime().disk, str(setting.spool))
    reader.seek(2)
    run = reader.read(1000)
    assert run is not None
    table = BY_NAME["lifecycle"]
    folder = setting.lake / "bronze" / "lifecycle"
    synced = (folder / "_tidemark_synced").read_text()
    BronzeTable(table, str(folder), {}).append(run.speaker, run.rows[TABLES.index(table)])
    (folder / "_tidemark_synced").write_text(synced)  # The cut came before the sync.
    actions = [json.loads(line) for line in setting.log("lifecycle", 2).read_text().splitlines()]
    (data,) = [folder / action["add"]["path"] for action in actions if "add" in action]
    tear(setting.log("lifecycle", 2), data)

    setting.ship()
    rows = read_all(setting.lake)
    assert assert_exactly_once(rows, MASTER.emitter) == 2
    assert texts(setting) == ["one", "two"]


def test_a_checkpoint_torn_by_a_power_cut_is_removed(setting: Setting) -> None:
    setting.report(event("one"))
    setting.ship()
    folder = setting.lake / "bronze" / "lifecycle"
    synced = (folder / "_tidemark_synced").read_text()
    setting.report(event("two"))
    setting.ship()
    DeltaTable(folder).create_checkpoint()
    (checkpoint,) = (folder / "_delta_log").glob("*.checkpoint.parquet")
    (folder / "_tidemark_synced").write_text(synced)  # The cut came before the sync.
    checkpoint.write_bytes(b"PAR1")
    (folder / "_delta_log" / "_last_checkpoint").write_text("")
    setting.report(event("three"))
    setting.ship()
    assert texts(setting) == ["one", "two", "three"]
