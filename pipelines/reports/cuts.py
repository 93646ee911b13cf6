"""The cut of a report: the cycle of gold it reads, recorded so that it can be repeated.

Place in the walk: `making` takes one and writes it into the report's row; `gathering` reads gold as
it was known then. Absent on purpose: Spark, so that whoever lists reports needs none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.foundation.errors import LakeError
from pipelines.lake.lake import Lake
from pipelines.reading.moment import Moment, cycle_moment, last_complete


@dataclass(frozen=True, slots=True)
class Cut:
    """What was known: up to a cycle of a run, and of checks up to a moment."""

    run_id: str
    cycle: int
    told_at_us: int
    """µs by the clock of the machine that took the cut."""


def newest_cut(lake: Lake, now_us: int) -> Cut:
    """What is known now. LakeError when no cycle is complete."""
    moment = last_complete(lake)
    if moment is None:
        raise LakeError(
            f"no cycle of {lake.root} is complete yet: there is nothing to report on; see "
            "whether `tidemark pipeline run` runs"
        )
    return Cut(moment.run_id, moment.cycle, now_us)


def moment_of_cut(lake: Lake, cut: Cut) -> Moment:
    """The moment of a cut. LakeError when gold of its run, or its plan, is not there any more."""
    newest = last_complete(lake)
    found = None
    if newest is not None and newest.run_id == cut.run_id and cut.cycle <= newest.cycle:
        found = cycle_moment(lake, cut.cycle)
    if newest is None or found is None:
        raise LakeError(
            f"what was known at cycle {cut.cycle} of run {cut.run_id} cannot be read from "
            f"{lake.root} any more: `tidemark pipeline replay --lake {lake.root} --cycle "
            f"{cut.cycle} --into PLACE` computes it again from bronze, while that is kept"
        )
    return replace(found, gold=newest.gold)
