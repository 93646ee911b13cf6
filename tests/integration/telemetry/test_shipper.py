"""The shipper on a real folder and real Delta tables: what it makes, repeats, refuses and drops."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from engine.foundation.errors import ConfigError, LakeError
from engine.foundation.observing import (
    ClientWindow,
    Fact,
    FlushDone,
    LifecycleEvent,
    OffsetReport,
    OwnedQueue,
    QueueWatermark,
    RebalanceEvent,
)
from engine.runtime import SystemClock, system_runtime
from engine.telemetry import EmitterIdentity, Telemetry
from engine.telemetry.segments import segment_name
from engine.telemetry.shipper.lake import BronzeTable
from engine.telemetry.shipper.shipper import Shipper, sole_shipper
from engine.telemetry.shipper.spool_reader import SpoolReader
from engine.telemetry.tables import BY_NAME, TABLES, ColumnType
from tests.integration.telemetry.bronze_rows import assert_exactly_once, read_all, read_bronze
from tests.unit.telemetry.mortal_disk import MortalDisk

ROOT = Path(__file__).parents[3]
MASTER = EmitterIdentity("cluster-1", "broker-a", 0)


class Setting:
    """A store with a spool, a lake, and the telemetry that writes into the one."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "store"
        self.spool = self.store / "spool"
        self.lake = folder / "lake"
        self.disk = MortalDisk()
        self.telemetry = self.boot()

    def boot(self, **settings: Any) -> Telemetry:
        """The broker's next life; the one before, if any, was killed."""
        self.disk.die()
        runtime = replace(system_runtime(), disk=self.disk)
        return Telemetry.open(runtime, str(self.spool), MASTER, **settings)

    def tell(self, *facts: Fact) -> None:
        for fact in facts:
            self.telemetry.observe(fact)
        self.telemetry.write_turn()

    def shipper(self) -> Shipper:
        return Shipper(system_runtime(), str(self.spool), str(self.lake), {})

    def ship(self) -> int:
        return self.shipper().ship_all()

    def log(self, table: str, version: int) -> Path:
        return self.lake / "bronze" / table / "_delta_log" / f"{version:020d}.json"


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


def event(text: str) -> LifecycleEvent:
    return LifecycleEvent("ROLE_CHANGE", text)


def report(offset: int) -> OffsetReport:
    return OffsetReport("g", "t", 0, offset, None, "COMMIT_RPC", "TIMER", "c", True, 0, 100)


def texts(setting: Setting) -> list[str]:
    """What the lifecycle table tells, in the order of seq."""
    return [row["detail"] for row in read_bronze(setting.lake, "lifecycle")]


def run_shipper(setting: Setting, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "engine.telemetry.shipper"),
            *("--store", str(setting.store), "--lake", str(setting.lake)),
            *arguments,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# What it makes


def test_every_table_is_made_at_start_with_its_schema_and_readable_by_everyone(
    setting: Setting,
) -> None:
    setting.shipper()
    for table in TABLES:
        delta = DeltaTable(setting.lake / "bronze" / table.name)
        fields = delta.schema().fields
        assert [field.name for field in fields] == [column.name for column in table.columns]
        assert [field.nullable for field in fields] == [c.nullable for c in table.columns]
        assert [field.metadata["comment"] for field in fields] == [
            column.meaning for column in table.columns
        ]
        protocol = delta.protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
        assert not protocol.reader_features
        assert delta.metadata().partition_columns == ["event_date"]
        assert delta.metadata().configuration["delta.checkpointInterval"] == "100"


