"""The shipper on a real folder and real Delta tables: what it makes, repeats and drops."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from engine.foundation.observing import (
    ClientWindow,
    FlushDone,
    OwnedQueue,
    QueueWatermark,
    RebalanceEvent,
)
from engine.runtime import SystemClock, system_runtime
from engine.telemetry import EmitterIdentity, Telemetry
from engine.telemetry.segments import read_shipped_mark, segment_name
from engine.telemetry.shipper.bronze_table import (
    COMPACT_TARGET_BYTES,
    LARGE_TARGET_BYTES,
    BronzeTable,
)
from engine.telemetry.shipper.shipper import Shipper, interval_after
from engine.telemetry.shipper.spool_reader import SpoolReader
from engine.telemetry.tables import BY_NAME, TABLES, ColumnType
from tests.integration.telemetry.bronze_rows import assert_exactly_once, read_all, read_bronze
from tests.integration.telemetry.shipping import MASTER, ROOT, Setting, event, report, texts


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


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
    setting.report(
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
    assert used == set(ColumnType) - {ColumnType.REPLICAS}, "the last one is of gold alone"


# What it repeats, and what it does not


def test_rows_are_shipped_from_the_segment_that_is_still_written(setting: Setting) -> None:
    shipper = setting.shipper()
    setting.report(event("one"))
    assert shipper.ship() == 1
    setting.report(event("two"), event("three"))
    assert shipper.ship() == 2
    assert shipper.ship() == 0
    assert texts(setting) == ["one", "two", "three"]


def test_a_new_shipper_ships_nothing_again(setting: Setting) -> None:
    setting.report(event("one"))
    assert setting.ship() == 1
    assert setting.ship() == 0
    (setting.spool / "shipped").unlink()
    assert setting.ship() == 0, "the lake itself knows, without the mark"
    assert texts(setting) == ["one"]


def test_the_mark_has_of_each_table_what_the_table_knows(setting: Setting) -> None:
    shipper = setting.shipper()
    setting.report(event("one"), FlushDone("INDEX", "FLUSH", "SHUTDOWN", 1, 1, None, 9))
    shipper.ship()
    setting.report(event("three"))
    shipper.ship()
    mark = read_shipped_mark(system_runtime().disk, str(setting.spool))
    assert mark is not None
    known = {}
    for table in TABLES:
        delta = DeltaTable(str(setting.lake / "bronze" / table.name))
        known[table.name] = delta.transaction_version(f"{MASTER.emitter}/{table.name}")
    assert mark.tables == {name: seq for name, seq in known.items() if seq is not None}
    assert mark.tables == {"flush_checkpoints": 2, "lifecycle": 3, "shipments": 3}


@pytest.mark.parametrize("shipped_tables", [1, 2])
def test_a_shipper_that_died_between_its_tables_is_completed_not_repeated(
    setting: Setting, shipped_tables: int
) -> None:
    setting.report(event("one"), report(7), event("two"))
    setting.ship()
    setting.report(event("three"), report(8))
    reader = SpoolReader(system_runtime().disk, str(setting.spool))
    reader.seek(4)
    run = reader.read(1000)
    assert run is not None
    for number in sorted(run.rows)[:shipped_tables]:  # As far as the dead one came.
        table = TABLES[number]
        delta = BronzeTable(table, str(setting.lake / "bronze" / table.name), {})
        assert delta.append(run.speaker, run.rows[number]) == 1
        assert delta.append(run.speaker, run.rows[number]) == 0, "asked again, it adds nothing"
    setting.report(event("four"))
    setting.ship()
    rows = read_all(setting.lake)
    assert assert_exactly_once(rows, MASTER.emitter) == 6
    assert texts(setting) == ["one", "two", "three", "four"]


def test_a_write_that_landed_although_it_failed_is_not_repeated(setting: Setting) -> None:
    setting.report(event("one"))
    setting.ship()
    setting.report(event("two"))
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
        setting.report(event(f"fact {number}"))
        shipper.ship()
    table = DeltaTable(setting.lake / "bronze" / "lifecycle")
    table.optimize.compact()
    table.create_checkpoint()
    table.cleanup_metadata()
    assert list(setting.log("lifecycle", 0).parent.glob("*.checkpoint.parquet"))
    setting.report(event("last"))
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
        setting.report(event(f"fact {number}"))
        run = reader.read(1000)
        assert run is not None
        table.append(run.speaker, run.rows[TABLES.index(table.declared)])
        table.tidy()
    assert len(DeltaTable(folder).file_uris()) == 2, "one merged file and the newest commit's"
    merges = [
        int(entry["operationParameters"]["targetSize"])
        for entry in reversed(DeltaTable(folder).history())
        if entry["operation"] == "OPTIMIZE"
    ]
    assert merges == [LARGE_TARGET_BYTES, COMPACT_TARGET_BYTES], "most leave larger files alone"
    assert texts(setting) == [f"fact {number}" for number in range(9)]
    assert table.shipped_seq("cluster-1/broker-a/0/lifecycle") == 9


def test_two_brokers_share_a_lake_each_with_its_own_seq(setting: Setting, tmp_path: Path) -> None:
    other = EmitterIdentity("cluster-1", "broker-b", 0)
    spool = str(tmp_path / "other" / "spool")
    telemetry = Telemetry.open(system_runtime(), spool, other)
    ours, theirs = setting.shipper(), Shipper(system_runtime(), spool, str(setting.lake), {})
    for number in range(5):
        setting.report(event(f"a {number}"))
        telemetry.observe(event(f"b {number}"))
        telemetry.write_turn()
        assert (ours.ship(), theirs.ship()) == (1, 1)
    rows = read_all(setting.lake)
    assert assert_exactly_once(rows, MASTER.emitter) == 5
    assert assert_exactly_once(rows, other.emitter) == 5


@pytest.mark.parametrize(
    ("cpu_s", "interval_s"),
    [(0.001, 1.0), (0.03, 1.0), (0.06, 2.0), (0.075, 2.5), (10.0, 2.5)],
)
def test_a_costly_shipment_is_followed_by_a_longer_pause_within_limits(
    cpu_s: float, interval_s: float
) -> None:
    assert interval_after(cpu_s) == pytest.approx(interval_s), "three per cent of one processor"


# Time without rows


class SteppedClock(SystemClock):
    """The machine's clock, whose steady part moves only when set."""

    def __init__(self) -> None:
        super().__init__()
        self.ms = 0

    def steady_ms(self) -> int:
        return self.ms


