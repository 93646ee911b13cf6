"""Benchmark `upkeep`: files in use per table per day, and the cost of a thirty-day query.

A gold table is written as a live run does it, a file a cycle, with rounds of upkeep between them;
the newest day is not over. Two of the days, that of the query and the newest one, have a cycle each
five seconds; the others stand for age, with as many as upkeep leaves files. Scaled, these two have
fewer. Files of a few cycles share a commit, which is of no account here. Rows come from a seed:
1,000 queues of 50 groups, of which a tenth has news in each cycle. The query is `tm.lag` of one
group and a quarter of an hour, by a handle that was just made. Figures are CPU seconds of this
process, the least of several, and beside them those of the same rows of one day before any upkeep.
"""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction, RemoveAction

from bench.analytics.cost import Clock
from bench.analytics.figures import Figure
from bench.bars import FILES_A_DAY, QUESTION_CPU
from pipelines import tm
from pipelines.base.settings import DAY_US, MINUTE_US
from pipelines.cycles.cuts import Cut
from pipelines.cycles.gold_files import statistics_of
from pipelines.cycles.plan import Plans
from pipelines.lake.lake import Lake
from pipelines.lake.schemas import arrow_schema
from pipelines.reading.catalogue import CONSUMER_LAG
from pipelines.upkeep.maintainer import Maintainer
from pipelines.upkeep.settings import Upkeep

DAYS: Final = 30
CYCLES: Final = 17_280
CYCLES_OF_OTHERS: Final = 12
CYCLES_MIN: Final = 120
"""With fewer, no day would need upkeep."""
SEED: Final = 20_260_301
GROUPS: Final = 50
QUEUES: Final = 20
FIRST_DAY: Final = date(2026, 3, 1)
ASKED_US: Final = 15 * MINUTE_US
ROUNDS: Final = 5
CYCLES_A_ROUND: Final = 120
"""Upkeep has its turn after so many cycles."""
CYCLES_A_COMMIT: Final = 30
TELLS_EACH: Final = 10
"""Each queue reports something in one of so many cycles."""
EMITTER: Final = "cluster-1/broker-a/0"
ASKED_GROUP: Final = "orders-consumer-group-033"


