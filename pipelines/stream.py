"""The live run: one driver, cycle after cycle, from the shipped horizons to gold.

Place in the walk: `tidemark pipeline run`, `tidemark demo` and the freshness bench call it; replay
walks the same steps.

Invariant: the plan of a cycle is recorded before its first row, and the next plan only after its
last; so whatever kills this process, the restart repeats one cycle and Delta skips the appends that
were done. Absent on purpose: Structured Streaming (docs/adr/0003-gold-by-a-driver-loop.md has the
figures).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import SparkSession

from engine.foundation.errors import LakeError
from pipelines.cycle import run_cycle
from pipelines.gold import create_gold
from pipelines.lake import Lake
from pipelines.marks import Marks, Plan, plan_cuts, record_completed, shipped
from pipelines.settings import Evaluation, Pace

POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Progress:
    """What one cycle did."""

    cycle: int
    bronze_rows: int
    gold_rows: dict[str, int]
    horizon_us: int
    """The least moment up to which an emitter that brought something new has been judged."""
    seconds: float

    def __str__(self) -> str:
        horizon = datetime.fromtimestamp(self.horizon_us / 1_000_000, UTC)
        return (
            f"cycle {self.cycle}: {self.bronze_rows} rows in, {sum(self.gold_rows.values())} out, "
            f"horizon {horizon:%H:%M:%S}, {self.seconds:.1f} s"
        )


def run_stream(
    spark: SparkSession,
    lake: Lake,
    *,
    evaluation: Evaluation,
    pace: Pace,
    wanted: Callable[[], bool],
    tell: Callable[[Progress], None],
) -> None:
    """Compute gold while `wanted()`; a cycle under way is finished first.

    `tell` hears of every cycle.
    """
    marks = Marks.open(lake, evaluation.as_text())
    create_gold(spark, lake)
    if marks.last is not None:
        tell(carry_out(spark, lake, marks.last, evaluation))
    while wanted():
        started_s = time.monotonic()
        plan = next_plan(lake, marks, pace)
        if plan is not None:
            tell(carry_out(spark, lake, plan, evaluation))
        behind = plan is not None and plan.rows >= pace.rows_per_cycle
        pause_until_s = started_s + (0 if behind else pace.cycle_ms / 1000)
        while wanted() and time.monotonic() < pause_until_s:
            time.sleep(POLL_S)


def next_plan(lake: Lake, marks: Marks, pace: Pace) -> Plan | None:
    """Record and return the plan of the next cycle; None when nothing new has been shipped."""
    positions = marks.positions()
    cuts = plan_cuts(positions, shipped(lake, positions), rows_max=pace.rows_per_cycle)
    return None if all(cut.is_empty for cut in cuts) else marks.record(cuts)


def carry_out(spark: SparkSession, lake: Lake, plan: Plan, evaluation: Evaluation) -> Progress:
    """Run one recorded cycle of the live lake."""
    started_s = time.monotonic()
    gold_rows = run_cycle(spark, lake, lake, plan, evaluation=evaluation)
    record_completed(lake, plan)
    moved = [cut.time_to_us for cut in plan.cuts if not cut.is_empty]
    return Progress(
        plan.cycle,
        plan.rows,
        gold_rows,
        min(moved, default=0),
        time.monotonic() - started_s,
    )


def await_first_shipment(lake: Lake, *, patience_ms: int, wanted: Callable[[], bool]) -> bool:
    """Wait until a shipper has written to the lake; False when no longer wanted.

    LakeError after `patience_ms`.
    """
    deadline_s = time.monotonic() + patience_ms / 1000
    address = lake.bronze("shipments")
    while wanted():
        if lake.exists(address):
            return True
        if time.monotonic() > deadline_s:
            raise LakeError(
                f"nothing has been shipped to {lake.root} within {patience_ms} ms: start an engine "
                f"with this lake (`tidemark engine --lake {lake.root} ...`), or name another one"
            )
        time.sleep(POLL_S)
    return False