def test_an_idle_emitter_is_vouched_for_every_five_seconds(setting: Setting) -> None:
    clock = SteppedClock()
    runtime = replace(system_runtime(), clock=clock)
    shipper = Shipper(runtime, str(setting.spool), str(setting.lake), {})
    setting.report(event("one"))
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
    setting.report(event("one"))
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
    setting.telemetry = setting.boot(segment_bytes=200)
    setting.telemetry.pulled("g", "t", 0, 9, "c@1")
    for number in range(30):
        setting.report(event(f"fact {number}"))
    assert len(list(setting.spool.glob("*.seg"))) > 5
    setting.ship()
    setting.ship()
    (newest,) = setting.spool.glob("*.seg")
    again = setting.boot()
    assert again.next_seq == 31
    assert again.pulled_marks()["g", "t", 0].offset == 9
    assert newest.name != segment_name(1)
    assert len(texts(setting)) == 30


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
    setting.report(event("reported just before the end"))
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    process.stdout.close()
    assert texts(setting) == ["reported just before the end"]


PARENT = """
import os, subprocess, sys
subprocess.run([sys.executable, *sys.argv[1:], "--parent", str(os.getpid())])
"""


def test_a_child_ships_the_rest_and_ends_when_its_broker_was_killed(setting: Setting) -> None:
    broker = subprocess.Popen(
        [
            sys.executable,
            "-c",
            PARENT,
            *("-m", "engine.telemetry.shipper"),
            *("--store", str(setting.store), "--lake", str(setting.lake)),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert broker.stdout is not None
    assert broker.stdout.readline().startswith("shipping ")
    setting.report(event("reported just before the kill"))
    broker.kill()
    broker.wait(10)
    assert broker.stdout.read() == "", "the pipe ends when the child does"
    broker.stdout.close()
    assert texts(setting) == ["reported just before the kill"]
