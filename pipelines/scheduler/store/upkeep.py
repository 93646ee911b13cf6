"""Upkeep of the run log: counts its days and deletes old runs.

Place in the walk: called by each centre; two that do it at once do it twice, and nothing is wrong.
Counting reads beside the writers; a batch that goes holds them up for some ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import sqlalchemy as sa

from pipelines.database.database import Database
from pipelines.scheduler.store.results import FORGET_BATCH, forget, report
from pipelines.scheduler.store.tables import run_reports

DAY_MS: Final = 86_400_000
LOG_DAYS: Final = 30
"""How long ended runs are stored by default; XXL-Job's figure."""
LOG_DAYS_MIN: Final = 3
"""Fewer means: for ever. As in XXL-Job."""
REPORTED_DAYS: Final = 3
"""Days that may change still: today, and those before it of which results come late."""
REPORTS_SHOWN_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class DayReport:
    """How the runs of one UTC day stand."""

    day: str
    open_count: int
    done_count: int
    failed_count: int


def forget_batch(database: Database, *, log_days: int, now_ms: int) -> bool:
    """Forget runs that were planned more than so many days ago and have ended; is there more?"""
    if log_days < LOG_DAYS_MIN:
        return False
    return forget(database, before_ms=now_ms - log_days * DAY_MS) >= FORGET_BATCH


def report_days(database: Database, *, days: int, now_ms: int) -> None:
    """Count the runs of the last days anew, today's first."""
    today_ms = now_ms // DAY_MS * DAY_MS
    for from_ms in range(today_ms, today_ms - days * DAY_MS, -DAY_MS):
        day = datetime.fromtimestamp(from_ms / 1000, UTC).date().isoformat()
        report(database, day, from_ms=from_ms, to_ms=from_ms + DAY_MS)


def reports(database: Database, *, days: int = LOG_DAYS) -> list[DayReport]:
    """The last days that were counted, the newest first."""
    newest = sa.select(run_reports).order_by(run_reports.c.day.desc())
    with database.reading() as connection:
        rows = connection.execute(newest.limit(min(days, REPORTS_SHOWN_MAX))).all()
    return [DayReport(row.day, row.open_count, row.done_count, row.failed_count) for row in rows]
