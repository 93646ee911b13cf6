"""Reads a lake's bronze tables back, and holds them against what every lake must be."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from engine.telemetry.tables import SHIPMENTS, TABLES

Row = dict[str, Any]


def read_bronze(lake: Path, table: str) -> list[Row]:
    """Rows of one table in the order of seq; times as µs since 1970."""
    folder = lake / "bronze" / table
    # delta-rs's file system is Python called from Arrow's threads; a thread that is still at work
    # when the process ends aborts it. Arrow's own has no Python in it.
    files = SubTreeFileSystem(str(folder), LocalFileSystem())
    arrow = DeltaTable(folder).to_pyarrow_table(filesystem=files)
    for at, field in enumerate(arrow.schema):
        if str(field.type).startswith("timestamp"):
            arrow = arrow.set_column(at, field.name, arrow.column(at).cast("int64"))
    rows: list[Row] = arrow.to_pylist()
    return sorted(rows, key=lambda row: (row["emitter"], row["seq"]))


def read_all(lake: Path) -> dict[str, list[Row]]:
    """Every bronze table by name."""
    return {table.name: read_bronze(lake, table.name) for table in TABLES}


def assert_exactly_once(rows: dict[str, list[Row]], emitter: str) -> int:
    """seq is unique for the broker over all tables, and gapless but for what its shipments say that
    a life passed over; return how many rows it has.

    Time and life never go back along seq, and the shipments account for every row.
    """
    own = sorted(
        (row["seq"], row["event_time"], row["broker_epoch"], table)
        for table, found in rows.items()
        for row in found
        if row["emitter"] == emitter
    )
    seqs = [seq for seq, *_ in own]
    assert len(seqs) == len(set(seqs)), "unique"
    assert all(later[1] >= earlier[1] for earlier, later in pairwise(own))
    assert all(later[2] >= earlier[2] for earlier, later in pairwise(own))
    assert SHIPMENTS.name not in {table for *_, table in own}

    shipments = [row for row in rows["shipments"] if row["emitter"] == f"{emitter}/shipper"]
    assert [row["seq"] for row in shipments] == list(range(1, len(shipments) + 1))
    horizon = accounted = 0
    times = {seq: event_time for seq, event_time, *_ in own}
    for row in shipments:
        assert row["seq_from"] == horizon + 1 + row["skipped"], "runs follow each other"
        horizon = row["seq_to"]
        counts = {count["table"]: count["rows"] for count in row["rows"]}
        there: dict[str, int] = {}
        run = own[bisect_left(seqs, row["seq_from"]) : bisect_right(seqs, horizon)]
        assert len(run) == horizon - row["seq_from"] + 1, "gapless"
        accounted += len(run)
        for *_, table in run:
            there[table] = there.get(table, 0) + 1
        assert counts == there
        later = times.get(horizon + 1)
        assert later is None or later > row["event_time_to"], "nothing older comes after it"
    assert accounted == len(own), "everything is shipped"
    return len(own)
