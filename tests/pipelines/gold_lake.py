"""Running the pipelines over a finished bronze lake, and reading gold back as plain rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.cycles.driver import Job
from pipelines.lake.lake import Lake, whole_table
from pipelines.reading.catalogue import BY_NAME, COMPUTED_TABLES
from tests.pipelines.in_process import SHORT, driver_of, in_process, run_to_the_end


def compute(lake: Path, *, rows_per_cycle: int = 1_000_000, job: Job = in_process) -> int:
    """Run cycles until bronze is used up; returns how many."""
    return run_to_the_end(driver_of(lake, evaluation=SHORT, rows_per_cycle=rows_per_cycle, job=job))


def gold(lake: Path | str, table: str, **where: object) -> list[dict[str, Any]]:
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


def everything(lake: Path | str) -> dict[str, list[str]]:
    """All rows of all Spark tables, as sorted text: equal texts are equal rows in all columns."""
    return {
        table.name: sorted(str(tuple(row.values())) for row in gold(lake, table.name))
        for table in COMPUTED_TABLES
    }
