"""Classifies each group's lag in each time slot as within its objective, behind or unknown.

Place in the walk: rows of `gathering` → a `Course` a group and period → `lag_report`. A slot counts
as behind when the group's worst queue was, at any moment of it. It is unknown when no queue is
known to be behind and none is known, when gold says that nothing is known of the broker, when that
was not judged so far, or when the group was reported before and after but not in it. A slot in
which there was no such group counts nowhere. Invariant: pure; no slot is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np
import polars as pl

from pipelines.alerting.objectives import Objectives
from pipelines.base.settings import SECOND_US
from pipelines.base.time_units import micros
from pipelines.reports.gathering import Gathered
from pipelines.reports.windows import Window

ABSENT, WITHIN, UNKNOWN, BEHIND = range(4)
"""In the order in which one outweighs another where several brokers report a group."""
LETTERS: Final = "-w?b"
"""Of these, in texts."""
BUCKETS_MAX: Final = 96
"""Of a course that is drawn."""
NOTHING: Final = -1
"""A lag that is not known."""


@dataclass(frozen=True, slots=True)
class Course:
    """A group in one period."""

    cluster: str
    group: str
    states: np.ndarray
    """A state a slot."""
    behind_ms: np.ndarray
    """The worst time lag known in each slot; NOTHING when none is."""
    lag_messages: np.ndarray
    """Messages behind at the end of each slot, of queues whose lag is known; NOTHING."""
    is_part: np.ndarray
    """Is the lag of a queue unknown in a slot? Then its figures are the least."""

    def count(self, state: int) -> int:
        """Slots."""
        return int(np.count_nonzero(self.states == state))


def courses(
    gathered: Gathered, period: Window, objectives: Objectives
) -> dict[tuple[str, str], Course]:
    """The course of every group that was there in the period, by cluster and name."""
    grid = _Grid(period, gathered.window.slot_s)
    begun: dict[tuple[str, str], Course] = {}
    reached = gathered.judged_to
    silent = _unknown_spans(gathered.states)
    rows = gathered.slots.filter((pl.col("slot") > grid.first) & (pl.col("slot") <= grid.last))
    for emitter, cluster, group, rows_of_group in _groups(rows):
        one = _course(
            cluster,
            group,
            rows_of_group,
            grid=grid,
            allowed_ms=objectives.of(cluster, group).lag_ms,
        )
        for begin, end in silent.get((emitter, cluster, group), ()):
            _mark_unknown(one, grid, begin, end)
        judged_to = reached.get(emitter)
        if judged_to is not None and judged_to < period.end:
            _mark_unknown(one, grid, judged_to, None)
        _mark_gaps(one, grid, gathered.known_from)
        key = (cluster, group)
        begun[key] = _together(begun[key], one) if key in begun else one
    return begun


class _Grid:
    """The slots of a period."""

    def __init__(self, period: Window, slot_s: int) -> None:
        self.slot_us = slot_s * SECOND_US
        self.first = micros(period.begin) // self.slot_us
        self.last = -(-micros(period.end) // self.slot_us)
        self.count = self.last - self.first

    def range_of(self, begin: datetime, end: datetime | None) -> slice:
        """The slots that a span touches, as indices; None: to the last."""
        low = micros(begin) // self.slot_us - self.first
        high = self.count if end is None else -(-micros(end) // self.slot_us) - self.first
        return slice(min(max(low, 0), self.count), min(max(high, 0), self.count))


def _groups(rows: pl.DataFrame) -> Iterator[tuple[str, str, str, pl.DataFrame]]:
    key = ["emitter", "cluster", "group"]
    for (emitter, cluster, group), rows_of_group in rows.group_by(key, maintain_order=True):
        yield str(emitter), str(cluster), str(group), rows_of_group


def _course(
    cluster: str, group: str, rows: pl.DataFrame, *, grid: _Grid, allowed_ms: int
) -> Course:
    at = rows["slot"].to_numpy() - grid.first - 1
    known = rows["behind_ms"].fill_null(NOTHING).to_numpy()
    some_unknown = rows["unknown_queues"].to_numpy() > 0
    states = np.full(grid.count, ABSENT, dtype=np.int8)
    unclear = (known == NOTHING) | some_unknown
    states[at] = np.where(known > allowed_ms, BEHIND, np.where(unclear, UNKNOWN, WITHIN))
    behind = np.full(grid.count, NOTHING, dtype=np.int64)
    behind[at] = known
    lag = np.full(grid.count, NOTHING, dtype=np.int64)
    lag[at] = rows["lag_messages"].fill_null(NOTHING).to_numpy()
    is_part = np.zeros(grid.count, dtype=bool)
    is_part[at] = some_unknown
    return Course(cluster, group, states, behind, lag, is_part)


def _mark_unknown(course: Course, grid: _Grid, begin: datetime, end: datetime | None) -> None:
    """Nothing is known of it in a span; earlier reports say nothing about it."""
    span = grid.range_of(begin, end)
    course.states[span] = UNKNOWN
    course.behind_ms[span] = NOTHING
    course.lag_messages[span] = NOTHING
    course.is_part[span] = True


def _mark_gaps(course: Course, grid: _Grid, known_from: datetime | None) -> None:
    there = np.flatnonzero(course.states != ABSENT)
    if not there.size:
        return
    inside = np.arange(grid.count)
    is_gap = (course.states == ABSENT) & (inside > there[0]) & (inside < there[-1])
    course.states[is_gap] = UNKNOWN
    course.is_part[is_gap] = True
    if known_from is not None:
        before = grid.range_of(known_from, None).start
        course.is_part[:before] = True
        course.states[:before] = UNKNOWN  # Gold begins later: what was before it is unknown.


def _together(one: Course, other: Course) -> Course:
    """A group on two brokers: the worse of both, and their messages together."""
    is_known = (one.lag_messages != NOTHING) | (other.lag_messages != NOTHING)
    summed = np.maximum(one.lag_messages, 0) + np.maximum(other.lag_messages, 0)
    return Course(
        one.cluster,
        one.group,
        np.maximum(one.states, other.states),
        np.maximum(one.behind_ms, other.behind_ms),
        np.where(is_known, summed, NOTHING),
        one.is_part | other.is_part,
    )


def _unknown_spans(states: pl.DataFrame) -> dict[tuple[str, str, str], list[Any]]:
    """Spans in which gold says that nothing is known of a group on a broker."""
    key = ["emitter", "cluster", "group"]
    spans: dict[tuple[str, str, str], list[Any]] = {}
    ends = states.sort(*key, "observed_at").with_columns(
        pl.col("observed_at").shift(-1).over(key).alias("until")
    )
    is_nothing = (pl.col("state") == "UNKNOWN") & (pl.col("queues_known") == 0)
    for row in ends.filter(is_nothing).iter_rows(named=True):
        at = (row["emitter"], row["cluster"], row["group"])
        spans.setdefault(at, []).append((row["observed_at"], row["until"]))
    return spans


def drawn(course: Course) -> tuple[tuple[int | None, ...], str]:
    """The course in at most BUCKETS_MAX parts: the worst time lag known of each, and its state in a
    letter, the worst that it had."""
    parts = np.array_split(np.arange(course.states.size), min(course.states.size, BUCKETS_MAX))
    worst = [int(course.behind_ms[part].max()) for part in parts]
    letters = "".join(LETTERS[int(course.states[part].max())] for part in parts)
    return tuple(None if one == NOTHING else one for one in worst), letters
