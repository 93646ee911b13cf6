"""Runs checks on executors, counting the new rows that violate each table's constraints.

Place in the walk: Spark hands `carry_out` to its executors, a unit of work a task (`job`); tests
call it without Spark.

Invariant: a unit depends only on its order, so a task that Spark repeats finds the same; what it
returns is bounded (`violations`). A unit holds the new rows of one table, or of the tables that a
law compares, never more than a batch. Absent on purpose: Spark, Great Expectations, and rows of
earlier batches.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from engine.telemetry.tables import BY_NAME as BRONZE
from engine.telemetry.tables import TABLES, Column, ColumnType
from expectations.batch import SHIPMENTS, Batch
from expectations.check import Check, Failure, Finding, Severity
from expectations.new_files import NewFiles
from expectations.suites import intervals, masters, queue_ends, telemetry
from expectations.suites.every_table import suites
from expectations.suites.gold_against_facts import SET_LAWS
from expectations.violations import judge_repeats, judge_rows, judge_set, judge_sound, sample
from pipelines.cycles.cuts import begins_of, ends_of
from pipelines.lake.data_files import DataFiles, understood
from pipelines.lake.lake import Lake
from pipelines.lake.schemas import arrow_schema
from pipelines.marts.mart import GoldTable
from pipelines.reading.catalogue import BY_NAME as GOLD

FACTS: Final = "facts"
"""The unit that looks at the numbers of all bronze rows."""
LIFECYCLE: Final = "lifecycle"
ENDS: Final = "ends of queues"
"""The unit that holds queues against what is carried of them."""
MASTERS: Final = "masters"
"""The unit that holds who leads against who was carried as leading."""
LAW: Final = "law "
"""Before the name of a law that compares rows."""


@dataclass(frozen=True, slots=True)
class Order:
    """Everything a unit needs to know."""

    lake: Lake
    batch: Batch
    new: Mapping[str, NewFiles]
    """Per table, the files to read."""
    carried: Mapping[str, str]
    """Per table, the file of what is carried of it: open intervals, last ends, or who has led."""
    carried_folder: str
    """Where such files lie."""

    @property
    def units(self) -> list[str]:
        """What there is to do: tables with new files, laws whose first table has some, facts."""
        has_new = [name for name, new in self.new.items() if new.files]
        laws = [LAW + law.check.name for law in SET_LAWS if law.reads[0] in has_new]
        bronze = [name for name in has_new if name in BRONZE and name != SHIPMENTS]
        stale = [name for name, new in self.new.items() if new.fresh and name in BRONZE]
        ends = [ENDS] if {queue_ends.TABLE, LIFECYCLE} & {*has_new} else []
        leading = [MASTERS] if masters.TABLE in has_new else []
        return [*has_new, *laws, *ends, *leading, *([FACTS] if bronze or stale else [])]


@dataclass(frozen=True, slots=True)
class UnitDone:
    """What the driver hears of a unit."""

    unit: str
    rows: int = 0
    newest_us: int | None = None
    findings: tuple[Finding, ...] = ()
    numbers: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Kind -> emitter -> what was counted of it."""
    carried: Mapping[str, str] = field(default_factory=dict)
    """Table -> the file of what is carried of it behind the batch."""
    shared: tuple[Failure, ...] = ()
    """Queues that several clients read."""

    def as_json(self) -> str:
        """One line."""
        body = {
            "unit": self.unit,
            "rows": self.rows,
            "newest_us": self.newest_us,
            "findings": [_finding_json(one) for one in self.findings],
            "numbers": self.numbers,
            "carried": dict(self.carried),
            "shared": [_failure_json(one) for one in self.shared],
        }
        return json.dumps(body)

    @staticmethod
    def from_json(text: str) -> UnitDone:
        """The reverse."""
        given: dict[str, Any] = json.loads(text)
        return UnitDone(
            given["unit"],
            given["rows"],
            given["newest_us"],
            tuple(_finding_of(one) for one in given["findings"]),
            given["numbers"],
            given["carried"],
            tuple(_failure_of(one) for one in given["shared"]),
        )


