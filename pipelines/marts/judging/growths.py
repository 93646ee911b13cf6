"""Finds the least lag over a window, and since when that minimum has never fallen.

Place in the walk: the offsets of the ticks of a window → its extremes, from which the rules follow.

Each report, pull and sample lets what waits swing, so that of a lag that grows it becomes less
again and again from one tick to the next. The least of a window leaves these swings out, as long as
they are shorter. It is noted of queues beyond what is allowed only: growth_least; growth_from_us
and growth_from, since when it has never become less, and what it was then. Invariant: they begin
anew where what is compared does. Absent on purpose: rules, and longer courses (`queue_courses`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field

import numpy as np

from pipelines.base.settings import Evaluation
from pipelines.marts.judging.packed import NEVER, UNKNOWN, Flags
from pipelines.marts.judging.progress import open_messages
from pipelines.marts.judging.rules import Extremes, allowed_lag
from pipelines.marts.mart import Positions


@dataclass(slots=True, eq=False)
class Growths:
    """The growths of the queues that are looked at, in the columns of `attention`."""

    columns: dict[str, Positions]
    ring: Mapping[str, np.ndarray[tuple[int, int], np.dtype[np.int64]]]
    _: KW_ONLY
    slot: Callable[[int], int]
    evaluation: Evaluation
    _noted: tuple[int, Positions, Extremes] | None = field(default=None, init=False)
    """Tick, queues and extremes of the last note: rules ask of the same queues, nearly always."""

    def note(
        self,
        rows: Positions,
        count: Positions,
        max_offset_before: Positions,
        is_anew: Flags,
        *,
        tick_us: int,
    ) -> None:
        """The open messages of a tick; max_offset_before: the end of the queue a window ago."""
        columns = self.columns
        allowed = allowed_lag(columns["max_offset"][rows], max_offset_before, self.evaluation)
        is_beyond = (count > allowed) | (columns["late_us"][rows] != UNKNOWN)
        columns["growth_from_us"][rows[~is_beyond]] = UNKNOWN
        some = rows[is_beyond]
        if not len(some):
            return
        extremes = self.extremes(some, tick_us)
        self._noted = tick_us, some, extremes
        least = extremes.open_least
        begins = is_anew[is_beyond] | (columns["growth_from_us"][some] == UNKNOWN)
        begins |= least < columns["growth_least"][some]
        columns["growth_least"][some] = least
        columns["growth_from_us"][some[begins]] = tick_us
        columns["growth_from"][some[begins]] = least[begins]

    def extremes(self, rows: Positions, tick_us: int) -> Extremes:
        """What the window up to this tick held of some of the queues."""
        noted = self._noted
        if noted is not None and noted[0] == tick_us and np.array_equal(noted[1], rows):
            return noted[2]
        evaluation = self.evaluation
        slide_us = evaluation.slide_us
        midway_us = tick_us - evaluation.ticks_per_window // 2 * slide_us
        end, reached = self.ring["max_offset"], self.ring["reached"]
        begin_us = np.maximum(self.columns["based_us"][rows], tick_us - evaluation.window_us)
        first, last = np.full(len(rows), UNKNOWN), np.full(len(rows), UNKNOWN)
        least, midway = np.full(len(rows), NEVER), np.full(len(rows), UNKNOWN)
        never_fell = np.ones(len(rows), bool)
        for at_us in range(tick_us - evaluation.window_us, tick_us + 1, slide_us):
            slot = self.slot(at_us)
            mark = reached[slot][rows]
            count = open_messages(end[slot][rows], mark)
            count[at_us < begin_us] = UNKNOWN
            is_known = count != UNKNOWN
            if not is_known.any():
                continue
            np.copyto(first, count, where=first == UNKNOWN)
            np.minimum(least, count, out=least, where=is_known)
            never_fell &= ~is_known | (count >= last)  # UNKNOWN is less than all.
            np.copyto(last, count, where=is_known)
            if at_us >= midway_us:
                np.copyto(midway, mark, where=(midway == UNKNOWN) & is_known)
        is_half = begin_us <= midway_us
        return Extremes(first, least, midway, never_fell & (last > first), is_half)
