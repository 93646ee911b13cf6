"""Running the pipelines over a finished bronze lake, and reading gold back as plain rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pipelines.catalogue import BY_NAME, SPARK_TABLES
from pipelines.gold import create_gold
from pipelines.lake import Lake, whole_table
from pipelines.marks import Marks
from pipelines.settings import Evaluation, Pace
from pipelines.stream import carry_out, next_plan

SHORT = Evaluation(window_ms=10_000, slide_ms=2_000)
"""The demo's figures: stories need not be long."""


def compute(spark: SparkSession, lake: Path, *, rows_per_cycle: int = 1_000_000) -> int:
    """Run cycles until bronze is used up; returns how many."""
    home = Lake.at(str(lake))
    marks = Marks.open(home, SHORT.as_text())
    create_gold(spark, home)
    if marks.last is not None:
        carry_out(spark, home, marks.last, SHORT)
    cycles = 0
    while (plan := next_plan(home, marks, Pace(rows_per_cycle=rows_per_cycle))) is not None:
        carry_out(spark, home, plan, SHORT)
        cycles += 1
    return cycles


def gold(lake: Path, table: str, **where: object) -> list[dict[str, Any]]:
    """Rows of a gold table, oldest first."""
    home = Lake.at(str(lake))
    rows = whole_table(home.table(home.gold(table))).to_pylist()
    kept = [row for row in rows if all(row[name] == value for name, value in where.items())]
    key = BY_NAME[table].key
    return sorted(kept, key=lambda row: (row["observed_at"], *(str(row[name]) for name in key)))


def present(lake: Path, table: str, **where: object) -> list[dict[str, Any]]:
    """Of an interval table the newest revision of each window."""
    newest: dict[str, dict[str, Any]] = {}
    for row in sorted(gold(lake, table), key=lambda row: row["revision"]):
        newest[row["window_id"]] = row
    kept = [
        row for row in newest.values() if all(row[name] == value for name, value in where.items())
    ]
    return sorted(kept, key=lambda row: (row["opened_at"], row["window_id"]))


def everything(lake: Path) -> dict[str, list[str]]:
    """All rows of all Spark tables, as sorted text: equal texts are equal rows in all columns."""
    return {
        table.name: sorted(str(tuple(row.values())) for row in gold(lake, table.name))
        for table in SPARK_TABLES
    }
