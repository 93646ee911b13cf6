"""Counts a table's new rows that violate its constraints and keeps a bounded sample.

Place in the walk: executors call it on the rows that they read (`work`); tests call it on literal
rows.

Invariant: what it returns is bounded by a constant: counts, and at most SAMPLE_ROWS_MAX failing
rows a check. Absent on purpose: Spark, files, and memory of earlier rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import polars as pl
import pyarrow as pa

from engine.telemetry.tables import BY_NAME as BRONZE
from engine.telemetry.tables import Column
from expectations.check import SAMPLE_ROWS_MAX, Check, Failure, Finding, RowLaw, SetLaw
from pipelines.lake.schemas import arrow_schema
from pipelines.staging.soundness import oddities

PLACE: Final = (
    *("cluster", "broker", "group", "topic", "queue_id"),
    *("client_id", "window_id", "revision"),
)
"""Columns that name a row to a reader, where it has them."""
MOMENTS: Final = ("seq", "seq_to", "observed_at", "event_time")
"""Columns that say which of several rows it is."""


def judge_rows(laws: Sequence[RowLaw], rows: pl.DataFrame) -> list[Finding]:
    """The laws that each row keeps by itself."""
    counts = rows.select(
        pl.sql_expr(law.broken).fill_null(value=False).sum().alias(law.check.name) for law in laws
    ).row(0, named=True)
    findings = []
    for law in laws:
        count = int(counts[law.check.name] or 0)
        wrong = rows.filter(pl.sql_expr(law.broken)) if count else rows.clear()
        findings.append(Finding(law.check, rows.height, count, sample(wrong, law.shows)))
    return findings


def judge_sound(check: Check, rows: pl.DataFrame) -> Finding:
    """The facts of a table that its pipeline sets aside, or takes without a word."""
    odd = pl.Series("odd", oddities(check.table, _as_declared(rows, BRONZE[check.table].columns)))
    broken = rows.with_columns(odd).drop_nulls("odd")
    return Finding(check, rows.height, broken.height, sample(broken, ("odd",)))


def _as_declared(rows: pl.DataFrame, columns: Sequence[Column]) -> pa.Table:
    """Rows in the types of their table: those of polars have larger texts and lists."""
    schema = arrow_schema([column for column in columns if column.name in rows.columns])
    nullable = pa.schema([one.with_nullable(nullable=True) for one in schema])
    return rows.select(schema.names).to_arrow().cast(nullable)


def judge_set(law: SetLaw, tables: Mapping[str, pl.DataFrame]) -> Finding:
    """A law about several rows, or two tables."""
    checked = tables[law.reads[0]].height
    broken = law.broken(tables) if checked else pl.DataFrame()
    return Finding(law.check, checked, broken.height, sample(broken, law.shows))


def judge_repeats(check: Check, rows: pl.DataFrame, key: Sequence[str]) -> Finding:
    """Rows that repeat the key of another one."""
    repeated = rows.height - rows.select(pl.struct(*key).n_unique()).item() if rows.height else 0
    if not repeated:
        return Finding(check, rows.height)
    again = rows.filter(pl.struct(*key).is_duplicated()).unique(key, maintain_order=True)
    return Finding(check, rows.height, int(repeated), sample(again, (), key=key))


def sample(
    broken: pl.DataFrame, shows: Sequence[str], *, key: Sequence[str] = ()
) -> tuple[Failure, ...]:
    """At most SAMPLE_ROWS_MAX rows as failures, in their order."""
    there = broken.columns
    names = [name for name in dict.fromkeys((*PLACE, *key)) if name in there] or ["emitter"]
    details = [name for name in dict.fromkeys((*shows, *MOMENTS)) if name in there]
    return tuple(
        Failure(
            _words(row, names),
            _words(row, [name for name in details if name not in names]),
            row.get("emitter"),
            row.get("group"),
        )
        for row in broken.head(SAMPLE_ROWS_MAX).iter_rows(named=True)
    )


def _words(row: Mapping[str, Any], names: Sequence[str]) -> str:
    return ", ".join(f"{name}={_text(row[name])}" for name in names)


def _text(value: Any) -> str:
    return f"{value:%Y-%m-%dT%H:%M:%S.%fZ}" if isinstance(value, datetime) else str(value)
