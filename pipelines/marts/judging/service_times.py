"""Learns the usual duration of a group's listener calls on a topic from member reports.

Place in the walk: consume_stats → per group and topic the length that calls hardly ever exceed,
at their slowest and at their fastest of the last ten to twenty minutes, by which the heads of
windows are judged.

What is hardly ever exceeded is the 99th percentile, but no more than ten times the median: one call
of an hour that ended at last teaches nothing. Of a client that reports a mean alone it is twice
that. A minute without calls says nothing, and what was learnt before it stays.

Invariant: what is known at a tick follows from the rows that it has seen; what no member confirms
any more is forgotten when every key has been reported anew. Absent on purpose: members. A group
works as its slowest member does, and as its fastest one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from pipelines.base.settings import LOOK_BACK_US, MS_US, SECOND_US
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.judging.arrivals import Grid, Shipped, batches, seen_from, ticks_of
from pipelines.marts.judging.heads import Usual
from pipelines.marts.judging.packed import NEVER, UNKNOWN, numbers
from pipelines.marts.keys import as_text, overlaid, positions_of
from pipelines.marts.mart import Positions

SPAN_US: Final = 600 * SECOND_US
"""What was usual is known of the present span of this length and of the one before."""
MEDIANS: Final = 10
MEANS: Final = 2
ODD_TIMES: Final = 4
"""What is so many times as long as at the fastest times is an exception, not how a group works."""

KEY: Final = ("emitter", "group", "topic")
_KEYS: Final = tuple((name, KEY_TEXT) for name in KEY)
_LEARNT: Final = (
    *("told_us", "span", "listeners"),
    *("most_us", "most_before_us", "least_us", "least_before_us"),
)
SERVICES: Final = pa.schema([*_KEYS, *((name, pa.int64()) for name in _LEARNT)])
"""A row per group and topic; UNKNOWN stands for null. told_us: when a member reported it last."""
_FIGURES: Final = ("seen_us", "usual_us", "listeners")
STATS: Final = pa.schema([*_KEYS, *((name, pa.int64()) for name in _FIGURES)])
"""What no tick has seen yet."""


class ServiceTimes:
    """What is learnt of all groups of a partition, moved from tick to tick."""

    def __init__(
        self,
        known: pa.Table,
        waiting: pa.Table,
        stats: pa.Table,
        *,
        shipped: Mapping[str, Shipped],
        grids: Mapping[str, Grid],
    ) -> None:
        new = _as_stats(stats, shipped)
        rows = pa.concat_tables([waiting, new]).unify_dictionaries().combine_chunks()
        self._rows = {name: numbers(rows[name]) for name in _FIGURES}
        number, first = positions_of(known, rows, KEY)
        self._number = number
        self._keys = known.select(KEY)
        if len(first):
            places = known.num_rows + np.arange(len(first))
            self._keys = overlaid(self._keys, places, rows.select(KEY).take(pa.array(first)))
        self._of = {}
        for name in _LEARNT:
            before = numbers(known[name])
            self._of[name] = np.concatenate([before, np.full(len(first), UNKNOWN)])
        ticks = ticks_of(rows["emitter"], self._rows["seen_us"], grids)
        self._by_tick = batches(ticks)
        self.waiting = rows.filter(pa.array(ticks == 0))
        """STATS that wait for a tick."""
        self.is_changed = bool(rows.num_rows)

    def take(self, tick_us: int) -> None:
        """What members report by this tick."""
        rows = self._by_tick.get(tick_us)
        if rows is None:
            return
        number, of = self._number[rows], self._of
        keys = np.unique(number)
        reported_us = of["told_us"][keys]
        is_old = (reported_us != UNKNOWN) & (
            tick_us - np.where(reported_us == UNKNOWN, 0, reported_us) > LOOK_BACK_US
        )
        for name in _LEARNT:
            of[name][keys[is_old]] = UNKNOWN
        of["told_us"][keys] = tick_us
        listeners, usual = self._rows["listeners"][rows], self._rows["usual_us"][rows]
        # The most that any member reports now.
        of["listeners"][keys] = UNKNOWN
        np.maximum.at(of["listeners"], number, listeners)
        some = np.flatnonzero(usual != UNKNOWN)
        keys, number, usual = np.unique(number[some]), number[some], usual[some]
        span = tick_us // SPAN_US
        later = keys[of["span"][keys] != span]
        for name in ("most", "least"):
            of[f"{name}_before_us"][later] = of[f"{name}_us"][later]
            of[f"{name}_us"][later] = UNKNOWN
        of["span"][later] = span
        np.maximum.at(of["most_us"], number, usual)
        least = of["least_us"][keys]
        of["least_us"][keys] = np.where(least == UNKNOWN, NEVER, least)
        np.minimum.at(of["least_us"], number, usual)

    def numbers_of(self, queues: pa.Table) -> Positions:
        """The numbers of queues' groups and topics; len(self) and above for unknown ones."""
        found, _ = positions_of(self._keys, queues, KEY)
        return found

    def usual(self, number: Positions, tick_us: int) -> Usual:
        """What is known of these numbers at a tick."""
        count = self._keys.num_rows
        found = {name: np.full(len(number), UNKNOWN) for name in _LEARNT}
        some = np.flatnonzero(number < count)
        if len(some):
            reported_us = self._of["told_us"][number[some]]
            is_known = reported_us != UNKNOWN
            is_known &= tick_us - np.where(is_known, reported_us, 0) <= LOOK_BACK_US
            some = some[is_known]
            for name, column in found.items():
                column[some] = self._of[name][number[some]]
        least, before = found["least_us"], found["least_before_us"]
        least = np.where(least == UNKNOWN, before, least)
        least = np.where(before == UNKNOWN, least, np.minimum(least, before))
        most = np.maximum(found["most_us"], found["most_before_us"])
        # A call that ended at last may be the only one of its minute, and all that is known of it.
        always = np.minimum(most, ODD_TIMES * np.where(least == UNKNOWN, 0, least))
        always = np.where(least == UNKNOWN, UNKNOWN, always)
        return Usual(most, always, found["listeners"])

    def left(self, last: Mapping[str, int]) -> pa.Table:
        """SERVICES that may matter behind the last tick of each emitter."""
        keys = self._keys
        table = pa.table(
            [*keys.columns, *(pa.array(self._of[name]) for name in _LEARNT)], schema=SERVICES
        )
        ends = np.array([last.get(name, 0) for name in keys["emitter"].to_pylist()], np.int64)
        reported_us = self._of["told_us"]
        is_kept = (reported_us != UNKNOWN) & (
            ends - np.where(reported_us == UNKNOWN, 0, reported_us) <= LOOK_BACK_US
        )
        return table.filter(pa.array(is_kept)).combine_chunks()


def _as_stats(stats: pa.Table, shipped: Mapping[str, Shipped]) -> pa.Table:
    """STATS of consume_stats' facts."""
    median, rare = numbers(stats["consume_ms_p50"]), numbers(stats["consume_ms_p99"])
    mean = numbers(stats["consume_us_mean"])
    by_parts = np.minimum(rare, np.where(median == UNKNOWN, rare, MEDIANS * np.maximum(median, 1)))
    usual = np.where(
        rare != UNKNOWN, by_parts * MS_US, np.where(mean != UNKNOWN, MEANS * mean, UNKNOWN)
    )
    figures = {
        "seen_us": seen_from(stats, numbers(stats["event_us"]), shipped),
        "usual_us": usual,
        "listeners": numbers(stats["listeners"]),
    }
    columns = [
        *(as_text(stats[name]) for name in KEY),
        *(pa.array(one) for one in figures.values()),
    ]
    return pa.table(columns, schema=STATS)