def test_a_fact_of_each_kind_arrives_column_by_column(setting: Setting) -> None:
    setting.tell(
        event("up"),
        RebalanceEvent(
            "g", "c@1", "JOINED", False, 1, before=[], after=["c@1"],
            queues=[OwnedQueue("t", 3, 40, None)],
        ),
        QueueWatermark("t", 3, 0, 50, 50, None, 1_700_000_000_123, True),
        ClientWindow(
            "c@1", "g", "t", 3, 40, 49, 10, 1000, [(40, 45), (47, 50)], 2, None, "id", None, 40,
            True, False, None, None,
        ),
        FlushDone("INDEX", "FLUSH", "SHUTDOWN", 1, 1, None, 9),
    )  # fmt: skip
    setting.ship()
    rows = read_all(setting.lake)
    (joined,) = rows["rebalance_events"]
    assert joined["before"] == []
    assert joined["after"] == ["c@1"]
    assert joined["queues"] == [{"topic": "t", "queue_id": 3, "committed": 40, "pulled": None}]
    (window,) = rows["client_windows"]
    assert window["held_ranges"] == [
        {"from_offset": 40, "to_offset": 45},
        {"from_offset": 47, "to_offset": 50},
    ]
    (watermark,) = rows["queue_watermarks"]
    assert watermark["last_store_time"] == 1_700_000_000_123_000
    common = {name: watermark[name] for name in ("cluster", "broker", "emitter", "broker_epoch")}
    assert common == {
        "cluster": "cluster-1",
        "broker": "broker-a",
        "emitter": "cluster-1/broker-a/0",
        "broker_epoch": setting.telemetry.broker_epoch,
    }
    assert assert_exactly_once(rows, MASTER.emitter) == 5


def test_every_type_of_the_vocabulary_reaches_a_table() -> None:
    used = {column.type for table in TABLES for column in table.columns}
    assert used == set(ColumnType)


# What it repeats, and what it does not


def test_rows_are_shipped_from_the_segment_that_is_still_written(setting: Setting) -> None:
    shipper = setting.shipper()
    setting.tell(event("one"))
    assert shipper.ship() == 1
    setting.tell(event("two"), event("three"))
    assert shipper.ship() == 2
    assert shipper.ship() == 0
    assert texts(setting) == ["one", "two", "three"]


def test_a_new_shipper_ships_nothing_again(setting: Setting) -> None:
    setting.tell(event("one"))
    assert setting.ship() == 1
    assert setting.ship() == 0
    (setting.spool / "shipped").unlink()
    assert setting.ship() == 0, "the lake itself knows, without the mark"
    assert texts(setting) == ["one"]


@pytest.mark.parametrize("shipped_tables", [1, 2])
def test_a_shipper_that_died_between_its_tables_is_completed_not_repeated(
    setting: Setting, shipped_tables: int
) -> None:
    setting.tell(event("one"), report(7), event("two"))
    setting.ship()
    setting.tell(event("three"), report(8))
    reader = SpoolReader(system_runtime().disk, str(setting.spool))
    reader.seek(4)
    run = reader.read(1000)
    assert run is not None
    for number in sorted(run.rows)[:shipped_tables]:  # As far as the dead one came.
        table = TABLES[number]
        delta = BronzeTable(table, str(setting.lake / "bronze" / table.name), {})
        assert delta.append(run.speaker, run.rows[number]) == 1
        assert delta.append(run.speaker, run.rows[number]) == 0, "asked again, it adds nothing"
    setting.tell(event("four"))
    setting.ship()
    rows = read_all(setting.lake)
    assert assert_exactly_once(rows, MASTER.emitter) == 6
    assert texts(setting) == ["one", "two", "three", "four"]


def test_a_write_that_landed_although_it_failed_is_not_repeated(setting: Setting) -> None:
    setting.tell(event("one"))
    setting.ship()
    setting.tell(event("two"))
    reader = SpoolReader(system_runtime().disk, str(setting.spool))
    reader.seek(2)
    run = reader.read(1000)
    assert run is not None
    ((number, rows),) = run.rows.items()
    uri = str(setting.lake / "bronze" / TABLES[number].name)
    stale = BronzeTable(TABLES[number], uri, {})
    assert BronzeTable(TABLES[number], uri, {}).append(run.speaker, rows) == 1
    # The stale handle believes that the row is missing; its commit is refused, so it asks again.
    assert stale.append(run.speaker, rows) == 0
    setting.ship()
    assert texts(setting) == ["one", "two"]