def carry_out(order: Order, unit: str) -> UnitDone:
    """Do one unit of the work."""
    if unit == FACTS:
        return _facts(order)
    if unit == ENDS:
        return _ends(order)
    if unit == MASTERS:
        return _masters(order)
    if unit.startswith(LAW):
        law = next(one for one in SET_LAWS if LAW + one.check.name == unit)
        tables = {name: rows_of(order, name) for name in law.reads}
        return UnitDone(unit, findings=(judge_set(law, tables),))
    suite = next(one for one in suites() if one.table == unit)
    rows = rows_of(order, unit)
    findings = [
        *judge_rows(suite.laws, rows),
        judge_repeats(suite.unique, rows, suite.key),
    ]
    if suite.gold is None:
        findings.append(judge_sound(suite.sound, rows))
    carried: dict[str, str] = {}
    shared: tuple[Failure, ...] = ()
    if suite.gold is not None and suite.gold.revised:
        wrong, carried[unit], shared = _intervals(order, suite.gold, rows)
        findings.append(wrong)
    newest_us: int | None = rows.select(pl.col(suite.moment).dt.epoch("us").max()).item()
    numbers = _numbers(order, unit, rows)
    return UnitDone(unit, rows.height, newest_us, tuple(findings), numbers, carried, shared)


def _numbers(order: Order, table: str, rows: pl.DataFrame) -> dict[str, Any]:
    """What is counted by emitter, of the tables about emitters."""
    if table == SHIPMENTS:
        new = order.new[SHIPMENTS]
        beyond = _read(order.lake, BRONZE[SHIPMENTS].columns, new.address, new.beyond_paths)
        return {
            "shipments": telemetry.count_shipments(rows),
            "horizons": telemetry.newest_horizons(pl.concat([rows, beyond])),
        }
    if table == LIFECYCLE:
        return {"lifecycle": telemetry.count_lifecycle(rows)}
    return {"health": telemetry.count_health(rows)} if table == "emitter_health" else {}


def _facts(order: Order) -> UnitDone:
    """Facts of all tables by their numbers, and those that have come again."""
    begins = begins_of(order.batch.cuts)
    found, again = [_NUMBERS.clear()], [_NUMBERS.clear()]
    for table in TABLES:
        new = order.new[table.name]
        if table.name == SHIPMENTS:
            continue
        numbers = _read(order.lake, _NUMBER_COLUMNS, new.address, new.paths)
        found.append(numbers.filter(_within_batch(order.batch)))
        stale = _read(order.lake, _NUMBER_COLUMNS, new.address, new.stale_paths(begins))
        again.append(stale.filter(_up_to(begins)))
    return UnitDone(
        FACTS,
        numbers={
            "facts": telemetry.count_facts(pl.concat(found)),
            "stale": telemetry.count_facts(pl.concat(again)),
        },
    )


def _intervals(
    order: Order, table: GoldTable, rows: pl.DataFrame
) -> tuple[Finding, str, tuple[Failure, ...]]:
    """The laws of a table's intervals, taken with those that were open before."""
    carried = carried_rows(order, table.name, intervals.kept_columns(table))
    wrong = intervals.malformed(rows, carried)
    shown = ("state", "opened_at", "closed_at")
    check = intervals.well_formed(table)
    finding = Finding(check, rows.height, wrong.height, sample(wrong, shown))
    opened = intervals.still_open(rows, carried)
    shared = intervals.shared_queues(opened, judged_to_us=order.batch.judged_to_us)
    return finding, _carry_on(order, table.name, opened), sample(shared, ("owners", "who"))


def _ends(order: Order) -> UnitDone:
    """Ends of queues, held against those before them."""
    table = queue_ends.TABLE
    rows, lifecycle = rows_of(order, table), rows_of(order, LIFECYCLE)
    carried = carried_rows(order, table, queue_ends.KEPT)
    fallen = queue_ends.falls(rows, lifecycle, carried)
    shown = sample(fallen, queue_ends.SHOWN)
    finding = Finding(queue_ends.CHECK, rows.height, fallen.height, shown)
    alive = queue_ends.newest(rows, lifecycle, carried)
    return UnitDone(ENDS, findings=(finding,), carried={table: _carry_on(order, table, alive)})


def _masters(order: Order) -> UnitDone:
    """Who says that it leads, held against who said so before."""
    table = masters.TABLE
    rows, carried = rows_of(order, table), carried_rows(order, table, masters.KEPT)
    broken = masters.masters_of_one_epoch(rows, carried)
    shown = sample(broken, masters.SHOWN)
    finding = Finding(masters.CHECK, rows.height, broken.height, shown)
    led = masters.newest(rows, carried)
    return UnitDone(MASTERS, findings=(finding,), carried={table: _carry_on(order, table, led)})


def carried_rows(order: Order, table: str, columns: Sequence[Column]) -> pl.DataFrame:
    """What was carried of a table to this batch."""
    file = order.carried.get(table)
    return _read(order.lake, columns, order.carried_folder, [] if file is None else [file])


