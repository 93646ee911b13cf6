"""Two shippers serve one table and both merge its files: every row stays there once."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections import Counter
from pathlib import Path

from engine.telemetry.shipper.arrow_schemas import Speaker, SpooledRow
from engine.telemetry.shipper.bronze_table import BronzeTable
from engine.telemetry.tables import LIFECYCLE

COMPACT_COMMITS = 4
OPENINGS = 150


def append(table: BronzeTable, emitter: str, seq: int) -> None:
    values = ("ROLE_CHANGE", True, None, None, None, "a row")
    row = SpooledRow(seq, 1, time.time_ns() // 1000, values)
    table.append(Speaker("c", "b", emitter), [row])


def rows(table: BronzeTable) -> Counter[tuple[str, int]]:
    table._handle.update_incremental()
    there = table._handle.to_pyarrow_table(columns=["emitter", "seq"]).to_pylist()
    return Counter((row["emitter"], row["seq"]) for row in there)


def test_a_shipper_merges_what_another_has_not_merged_meanwhile(tmp_path: Path) -> None:
    address = str(tmp_path / "lifecycle")
    first = BronzeTable(LIFECYCLE, address, {}, compact_commits=COMPACT_COMMITS)
    second = BronzeTable(LIFECYCLE, address, {}, compact_commits=COMPACT_COMMITS)
    for seq in range(1, COMPACT_COMMITS + 1):
        append(first, "a", seq)
        append(second, "b", seq)
    first.tidy()
    second.tidy()
    wanted = Counter((emitter, seq) for emitter in "ab" for seq in range(1, COMPACT_COMMITS + 1))
    assert rows(first) == wanted
    assert len(first._handle.file_uris()) == 1


def test_while_another_merges_a_shipper_waits_for_its_next_shipment(tmp_path: Path) -> None:
    address = tmp_path / "lifecycle"
    table = BronzeTable(LIFECYCLE, str(address), {}, compact_commits=COMPACT_COMMITS)
    for seq in range(1, COMPACT_COMMITS + 1):
        append(table, "a", seq)
    other = os.open(address / "_delta_log", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        table.tidy()
        assert len(table._handle.file_uris()) == COMPACT_COMMITS
    finally:
        os.close(other)
    table.tidy()
    assert len(table._handle.file_uris()) == 1


def test_a_table_is_opened_at_any_moment_of_another_shipper_s_commits(tmp_path: Path) -> None:
    """What was written is asked for before the table is opened, for the other one goes on."""
    address = str(tmp_path / "lifecycle")
    first = BronzeTable(LIFECYCLE, address, {}, compact_commits=1_000)
    is_over = threading.Event()

    def ship() -> None:
        for seq in range(1, 1_000):
            append(first, "a", seq)
            if is_over.is_set():
                return

    shipping = threading.Thread(target=ship)
    shipping.start()
    try:
        for _ in range(OPENINGS):
            BronzeTable(LIFECYCLE, address, {}, compact_commits=1_000)
    finally:
        is_over.set()
        shipping.join()
