"""Plans a table's upkeep: partitions to merge or drop, and files to vacuum.

Place in the walk: between looking at a table (`table_facts`) and doing something (`work`). Pure:
facts and a moment go in, work comes out.

Rules:

    drop     a day that ended longer ago than the table's days; not one that a reader has still to
             read, unless that reader has stood still for longer than patience allows; of plans
             never the newest, and their cycles are kept in short first. Of lifecycle the rows that
             hold until a later one are kept. Of a table of intervals what is open goes on in the
             next day
    merge    files that have not grown through a tier (1, 8, 32 MiB) once there are many of them;
             in a day that is over, as soon as there are two
    vacuum   files that were replaced before every reader's last place, and before the hours for
             which a query may hold a version

A file that a reader by version range has still to read was added after its place, and so replaced
after it: keeping all that was replaced since the commit of that place keeps that file. The log is
kept for `log_days` only; a reader that is further behind reads the snapshot, which holds the same
rows, and holds nothing back.

Invariant: what is planned twice is done once: a table that was just tended has no work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Final

from pipelines.lake.lake import GOLD_FOLDER
from pipelines.reading.catalogue import GOLD_TABLES
from pipelines.upkeep.settings import (
    COMPACTIONS_A_ROUND,
    DROPS_A_ROUND,
    FILES_BELOW_TIER_MAX,
    PLANS_DROPPED_A_ROUND,
    PLANS_TABLE,
    SKEW_S,
    TIERS_BYTES,
    Upkeep,
    has_grown,
)

NEWEST_DAYS_OF_PLANS: Final = 2
"""These stay however old they are: a run that stood still for long goes on from them."""
HOUR_S: Final = 3600.0
INTERVAL_TABLES: Final = frozenset(
    f"{GOLD_FOLDER}/{table.name}" for table in GOLD_TABLES if table.revised
)
"""Tables whose newest revisions are true until they are reported otherwise, for years if need be.
"""


class Writer(StrEnum):
    """Which library writes a table. Two of them can overwrite each other's version on a disk."""

    DELTA_RS = "delta-rs"
    SPARK = "Spark"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """The files of one partition, or of a table without partitions."""

    day: date | None
    """None: the table has no partition by date."""
    sizes: tuple[int, ...]
    """Bytes of each file in use."""
    newest_s: float
    """When the youngest file was written, seconds since 1970."""
    rows: int | None = None
    """None when a file reports no count."""


@dataclass(frozen=True, slots=True)
class ReaderPlace:
    """How far a reader by version range has come in this table."""

    reader: str
    read_to_s: float | None
    """When the commit at its place was made, seconds since 1970; None when the log no longer says:
    then it reads the snapshot."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """One table as it is now."""

    name: str
    """`bronze/NAME`, `gold/NAME` or `state/NAME`."""
    version: int
    writer: Writer
    partitions: tuple[PartitionFacts, ...]
    partition_column: str | None
    readers: tuple[ReaderPlace, ...] = ()
    log_retention: str | None = None
    """The table's property, as it says it."""

    @property
    def files(self) -> int:
        """Files in use."""
        return sum(len(one.sizes) for one in self.partitions)


@dataclass(frozen=True, slots=True)
class Merge:
    """Files of a partition that have not grown through `target_bytes` become as few as fit."""

    day: date | None
    target_bytes: int
    files: int
    """How many there are of them."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done about a table, in this order."""

    set_log_days: bool = False
    drops: tuple[date, ...] = ()
    carries: Mapping[date, date] = field(default_factory=dict)
    """Of a table of intervals: per day that is dropped, the one in which its open ones go on."""
    merges: tuple[Merge, ...] = ()
    vacuum_hours: int | None = None
    """Files replaced longer ago than this go; None: the table is not ours to touch."""
    refused: str | None = None
    """Why nothing may be done."""

    @property
    def is_empty(self) -> bool:
        """Nothing but looking for replaced files."""
        return not (self.set_log_days or self.drops or self.merges)

    def __str__(self) -> str:
        if self.refused:
            return self.refused
        said = [f"drop {len(self.drops)} days to {max(self.drops)}"] if self.drops else []
        said += [
            f"merge {merge.files} files" + (f" of {merge.day}" if merge.day else "")
            for merge in self.merges
        ]
        if self.set_log_days:
            said.append("set the log's days")
        return ", ".join(said) or "nothing"


