"""Reuses a run's recorded numbers when it is made again from its cut and gold has gone.

Place in the walk: `notebook` has computed them from gold; what gold does not keep as long as
reports are kept is taken from the numbers that were recorded, or it cannot be given again.

Invariant: the same cut has the same numbers, whatever upkeep has dropped since. Outcomes of checks
are kept for 90 days, weekly reports for 1,200: their checks, and the verdicts that these withheld,
are those of the recorded numbers once the table begins after the period does. Lag cannot be taken
in parts: once gold covers less of the period than it did, all numbers are the recorded ones. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date

from pipelines.base.time_units import moment_at
from pipelines.reports.news import headline_of
from pipelines.reports.numbers import Numbers


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