def cycle_rows(random: np.random.Generator, day: date, moment_us: int, number: int) -> pa.Table:
    """What the cycle of that number writes: a row of every tenth queue."""
    queues = np.arange(number % TELLS_EACH, GROUPS * QUEUES, TELLS_EACH)
    count = len(queues)
    names = np.array([f"orders-consumer-group-{number:03d}" for number in range(GROUPS)])
    texts = {"emitter": EMITTER, "cluster": "cluster-1", "broker": "broker-a"}
    columns = []
    for field in arrow_schema(CONSUMER_LAG.columns):
        if field.name == "group":
            values = pa.array(names[queues // QUEUES], pa.string())
        elif field.name == "queue_id":
            values = pa.array((queues % QUEUES).astype(np.int32))
        elif field.name == "observed_date":
            values = pa.array([day] * count, pa.date32())
        elif field.name == "observed_at":
            values = pa.array(np.full(count, moment_us), field.type)
        elif pa.types.is_timestamp(field.type):
            values = pa.array(moment_us - random.integers(0, 10_000_000, count), field.type)
        elif pa.types.is_integer(field.type):
            values = pa.array(random.integers(0, 1_000_000, count), field.type)
        else:
            values = pa.array([texts.get(field.name, field.name)] * count, field.type)
        columns.append(values)
    return pa.Table.from_arrays(columns, schema=arrow_schema(CONSUMER_LAG.columns))


def write_day(lake: Lake, day: date, cycles: int, maintainer: Maintainer | None) -> None:
    """One day of the table, with upkeep beside it or without."""
    random = np.random.default_rng([SEED, day.toordinal()])
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    begin_us = int(begin.timestamp()) * 1_000_000
    address = lake.gold(CONSUMER_LAG.name)
    if not lake.exists(address):
        empty = arrow_schema(CONSUMER_LAG.columns).empty_table()
        write_deltalake(address, empty, partition_by=["observed_date"])
    table, waiting = lake.table(address), list[AddAction | RemoveAction]()
    for number in range(cycles):
        moment_us = begin_us + number * DAY_US // cycles
        waiting.append(_written(Path(address), random, day, moment_us, number=number))
        if len(waiting) == CYCLES_A_COMMIT or number == cycles - 1:
            table.update_incremental()
            table.create_write_transaction(
                waiting, mode="append", schema=table.schema(), partition_by=["observed_date"]
            )
            waiting = []
        if maintainer is not None and number % CYCLES_A_ROUND == CYCLES_A_ROUND - 1:
            maintainer.round(begin + timedelta(microseconds=number * DAY_US // cycles))


def _written(
    table: Path, random: np.random.Generator, day: date, moment_us: int, *, number: int
) -> AddAction:
    """A cycle's file."""
    rows = cycle_rows(random, day, moment_us, number).drop_columns(["observed_date"])
    place = f"observed_date={day.isoformat()}/cycle-{number}.parquet"
    (table / place).parent.mkdir(exist_ok=True)
    pq.write_table(rows, table / place, compression="zstd", store_schema=False)
    return AddAction(
        path=place,
        size=(table / place).stat().st_size,
        partition_values={"observed_date": day.isoformat()},
        modification_time=moment_us // 1_000,
        data_change=True,
        stats=statistics_of(rows),
    )


def judged(lake: Lake, newest: date) -> None:
    """A cycle that is done, which has taken all rows there are."""
    end_us = int(datetime(newest.year, newest.month, newest.day, tzinfo=UTC).timestamp()) * 10**6
    plans = Plans.open(lake, "{}", gold=[], buckets=1)
    cut = Cut(EMITTER, 0, 2**40, 0, 1, 0, end_us + DAY_US)
    plans.finish(plans.record((cut,), {}), {})


def question_cpu_s(lake: Lake, day: date) -> tuple[float, int]:
    """Least CPU seconds of the question, tables opened included, and the rows of its answer."""
    begin = datetime(day.year, day.month, day.day, 11, tzinfo=UTC)
    until = begin + timedelta(microseconds=ASKED_US)
    costs, rows = [], 0
    for _ in range(ROUNDS):
        began_s = time.process_time()
        rows = tm.connect(lake.root).lag(ASKED_GROUP, since=begin, until=until).rows.height
        costs.append(time.process_time() - began_s)
    return min(costs), rows


def files_by_day(lake: Lake) -> list[int]:
    """Files in use of each day."""
    files = pa.table(DeltaTable(lake.gold(CONSUMER_LAG.name)).get_add_actions(flatten=True))
    days = files["partition.observed_date"].to_pylist()
    return [days.count(day) for day in sorted(set(days))]


def measure(folder: Path, scale: float) -> list[Figure]:
    """Write a day without upkeep and all days with it, and ask both."""
    cycles = max(CYCLES_MIN, round(CYCLES * scale))
    asked = FIRST_DAY + timedelta(days=DAYS // 2)
    newest = FIRST_DAY + timedelta(days=DAYS - 1)
    bare, tended = Lake.at(str(folder / "bare")), Lake.at(str(folder / "tended"))
    write_day(bare, asked, cycles, None)
    maintainer = Maintainer(tended, Upkeep(settle_s=0), lambda _line: None)
    clock = Clock()
    for number in range(DAYS):
        day = FIRST_DAY + timedelta(days=number)
        write_day(tended, day, cycles if day in (asked, newest) else CYCLES_OF_OTHERS, maintainer)
    spent = clock.spent()
    judged(bare, asked)
    judged(tended, newest)
    (untended_s, untended_rows), (tended_s, rows) = (
        question_cpu_s(lake, asked) for lake in (bare, tended)
    )
    assert untended_rows == rows > 0, "the same question has the same answer"
    return [
        Figure(
            f"files in use of a table and a day, most of {DAYS} days",
            max(files_by_day(tended)),
            bar=FILES_A_DAY,
            wall_s=spent.wall_s,
            cpu_s=spent.cpu_s,
            note=f"{max(files_by_day(bare))} without upkeep",
        ),
        Figure(
            f"a question of 15 minutes of one group (tm.lag), asked of {DAYS} days",
            tended_s,
            "CPU s",
            QUESTION_CPU,
            cpu_s=tended_s,
            note=f"{rows} rows; {untended_s:.2f} without upkeep",
        ),
    ]
