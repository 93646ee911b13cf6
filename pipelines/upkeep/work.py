"""Carries out a table's planned merges, drops and vacuums.

Place in the walk: after `plan`. Drops and vacuums go by delta-rs, merges and drops that leave open
intervals by `merging`. What plans say is stored in short before they go, and rows of lifecycle that
hold until a later one go into a table of their own. Each step is one commit, or a few, and every
one leaves the table whole.

Invariant: no commit of upkeep adds rows or takes rows away, but for the drop of whole partitions.
They go oldest first, and none after one that could not: an interval's end must not go before it. A
conflict ends the step, not the round: it is planned again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Final

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from engine.foundation.errors import LakeError
from pipelines.base.wording import plural
from pipelines.cycles.cycle_records import keep_day
from pipelines.lake.lake import Lake, first_line
from pipelines.lake.small_files import SmallFiles
from pipelines.reading.lasting_lifecycle import keep_lasting
from pipelines.upkeep.merging import carry_open, merge_partition
from pipelines.upkeep.plan import Merge, TableFacts, Work
from pipelines.upkeep.settings import LIFECYCLE_TABLE, PLANS_TABLE, Upkeep
from pipelines.upkeep.table_facts import LOG_RETENTION

FULL_VACUUM_EACH: Final = 24
"""Each so many vacuums one looks for files that no log entry names: what killed writers leave."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing done to a table."""

    text: str
    failed: bool = False


def carry_out(lake: Lake, facts: TableFacts, work: Work, upkeep: Upkeep) -> Iterator[Step]:
    """Do it, step by step; a step that fails is reported and the next one tried."""
    if work.refused:
        return
    handle = lake.table(f"{lake.root}/{facts.name}")
    if work.set_log_days:
        days = f"interval {upkeep.log_days} days"
        properties = {LOG_RETENTION: days}
        keep = partial(handle.alter.set_table_properties, properties)
        yield _step("log kept " + days, keep)
    for day in work.drops:
        step = _dropped(lake, facts, day, work.carries.get(day))
        yield step
        if step.failed:
            break
    for merge in work.merges:
        # As the table is now: the step before has made commits of its own.
        yield _merged(lake, lake.table(f"{lake.root}/{facts.name}"), facts, merge)


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


def _dropped(lake: Lake, facts: TableFacts, day: date, into: date | None) -> Step:
    address = f"{lake.root}/{facts.name}"
    condition = f"{facts.partition_column} = '{day.isoformat()}'"
    try:
        handle = lake.table(address)  # First: what comes into the day from here on is a conflict.
        in_short = keep_day(lake, address, day) if facts.name == PLANS_TABLE else 0
        lasting = keep_lasting(lake, day) if facts.name == LIFECYCLE_TABLE else 0
        carried = 0
        if into is not None:
            carried = carry_open(SmallFiles(lake), address, handle, day=day, into=into)
        if not carried:
            _drop(handle, condition)
    except (DeltaError, OSError, LakeError) as error:
        return Step(f"dropped {day}: failed ({first_line(error)})", failed=True)
    kept = f", but for {carried} open intervals, now in {into}" if carried else ""
    if in_short:
        kept = f", and kept {in_short} cycles in short"
    if lasting:
        kept = f", and kept {plural(lasting, 'row')} that still hold"
    return Step(f"dropped {day}{kept}")


def _merged(lake: Lake, handle: DeltaTable, facts: TableFacts, merge: Merge) -> Step:
    of = "" if merge.day is None else f" of {merge.day}"
    address = f"{lake.root}/{facts.name}"
    try:
        merged, made = merge_partition(
            SmallFiles(lake), address, handle, day=merge.day, target_bytes=merge.target_bytes
        )
    except (DeltaError, OSError, LakeError) as error:
        return Step(f"merge{of} failed ({first_line(error)})", failed=True)
    return Step(f"merged {merged} files{of} into {made}")


def _vacuumed(handle: DeltaTable, hours: int, *, full: bool, dry_run: bool) -> list[str]:
    return list(
        handle.vacuum(
            retention_hours=hours, dry_run=dry_run, enforce_retention_duration=False, full=full
        )
    )


def _drop(handle: DeltaTable, condition: str) -> None:
    outcome = handle.delete(condition)
    if outcome["num_copied_rows"]:
        raise LakeError(f"{condition} rewrote rows of {handle.table_uri}: it is no partition")


def _step(text: str, act: Callable[[], None]) -> Step:
    try:
        act()
    except (DeltaError, OSError, LakeError) as error:
        return Step(f"{text}: failed ({first_line(error)})", failed=True)
    return Step(text)
