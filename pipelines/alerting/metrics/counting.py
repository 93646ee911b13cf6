"""Counters of membership changes per group, from gold's events since this process began.

Place in the walk: gold rebalances, cycle by cycle → a number a group and broker.

Invariant: a row counts once, by its emitter's own numbers, however often gold is read, and though a
run of gold begins anew. What was reported before the first look is no part of it: whoever scrapes
sees a counter that begins at 0, as after each restart. Absent on purpose: how often it is scraped.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Final

import polars as pl

from pipelines.marts.rebalances import MEMBERSHIP
from pipelines.reading.incremental import Followed
from pipelines.reading.reading import Reading

GROUP_AT: Final = ("cluster", "broker", "group")
FOLLOWED_FOR: Final = timedelta(minutes=15)
"""Rows are looked for so far back: an emitter that comes later than others is counted, too."""


class Rebalances:
    """Changes of members of each group."""

    def __init__(self) -> None:
        self._counted: dict[str, int] = {}
        """Up to which of its numbers an emitter's rows are counted."""
        self._totals: Counter[tuple[str, ...]] = Counter()
        self._has_begun = False

    def count(self, followed: Followed, reading: Reading, groups: pl.DataFrame) -> pl.DataFrame:
        """By cluster, broker and group: changes so far. A group that gold has no state of any more
        is left out.
        """
        present = reading.moment.present
        assert present is not None, "there is gold"
        rows = followed.recent("rebalances", present - FOLLOWED_FOR, reading)
        self._take(rows)
        places = groups.select(GROUP_AT).unique().sort(GROUP_AT)
        totals = [self._totals[place] for place in places.iter_rows()]
        return places.with_columns(pl.Series("changes", totals, pl.Int64))

    def _take(self, rows: pl.DataFrame) -> None:
        changes = rows.filter(pl.col("kind").is_in(MEMBERSHIP))
        if self._has_begun:
            for emitter, seq, *place in changes.select("emitter", "seq", *GROUP_AT).iter_rows():
                if seq > self._counted.get(emitter, -1):
                    self._totals[tuple(place)] += 1
        newest = changes.group_by("emitter").agg(pl.col("seq").max()).iter_rows()
        for emitter, seq in newest:
            self._counted[emitter] = max(seq, self._counted.get(emitter, -1))
        self._has_begun = True
