"""What upkeep leaves of a lake: files in use a table and day, and what a question costs then.

    python -m bench.upkeep [DAYS [CYCLES]]

A gold table of DAYS days (30) is written cycle by cycle as a live run does it, CYCLES of them a day
(720), with rounds of upkeep between them; the newest day is not over. Rows come from a seed: 1,000
queues of 50 groups, each of which moves in every cycle. The question asks for a quarter of an hour
of one group. Figures are CPU seconds of this process, the least of several, and beside them those
of the same rows of one day before any upkeep.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from rich.console import Console
from rich.table import Table

from bench.analytics.cost import Clock, Spent
from bench.bars import FILES_A_DAY, QUESTION_CPU
from pipelines.catalogue import CONSUMER_LAG
from pipelines.lake import Lake, sql_moment
from pipelines.schemas import arrow_schema
from pipelines.settings import DAY_US, MINUTE_US
from pipelines.upkeep.maintainer import Maintainer
from pipelines.upkeep.settings import Upkeep

SEED: Final = 20_260_301
GROUPS: Final = 50
QUEUES: Final = 20
FIRST_DAY: Final = date(2026, 3, 1)
ASKED_US: Final = 15 * MINUTE_US
ROUNDS: Final = 5
CYCLES_A_ROUND: Final = 30
"""Upkeep has its turn after so many cycles."""


def cycle_rows(random: np.random.Generator, day: date, moment_us: int) -> pa.Table:
    """What one cycle writes: a row of every queue."""
    count = GROUPS * QUEUES
    names = [f"orders-consumer-group-{number:03d}" for number in range(GROUPS)]
    columns = []
    for field in arrow_schema(CONSUMER_LAG.columns):
        if field.name == "group":
            values = pa.array(np.repeat(names, QUEUES), pa.string())
        elif field.name == "queue_id":
            values = pa.array(np.tile(np.arange(QUEUES, dtype=np.int32), GROUPS))
        elif field.name == "observed_date":
            values = pa.array([day] * count, pa.date32())
        elif field.name == "observed_at":
            values = pa.array(np.full(count, moment_us), field.type)
        elif pa.types.is_timestamp(field.type):
            values = pa.array(moment_us - random.integers(0, 10_000_000, count), field.type)
        elif pa.types.is_integer(field.type):
            values = pa.array(random.integers(0, 1_000_000, count), field.type)
        else:
            values = pa.array([field.name] * count, field.type)
        columns.append(values)
    return pa.Table.from_arrays(columns, schema=arrow_schema(CONSUMER_LAG.columns))


def write_day(lake: Lake, day: date, cycles: int, maintainer: Maintainer | None) -> None:
    """One day of the table, with upkeep beside it or without."""
    random = np.random.default_rng([SEED, day.toordinal()])
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    begin_us = int(begin.timestamp()) * 1_000_000
    for number in range(cycles):
        moment_us = begin_us + number * DAY_US // cycles
        rows = cycle_rows(random, day, moment_us)
        address = lake.gold(CONSUMER_LAG.name)
        write_deltalake(address, rows, mode="append", partition_by=["observed_date"])
        if maintainer is not None and number % CYCLES_A_ROUND == CYCLES_A_ROUND - 1:
            maintainer.round(begin + timedelta(microseconds=number * DAY_US // cycles))


def question_cpu_s(lake: Lake, day: date) -> tuple[float, int]:
    """Least CPU seconds of the question, table opened included, and the rows of its answer."""
    begin = datetime(day.year, day.month, day.day, 11, tzinfo=UTC)
    begin_us = int(begin.timestamp()) * 1_000_000
    wanted = (
        f"\"group\" = 'orders-consumer-group-033' AND observed_at >= {sql_moment(begin_us)} "
        f"AND observed_at < {sql_moment(begin_us + ASKED_US)}"
    )
    costs, rows = [], 0
    for _ in range(ROUNDS):
        began_s = time.process_time()
        rows = lake.rows(lake.gold(CONSUMER_LAG.name), wanted, CONSUMER_LAG.columns).num_rows
        costs.append(time.process_time() - began_s)
    return min(costs), rows


def files_by_day(lake: Lake) -> list[int]:
    """Files in use of each day."""
    files = pa.table(DeltaTable(lake.gold(CONSUMER_LAG.name)).get_add_actions(flatten=True))
    days = files["partition.observed_date"].to_pylist()
    return [days.count(day) for day in sorted(set(days))]


@dataclass(frozen=True, slots=True)
class Tended:
    """What upkeep leaves, beside what there was without it."""

    files_untended: int
    files: int
    """Of the day with most of them."""
    question_untended_cpu_s: float
    question_cpu_s: float
    rows: int
    """Of the answer."""
    spent: Spent
    """Writing and tending all days."""


def measure(days: int, cycles: int, *, cycles_of_others: int | None = None) -> Tended:
    """Write both lakes, ask both.

    cycles_of_others: of the days that are neither the one asked of nor the newest; None: as many.
    """
    asked = FIRST_DAY + timedelta(days=days // 2)
    newest = FIRST_DAY + timedelta(days=days - 1)
    with tempfile.TemporaryDirectory(prefix="tidemark-upkeep-") as folder:
        bare, tended = Lake.at(f"{folder}/bare"), Lake.at(f"{folder}/tended")
        write_day(bare, asked, cycles, None)
        maintainer = Maintainer(tended, Upkeep(settle_s=0), lambda _line: None)
        clock = Clock()
        for number in range(days):
            day = FIRST_DAY + timedelta(days=number)
            is_full = cycles_of_others is None or day in (asked, newest)
            write_day(tended, day, cycles if is_full else cycles_of_others or 0, maintainer)
        spent = clock.spent()
        before, after = question_cpu_s(bare, asked), question_cpu_s(tended, asked)
        assert before[1] == after[1] > 0, "the same question has the same answer"
        files = max(files_by_day(bare)), max(files_by_day(tended))
        return Tended(*files, before[0], after[0], after[1], spent)


def as_table(found: Tended, days: int, cycles: int) -> Table:
    """For the eye."""
    table = Table(title=f"{days} days of {cycles} cycles, {GROUPS * QUEUES:,} queues")
    for column in ("", "files a day, most", "a quarter of an hour of a group"):
        table.add_column(column)
    untended_s, tended_s = found.question_untended_cpu_s, found.question_cpu_s
    table.add_row("one day, untended", str(found.files_untended), f"{untended_s:.3f} CPU s")
    table.add_row("all days, tended", str(found.files), f"{tended_s:.3f} CPU s")
    table.add_row("bar", str(FILES_A_DAY), str(QUESTION_CPU))
    spent = f"{found.spent.cpu_s:.0f} CPU s; {found.rows} rows answered"
    table.caption = f"writing and tending: {spent}"
    return table


def main(days: int = 30, cycles: int = 720) -> None:
    """Measure, and print."""
    Console(width=100).print(as_table(measure(days, cycles), days, cycles))


if __name__ == "__main__":
    main(*(int(text) for text in sys.argv[1:]))
