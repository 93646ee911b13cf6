"""Adds a run of the checks to the end of the story, in which a critical check failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pipelines.lake.lake import Lake
from pipelines.reading.catalogue import DQ_FAILURES, DQ_RESULTS
from tests.lake_story import END, append_rows

WORDS = "withheld: facts_gapless failed at 2026-03-01 12:14:58 UTC: 4 facts are missing"


def fail(
    lake: Lake,
    *,
    table: str = "bronze",
    observed_value: str = "4 facts are missing",
    failures: Sequence[Mapping[str, Any]] = ({},),
    kept_at: datetime | None = None,
    **changes: Any,
) -> None:
    """A run of the checks just before the end of the story, in which a critical check of a table
    failed: with these rows, each changed like the others by `changes`.
    """
    at = {"observed_at": END, "observed_date": END.date(), "run_id": "late"}
    result = {
        "suite": "bronze",
        "expectation": "facts_gapless",
        "table": table,
        "severity": "CRITICAL",
        "success": False,
        "observed_value": observed_value,
        "failed_rows": len(failures),
        "checked_rows": 100,
        "seconds_ms": 1,
        "started_at": END - timedelta(seconds=2),
        "judged_from": END - timedelta(minutes=1),
        "kept_at": kept_at,
    }
    row = {"expectation": "facts_gapless", "table": table, "row_key": "k", "detail": "missing=4"}
    append_rows(lake.gold("dq_results"), DQ_RESULTS.columns, [{**at, **result}], "observed_date")
    rows = [{**at, **row, **changes, **one} for one in failures]
    append_rows(lake.gold("dq_failures"), DQ_FAILURES.columns, rows, "observed_date")
