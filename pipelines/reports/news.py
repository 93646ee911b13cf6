"""News of a period against the one before, and the headline of a report.

Invariant: pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pipelines.base.wording import plural, spoken
from pipelines.reports.numbers import (
    DeadLetters,
    DuplicateCause,
    Emitter,
    GroupFigures,
    News,
    StallCause,
    Verdict,
)

CHANGE_PERCENT: Final = 1.0
"""By so many points the share of time within an objective must differ to be told."""
NEWS_MAX: Final = 60
_MORE: Final = 2
"""As many times as before, or new."""


def headline_of(groups: Sequence[GroupFigures], emitters: Sequence[Emitter]) -> str:
    """The period in a sentence: who missed an objective, and what is not known."""
    if not groups:
        return "Nothing is known of this period: gold tells of no group in it."
    missed = [one for one in groups if one.verdict is Verdict.MISSED]
    unclear = sum(one.verdict is Verdict.UNCLEAR for one in groups)
    withheld = sum(bool(one.withheld) for one in groups)
    parts = []
    if missed:
        worst = missed[0]
        behind = 100.0 - (worst.share_percent or 0.0)
        parts.append(
            f"{len(missed)} of {plural(len(groups), 'group')} missed the objective, "
            f"{worst.group} most: behind for {_points(behind)} of the time, by "
            f"{worst.worst} at worst"
        )
    elif unclear == len(groups):
        parts.append(f"Of none of {plural(len(groups), 'group')} can be told whether it kept its")
        parts[0] += " objective"
    elif not unclear:
        parts.append(
            f"All {len(groups):,} groups kept their objective"
            if len(groups) > 1
            else "The one group kept its objective"
        )
    elif len(groups) - unclear == 1:
        parts.append("The one group of which it can be told kept its objective")
    else:
        parts.append(f"All {len(groups) - unclear:,} groups of which it can be told kept theirs")
    if unclear and unclear < len(groups):
        parts.append(f"of {unclear:,} too little is known to tell")
    if withheld:
        parts.append(f"{plural(withheld, 'verdict')} withheld, for a check of the data failed")
    late = [one.emitter for one in emitters if not one.reaches_end]
    if late:
        parts.append(f"of {', '.join(late[:3])}{' …' * (len(late) > 3)} the end is not known yet")
    return "; ".join(parts) + "."


def _points(percent: float) -> str:
    return f"{percent:.1f} %" if percent < 10 else f"{percent:.0f} %"


def news_of(
    groups: Sequence[GroupFigures],
    stalls: Sequence[StallCause],
    duplicates: Sequence[DuplicateCause],
    dead: Sequence[DeadLetters],
    *,
    gone: Sequence[str],
) -> tuple[News, ...]:
    """What was not so before, worse things first; `gone`: groups that are not there any more."""
    found = [news for one in groups if (news := _of_group(one)) is not None]
    found += [News("GONE_GROUP", one, "is not there any more", is_better=True) for one in gone]
    for cause in stalls:
        before = cause.windows_before or 0
        if cause.windows >= max(1, _MORE * before) and cause.windows > before:
            text = f"{plural(cause.windows, 'stall')}, {before:,} before; {cause.longest_of}"
            found.append(News("STALLS", spoken(cause.kind), text, is_better=False))
    for risk in duplicates:
        before = risk.redelivered_before or 0
        if risk.redelivered > _MORE * before:
            text = f"{plural(risk.redelivered, 'message')} delivered again, {before:,} before"
            found.append(News("DUPLICATES", spoken(risk.cause), text, is_better=False))
    for one in dead:
        before = one.letters_before or 0
        if one.letters > _MORE * before:
            text = f"{plural(one.letters, 'dead letter')}, {before:,} before: {one.reason}"
            found.append(News("DEAD_LETTERS", one.group, text, is_better=False))
    return tuple(sorted(found, key=lambda one: one.is_better)[:NEWS_MAX])


def _of_group(one: GroupFigures) -> News | None:
    if not one.was_there:
        share = "nothing known of it" if one.share_percent is None else _kept(one.share_percent)
        return News("NEW_GROUP", one.group, f"was not there before; {share}", is_better=True)
    if one.share_percent is None or one.share_before_percent is None:
        return None
    change = one.share_percent - one.share_before_percent
    if abs(change) < CHANGE_PERCENT:
        return None
    text = f"{_kept(one.share_percent)}, {one.share_before_percent:.1f} % before"
    return News("WORSE" if change < 0 else "BETTER", one.group, text, is_better=change > 0)


def _kept(share_percent: float) -> str:
    return f"within its objective for {share_percent:.1f} % of the time"
