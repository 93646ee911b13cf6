"""Finds the cycle in which late rows changed what was known about a past moment.

Place in the walk: beside `moment`. An emitter that was cut off reports on a moment when others have
long been judged past it; its rows belong to a later cycle, and what was known at a cycle can be
read for ever by its number. Invariant: few plans are read, by halving, whatever the age of the
lake. Where the first cycle that covered a moment is not kept, that is said. Absent on purpose: rows
of gold, and words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pipelines.cycles.plan import oldest_kept, plans_among
from pipelines.lake.lake import Lake
from pipelines.reading.moment import Moment, moment_of

PROBES: Final = 16
"""Plans that are looked at together: 17,280 cycles, a day of them, are searched in four looks."""
CYCLES_TO_SPEAK: Final = 64
"""Emitters that speak come to a moment within so many cycles of the first that does."""


@dataclass(frozen=True, slots=True)
class Revision:
    """A moment is reported otherwise than it was."""

    known_at: int | None
    """The cycle at which it was reported first, or that was asked about; None: it is not kept."""
    cycle: int | None
    """The last one that brought rows of that moment, or before it; None as above."""
    emitters: tuple[str, ...]
    """The emitters that came late."""
    kept_from: int | None = None
    """Where the cycle is not kept, the oldest that is."""


def revision_of(lake: Lake, last: Moment, at: datetime) -> Revision | None:
    """How a moment of data time, as it is known at the last complete cycle, differs from what was
    reported on it first; None when it does not, or when nobody reported it before.
    """
    if len(last.reached) < 2:
        return None  # An emitter is late when others were judged before it.
    oldest = oldest_kept(lake)
    if oldest > 1 and _has_come(moment_of(plans_among(lake, [oldest])[oldest]), at):
        return Revision(None, None, (), kept_from=oldest)
    first = _first_judged(lake, last, at, oldest)
    return None if first is None else revision_after(lake, last, first, at)


def revision_after(lake: Lake, last: Moment, known: Moment, at: datetime) -> Revision | None:
    """How what was known of a moment at one cycle was changed by later ones."""
    before = {one.emitter: one.judged_to for one in known.reached}
    late = {}
    for one in last.reached:
        reported_to, end = before.get(one.emitter), min(one.judged_to, at)
        if reported_to is None or reported_to < end:
            late[one.emitter] = end
    if not late:
        return None

    def is_whole(moment: Moment) -> bool:
        reached = {one.emitter: one.judged_to for one in moment.reached}
        return all(name in reached and reached[name] >= end for name, end in late.items())

    whole = _first_cycle(lake, known.cycle + 1, last, is_whole)
    return Revision(known.cycle, whole.cycle, tuple(sorted(late)))


def _first_judged(lake: Lake, last: Moment, at: datetime, oldest: int) -> Moment | None:
    """The first cycle that is kept at which all who spoke had been judged up to a moment."""
    if not _has_come(last, at):
        return None
    first = _first_cycle(lake, oldest, last, lambda moment: _has_come(moment, at))
    behind = range(first.cycle, min(first.cycle + CYCLES_TO_SPEAK, last.cycle))
    plans = plans_among(lake, behind)
    for cycle in behind:
        moment = moment_of(plans[cycle]) if cycle in plans else None
        if moment is not None and moment.judged_to is not None and moment.judged_to >= at:
            return moment
    return None


def _has_come(moment: Moment, at: datetime) -> bool:
    """Has any emitter been judged so far?"""
    return moment.newest is not None and moment.newest >= at


def _first_cycle(lake: Lake, low: int, last: Moment, holds: Callable[[Moment], bool]) -> Moment:
    """The first cycle from `low` on for which something holds that holds ever after; `last` when it
    is none before. Cycles whose plan is not kept any more are passed over.
    """
    found, high = last, last.cycle
    while low < high:
        probes = range(low, high, max(1, -(-(high - low) // PROBES)))
        plans = plans_among(lake, probes)
        for cycle in probes:
            if cycle in plans and holds(moment := moment_of(plans[cycle])):
                found, high = moment, cycle
                break
            low = cycle + 1
    return found
