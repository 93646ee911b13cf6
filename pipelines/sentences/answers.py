"""Sentences shared by all answers: the question's scope and how far the answer is valid.

Place in the walk: below `events` and `answers_on_groups`; the last sentences of each answer of
`tm`. Pure. Invariant: an answer about now says so when nothing was judged lately; more than
NAMED_MAX names are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Protocol

import polars as pl

from pipelines.base.wording import UNKNOWN, duration
from pipelines.sentences.figures import moment
from pipelines.sentences.figures import moment as moment_of

NOT_JUDGED = "Nothing has been judged yet."
NAMED_MAX: Final = 5
"""Names in a sentence; further ones are counted."""


def judged(
    to: datetime,
    *,
    silent: Sequence[tuple[str, datetime]] = (),
    is_silent: bool = False,
    beside: Sequence[str] = (),
    watched: str | None = None,
) -> str:
    """Up to when an answer was judged. `silent`: emitters that were judged less far; `is_silent`:
    all of them are; `beside`: what else is wrong with an emitter; `watched`: how it was polled.
    """
    said = f"It is judged to {moment(to, day=True)}"
    if is_silent:
        return f"{said}; no emitter has reported anything since."
    each = [f"{emitter} only to {moment(end, day=True)}" for emitter, end in silent]
    each += beside
    end = "." if watched is None else f". It is {watched}."
    return f"{said}; {listed(each)}{end}" if each else f"{said}{end}"


def nothing_since(age_ms: float) -> str:
    """That nothing was judged since, for so long: an answer about now."""
    return f"Nothing has been judged since, for {duration(age_ms)}: nothing later is known."


def known_from(begin: datetime) -> str:
    """That a range begins before anything that the lake knows of."""
    return f"Nothing is known from before {moment(begin, day=True)}."


def revised(
    known_at: int | None,
    cycle: int | None,
    emitters: Sequence[str],
    *,
    shown: int,
    kept_from: int | None = None,
) -> str:
    """That a moment was reported otherwise before, or is now; by whom, and how to ask for the
    other. `known_at`: the cycle at which it was reported first, `cycle`: that which revised it,
    `shown`: whose answer this is, `kept_from`: the oldest that is kept.
    """
    if known_at is None:
        return (
            f"What was known of it first is not kept any more: cycles are kept from {kept_from} on."
        )
    late = f"{listed(emitters)} {'has' if len(emitters) == 1 else 'have'} reported late"
    if shown == known_at:
        return f"This was revised since, at cycle {cycle}: {late}."
    return f"This was revised at cycle {cycle}: {late}; as_of={known_at} is what was known before."


class Question(Protocol):
    """What a question is about; None is everything."""

    @property
    def group(self) -> str | None:
        """The one group that it names."""

    @property
    def since(self) -> datetime | None:
        """Where its range begins."""

    @property
    def until(self) -> datetime | None:
        """Where its range ends."""

    @property
    def words(self) -> str:
        """The place for a sentence: ` of shipping on queue 2 of orders`."""


def range_of(asked: Question) -> str:
    """The range of a question, for the end of a sentence that found nothing."""
    since, until = asked.since, asked.until
    if since is None:
        return " is known" if until is None else f" is known up to {moment_of(until, day=True)}"
    begin = moment_of(since, day=True)
    if until is None:
        return f" is known since {begin}"
    return f" is known from {begin} to {moment_of(until, day=True)}"


def groups_in(rows: pl.DataFrame) -> int:
    """How many groups the rows are about."""
    return int(rows["group"].n_unique())


def at(moment: datetime | None) -> str:
    """A moment in words; unknown for None."""
    return UNKNOWN if moment is None else moment_of(moment)


def is_or_are(number: int) -> str:
    """The verb for so many."""
    return "is" if number == 1 else "are"


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - NAMED_MAX
    shown = ", ".join(names[:NAMED_MAX])
    return f"{shown} and {more} more" if more > 0 else shown
