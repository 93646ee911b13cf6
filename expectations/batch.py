"""Selects a check run's batch: the rows of the next unchecked cycles, up to a limit.

Place in the walk: first, before any table is opened. Bronze and gold are judged to the same
moment, that of a complete cycle, so that what gold says can be held against the facts it took.

Invariant: batches follow each other without gap or overlap: one begins, for every emitter, where
the one before ended. Absent on purpose: rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from engine.foundation.errors import LakeError
from expectations.memory import Memory, begun_for
from pipelines.cycles.cuts import Cut
from pipelines.cycles.plan import Plan, last_done, plan_of_cycle
from pipelines.lake.lake import Lake
from pipelines.reading.catalogue import COMPUTED_TABLES

SHIPMENTS: Final = "shipments"
ROWS_MAX: Final = 300_000
"""Bronze rows a run judges at most, and gold's of the same cycles: a longer past is judged in
several runs. One cycle is judged as a whole, however many rows it took.
"""


@dataclass(frozen=True, slots=True)
class Batch:
    """The cycles of one run of checks."""

    run_id: str
    """Of the pipeline's run."""
    cycle_from: int
    """The last cycle judged before: 0 at the beginning."""
    cycle: int
    """The last cycle of this batch."""
    cuts: tuple[Cut, ...]
    """Per emitter, what the cycles took together."""
    is_last: bool
    """Nothing that is complete lies behind it."""

    @property
    def rows(self) -> int:
        """Bronze rows."""
        return sum(cut.rows for cut in self.cuts)

    @property
    def judged_to_us(self) -> int:
        """The newest moment of data time it reaches."""
        return max((cut.time_to_us for cut in self.cuts), default=0)

    @property
    def judged_from_us(self) -> int:
        """The least moment of data time after which its rows lie; 0: all there were before.

        An emitter that is new beside others that are known does not make the past unjudged.
        """
        moved = [cut.time_from_us for cut in self.cuts if cut.time_to_us > cut.time_from_us]
        known = [begin_us for begin_us in moved if begin_us]
        return min(known or moved, default=self.judged_to_us)


def next_batch(lake: Lake, memory: Memory, *, rows_max: int = ROWS_MAX) -> Batch:
    """The next batch of a lake; an empty one, of the last judged cycle, when nothing is new.

    Raises LakeError when no cycle was ever complete.
    """
    newest = last_done(lake)
    if newest is None:
        raise LakeError(
            f"no cycle of {lake.root} is complete yet: let `tidemark pipeline run --lake "
            f"{lake.root}` finish its first one"
        )
    known = begun_for(memory, newest.run_id)
    plan = _within(lambda cycle: plan_of_cycle(lake, cycle), newest, known, rows_max)
    cuts = tuple(_cut(cut, known) for cut in plan.cuts)
    return Batch(newest.run_id, known.cycle, plan.cycle, cuts, plan.cycle == newest.cycle)


def _within(
    plan_of: Callable[[int], Plan | None], newest: Plan, memory: Memory, rows_max: int
) -> Plan:
    """The furthest plan up to which there are at most `rows_max` rows; the next one at least.

    Few questions: the rows grow with the cycles, so the place is found by halving.
    """
    if _rows(newest, memory) <= rows_max:
        return newest
    low, high, found = memory.cycle + 1, newest.cycle, None
    while low < high:
        middle = (low + high) // 2
        plan = plan_of(middle)
        if plan is None:  # Plans so old that they are gone: go on behind them.
            low = middle + 1
        elif _rows(plan, memory) > rows_max:
            high = middle
        else:
            low, found = middle + 1, plan
    return found or plan_of(low) or newest


def _rows(plan: Plan, memory: Memory) -> int:
    return sum(max(0, _cut(cut, memory).rows) for cut in plan.cuts)


def _cut(cut: Cut, memory: Memory) -> Cut:
    """From where the emitter was judged to the end of the plan's cut."""
    before = memory.emitter(cut.emitter)
    return Cut(
        cut.emitter,
        min(before.seq_to, cut.seq_to),
        cut.seq_to,
        min(before.shipment_to, cut.shipment_to),
        cut.shipment_to,
        min(before.time_to_us, cut.time_to_us),
        cut.time_to_us,
        min(before.unused_to, cut.unused_to),
        cut.unused_to,
    )


def require(lake: Lake) -> None:
    """LakeError when something that must be there is not."""
    if not lake.exists(lake.bronze(SHIPMENTS)):
        raise LakeError(
            f"{lake.root} holds no shipments: nothing was ever shipped there; start "
            f"`tidemark engine --lake {lake.root}`, or name another lake"
        )
    absent: Sequence[str] = [
        table.name for table in COMPUTED_TABLES if not lake.exists(lake.gold(table.name))
    ]
    if absent:
        raise LakeError(
            f"{lake.root} has no gold table {', '.join(absent)}: start "
            f"`tidemark pipeline run --lake {lake.root}` and check again"
        )
