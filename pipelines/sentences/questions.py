"""Parts of answers that sum up rows: what was asked, its range, names, small words.

Place in the walk: below the sentences that answer questions of a notebook (`events`,
`answers_on_groups`). Pure.
Invariant: more than NAMED_MAX names are counted. Absent on purpose: whole sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Protocol

import polars as pl

from pipelines.base.wording import UNKNOWN
from pipelines.sentences.figures import moment as moment_of

NAMED_MAX: Final = 5
"""Names in a sentence; further ones are counted."""


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
    if since is None and until is None:
        return " is known"
    begin = f" since {moment_of(since, day=True)}" if since is not None else ""
    end = f" until {moment_of(until, day=True)}" if until is not None else ""
    return f" is known{begin}{end}"


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