def plan(facts: TableFacts, upkeep: Upkeep, now: datetime) -> Work:
    """The work on a table at a moment."""
    if facts.writer is not Writer.DELTA_RS:
        return Work(refused=f"left alone: written by {facts.writer.value}")
    drops = _drops(facts, upkeep, now)
    merges = [
        merge
        for one in sorted(
            facts.partitions, key=lambda one: (one.day is None, one.day), reverse=True
        )
        if one.day not in drops and (merge := _merge(one, upkeep, now)) is not None
    ]
    return Work(
        set_log_days=facts.log_retention is None and _is_quiet(facts, upkeep, now),
        drops=drops,
        carries=_carries(facts, drops, upkeep, now),
        merges=tuple(merges[:COMPACTIONS_A_ROUND]),
        vacuum_hours=vacuum_hours(facts.readers, upkeep, now),
    )


def vacuum_hours(readers: Sequence[ReaderPlace], upkeep: Upkeep, now: datetime) -> int:
    """Files that were replaced within so many hours stay."""
    held_s = upkeep.reader_hours * HOUR_S
    for reader in readers:
        if reader.read_to_s is not None:
            held_s = max(held_s, now.timestamp() - reader.read_to_s + SKEW_S)
    return math.ceil(held_s / HOUR_S)


def writer_of(engines: Sequence[tuple[str | None, str | None]]) -> Writer:
    """The kind of writer, from operation and engine of the newest commits, newest first.

    The newest commit that is not upkeep decides; of upkeep alone, the newest.
    """
    writers = [engine for operation, engine in engines if operation not in _UPKEEP_OPERATIONS]
    engine = (writers or [engine for _operation, engine in engines] or [None])[0] or ""
    if engine.startswith(("delta-rs", "tidemark-upkeep")):
        return Writer.DELTA_RS
    return Writer.SPARK if "Spark" in engine else Writer.OTHER


_UPKEEP_OPERATIONS: Final = (
    "OPTIMIZE",
    "VACUUM START",
    "VACUUM END",
    "SET TBLPROPERTIES",
    "DELETE",
)


def _is_quiet(facts: TableFacts, upkeep: Upkeep, now: datetime) -> bool:
    """Has nobody written for a while? A change of properties fails an append that is under way."""
    newest_s = max((one.newest_s for one in facts.partitions), default=now.timestamp())
    return bool(facts.partitions) and now.timestamp() - newest_s >= upkeep.settle_s


def _drops(facts: TableFacts, upkeep: Upkeep, now: datetime) -> tuple[date, ...]:
    days = upkeep.days_of(facts.name)
    if days is None:
        return ()
    there = sorted(one.day for one in facts.partitions if one.day is not None)
    if facts.name == PLANS_TABLE:
        there = there[:-NEWEST_DAYS_OF_PLANS]
    old = [day for day in there if _ended(day) <= now - timedelta(days=days)]
    free = (
        day
        for day in old
        if _may_go(day, facts.readers, kept_days=days, patience_days=upkeep.patience_days, now=now)
    )
    most = PLANS_DROPPED_A_ROUND if facts.name == PLANS_TABLE else DROPS_A_ROUND
    return tuple(free)[:most]


def _carries(
    facts: TableFacts, drops: Sequence[date], upkeep: Upkeep, now: datetime
) -> dict[date, date]:
    """The day behind each that is dropped: the next that there is, but none beyond the first that
    is kept. Beyond the next one a row would outlive the end of its interval.
    """
    days = upkeep.days_of(facts.name)
    if days is None or facts.name not in INTERVAL_TABLES:
        return {}
    kept_from = (now - timedelta(days=days)).date()
    there = sorted(one.day for one in facts.partitions if one.day is not None)
    return {day: min((*(one for one in there if one > day), kept_from)) for day in drops}


def _may_go(
    day: date,
    readers: Sequence[ReaderPlace],
    *,
    kept_days: int,
    patience_days: int,
    now: datetime,
) -> bool:
    """Has everybody read what came on that day, and on the next, in which late rows come?"""
    if _ended(day) <= now - timedelta(days=kept_days + patience_days):
        return True
    needed_s = (_ended(day) + timedelta(days=1)).timestamp()
    return all(one.read_to_s is not None and one.read_to_s >= needed_s for one in readers)


def _merge(partition: PartitionFacts, upkeep: Upkeep, now: datetime) -> Merge | None:
    """The merge a partition needs first: the one of the largest files, which takes the smaller ones
    along. The smallest come anew all the time, and would always be first.
    """
    is_over = partition.day is not None and _ended(partition.day) <= now - timedelta(seconds=SKEW_S)
    if is_over and now.timestamp() - partition.newest_s < upkeep.settle_s:
        return None  # Late rows still come.
    left = list(partition.sizes)
    for lower, tier in reversed(list(pairwise((0, *TIERS_BYTES)))):
        left = [size for size in left if not has_grown(size, tier)]
        here = sum(has_grown(size, lower) for size in left)
        if here >= FILES_BELOW_TIER_MAX or (is_over and len(left) > 1):
            return Merge(partition.day, tier, len(left))
    return None


def _ended(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)
