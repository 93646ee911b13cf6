"""Benchmark `age`: compares the cost of cycles on a thirty-day-old and an hour-old lake.

Two lakes with the same keys and the same new facts. One of them has, besides, the files of thirty
days in the tables that grow, as upkeep leaves them. And all tables that live have the log entries
of their age, an hour's or the two days' for which logs are kept: one a cycle, two in the plans.
They lie where an earlier version left them, in the logs; the first cycles on such a lake are those
that move them aside, and are reported apart. Both are live runs of one Spark, whose cycles take
turns. Scaled, days, entries and cycles are fewer. Windows and counts that a run carries in its
state are the same in both: that they do not grow is for tests.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction

from bench.analytics.bronze import EMITTER, START_US, BronzeAtScale
from bench.analytics.cost import Clock, Spent
from bench.analytics.figures import Figure
from bench.bars import AGE_RATIO
from engine.telemetry.tables import BY_NAME, Column
from pipelines.base.settings import Evaluation, Pace
from pipelines.base.time_units import moment_at
from pipelines.cycles.driver import Driver, on_spark
from pipelines.cycles.gold_files import statistics_of
from pipelines.lake.lake import Lake
from pipelines.lake.schemas import arrow_schema
from pipelines.lake.session import open_session
from pipelines.reading.catalogue import CONSUMER_LAG, GROUP_STATE

DAYS = 30
FILES_A_DAY = 50
"""Of each table, as many as upkeep leaves or a few more."""
ROWS_A_FILE = 500
KEYS = 1_000
SECONDS_A_CYCLE = 2
WARM, COUNTED = 4, 15
CYCLES_AN_HOUR = 720
"""Of five seconds."""
LOG_HOURS = 48
LINKS_MAX = 30_000
"""Entries that are one file by several names; a disk allows some 65,000."""
SHORT_LOG = 2_000
"""With fewer entries in its longest log a lake has done with what an earlier version left."""
FIRST_CYCLES_MAX = 100
BRONZE = ("group_watermarks", "consume_offsets", "shipments")
GOLD = (CONSUMER_LAG, GROUP_STATE)


def measure(folder: Path, scale: float) -> list[Figure]:
    """The ratio of the cycles' CPU time."""
    days, counted = max(1, round(DAYS * scale)), max(5, round(COUNTED * scale))
    spark = open_session()
    lakes = {name: Lake.at(str(folder / name)) for name in ("young", "old")}
    bronze = {name: BronzeAtScale(lake, KEYS) for name, lake in lakes.items()}
    for one in bronze.values():
        one.ship_seconds(iter(range(1, 61)), np.arange(KEYS))
    for lake in lakes.values():
        Driver(on_spark(spark), lake, lake, evaluation=Evaluation(), pace=Pace()).next_cycle()
    grow_old(lakes["old"], days)
    hours = {"young": 1, "old": max(1, round(LOG_HOURS * scale))}
    made = {name: age_logs(lake, hours[name] * CYCLES_AN_HOUR) for name, lake in lakes.items()}
    run = _Run(lakes, bronze)
    for name, lake in lakes.items():  # What was left to them: they are opened as they are now.
        run.drivers[name] = Driver(
            on_spark(spark), lake, lake, evaluation=Evaluation(), pace=Pace()
        )
    first = [run.cycle("old")]
    while longest_log(lakes["old"]) > SHORT_LOG and len(first) < FIRST_CYCLES_MAX:
        first.append(run.cycle("old"))
        run.cycle("young")  # Both have had as many: logs grow and are cut short in turn.
    spent: dict[str, list[Spent]] = {name: [] for name in lakes}
    for number in range(WARM + counted):
        for name in sorted(lakes, reverse=bool(number % 2)):
            cycle = run.cycle(name)
            if number >= WARM:
                spent[name].append(cycle)
    spark.stop()
    middle = {name: median(one.cpu_s for one in times) for name, times in spent.items()}
    entries = f"{made['old']:,} log entries a table made, {longest_log(lakes['old']):,} at the end"
    return [
        Figure(
            f"first cycles on a lake with logs of {hours['old']} hours, longest",
            max(one.wall_s for one in first),
            "s",
            wall_s=sum(one.wall_s for one in first),
            cpu_s=sum(one.cpu_s for one in first),
            note=f"{len(first)} cycles until its longest log had {longest_log(lakes['old']):,}",
        ),
        Figure(
            f"a cycle's CPU time, lake of {days} days ÷ of an hour",
            middle["old"] / middle["young"],
            "",
            AGE_RATIO,
            wall_s=sum(one.wall_s for times in spent.values() for one in times),
            cpu_s=sum(one.cpu_s for times in spent.values() for one in times),
            note=f"{middle['old']:.2f} : {middle['young']:.2f} CPU s, middle of {counted} each; "
            f"{entries}",
        ),
    ]


