"""Lag trends of the queues under judgement, kept from tick to tick.

Place in the walk: open messages of queues at a tick → least lags of blocks (`courses`) and turns
(`swings`) → by how many messages an hour each queue falls behind, and whether that is a deficit.

Invariant: what is kept changes only at ticks that look at a queue. Absent on purpose: rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pipelines.base.settings import Evaluation
from pipelines.marts.judging import courses, swings
from pipelines.marts.judging.packed import UNKNOWN, Flags
from pipelines.marts.judging.progress import open_messages
from pipelines.marts.mart import Positions


@dataclass(frozen=True, slots=True)
class Lags:
    """Queues at a tick."""

    rows: Positions
    count: Positions
    """Open messages."""
    produced: Positions
    """Messages that came in the window; UNKNOWN when the queue was not known at its beginning."""
    finished: Positions
    """The same of those that were finished."""
    since_us: Positions
    """Since when the queue is looked at without a break."""
    is_new: Flags
    """Is this the first tick of that?"""
    is_other_course: Flags
    """Does its course begin anew, and not its swings?"""


def passages(
    now: Mapping[str, Positions], before: Mapping[str, Positions]
) -> tuple[Positions, Positions]:
    """How many messages came, and were finished, in the window."""
    is_known = (before["max_offset"] != UNKNOWN) & (before["reached"] != UNKNOWN)
    is_known &= now["reached"] != UNKNOWN
    moves = [
        np.where(is_known, now[name] - np.where(is_known, before[name], 0), UNKNOWN)
        for name in ("max_offset", "reached")
    ]
    return moves[0], moves[1]


class LagCourses:
    """What is remembered of the lags of so many queues."""

    def __init__(self, count: int) -> None:
        self.lows = np.tile(np.full(count, UNKNOWN), (courses.LOWS, 1))
        """Least lags of minutes and of ten minutes, as `courses` keeps them."""
        self.swings = swings.begin(count)

    def note(self, lags: Lags, *, tick_us: int, slide_us: int) -> None:
        """The lags of a tick."""
        courses.note(
            self.lows,
            lags.rows,
            lags.count,
            lags.is_new | lags.is_other_course,
            tick_us=tick_us,
            slide_us=slide_us,
        )
        moved = np.maximum(lags.produced, lags.finished)
        swings.note(
            self.swings,
            lags.rows,
            lags.count,
            moved=moved,
            is_new=lags.is_new,
            tick_us=tick_us,
        )

    def note_rests(
        self,
        at: Positions,
        stood_us: Positions,
        now: Mapping[str, Positions],
        before: Mapping[str, Positions],
        *,
        tick_us: int,
        evaluation: Evaluation,
    ) -> None:
        """These queues have moved, having stood for so long; `before` is how they were a window
        ago.
        """
        rest = swings.Rest(
            stood_us,
            open_messages(now["max_offset"], now["reached"]),
            np.maximum(*passages(now, before)),
        )
        swings.note_rests(self.swings, at, rest, tick_us=tick_us, evaluation=evaluation)

    def growth(
        self,
        lags: Lags,
        before: Positions,
        certain_us: Positions,
        is_behind: Flags,
        *,
        tick_us: int,
        evaluation: Evaluation,
    ) -> Positions:
        """At the first tick of a block: by how many messages an hour each queue falls behind, which
        was `before` up to now. certain_us: of all queues, when that was certain last; is kept up.
        is_behind: is the queue beyond what is allowed?
        """
        rows, slide_us = lags.rows, evaluation.slide_us
        periods_us, of_swings = swings.rates(self.swings, rows, slide_us)
        is_swing = periods_us != UNKNOWN
        blocks_us = np.where(is_swing, periods_us - slide_us, UNKNOWN)
        swinging = courses.Swinging(blocks_us, of_swings)
        found = courses.slopes(
            self.lows, rows, lags.since_us, lags.count, swinging=swinging, tick_us=tick_us
        )
        certain_us[rows[(found != UNKNOWN) & (found != 0)]] = tick_us
        last_us = certain_us[rows]
        lately = (last_us != UNKNOWN) & (tick_us - last_us <= courses.HOLD_US)
        wait_us = self._wait_us(lags, tick_us, evaluation)
        course = swings.Course(found, lately, lags.count, wait_us, is_swing)
        swings.note_deficits(self.swings, rows, course, tick_us=tick_us)
        # Within what is allowed, and in a swing, what is not certain now is not shown.
        held = (found == 0) & (before != UNKNOWN) & lately & is_behind & ~is_swing
        return np.where(held, before, found)

    def _wait_us(self, lags: Lags, tick_us: int, evaluation: Evaluation) -> Positions:
        """How long messages waited in the last minute, at the least and at what was produced in the
        window; UNKNOWN when nothing was.
        """
        low = courses.least_lag(self.lows, lags.rows, lags.since_us, tick_us=tick_us)
        is_known = (low != UNKNOWN) & (lags.produced > 0)
        each_us = evaluation.window_us / np.where(is_known, lags.produced, 1)
        wait_us = np.rint(np.where(is_known, low, 0) * each_us).astype(np.int64)
        return np.where(is_known, wait_us, UNKNOWN)
