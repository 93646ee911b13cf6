"""Carrying out what was planned for a table: delta-rs merges, drops and vacuums.

Place in the walk: after `plan`. The thin side of upkeep: each step is one commit of delta-rs, or
none, and every one of them leaves the table whole, so that a kill between any two is only upkeep
not yet done.

Invariant: no commit of upkeep adds rows or takes rows away, but for the drop of whole partitions.
A conflict with a writer, or with another merge, ends the step, not the round: it is planned again.
Absent on purpose: which files, which days, when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from engine.foundation.errors import LakeError
from pipelines.lake import Lake, first_line
from pipelines.upkeep.plan import Merge, TableFacts, Work
from pipelines.upkeep.settings import Upkeep
from pipelines.upkeep.table_facts import LOG_RETENTION

COMMIT_EACH: Final = timedelta(seconds=30)
"""A long merge is committed in parts: a kill loses no more work than this."""

FULL_VACUUM_EACH: Final = 24
"""Each so many vacuums one looks for files that no log entry names: what killed writers leave."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing done to a table."""

    text: str
    failed: bool = False


def carry_out(handle: DeltaTable, facts: TableFacts, work: Work, upkeep: Upkeep) -> Iterator[Step]:
    """Do it, step by step; a step that fails is told and the next one tried."""
    if work.refused:
        return
    if work.set_log_days:
        days = f"interval {upkeep.log_days} days"
        yield _step("log kept " + days, partial(_set_property, handle, LOG_RETENTION, days))
    for day in work.drops:
        condition = f"{facts.partition_column} = '{day.isoformat()}'"
        yield _step(f"dropped {day}", partial(_drop, handle, condition))
    for merge in work.merges:
        yield _merged(handle, facts, merge)


def vacuum(handle: DeltaTable, hours: int, *, full: bool) -> Step | None:
    """Remove files that were replaced longer ago than `hours`; None when there are none.

    Asked first: a vacuum that removes nothing would still make two commits.
    """
    try:
        if not _vacuumed(handle, hours, full=full, dry_run=True):
            return None
        removed = _vacuumed(handle, hours, full=full, dry_run=False)
    except (DeltaError, OSError) as error:
        return Step(f"vacuum failed ({first_line(error)})", failed=True)
    return Step(f"vacuumed {len(removed)} files replaced more than {hours} h ago")


def tidy_log(handle: DeltaTable) -> Step | None:
    """A checkpoint, and log entries below it that are older than the table keeps them go."""
    try:
        handle.create_checkpoint()
        handle.cleanup_metadata()
    except (DeltaError, OSError) as error:
        return Step(f"log not tidied ({first_line(error)})", failed=True)
    return None


def reopened(lake: Lake, handle: DeltaTable) -> DeltaTable:
    """The table as it is now."""
    return lake.table(handle.table_uri)


def _merged(handle: DeltaTable, facts: TableFacts, merge: Merge) -> Step:
    days = None
    if facts.partition_column is not None and merge.day is not None:
        days = [(facts.partition_column, "=", merge.day.isoformat())]
    of = "" if merge.day is None else f" of {merge.day}"
    try:
        told = handle.optimize.compact(
            partition_filters=days,
            target_size=merge.target_bytes,
            max_concurrent_tasks=1,
            min_commit_interval=COMMIT_EACH,
        )
    except (DeltaError, OSError) as error:
        return Step(f"merge{of} failed ({first_line(error)})", failed=True)
    return Step(f"merged {told['numFilesRemoved']} files{of} into {told['numFilesAdded']}")


def _vacuumed(handle: DeltaTable, hours: int, *, full: bool, dry_run: bool) -> list[str]:
    return list(
        handle.vacuum(
            retention_hours=hours, dry_run=dry_run, enforce_retention_duration=False, full=full
        )
    )


def _drop(handle: DeltaTable, condition: str) -> None:
    told = handle.delete(condition)
    if told["num_copied_rows"]:
        raise LakeError(f"{condition} rewrote rows of {handle.table_uri}: it is no partition")


def _set_property(handle: DeltaTable, name: str, value: str) -> None:
    handle.alter.set_table_properties({name: value})


def _step(text: str, act: Callable[[], None]) -> Step:
    try:
        act()
    except (DeltaError, OSError, LakeError) as error:
        return Step(f"{text}: failed ({first_line(error)})", failed=True)
    return Step(text)
