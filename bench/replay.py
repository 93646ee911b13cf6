"""Rows a second of a replay: a made lake of many queues, all marts, into a side lake.

    python -m bench.replay [--queues N] [--minutes M]

Prints one table: bronze rows, gold rows, seconds and rows a second, the first cycle (a cold JVM)
and the others apart.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake
from pipelines.gold import create_gold
from pipelines.marks import Marks
from pipelines.stream import carry_out, next_plan
from rich.console import Console
from rich.table import Table

from engine.telemetry.tables import BY_NAME
from pipelines.lake import Lake
from pipelines.schemas import arrow_schema
from pipelines.session import open_session
from pipelines.settings import Evaluation, Pace

START_US = int(datetime(2026, 3, 1, 12, 0, tzinfo=UTC).timestamp()) * 1_000_000
SECOND_US = 1_000_000
EMITTER = "cluster-1/broker-a/0"
RATE = 20
COMMIT_S = 5


def write_lake(lake: Lake, *, queues: int, minutes: int) -> int:
    """Watermarks of `queues` queues each second, shipped each minute; returns the rows."""
    for minute in range(minutes):
        seconds = np.repeat(np.arange(minute * 60, minute * 60 + 60), queues)
        rows = _watermarks(seconds, np.tile(np.arange(queues), 60), queues)
        _append(lake, "group_watermarks", rows)
        _append(lake, "shipments", _shipment(minute, queues * 60))
    return minutes * 60 * queues


def _watermarks(seconds: np.ndarray, queue_ids: np.ndarray, queues: int) -> dict[str, object]:
    time_us = START_US + seconds * SECOND_US
    end = (seconds + 1) * RATE
    committed = (seconds // COMMIT_S) * COMMIT_S * RATE
    committed = np.where(queue_ids % 50 == 7, np.minimum(committed, 600), committed)  # Some stall.
    return {
        **_common("group_watermarks", EMITTER, len(seconds)),
        "seq": seconds * queues + queue_ids + 1,
        "event_time": time_us,
        "group": [f"group-{queue // 10}" for queue in queue_ids],
        "topic": [f"topic-{queue // 10}" for queue in queue_ids],
        "queue_id": queue_ids % 10,
        "pulled": end,
        "committed": committed,
        "persisted": committed,
        "committed_state": np.full(len(seconds), "EXACT"),
        "store_time_at_committed": START_US + (committed // RATE) * SECOND_US,
        "min_offset": np.zeros(len(seconds), dtype=np.int64),
        "max_offset": end,
        "last_store_time": time_us,
        "last_puller": np.full(len(seconds), "client-1"),
        "last_pull_time": time_us,
        "last_commit_time": START_US + (seconds // COMMIT_S) * COMMIT_S * SECOND_US,
        "reports": (seconds % COMMIT_S == 0).astype(np.int64),
        "members": np.full(len(seconds), 1),
    }


def _shipment(minute: int, rows: int) -> dict[str, object]:
    end_us = START_US + (minute * 60 + 59) * SECOND_US
    return {
        **_common("shipments", f"{EMITTER}/shipper", 1),
        "seq": [minute + 1],
        "event_time": [end_us],
        "seq_from": [minute * rows + 1],
        "seq_to": [(minute + 1) * rows],
        "event_time_to": [end_us],
        "rows": [[{"table": "group_watermarks", "rows": rows}]],
    }


def _common(table: str, emitter: str, count: int) -> dict[str, object]:
    unknown = {column.name: [None] * count for column in BY_NAME[table].columns}
    date = datetime.fromtimestamp(START_US / SECOND_US, UTC).date()
    return {
        **unknown,
        "cluster": ["cluster-1"] * count,
        "broker": ["broker-a"] * count,
        "broker_epoch": [START_US] * count,
        "emitter": [emitter] * count,
        "event_date": [date] * count,
    }


def _append(lake: Lake, table: str, rows: dict[str, object]) -> None:
    schema = arrow_schema(BY_NAME[table].columns)
    columns = []
    for field in schema:
        values = rows[field.name]
        if pa.types.is_timestamp(field.type):
            columns.append(pa.array(values, pa.int64()).cast(field.type))
        else:
            columns.append(pa.array(values).cast(field.type))
    write_deltalake(
        lake.bronze(table),
        pa.Table.from_arrays(columns, schema=schema),
        mode="append",
        partition_by=["event_date"],
    )


def main() -> None:
    """Make the lake, compute its gold, print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.replay")
    parser.add_argument("--queues", type=int, default=200)
    parser.add_argument("--minutes", type=int, default=20)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tidemark-replay-"))
    try:
        Console(width=100).print(measure(folder, queues=options.queues, minutes=options.minutes))
    finally:
        shutil.rmtree(folder)


def measure(folder: Path, *, queues: int, minutes: int) -> Table:
    """The replay's figures as a table."""
    lake = Lake.at(str(folder))
    rows = write_lake(lake, queues=queues, minutes=minutes)
    evaluation, pace = Evaluation(), Pace(rows_per_cycle=max(1, rows // 4))
    spark = open_session()
    marks = Marks.open(lake, evaluation.as_text())
    create_gold(spark, lake)
    table = Table(title=f"replay of {rows} rows, {queues} queues, {minutes} min of data time")
    for name in ("cycle", "bronze rows", "gold rows", "s", "rows/s"):
        table.add_column(name, justify="right")
    started_s = time.monotonic()
    while (plan := next_plan(lake, marks, pace)) is not None:
        done = carry_out(spark, lake, plan, evaluation)
        gold_rows = sum(done.gold_rows.values())
        rate = done.bronze_rows / done.seconds
        table.add_row(
            str(done.cycle),
            str(done.bronze_rows),
            str(gold_rows),
            f"{done.seconds:.1f}",
            f"{rate:.0f}",
        )
    seconds = time.monotonic() - started_s
    table.add_row("all", str(rows), "", f"{seconds:.1f}", f"{rows / seconds:.0f}")
    spark.stop()
    return table


if __name__ == "__main__":
    main()
