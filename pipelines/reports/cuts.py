"""Records a report's cut (the gold cycle it reads) so that the report can be repeated.

Place in the walk: `making` takes one and writes it into the report's row; `gathering` reads gold as
it was known then. Invariant: the same cut has the same numbers, whatever upkeep has dropped since:
checks, and the verdicts they withheld, are the recorded ones once their table begins after the
period does; once gold covers less of the period, all numbers are. Absent on purpose: Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date

from engine.foundation.errors import LakeError
from pipelines.base.time_units import moment_at
from pipelines.lake.lake import Lake
from pipelines.reading.moment import Moment, cycle_moment, last_complete
from pipelines.reports.news import headline_of
from pipelines.reports.numbers import Numbers


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


def as_recorded(numbers: Numbers, recorded: Numbers, *, checks_from: date | None) -> Numbers:
    """The numbers with what the lake keeps no more. `checks_from`: the oldest day of which outcomes
    of checks are there; None: there are none. `recorded` itself when lag of the period was dropped.
    """
    if _cut(numbers) != _cut(recorded):
        return numbers
    if _is_less_known(numbers.known_from_us, recorded.known_from_us):
        return recorded
    if covers(checks_from, numbers):
        return numbers
    withheld = {(one.cluster, one.group): one.withheld for one in recorded.groups}
    groups = tuple(
        replace(one, withheld=withheld.get((one.cluster, one.group), one.withheld))
        for one in numbers.groups
    )
    headline = headline_of(groups, numbers.emitters)
    return replace(numbers, groups=groups, checks=recorded.checks, headline=headline)


def covers(checks_from: date | None, numbers: Numbers) -> bool:
    """Are the outcomes of all checks of the period there still?"""
    return checks_from is not None and checks_from <= moment_at(numbers.begin_us).date()


def _cut(numbers: Numbers) -> tuple[str, int, int]:
    return numbers.run_id, numbers.cycle, numbers.told_at_us


def _is_less_known(now_us: int | None, then_us: int | None) -> bool:
    return then_us is not None and (now_us is None or now_us > then_us)