def test_transactions_outlive_checkpoints_and_compaction(setting: Setting) -> None:
    shipper = setting.shipper()
    for number in range(12):
        setting.tell(event(f"fact {number}"))
        shipper.ship()
    table = DeltaTable(setting.lake / "bronze" / "lifecycle")
    table.optimize.compact()
    table.create_checkpoint()
    table.cleanup_metadata()
    assert list(setting.log("lifecycle", 0).parent.glob("*.checkpoint.parquet"))
    setting.tell(event("last"))
    assert setting.ship() == 1
    assert texts(setting) == [*(f"fact {number}" for number in range(12)), "last"]


def test_small_files_are_merged_now_and_then_and_rows_and_transactions_stay(
    setting: Setting,
) -> None:
    setting.shipper()
    folder = setting.lake / "bronze" / "lifecycle"
    table = BronzeTable(BY_NAME["lifecycle"], str(folder), {}, compact_commits=4)
    reader = SpoolReader(system_runtime().disk, str(setting.spool))
    for number in range(9):
        setting.tell(event(f"fact {number}"))
        run = reader.read(1000)
        assert run is not None
        table.append(run.speaker, run.rows[TABLES.index(table.declared)])
        table.tidy()
    assert len(DeltaTable(folder).file_uris()) == 2, "one merged file and the newest commit's"
    assert texts(setting) == [f"fact {number}" for number in range(9)]
    assert table.shipped_seq("cluster-1/broker-a/0/lifecycle") == 9


def test_two_brokers_share_a_lake_each_with_its_own_seq(setting: Setting, tmp_path: Path) -> None:
    other = EmitterIdentity("cluster-1", "broker-b", 0)
    spool = str(tmp_path / "other" / "spool")
    telemetry = Telemetry.open(system_runtime(), spool, other)
    ours, theirs = setting.shipper(), Shipper(system_runtime(), spool, str(setting.lake), {})
    for number in range(5):
        setting.tell(event(f"a {number}"))
        telemetry.observe(event(f"b {number}"))
        telemetry.write_turn()
        assert (ours.ship(), theirs.ship()) == (1, 1)
    rows = read_all(setting.lake)
    assert assert_exactly_once(rows, MASTER.emitter) == 5
    assert assert_exactly_once(rows, other.emitter) == 5


# Time without rows


class SteppedClock(SystemClock):
    """The machine's clock, whose steady part moves only when told."""

    def __init__(self) -> None:
        self.ms = 0

    def steady_ms(self) -> int:
        return self.ms


def test_an_idle_emitter_is_vouched_for_every_five_seconds(setting: Setting) -> None:
    clock = SteppedClock()
    runtime = replace(system_runtime(), clock=clock)
    shipper = Shipper(runtime, str(setting.spool), str(setting.lake), {})
    setting.tell(event("one"))
    shipper.ship()
    for _ in range(12):
        clock.ms += 1000
        setting.telemetry.tick()
        assert shipper.ship() == 0
    shipments = read_bronze(setting.lake, "shipments")
    assert [(row["seq_from"], row["seq_to"]) for row in shipments] == [(1, 1), (2, 1), (2, 1)]
    times = [row["event_time_to"] for row in shipments]
    assert times == sorted(set(times)), "the horizon moves"


def test_stopping_ships_the_last_sign_of_life(setting: Setting) -> None:
    shipper = setting.shipper()
    setting.tell(event("one"))
    shipper.ship()
    setting.telemetry.tick()
    shipper.ship()
    before = read_bronze(setting.lake, "shipments")
    shipper.ship_all()
    after = read_bronze(setting.lake, "shipments")
    assert len(after) == len(before) + 1
    assert after[-1]["event_time_to"] > before[-1]["event_time_to"]


# What it drops


