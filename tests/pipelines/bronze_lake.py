"""A seeded writer of bronze lakes: the rows an emitter would report for a story played in calls.

Only the wording of stories is ours; tables, columns and shipments are exactly the shipper's:
(emitter, seq) gapless over all tables, one shipments row per `ship`, whose emitter is the emitter's
name and "/shipper".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from engine.telemetry.tables import BY_NAME
from pipelines.lake.lake import Lake
from pipelines.lake.schemas import arrow_schema

START_US = int(datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC).timestamp()) * 1_000_000
SECOND = 1_000_000
REQUIRED = {
    name: [column.name for column in table.columns if not column.nullable]
    for name, table in BY_NAME.items()
}
"""Per table the columns that are never null."""


class BronzeWriter:
    """One emitter: collects rows, ships them as its shipper would."""

    def __init__(
        self,
        lake: Path,
        *,
        cluster: str = "cluster-1",
        broker: str = "broker-a",
        start_us: int = START_US,
    ) -> None:
        self.lake = Lake.at(str(lake))
        self.cluster = cluster
        self.broker = broker
        self.emitter = f"{cluster}/{broker}/0"
        self.now_us = start_us
        self.epoch_us = start_us - 3600 * SECOND
        self.seq = 0
        self._shipped_to = 0
        self._shipment = 0
        self._waiting: dict[str, list[dict[str, Any]]] = {}
        self._tables: dict[str, DeltaTable] = {}
        """Once written, they stay open: to read the whole log for each append cost more than it."""

    def at(self, second: float) -> None:
        """Set the emitter's clock, in seconds after the story's start."""
        self.now_us = START_US + int(second * SECOND)

    def report(self, table: str, **values: Any) -> int:
        """One row of `table` now; returns its seq."""
        self.seq += 1
        self._waiting.setdefault(table, []).append(self._row(table, self.emitter, self.seq, values))
        return self.seq

    def ship(self) -> None:
        """Append what waits to its tables, then the shipments row that says so."""
        for table, rows in self._waiting.items():
            self._append(table, rows)
        counts = [{"table": name, "rows": len(rows)} for name, rows in self._waiting.items()]
        self._waiting = {}
        self._shipment += 1
        values = {
            "seq_from": self._shipped_to + 1,
            "seq_to": self.seq,
            "event_time_to": self.now_us,
            "rows": counts,
        }
        self._shipped_to = self.seq
        shipper = f"{self.emitter}/shipper"
        self._append("shipments", [self._row("shipments", shipper, self._shipment, values)])

    def _row(self, table: str, emitter: str, seq: int, values: dict[str, Any]) -> dict[str, Any]:
        own = {name: values.pop(name, None) for name in BY_NAME[table].own_names}
        assert not values, f"{table} has no columns {sorted(values)}"
        left_out = [name for name in REQUIRED[table] if own.get(name, name) is None]
        assert not left_out, f"a row of {table} without {left_out} would be set aside"
        return {
            "cluster": self.cluster,
            "broker": self.broker,
            "broker_epoch": self.epoch_us,
            "emitter": emitter,
            "seq": seq,
            "event_time": self.now_us,
            **own,
            "event_date": datetime.fromtimestamp(self.now_us / SECOND, UTC).date(),
        }

    def _append(self, table: str, rows: list[dict[str, Any]]) -> None:
        address = self.lake.bronze(table)
        write_deltalake(
            self._tables.get(table, address),
            bronze_table(table, rows),
            mode="append",
            partition_by=["event_date"],
        )
        if table not in self._tables:
            self._tables[table] = DeltaTable(address)


def bronze_table(table: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows of a bronze table in its types; moments are whole µs, and what a row does not name is
    unknown.
    """
    schema = arrow_schema(BY_NAME[table].columns)
    columns = [_column([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)
