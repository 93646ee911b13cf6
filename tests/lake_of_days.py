"""Writes a lake of many days from formulas and a seed, as Delta without Spark.

For questions about cost: what one minute of one group costs beside thirty days of all groups. The
files are as upkeep leaves them, one a day, clustered by group and time; the last minutes lie in
small files, one a cycle, as the live run writes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import WriterProperties, write_deltalake

from engine.telemetry.tables import BY_NAME as BRONZE
from pipelines.lake.lake import Lake
from pipelines.lake.schemas import arrow_schema
from pipelines.reading.catalogue import CONSUMER_LAG, GOLD_TABLES, GROUP_STATE
from tests.lake_story import BROKER, CLUSTER, EMITTER, START, begin_run, complete_cycle

SECOND_US = 1_000_000
DAY_S = 86_400
ROWS_PER_ROW_GROUP = 20_000
TAIL_S = 600
"""The last ten minutes are not compacted yet."""


@dataclass(frozen=True)
class Size:
    """How much there is."""

    days: int = 30
    groups: int = 20
    queues: int = 4
    report_each_s: int = 30
    cycle_s: int = 5

    @property
    def end(self) -> datetime:
        """Data time of the newest row."""
        return START + timedelta(days=self.days)


def write_lake_of_days(root: Path, size: Size, *, seed: int = 11) -> Lake:
    """consumer_lag and group_state of every group over all days; the other tables are there and
    empty."""
    lake = Lake.at(str(root))
    begin_run(lake)
    chance = np.random.default_rng(seed)
    base_s = int(START.timestamp())
    end_s = base_s + size.days * DAY_S
    for day in range(size.days):
        begin = base_s + day * DAY_S
        last = day == size.days - 1
        _append(lake, size, range(begin, begin + DAY_S - (TAIL_S if last else 0)), chance)
    for begin in range(end_s - TAIL_S, end_s, size.cycle_s):
        _append(lake, size, range(begin, begin + size.cycle_s), chance)
    for table in GOLD_TABLES:
        if not lake.exists(lake.gold(table.name)):
            empty = arrow_schema(table.columns).empty_table()
            write_deltalake(lake.gold(table.name), empty, partition_by=["observed_date"])
    shipments = arrow_schema(BRONZE["shipments"].columns).empty_table()
    write_deltalake(lake.bronze("shipments"), shipments, partition_by=["event_date"])
    complete_cycle(lake, {EMITTER: (size.end, 2**62)})
    return lake


def _append(lake: Lake, size: Size, seconds: range, chance: np.random.Generator) -> None:
    moments = np.array([s for s in seconds if s % size.report_each_s == 0], dtype=np.int64)
    if moments.size == 0:
        return
    _write(lake, CONSUMER_LAG.name, CONSUMER_LAG.columns, _lag(size, moments, chance))
    _write(lake, GROUP_STATE.name, GROUP_STATE.columns, _states(size, moments, chance))


def _write(lake: Lake, name: str, columns: Any, values: dict[str, Any]) -> None:
    schema = arrow_schema(columns)
    rows = len(values["seq"])
    arrays = [
        pa.array(values[field.name], field.type)
        if field.name in values
        else pa.nulls(rows, field.type)
        for field in schema
    ]
    write_deltalake(
        lake.gold(name),
        pa.Table.from_arrays(arrays, schema=schema),
        mode="append",
        partition_by=["observed_date"],
        writer_properties=WriterProperties(max_row_group_size=ROWS_PER_ROW_GROUP),
    )


def _common(size: Size, moments: np.ndarray, per_group: int) -> dict[str, Any]:
    rows = size.groups * per_group * moments.size
    observed = np.tile(moments, size.groups * per_group)
    names = [f"group-{number:04}" for number in range(size.groups)]
    return {
        "observed_at": (observed * SECOND_US).astype("datetime64[us]"),
        "observed_date": (observed // DAY_S).astype("datetime64[D]"),
        "cluster": _constant(CLUSTER, rows),
        "broker": _constant(BROKER, rows),
        "emitter": _constant(EMITTER, rows),
        "group": pa.array(names).take(
            pa.array(np.repeat(np.arange(size.groups), per_group * moments.size))
        ),
        "seq": np.arange(rows, dtype=np.int64) + int(moments[0]) * 1_000,
    }


def _lag(size: Size, moments: np.ndarray, chance: np.random.Generator) -> dict[str, Any]:
    common = _common(size, moments, size.queues)
    rows = len(common["seq"])
    behind = chance.integers(0, 200, rows)
    newest = common["seq"] + 1_000_000
    return {
        **common,
        "topic": _constant("orders", rows),
        "queue_id": np.tile(np.repeat(np.arange(size.queues), moments.size), size.groups),
        "lag_messages": behind,
        "time_lag_ms": behind * 125,
        "time_lag_error_ms": np.zeros(rows, dtype=np.int64),
        "provenance": _constant("EXACT", rows),
        "committed": newest - behind,
        "persisted": newest - behind - 20,
        "pulled": newest,
        "min_offset": np.zeros(rows, dtype=np.int64),
        "max_offset": newest,
        "trend": _constant("STEADY", rows),
        "lag_change_per_minute": chance.integers(-5, 5, rows),
        "last_commit_time": common["observed_at"],
        "last_pull_time": common["observed_at"],
        "last_puller": _constant("client-1@10.0.0.1", rows),
    }


def _states(size: Size, moments: np.ndarray, chance: np.random.Generator) -> dict[str, Any]:
    common = _common(size, moments, 1)
    rows = len(common["seq"])
    behind = chance.integers(0, 800, rows)
    return {
        **common,
        "state": _constant("OK", rows),
        "reason": _constant("The group is some messages behind on 4 queues.", rows),
        "lag_messages": behind,
        "time_lag_ms": behind * 30,
        "queues": np.full(rows, size.queues),
        "queues_known": np.full(rows, size.queues),
        "queues_not_ok": np.zeros(rows, dtype=np.int64),
        "members": np.full(rows, 2),
        "trend": _constant("STEADY", rows),
    }


def _constant(text: str, rows: int) -> pa.Array:
    return pa.array([text]).take(pa.array(np.zeros(rows, dtype=np.int64)))