def test_whole_shipped_segments_are_dropped_and_the_newest_stays(setting: Setting) -> None:
    setting.telemetry = setting.boot(segment_bytes=300)
    setting.telemetry.pulled("g", "t", 0, 9, "c@1")
    for number in range(30):
        setting.tell(event(f"fact {number}"))
    assert len(list(setting.spool.glob("*.seg"))) > 5
    setting.ship()
    setting.ship()
    (newest,) = setting.spool.glob("*.seg")
    again = setting.boot()
    assert again.next_seq == 31
    assert again.pulled_marks()["g", "t", 0].offset == 9
    assert newest.name != segment_name(1)
    assert len(texts(setting)) == 30


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
        setting.tell(event(text))
        setting.ship()
    setting.tell(event("three"))
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
    setting.tell(event("one"))
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
    setting.tell(event("one"))
    shipper.ship()
    setting.lake.rename(setting.lake.with_name("away"))
    setting.tell(event("two"))
    with pytest.raises(LakeError, match="the spool keeps everything"):
        shipper.ship()
    assert not setting.lake.exists()
    setting.lake.with_name("away").rename(setting.lake)
    setting.ship()
    assert texts(setting) == ["one", "two"]


def test_a_deleted_lake_is_made_again_while_the_spool_still_has_everything(
    setting: Setting,
) -> None:
    setting.tell(event("one"))
    setting.ship()
    shutil.rmtree(setting.lake)
    assert setting.ship() == 1
    assert texts(setting) == ["one"]


def test_another_lake_is_refused_once_segments_were_dropped(setting: Setting) -> None:
    setting.telemetry = setting.boot(segment_bytes=1)
    for number in range(3):
        setting.tell(event(f"fact {number}"))
    setting.ship()
    setting.ship()
    shutil.rmtree(setting.lake)
    with pytest.raises(LakeError, match=r"up to seq 0, spool .* begins at 3"):
        setting.ship()


def test_another_spool_of_the_same_name_is_refused(setting: Setting) -> None:
    setting.tell(event("one"), event("two"))
    setting.ship()
    shutil.rmtree(setting.spool)
    setting.telemetry = setting.boot()
    setting.tell(event("other one"))
    with pytest.raises(LakeError, match=r"up to seq 2, spool .* ends at 1: another spool"):
        setting.ship()
    setting.tell(event("other two"), event("other three"))
    with pytest.raises(LakeError, match=r"row 2 of cluster-1/broker-a/0 .* is not the one"):
        setting.ship()
    assert texts(setting) == ["one", "two"]


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
    setting.tell(event("one"), LifecycleEvent(kind, "no kind"))
    with pytest.raises(LakeError, match=r"lifecycle\.kind must be known, but is not in row 2"):
        setting.ship()


# The process


def test_sigterm_ships_what_is_there_and_ends_with_0(setting: Setting) -> None:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "engine.telemetry.shipper"),
            *("--store", str(setting.store), "--lake", str(setting.lake)),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == f"shipping {setting.spool} to {setting.lake}\n"
    setting.tell(event("told just before the end"))
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    process.stdout.close()
    assert texts(setting) == ["told just before the end"]


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
    setting.tell(event("one"))
    setting.ship()
    setting.tell(event("two"))
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
    shipper = setting.shipper()
    for number in range(98):
        setting.tell(event(f"fact {number}"))
        shipper.ship()
    folder = setting.lake / "bronze" / "lifecycle"
    synced = (folder / "_tidemark_synced").read_text()
    setting.tell(event("fact 98"))
    shipper.ship()
    (checkpoint,) = (folder / "_delta_log").glob("*.checkpoint.parquet")
    (folder / "_tidemark_synced").write_text(synced)
    checkpoint.write_bytes(b"PAR1")
    (folder / "_delta_log" / "_last_checkpoint").write_text("")
    setting.tell(event("fact 99"))
    setting.ship()
    assert texts(setting) == [f"fact {number}" for number in range(100)]