@dataclass(slots=True)
class _Run:
    """Both lakes' cycles."""

    lakes: dict[str, Lake]
    bronze: dict[str, BronzeAtScale]
    drivers: dict[str, Driver] = field(default_factory=dict)
    second: dict[str, int] = field(default_factory=dict)
    """Of data time, that comes next in each."""

    def cycle(self, name: str) -> Spent:
        """Ship what is new, and compute it; what the latter took."""
        begin = self.second.get(name, 61)
        end = self.second[name] = begin + SECONDS_A_CYCLE
        self.bronze[name].ship_seconds(iter(range(begin, end)), np.arange(KEYS))
        clock = Clock()
        progress = self.drivers[name].next_cycle()
        assert progress is not None, "there is something new"
        return clock.spent()


def age_logs(lake: Lake, entries: int) -> int:
    """Entries of commits without files in all tables, twice as many in the plans, and checkpoints
    that are old; returns how many a table of gold has.
    """
    line = b'{"commitInfo":{"timestamp":%d,"operation":"WRITE"}}\n' % (time.time_ns() // 1_000_000)
    for log in sorted(Path(lake.root).glob("*/*/_delta_log")):
        hourly = entries // CYCLES_AN_HOUR
        count = {"plans": 2 * entries, "snapshots": hourly}.get(log.parent.name, entries)
        first = checkpointed(log) + 1
        for number in range(count):
            place = log / f"{first + number:020d}.json"
            if number % LINKS_MAX == 0:
                place.write_bytes(line)
                original = place
            else:
                os.link(original, place)
        move_checkpoint(log, first - 1, first - 1 + count)
    return entries


def checkpointed(log: Path) -> int:
    """Write a checkpoint of a table; returns its version."""
    table = DeltaTable(str(log.parent))
    table.create_checkpoint()
    return table.version()


def move_checkpoint(log: Path, version: int, to: int) -> None:
    """Make a checkpoint that of a later version, to which commits without files have led, and one
    of an hour ago. To write one there would read every entry on the way.
    """
    moved = log / f"{to:020d}.checkpoint.parquet"
    (log / f"{version:020d}.checkpoint.parquet").rename(moved)
    hint = log / "_last_checkpoint"
    hint.write_text(json.dumps({**json.loads(hint.read_text()), "version": to}))
    old_s = time.time() - 3600
    for checkpoint in log.glob("*.checkpoint.parquet"):
        os.utime(checkpoint, (old_s, old_s))


def longest_log(lake: Lake) -> int:
    """Entries in the longest log of gold and of the run's plans: shippers look after theirs."""
    logs = [log for log in Path(lake.root).glob("*/*/_delta_log") if "bronze" not in log.parts]
    return max(sum(1 for _ in log.iterdir()) for log in logs)


def grow_old(lake: Lake, days: int) -> None:
    """Files of so many days before the first in the tables that grow: rows that were read."""
    begin = moment_at(START_US) - timedelta(days=days)
    for name in BRONZE:
        address, columns = lake.bronze(name), BY_NAME[name].columns
        if not lake.exists(address):
            write_deltalake(
                address, arrow_schema(columns).empty_table(), partition_by=["event_date"]
            )
        _grow(lake.table(address), columns, "event_date", begin=begin, days=days)
    for table in GOLD:
        address = lake.gold(table.name)
        _grow(lake.table(address), table.columns, "observed_date", begin=begin, days=days)


def _grow(
    table: DeltaTable, columns: tuple[Column, ...], partition: str, *, begin: datetime, days: int
) -> None:
    """A commit a day. The files of a day are one file by several names: who looks at sizes, bounds
    and numbers of files sees no difference, and nobody reads them.
    """
    root = Path(table.table_uri.removeprefix("file://"))
    for number in range(days):
        moment = begin + timedelta(days=number)
        schema = arrow_schema(columns)
        names = [one.name for one in schema if one.name != partition]
        rows = pa.table([_values(schema.field(name), moment) for name in names], names=names)
        day = f"{partition}={moment.date().isoformat()}"
        first = root / day / "old-0.parquet"
        first.parent.mkdir()
        pq.write_table(rows, first, compression="zstd", store_schema=False)
        for copy in range(1, FILES_A_DAY):
            first.with_name(f"old-{copy}.parquet").hardlink_to(first)
        table.create_write_transaction(
            [
                AddAction(
                    path=f"{day}/old-{copy}.parquet",
                    size=first.stat().st_size,
                    partition_values={partition: moment.date().isoformat()},
                    modification_time=int(moment.timestamp() * 1000),
                    data_change=True,
                    stats=statistics_of(rows),
                )
                for copy in range(FILES_A_DAY)
            ],
            mode="append",
            schema=table.schema(),
            partition_by=[partition],
        )


def _values(column: pa.Field, moment: datetime) -> pa.Array:
    if column.name == "emitter":
        return pa.array([EMITTER] * ROWS_A_FILE, column.type)
    if pa.types.is_timestamp(column.type):
        return pa.array([moment] * ROWS_A_FILE, column.type)
    if pa.types.is_integer(column.type):
        return pa.array(np.ones(ROWS_A_FILE, np.int64)).cast(column.type)
    if pa.types.is_string(column.type):
        return pa.array([f"{column.name}-{number % 50}" for number in range(ROWS_A_FILE)])
    if pa.types.is_list(column.type):
        return pa.array([[]] * ROWS_A_FILE, column.type)
    if pa.types.is_boolean(column.type):
        return pa.array([False] * ROWS_A_FILE)
    raise TypeError(f"no values are made for {column}")
