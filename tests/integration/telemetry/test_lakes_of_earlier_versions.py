"""A lake whose tables were made before the newest columns and tables were declared: it is shipped
to as before, and read as before, by whoever comes first.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.foundation.observing import LifecycleEvent, OffsetAnswer
from engine.telemetry.shipper.arrow_schemas import Speaker, SpooledRow
from engine.telemetry.shipper.bronze_table import BronzeTable
from engine.telemetry.tables import LIFECYCLE, OFFSET_ANSWERS, SHIPMENTS, TABLES, Table
from pipelines.lake.lake import Lake
from tests.integration.telemetry.bronze_rows import read_bronze
from tests.integration.telemetry.shipping import Setting, event

EARLIER = {
    LIFECYCLE: ("kind", "clean", "truncated_from", "truncated_to", "term", "detail"),
    SHIPMENTS: ("seq_from", "seq_to", "event_time_to", "rows"),
}
"""The own columns that these tables had then."""
SPEAKER = Speaker("cluster-1", "broker-b", "cluster-1/broker-b/0")
ROWS = {
    LIFECYCLE: ("BOOT", True, None, None, None, "of an earlier version"),
    SHIPMENTS: (1, 1, 7_000_000, [("lifecycle", 1)]),
}


def earlier(table: Table) -> Table:
    """The table as it was declared then."""
    own = tuple(column for column in table.own if column.name in EARLIER[table])
    assert table.own[: len(own)] == own, "columns are only ever added at the end"
    return replace(table, own=own)


def by_broker(setting: Setting, table: str) -> list[dict[str, Any]]:
    """The row of then, and the one of now."""
    rows = read_bronze(setting.lake, table)
    return sorted(rows, key=lambda row: row["broker"] != SPEAKER.broker)


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    """A lake with one row of another broker in each table of then."""
    setting = Setting(tmp_path)
    for table, values in ROWS.items():
        made = BronzeTable(earlier(table), str(setting.lake / "bronze" / table.name), {})
        made.append(SPEAKER, [SpooledRow(1, 3, 7_000_000, values)])
    return setting


def test_columns_declared_since_are_added_and_null_in_the_rows_of_then(setting: Setting) -> None:
    setting.report(
        LifecycleEvent("TOPIC_GONE", "deleted", topic="orders"),
        OffsetAnswer("c@1", "g", "orders", 0, 2, 2, 5, "c@2"),
    )
    setting.ship()
    before, after = by_broker(setting, "lifecycle")
    assert (before["detail"], before["topic"]) == ("of an earlier version", None)
    assert (after["kind"], after["topic"]) == ("TOPIC_GONE", "orders")
    first, second = by_broker(setting, "shipments")
    assert first["shipped_time"] is None
    assert second["shipped_time"] is not None
    (answer,) = read_bronze(setting.lake, "offset_answers")
    assert (answer["told_offset"], answer["pulled"], answer["last_puller"]) == (2, 5, "c@2")


@pytest.mark.parametrize("table", list(EARLIER), ids=lambda table: table.name)
def test_who_reads_before_anything_new_is_shipped_finds_nulls(
    setting: Setting, table: Table
) -> None:
    lake = Lake(str(setting.lake))
    (row,) = lake.rows(lake.bronze(table.name), "TRUE", table.columns).to_pylist()
    since = [column.name for column in table.own if column.name not in EARLIER[table]]
    assert since
    assert {row[name] for name in since} == {None}
    assert not lake.exists(lake.bronze(OFFSET_ANSWERS.name))


def test_every_table_stands_where_an_earlier_spool_has_it() -> None:
    assert [table.name for table in TABLES] == [
        "consume_offsets",
        "queue_watermarks",
        "group_watermarks",
        "rebalance_events",
        "client_windows",
        "retry_dlq_flow",
        "redeliveries",
        "flush_checkpoints",
        "lifecycle",
        "shipments",
        "offset_answers",
        "consume_stats",
        "cold_reads",
        "reused_offsets",
        "delay_levels",
        "unread_deletions",
        "pop_watermarks",
    ]


def test_a_shipment_says_when_it_was_shipped_by_the_wall_clock(setting: Setting) -> None:
    setting.report(event("up"))
    began_us = time.time_ns() // 1000
    setting.ship()
    _, shipment = by_broker(setting, "shipments")
    shipped_us = shipment["shipped_time"]
    assert began_us - 1000 <= shipped_us <= began_us + 60_000_000
