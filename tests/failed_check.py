"""A run of the checks at the end of the story, in which a critical check failed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pipelines.catalogue import DQ_FAILURES, DQ_RESULTS
from pipelines.lake import Lake
from tests.lake_story import END, append_rows

WORDS = "withheld: facts_gapless failed at 2026-03-01 12:14:58 UTC: 4 facts are missing"


def fail(lake: Lake, *, table: str = "bronze", **changes: Any) -> None:
    """A run of the checks just before the end of the story, in which a critical check of a table
    failed.
    """
    at = {"observed_at": END, "observed_date": END.date(), "run_id": "late"}
    result = {
        "suite": "bronze",
        "expectation": "facts_gapless",
        "table": table,
        "severity": "CRITICAL",
        "success": False,
        "observed_value": "4 facts are missing",
        "failed_rows": 1,
        "checked_rows": 100,
        "seconds_ms": 1,
        "started_at": END - timedelta(seconds=2),
        "judged_from": END - timedelta(minutes=1),
    }
    row = {"expectation": "facts_gapless", "table": table, "row_key": "k", "detail": "missing=4"}
    append_rows(lake.gold("dq_results"), DQ_RESULTS.columns, [{**at, **result}], "observed_date")
    append_rows(
        lake.gold("dq_failures"), DQ_FAILURES.columns, [{**at, **row, **changes}], "observed_date"
    )
