"""Sentences that summarise a report period: its headline, its changes and its caveats.

Place in the walk: numbers of `pipelines/reports` → its page, its notice, the notebook. Pure.
Invariant: what is not known of a period is said beside what is. Absent on purpose: numbers, markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pipelines.base.wording import plural
from pipelines.sentences.duplicates import REPEATED
from pipelines.sentences.figures import listed, number_of, was, whole

NO_GROUP: Final = "Nothing is known of this period: gold has no group in it."
NO_HISTORY: Final = "Nothing is known of alerts: `tidemark alerts run` writes their history."
NOT_CHECKED: Final = "Whether the data is sound is unknown: no check ran on this period."
LAWS_UNKNOWN: Final = "Whether offsets moved as they should is unknown."
NOT_THERE_NOW: Final = "is not there any more"


@dataclass(frozen=True, slots=True)
class Objectives:
    """How groups kept their objectives in a period."""

    groups: int
    missed: int = 0
    unclear: int = 0
    """Of so many too little is known."""
    worst: str = ""
    """The group that missed most,"""
    behind_percent: float = 0.0
    """for so much of the time,"""
    worst_lag: str = ""
    """by so much."""


def headline(objectives: Objectives, *, withheld: int, late: Sequence[str]) -> str:
    """The period in sentences: who missed an objective, and what is not known. `withheld`:
    verdicts, `late`: emitters that are not known to the end.
    """
    parts = [_kept(objectives)]
    if objectives.unclear and objectives.unclear < objectives.groups:
        parts.append(f"too little is known of {plural(objectives.unclear, 'group')}")
    if withheld:
        held = f"{plural(withheld, 'verdict')} {'is' if withheld == 1 else 'are'} withheld"
        parts.append(f"{held}, because a check of the data failed")
    if late:
        parts.append(f"the end of {listed(late)} is not known yet")
    return whole(*parts)


def _kept(one: Objectives) -> str:
    known = one.groups - one.unclear
    if one.missed:
        return (
            f"{one.missed} of {plural(one.groups, 'group')} missed the objective, {one.worst} "
            f"most: behind for {_points(one.behind_percent)} of the time, by {one.worst_lag} at "
            "worst"
        )
    if not known:
        return f"whether any of {plural(one.groups, 'group')} kept its objective is unknown"
    which = "of which enough is known " if one.unclear else ""
    if known == 1:
        return f"the one group {which}kept its objective"
    return f"all {known:,} groups {which}kept their objective"


def _points(percent: float) -> str:
    return f"{percent:.1f} %" if percent < 10 else f"{percent:.0f} %"


def known_up_to(emitter: str, moment: str) -> str:
    """That an emitter is not known to the end of the period."""
    return f"Emitter {emitter} is known up to {moment} only; what came later is unknown."


def more_not_known(emitters: int) -> str:
    """The same of further ones."""
    noun = "1 more broker is" if emitters == 1 else f"{emitters:,} more brokers are"
    return f"{noun} not known to the end."


def reports_wrong(emitter: str, missing: int | None, doubled: int | None) -> str:
    """That reports of an emitter are missing, or there twice."""
    lost, twice = number_of(missing, "missing report"), number_of(doubled, "doubled report")
    return f"Emitter {emitter} has {lost} and {twice}."


def lag_known_from(moment: str) -> str:
    """That the period begins before anything is known of lag."""
    return f"Lag is known from {moment} on; before it all is unknown."


def not_believed(groups: Sequence[str], why: str) -> str:
    """Of which groups verdicts are withheld, and why; `why` begins with that word."""
    verdicts = "The verdict" if len(groups) == 1 else "The verdicts"
    verb = "is" if len(groups) == 1 else "are"
    return whole(f"{verdicts} on {listed(groups)} {verb} {why}")


def more_not_believed(groups: int) -> str:
    """The same of further ones."""
    if groups == 1:
        return "1 more verdict is withheld, for another reason."
    return f"{groups:,} more verdicts are withheld, each for its own reason."


def reports_whole(whole_ones: int, emitters: int) -> str:
    """Of how many emitters all reports are there."""
    return (
        f"Reports of {whole_ones} of {plural(emitters, 'broker')} are known to be there, each once."
    )


def checks_held(checks: int) -> str:
    """That no check failed."""
    return "The only check held." if checks == 1 else f"All {checks:,} checks held."


def laws(broken: int, unaccounted: int | None) -> str:
    """How many laws of offsets were broken."""
    said = f"{plural(broken, 'law')} of offsets {was(broken)} broken"
    if unaccounted is None:
        return f"{said}; how many without an explanation is unknown."
    return f"{said}, {unaccounted:,} of them without an explanation."


def stalls_new(stalls: int, before: int, longest_of: str) -> str:
    """More stalls than before."""
    return f"{plural(stalls, 'stall')}, {before:,} before; the longest of {longest_of}"


def redelivered_new(redelivered: int, before: int) -> str:
    """More deliveries of messages that had been delivered than before."""
    return f"{plural(redelivered, REPEATED)}, {before:,} before"


def letters_new(letters: int, before: int, reason: str) -> str:
    """More dead letters than before."""
    return f"{plural(letters, 'dead letter')}, {before:,} before: {reason}"


def group_new(share_percent: float | None) -> str:
    """A group that was not there before."""
    share = "nothing is known of it" if share_percent is None else within(share_percent)
    return f"was not there before; {share}"


def share_changed(share_percent: float, before_percent: float) -> str:
    """A group that kept its objective for another share of the time."""
    return f"{within(share_percent)}, {before_percent:.1f} % before"


def within(share_percent: float) -> str:
    """For how much of the time a group kept its objective."""
    return f"within its objective for {share_percent:.1f} % of the time"


def alerts(fired: int, resolved: int, brief: int, is_open: int) -> str:
    """The alerts of a period."""
    verb = "is" if is_open == 1 else "are"
    return (
        f"{plural(fired, 'alert')} fired, {resolved:,} {was(resolved)} resolved "
        f"({brief:,} within 2 min), {is_open:,} {verb} open."
    )


def alerts_of(rule: str, fired: int, brief: int) -> str:
    """How often a rule fired."""
    return f"{rule} fired {plural(fired, 'time')}" + (f", {brief:,} of them brief" if brief else "")


def alert_open(since: str, summary: str) -> str:
    """An alert that is open."""
    return f"It is open since {since}: {summary}"
