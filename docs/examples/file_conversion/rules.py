"""What is decided about a row and a file. Pure: no database, no store, no clock.

A row of work has a status. Nobody needs a lock: whoever changes 1 or 3 into 2 has the row.

    1 NEW ──┐ claim          ┌──▶ 4 DONE: it moves to the history
            ├──────▶ 2 TAKEN ┤
    3 FAILED┘                └──▶ 3 FAILED: the conversion failed, or nothing was heard of it
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any, Final


class Status(IntEnum):
    """Of a row of work."""

    NEW = 1
    TAKEN = 2
    FAILED = 3
    DONE = 4


CLAIMABLE: Final = (Status.NEW, Status.FAILED)
FAILURES_MAX: Final = 3
"""A row that failed more often is left to the job of the hopeless ones, which people hear of."""


class End(StrEnum):
    """How the work on one row ended."""

    CONVERTED = "converted"
    FAILED = "failed"
    OF_ANOTHER = "taken by another"
    TOO_LATE = "too late: it was given to another meanwhile"
    AT_WORK = "still at work"


@dataclass(frozen=True, slots=True)
class Row:
    """What has to be done."""

    row_id: int
    source: str
    """Path of the file in the store."""


def shard_of(row_id: Any, shard_total: int) -> Any:
    """Whose row it is; of numbers, and of columns. Of however many shards: each row is one's, and
    no row nobody's."""
    return row_id % shard_total


def target_of(source: str) -> str:
    """Where the result goes: the same whoever makes it, so that a second one replaces the first."""
    return f"converted/{source.removesuffix('.csv')}.jsonl"


def converted(readings: bytes) -> bytes:
    """One JSON object a line of the table. Raises ValueError for what is no table of readings."""
    rows = csv.DictReader(io.StringIO(readings.decode("utf-8")), strict=True)
    if rows.fieldnames != ["sensor", "degrees"]:
        raise ValueError(f"columns {rows.fieldnames}; sensor and degrees are expected")
    return "".join(
        json.dumps({"sensor": row["sensor"], "degrees": float(row["degrees"])}) + "\n"
        for row in rows
    ).encode()


def summary(ends: Iterable[End]) -> str:
    """What a run has done, in a line."""
    counts = Counter(ends)
    return ", ".join(f"{counts[end]} {end}" for end in End if counts[end]) or "nothing to do"
