"""What a check is, and what it looks at: the words suites and their runner share.

Place in the walk: after gold. A subject reads the lake and reduces it to one row per key (a
queue, an emitter, a window); an expectation is then held against those few rows.

Invariant: a subject is computed once per run, at one shipped horizon, however many checks rest
on it. Absent on purpose: Great Expectations itself (custom, suites and checkpoints import it).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final

import polars as pl

from expectations.reading import CheckedLake

SAMPLE_ROWS_MAX: Final = 200
"""Failing rows kept of a check and run."""


class Severity(Enum):
    """What a failing check means for the numbers that rest on its table."""

    CRITICAL = "CRITICAL"
    """They are wrong, or may be: do not decide by them."""
    WARNING = "WARNING"
    """They hold, yet something needs a look."""
    INFO = "INFO"
    """Worth knowing."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What checks look at: few rows, each with its key."""

    table: str
    """The table it was made of."""
    rows: pl.DataFrame
    key: tuple[str, ...]
    """Columns that name a row to a reader."""
    checked_rows: int
    """Rows of the table that were looked at."""
    version: int | None
    """Delta version they were read from; None when the table does not exist yet."""
    summary: str
    """What was seen, in words, when all is well."""


SubjectOf = Callable[[CheckedLake, datetime], Subject]
"""Reads a subject; the second argument is the wall clock, for freshness alone."""


@dataclass(frozen=True, slots=True)
class Check:
    """One named expectation over a subject."""

    name: str
    suite: str
    severity: Severity
    subject: SubjectOf
    expectation: Callable[[str, str], Any]
    """(name, severity) -> a Great Expectations expectation over the subject's rows."""
    may_be_empty: bool = False
    """A sound lake may have no such rows at all; otherwise nothing to check is worth a warning."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failing row: its key and figures, readable."""

    row_key: str
    detail: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one check found."""

    check: Check
    table: str
    severity: Severity
    """The check's own, or lower when there was nothing to check."""
    success: bool
    observed_value: str
    failed_rows: int
    checked_rows: int
    table_version: int | None
    duration_ms: int
    failures: tuple[Failure, ...]

    @property
    def nothing_to_check(self) -> bool:
        """No row to look at: neither a pass nor a finding."""
        return self.checked_rows == 0
