"""Derives a report's news and headline from a period and the one before it.

Invariant: pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pipelines.base.wording import spoken
from pipelines.reports.numbers import (
    DeadLetters,
    DuplicateCause,
    Emitter,
    GroupFigures,
    News,
    StallCause,
    Verdict,
)
from pipelines.sentences import periods

CHANGE_PERCENT: Final = 1.0
"""Points by which the share of time within an objective must differ to be shown."""
NEWS_MAX: Final = 60
_MORE: Final = 2
"""As many times as before, or new."""


def headline_of(groups: Sequence[GroupFigures], emitters: Sequence[Emitter]) -> str:
    """The period in a sentence: who missed an objective, and what is not known."""
    if not groups:
        return periods.NO_GROUP
    missed = [one for one in groups if one.verdict is Verdict.MISSED]
    objectives = periods.Objectives(
        groups=len(groups),
        missed=len(missed),
        unclear=sum(one.verdict is Verdict.UNCLEAR for one in groups),
        worst=missed[0].group if missed else "",
        behind_percent=100.0 - (missed[0].share_percent or 0.0) if missed else 0.0,
        worst_lag=missed[0].worst if missed else "",
    )
    return periods.headline(
        objectives,
        withheld=sum(bool(one.withheld) for one in groups),
        late=[one.emitter for one in emitters if not one.reaches_end],
    )


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
    found += [News("GONE_GROUP", one, periods.NOT_THERE_NOW, is_better=True) for one in gone]
    for cause in stalls:
        before = cause.windows_before or 0
        if cause.windows >= max(1, _MORE * before) and cause.windows > before:
            text = periods.stalls_new(cause.windows, before, cause.longest_of)
            found.append(News("STALLS", spoken(cause.kind), text, is_better=False))
    for risk in duplicates:
        before = risk.redelivered_before or 0
        if risk.redelivered > _MORE * before:
            text = periods.redelivered_new(risk.redelivered, before)
            found.append(News("DUPLICATES", spoken(risk.cause), text, is_better=False))
    for one in dead:
        before = one.letters_before or 0
        if one.letters > _MORE * before:
            text = periods.letters_new(one.letters, before, one.reason)
            found.append(News("DEAD_LETTERS", one.group, text, is_better=False))
    return tuple(sorted(found, key=lambda one: one.is_better)[:NEWS_MAX])


def _of_group(one: GroupFigures) -> News | None:
    if not one.was_there:
        text = periods.group_new(one.share_percent)
        return News("NEW_GROUP", one.group, text, is_better=True)
    if one.share_percent is None or one.share_before_percent is None:
        return None
    change = one.share_percent - one.share_before_percent
    if abs(change) < CHANGE_PERCENT:
        return None
    text = periods.share_changed(one.share_percent, one.share_before_percent)
    return News("WORSE" if change < 0 else "BETTER", one.group, text, is_better=change > 0)
