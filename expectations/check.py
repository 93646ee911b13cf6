"""Defines check and finding types shared by the suites, Spark and Great Expectations.

Place in the walk: after gold. Suites declare laws; executors count what breaks them in the
rows that are new (`work`); `judging` hands the counts to Great Expectations.

Invariant: a law is judged on each row once, in the run whose batch holds the row. What a law must
remember of earlier rows is small and bounded: it lies in `memory`, or gold has computed it already.
Absent on purpose: Spark and Great Expectations themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Final

import polars as pl

from pipelines.base.wording import broken_text

SAMPLE_ROWS_MAX: Final = 200
"""Failing rows kept of a check and run; of all others only the count."""

ALL_FACTS: Final = "bronze"
"""The table of a check that speaks of facts of every table: all verdicts rest on it."""


class Severity(Enum):
    """What a failing check means for the numbers that rest on its table."""

    CRITICAL = "CRITICAL"
    """They are wrong, or may be: their verdicts are withheld."""
    WARNING = "WARNING"
    """They hold, yet something needs a look."""
    INFO = "INFO"
    """Worth knowing."""


@dataclass(frozen=True, slots=True)
class Check:
    """One named expectation about one table."""

    name: str
    table: str
    severity: Severity

    @property
    def suite(self) -> str:
        """A table's checks are one suite."""
        return self.table


@dataclass(frozen=True, slots=True)
class RowLaw:
    """A law that every row keeps or breaks by itself."""

    check: Check
    broken: str
    """SQL over one row: true when it breaks the law; null and false when it does not."""
    shows: tuple[str, ...] = ()
    """Columns whose values show how."""


@dataclass(frozen=True, slots=True)
class SetLaw:
    """A law about several rows of a batch, or about two tables of it."""

    check: Check
    reads: tuple[str, ...]
    """Tables; without new rows in the first of them there is nothing to check."""
    broken: Callable[[Mapping[str, pl.DataFrame]], pl.DataFrame]
    """New rows by table -> those that break the law, with columns that name and explain them."""
    shows: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """One failing row: its key and figures, readable; whom it is about, and when."""

    row_key: str
    detail: str
    emitter: str | None = None
    """None: it may be about any."""
    group: str | None = None
    """None: it may be about any group of the emitter."""
    since: datetime | None = None
    """The failure speaks of data time after this; None: of the run's own range."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was counted of one check in one batch."""

    check: Check
    checked_rows: int
    broken_rows: int = 0
    failures: tuple[Failure, ...] = ()
    summary: str = ""
    """What was seen, in words, when all is well."""

    @property
    def kept(self) -> str:
        """The sentence that says so."""
        return self.summary or f"{self.checked_rows:,} rows hold"

    @property
    def broken(self) -> str:
        """The sentence that says how many rows break the law, and names some."""
        rows = [(one.row_key, one.detail) for one in self.failures]
        return broken_text(self.broken_rows, self.checked_rows, rows)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one check found, as Great Expectations judged it."""

    check: Check
    severity: Severity
    """The check's own; INFO when there was nothing to check."""
    success: bool
    observed_value: str
    failed_rows: int
    checked_rows: int
    table_version: int | None
    duration_ms: int
    failures: tuple[Failure, ...] = field(default=())

    @property
    def nothing_to_check(self) -> bool:
        """Nothing new to look at: neither a pass nor a finding."""
        return self.checked_rows == 0
