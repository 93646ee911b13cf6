"""Resolved alerts that the store has dropped, read from their history in the lake.

Place in the walk: beside `board`, which has what is open and the last half hour; pages take both.
Rows of the Delta table `alerts` that say RESOLVED cover the whole of an alert's firing.

Invariant: it only reads, at most ROWS_MAX, the newest first. A table that is not there, or cannot
be read, makes the past unknown, never empty.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import polars as pl
import pyarrow as pa
from deltalake.exceptions import DeltaError

from engine.foundation.errors import LakeError
from pipelines.alerting.alerts import Alert, State
from pipelines.base.time_units import micros
from pipelines.lake.lake import Lake, first_line
from pipelines.reading.catalogue import ALERTS

ROWS_MAX: Final = 10_000
"""Alerts of one answer; older ones than these are counted as unknown."""
_COLUMNS: Final = (
    *("fingerprint", "rule", "severity", "owner", "labels", "summary", "evidence", "reason"),
    *("active_at", "fired_at", "resolved_at", "observed_date"),
)


@dataclass(frozen=True, slots=True)
class Past:
    """Alerts that were over in a range."""

    alerts: tuple[Alert, ...] = ()
    """The newest end first."""
    since: datetime | None = None
    """The moment from which it is known; None: nothing of it is."""
    trouble: str = ""
    """Why nothing is known, when the table is there."""


class PastAlerts:
    """The history of one lake, asked again and again. Safe for use by several threads."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._lock = threading.Lock()
        self._answers: dict[Any, Past] = {}
        self._version: Any = None

    def within(self, start: datetime, end: datetime) -> Past:
        """Alerts that fired in the range, or into it, and were resolved since."""
        address = self._lake.gold(ALERTS.name)
        try:
            if not self._lake.exists(address):
                return Past()
            table = self._lake.table(address)
            with self._lock:
                if self._version != table.version():
                    self._version = table.version()
                    self._answers.clear()
                key = (start, end)
                if key not in self._answers:
                    rows = pl.scan_pyarrow_dataset(table.to_pyarrow_dataset())
                    self._answers[key] = _answer(rows, start, end)
                return self._answers[key]
        except (
            DeltaError,
            LakeError,
            OSError,
            pa.ArrowException,
            pl.exceptions.PolarsError,
        ) as error:
            return Past(trouble=f"the history of alerts cannot be read: {first_line(error)}")


def _answer(rows: pl.LazyFrame, start: datetime, end: datetime) -> Past:
    began = rows.select(pl.col("observed_at").min()).collect().item()
    if began is None:
        return Past()
    is_over = (pl.col("kind") == "RESOLVED") & (pl.col("observed_date") >= start.date())
    meets = (pl.col("resolved_at") >= start) & (pl.col("fired_at") <= end)
    found = rows.filter(is_over).filter(meets).select(_COLUMNS).collect()
    newest = found.sort("resolved_at", "fingerprint", descending=[True, False])
    since = began
    if newest.height > ROWS_MAX:
        newest = newest.head(ROWS_MAX)
        since = newest["resolved_at"].min()
    alerts = newest.unique(["fingerprint", "fired_at"], keep="first", maintain_order=True)
    return Past(tuple(_alert(row) for row in alerts.iter_rows(named=True)), since)


def _alert(row: dict[str, Any]) -> Alert:
    return Alert(
        fingerprint=row["fingerprint"],
        rule=row["rule"],
        severity=row["severity"],
        owner=row["owner"],
        labels=json.loads(row["labels"]),
        annotations={"summary": row["summary"], "evidence": row["evidence"]},
        figures={},
        state=State.RESOLVED,
        reason=row["reason"],
        active_at_us=micros(row["active_at"]),
        fired_at_us=micros(row["fired_at"]),
        resolved_at_us=micros(row["resolved_at"]),
        last_true_us=micros(row["resolved_at"]),
    )