def _carry_on(order: Order, table: str, rows: pl.DataFrame) -> str:
    """Write what is carried of a table as a new file; returns its name."""
    name = f"{table}-{uuid.uuid4().hex}.parquet"
    sink = pa.BufferOutputStream()
    pq.write_table(rows.to_arrow(), sink, coerce_timestamps="us", compression="zstd")
    DataFiles(order.lake).write(f"{order.carried_folder}/{name}", sink.getvalue())
    return name


def rows_of(order: Order, table: str) -> pl.DataFrame:
    """The new rows of a table, without the column that only names their folder."""
    new = order.new[table]
    if table in BRONZE:
        rows = _read(order.lake, BRONZE[table].columns, new.address, new.paths)
        return rows.filter(_within_batch(order.batch)).sort("emitter", "seq")
    rows = _read(order.lake, GOLD[table].columns, new.address, new.paths)
    return rows if new.is_exact else rows.filter(_answers_within(GOLD[table], order.batch))


def _read(
    lake: Lake, columns: Sequence[Column], address: str, paths: Sequence[str]
) -> pl.DataFrame:
    """Rows of some files; a column that a file has not yet is null."""
    kept = [column for column in columns if column.type is not ColumnType.DATE]
    schema = arrow_schema(kept)
    nullable = pa.schema([one.with_nullable(nullable=True) for one in schema])
    files, parts = DataFiles(lake), [nullable.empty_table()]
    for path in paths:
        data = files.read(f"{address}/{path}")
        with understood(f"{address}/{path}"):
            file = pq.ParquetFile(pa.BufferReader(data))
            there = set(file.schema_arrow.names)
            rows = file.read([name for name in schema.names if name in there])
        for one in nullable:
            if one.name not in there:
                rows = rows.append_column(one, pa.nulls(rows.num_rows, one.type))
        parts.append(rows.select(schema.names).cast(nullable))
    return pl.DataFrame(pl.from_arrow(pa.concat_tables(parts)))


_NUMBER_COLUMNS: Final = tuple(
    column for column in TABLES[0].columns if column.name in ("emitter", "seq")
)
_NUMBERS: Final = pl.DataFrame(schema={"emitter": pl.String, "seq": pl.Int64})


def _within_batch(batch: Batch) -> pl.Expr:
    """The rows of a bronze table that belong to the batch."""
    begins, ends = begins_of(batch.cuts), ends_of(batch.cuts)
    seq = pl.col("seq")
    return _any(
        (pl.col("emitter") == name) & (seq > begins[name]) & (seq <= end)
        for name, end in ends.items()
    )


def _up_to(marks: Mapping[str, int]) -> pl.Expr:
    """The rows of a bronze table at or below a mark of their emitter."""
    return _any((pl.col("emitter") == name) & (pl.col("seq") <= seq) for name, seq in marks.items())


def _answers_within(table: GoldTable, batch: Batch) -> pl.Expr:
    """The rows of a gold table that belong to the batch's cycles."""
    ticks, seq = pl.sql_expr(table.on_ticks), pl.col(table.seq_column)
    at = pl.col("observed_at").dt.epoch("us")
    return _any(
        (pl.col("emitter") == cut.emitter)
        & pl.when(ticks)
        .then((at > cut.time_from_us) & (at <= cut.time_to_us))
        .otherwise((seq > cut.seq_from) & (seq <= cut.seq_to))
        for cut in batch.cuts
    )


def _any(parts: Any) -> pl.Expr:
    return reduce(lambda one, other: one | other, parts, pl.lit(value=False))


def _finding_json(finding: Finding) -> dict[str, Any]:
    return {
        "check": [finding.check.name, finding.check.table, finding.check.severity.value],
        "checked": finding.checked_rows,
        "broken": finding.broken_rows,
        "failures": [_failure_json(one) for one in finding.failures],
    }


def _finding_of(given: Mapping[str, Any]) -> Finding:
    name, table, severity = given["check"]
    failures = tuple(_failure_of(one) for one in given["failures"])
    check = Check(name, table, Severity(severity))
    return Finding(check, given["checked"], given["broken"], failures)


def _failure_json(failure: Failure) -> list[str | None]:
    return [failure.row_key, failure.detail, failure.emitter, failure.group]


def _failure_of(given: Sequence[str]) -> Failure:
    row_key, detail, emitter, group = given
    return Failure(row_key, detail, emitter, group)
