"""Sentences on checks of data quality: how the newest run came out.

Place in the walk: gold dq_results → the health shown on each page. Pure. Absent on purpose: what a
failed check withholds (`withholding`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pipelines.base.wording import duration, plural
from pipelines.sentences.figures import listed, moment, whole

NEVER_RAN: Final = "No check has run: `tidemark check` runs them."
NOTHING_TO_CHECK: Final = "The newest run had nothing to check here."


def too_old(age_ms: float) -> str:
    """That the newest run says nothing about now."""
    return whole(f"the last run is {duration(age_ms)} old: `tidemark check` runs them again")


def hold(checks: int, ran_at: datetime | None) -> str:
    """That all of them hold."""
    verb = "holds" if checks == 1 else "hold"
    at = "" if ran_at is None else f", run at {moment(ran_at)}"
    return whole(f"{plural(checks, 'check')} {verb}{at}")


def fail(names: Sequence[str], checks: int) -> str:
    """Which of them fail."""
    verb = "fails" if len(names) == 1 else "fail"
    return whole(f"{len(names):,} of {plural(checks, 'check')} {verb}: {listed(names)}")
