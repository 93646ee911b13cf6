"""Writes bronze data for many keys, as a shipper would but without an engine.

A key is a queue of a group. Facts lie on a grid of seconds; a share of the keys moves in each, the
others say nothing. Everything follows from the numbers given, so two runs write the same lake.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, Transaction, write_deltalake

from engine.telemetry.tables import BY_NAME
from pipelines.lake.lake import Lake
from pipelines.lake.schemas import arrow_schema

START_US: Final = int(datetime(2026, 3, 1, 12, 0, tzinfo=UTC).timestamp()) * 1_000_000
SECOND_US: Final = 1_000_000
EMITTER: Final = "cluster-1/broker-a/0"
QUEUES: Final = 16
"""Of each group's topic."""
RATE: Final = 20
"""Messages a second and queue."""
ROWS_A_FILE: Final = 1_000_000

Numbers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(slots=True)
class BronzeAtScale:
    """One emitter with so many keys."""

    lake: Lake
    keys: int
    seq: int = 0
    shipment: int = 0

    def ship(self, second: int, moving: Numbers) -> int:
        """Facts of the keys `moving` at a second, and the shipment that says so; returns rows."""
        for start in range(0, len(moving), ROWS_A_FILE):
            self._append("group_watermarks", self._watermarks(second, moving[start:][:ROWS_A_FILE]))
        return self._shipped(second, len(moving))

    def ship_seconds(self, seconds: Iterator[int], moving: Numbers) -> int:
        """The same keys at each of these seconds, as one shipment."""
        count = 0
        last = 0
        for last in seconds:
            self._append("group_watermarks", self._watermarks(last, moving))
            count += len(moving)
        return self._shipped(last, count)

    def _shipped(self, second: int, count: int) -> int:
        self.shipment += 1
        end_us = START_US + second * SECOND_US
        row = {
            "broker_epoch": START_US - SECOND_US,
            "seq": self.shipment,
            "event_time": end_us,
            "seq_from": self.seq - count + 1,
            "seq_to": self.seq,
            "event_time_to": end_us,
            "rows": [{"table": "group_watermarks", "rows": count}],
        }
        columns = {name: pa.array([value], _kind("shipments", name)) for name, value in row.items()}
        self._append("shipments", _filled("shipments", columns, 1, f"{EMITTER}/shipper"))
        return count

    def _watermarks(self, second: int, moving: Numbers) -> pa.Table:
        count = len(moving)
        first, self.seq = self.seq + 1, self.seq + count
        at_us = START_US + second * SECOND_US
        end = np.full(count, (second + 60) * RATE, np.int64)
        late = np.where(moving % 50 == 7, 600, 5 * RATE)  # Some are far behind.
        committed = end - late
        groups = moving // QUEUES
        columns = {
            "broker_epoch": np.full(count, START_US - SECOND_US),
            "seq": np.arange(first, first + count),
            "event_time": np.full(count, at_us),
            "queue_id": (moving % QUEUES).astype(np.int32),
            "pulled": end,
            "processed": committed,
            "committed": committed,
            "persisted": committed,
            "store_time_at_committed": at_us - late * (SECOND_US // RATE),
            "min_offset": np.zeros(count, np.int64),
            "max_offset": end,
            "last_store_time": np.full(count, at_us),
            "last_pull_time": np.full(count, at_us),
            "last_commit_time": np.full(count, at_us),
            "reports": np.ones(count, np.int64),
            "members": np.full(count, 4, np.int32),
        }
        made: dict[str, pa.Array] = {
            name: pa.array(values).cast(_kind("group_watermarks", name))
            for name, values in columns.items()
        }
        made["group"] = _texts("group-", groups)
        made["topic"] = _texts("topic-", groups)
        made["committed_state"] = _same("EXACT", count)
        made["last_puller"] = _texts("client-", moving % 4)
        made["message_model"] = _same("CLUSTERING", count)
        return _filled("group_watermarks", made, count, EMITTER)

    def _append(self, table: str, rows: pa.Table) -> None:
        write_deltalake(
            self.lake.bronze(table),
            rows,
            mode="append",
            partition_by=["event_date"],
            commit_properties=CommitProperties(
                app_transactions=[Transaction(f"{EMITTER}/{table}", self.seq)]
            ),
        )


def _texts(prefix: str, numbers: Numbers) -> pa.Array:
    different, codes = np.unique(numbers, return_inverse=True)
    texts = pa.array([f"{prefix}{number}" for number in different])
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), texts).cast(pa.string())


def _same(text: str, count: int) -> pa.Array:
    return pc.if_else(pa.array(np.ones(count, bool)), text, text)


def _kind(table: str, name: str) -> pa.DataType:
    return arrow_schema(BY_NAME[table].columns).field(name).type


def _filled(table: str, made: dict[str, pa.Array], count: int, emitter: str) -> pa.Table:
    """All columns of the table: those made, the common ones, and nulls."""
    same = {"cluster": "cluster-1", "broker": "broker-a", "emitter": emitter}
    schema = arrow_schema(BY_NAME[table].columns)
    columns = []
    for field in schema:
        if field.name in made:
            columns.append(made[field.name])
        elif field.name in same:
            columns.append(_same(same[field.name], count))
        elif field.name == "event_date":
            columns.append(made["event_time"].cast(pa.date32()))
        else:
            columns.append(pa.nulls(count, field.type))
    return pa.table(columns, schema=schema)
