"""The part `age`: what a cycle costs on a lake of thirty days, over what it costs on a young one.

Two lakes with the same keys and the same new facts. One of them has, besides, the files and the log
entries of thirty days in every table that grows, as upkeep leaves them. Both are live runs of one
Spark, whose cycles take turns. Scaled, days and cycles are fewer. Windows and counts that a run
carries in its state are the same in both: that they do not grow is for tests.
"""

from __future__ import annotations

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
from pipelines.catalogue import CONSUMER_LAG, GROUP_STATE
from pipelines.cycles.driver import Driver, on_spark
from pipelines.cycles.gold_files import statistics_of
from pipelines.lake import Lake
from pipelines.microseconds import moment_at
from pipelines.schemas import arrow_schema
from pipelines.session import open_session
from pipelines.settings import Evaluation, Pace

DAYS = 30
FILES_A_DAY = 50
"""Of each table, as many as upkeep leaves or a few more."""
ROWS_A_FILE = 500
KEYS = 1_000
SECONDS_A_CYCLE = 2
WARM, COUNTED = 4, 15
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
    drivers = {
        name: Driver(on_spark(spark), lake, lake, evaluation=Evaluation(), pace=Pace())
        for name, lake in lakes.items()
    }
    for driver in drivers.values():
        driver.next_cycle()
    grow_old(lakes["old"], days)
    spent: dict[str, list[Spent]] = {name: [] for name in lakes}
    for number in range(WARM + counted):
        second = 61 + number * SECONDS_A_CYCLE
        for name in sorted(lakes, reverse=bool(number % 2)):
            seconds = iter(range(second, second + SECONDS_A_CYCLE))
            bronze[name].ship_seconds(seconds, np.arange(KEYS))
            clock = Clock()
            progress = drivers[name].next_cycle()
            assert progress is not None, "there is something new"
            if number >= WARM:
                spent[name].append(clock.spent())
    spark.stop()
    middle = {name: median(one.cpu_s for one in times) for name, times in spent.items()}
    return [
        Figure(
            f"a cycle's CPU time, lake of {days} days ÷ of a minute",
            middle["old"] / middle["young"],
            "",
            AGE_RATIO,
            wall_s=sum(one.wall_s for times in spent.values() for one in times),
            cpu_s=sum(one.cpu_s for times in spent.values() for one in times),
            note=f"{middle['old']:.2f} : {middle['young']:.2f} CPU s, middle of {counted} each",
        )
    ]


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
        names = [field.name for field in schema if field.name != partition]
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


def _values(field: pa.Field, moment: datetime) -> pa.Array:
    if field.name == "emitter":
        return pa.array([EMITTER] * ROWS_A_FILE, field.type)
    if pa.types.is_timestamp(field.type):
        return pa.array([moment] * ROWS_A_FILE, field.type)
    if pa.types.is_integer(field.type):
        return pa.array(np.ones(ROWS_A_FILE, np.int64)).cast(field.type)
    if pa.types.is_string(field.type):
        return pa.array([f"{field.name}-{number % 50}" for number in range(ROWS_A_FILE)])
    if pa.types.is_list(field.type):
        return pa.array([[]] * ROWS_A_FILE, field.type)
    if pa.types.is_boolean(field.type):
        return pa.array([False] * ROWS_A_FILE)
    raise TypeError(f"no values are made for {field}")
