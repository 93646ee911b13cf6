"""Estimates how fast a queue's lag grows or shrinks when the evidence is significant.

Place in the walk: open messages of queues at a tick → the least lag of each minute and of each ten
minutes, and the turns of one that swings (`swings`) → a rate, from which the rules SLOW and
CATCHING_UP follow.

The least lag of a block leaves out the swing that each pull, report and sample brings. A straight
line is laid through the least lags of the last three to six complete blocks of either length; its
slope is believed by Student's t. These are eight tests at each look, and any of them may err: the
limits are such that a look at a lag that only jumps about, all eight taken together, shows a course
once in two thousand, which is once in 33 hours. (Once in 1,000 where a lag keeps to one side for
half a minute at a time: that is more than a jump and less than a course.) So a steady deficit is
found after three to six minutes, however small a part of what is produced it is, and one that hides
in noise for minutes is found within an hour. What was found holds for HOLD_US unless the opposite
is.

A block leaves out a swing only when it is as long as the swing. Shorter blocks of a queue whose lag
swings regularly (`swings`) say nothing; what its peaks and troughs say stands in their place.

Invariant: a rate is a function of the ticks since the queue is looked at without a break; what is
kept changes only at these. Absent on purpose: names of states, rules, a group's trend
(`groups/sums`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.base.settings import HOUR_US, MINUTE_US, Evaluation
from pipelines.marts.judging import swings
from pipelines.marts.judging.packed import UNKNOWN, Flags
from pipelines.marts.judging.progress import open_messages
from pipelines.marts.mart import Positions

SPANS_US: Final = (MINUTE_US, 10 * MINUTE_US)
"""Lengths of blocks."""
CERTAIN_T: Final = {6: 14.69, 5: 25.99, 4: 63.2, 3: 636.6}
"""Student's t that a slope must exceed, by how many blocks; with as many degrees of freedom less
two. For five and six blocks, which noise deceives most often, chance exceeds it once in 8,000, both
sides together; for four once in 4,000, for three, which it hardly ever does since lags are whole
numbers (COUNTING), once in 1,000. (Tables of the distribution, e.g. Fisher and Yates.)
"""
BLOCKS_MAX: Final = max(CERTAIN_T)
SLOTS: Final = BLOCKS_MAX + 1
"""Blocks of which the least lag is remembered: those that are complete, and the present one."""
LOWS: Final = SLOTS * len(SPANS_US)
HOLD_US: Final = 10 * MINUTE_US
"""A course that was certain is shown this long after it was, unless the opposite becomes certain:
shorter than that no state goes to and fro because of noise.
"""
COUNTING: Final = 1.0
"""Squared messages added to what the line leaves over: lags are whole numbers."""


@dataclass(frozen=True, slots=True)
class Swinging:
    """Of queues whose lag swings regularly; UNKNOWN of others."""

    blocks_us: Positions
    """Blocks no shorter than this leave the swing out."""
    per_hour: Positions
    """How many messages an hour peaks and troughs rise; 0 when they do not agree."""


def note(
    lows: np.ndarray[tuple[int, int], np.dtype[np.int64]],
    rows: Positions,
    lag: Positions,
    is_new: Flags,
    *,
    tick_us: int,
    slide_us: int,
) -> None:
    """The lag of a tick into the least lags of its blocks; UNKNOWN when it was unknown once."""
    everything = len(rows) == lows.shape[1]
    for place, span_us in enumerate(SPANS_US):
        block = tick_us // span_us
        low = lows[place * SLOTS + block % SLOTS]
        if (tick_us - slide_us) // span_us != block:
            low[slice(None) if everything else rows] = lag
        elif everything:
            np.minimum(low, lag, out=low)
            low[is_new] = lag[is_new]
        else:
            low[rows] = np.where(is_new, lag, np.minimum(low[rows], lag))


def begins_block(tick_us: int, slide_us: int) -> bool:
    """Is this the first tick of a block? Between two of them no course can change."""
    return (tick_us - slide_us) // MINUTE_US != tick_us // MINUTE_US


def slopes(
    lows: np.ndarray[tuple[int, int], np.dtype[np.int64]],
    rows: Positions,
    since_us: Positions,
    lag: Positions,
    *,
    swinging: Swinging,
    tick_us: int,
) -> Positions:
    """By how many messages an hour the lag of each queue grows (below 0: shrinks); 0 when neither
    is certain, UNKNOWN when it has not been looked at for as long as it takes.

    since_us: since when each queue is looked at without a break.
    """
    found = np.full(len(rows), UNKNOWN)
    for place, span_us in enumerate(SPANS_US):
        block = tick_us // span_us
        leaves_out = (swinging.per_hour == UNKNOWN) | (swinging.blocks_us <= span_us)
        for count, certain in CERTAIN_T.items():
            is_open = leaves_out & ((found == UNKNOWN) | (found == 0))
            some = np.flatnonzero(is_open & (since_us <= (block - count) * span_us))
            if not len(some):
                continue
            slots = [place * SLOTS + (block - back) % SLOTS for back in range(count, 0, -1)]
            points = lows[slots][:, rows[some]]
            per_block = _slope(points, lag[some], certain)
            per_hour = np.where(per_block == UNKNOWN, 0, per_block) * (HOUR_US / span_us)
            whole = np.rint(per_hour).astype(np.int64)
            found[some] = np.where(per_block == UNKNOWN, found[some], whole)
        is_open = (swinging.per_hour != UNKNOWN) & ((found == UNKNOWN) | (found == 0))
        found = np.where(is_open, swinging.per_hour, found)
    return found


def least_lag(
    lows: np.ndarray[tuple[int, int], np.dtype[np.int64]],
    rows: Positions,
    since_us: Positions,
    *,
    tick_us: int,
) -> Positions:
    """The least lag of the last complete minute; UNKNOWN where it is."""
    block = tick_us // MINUTE_US
    low = lows[(block - 1) % SLOTS][rows]
    return np.where(since_us <= (block - 1) * MINUTE_US, low, UNKNOWN)


def _slope(
    points: np.ndarray[tuple[int, int], np.dtype[np.int64]], lag: Positions, certain: float
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Messages per block, 0 where nothing is certain, UNKNOWN where a point is.

    Sums go point by point, so that the same points give the same bits in any company.
    """
    count = len(points)
    base, last = points[0], points[-1]
    is_known = points[0] != UNKNOWN
    most = points[0]
    mean = np.zeros(len(lag))
    for point in points[1:]:
        is_known &= point != UNKNOWN
        most = np.maximum(most, point)
    heights = [np.where(is_known, point - base, 0).astype(np.float64) for point in points]
    for height in heights:
        mean += height / count
    middle = (count - 1) / 2
    across = np.zeros(len(lag))
    spread = np.zeros(len(lag))
    for place, height in enumerate(heights):
        across += (place - middle) * (height - mean)
        spread += (height - mean) ** 2
    width = count * (count * count - 1) / 12
    slope = across / width
    left_over = np.maximum(spread - slope * across, 0.0) + COUNTING
    is_certain = slope * across * (count - 2) > certain * certain * left_over
    # What has turned round since the last block is no course any more.
    goes_on = np.where(slope > 0, lag >= last, lag < most)
    return np.where(is_known, np.where(is_certain & goes_on, slope, 0.0), float(UNKNOWN))


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
        self.lows = np.tile(np.full(count, UNKNOWN), (LOWS, 1))
        """Least lags of minutes and of ten minutes, as `note` keeps them."""
        self.swings = swings.begin(count)

    def note(self, lags: Lags, *, tick_us: int, slide_us: int) -> None:
        """The lags of a tick."""
        note(
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
        swinging = Swinging(blocks_us, of_swings)
        found = slopes(
            self.lows, rows, lags.since_us, lags.count, swinging=swinging, tick_us=tick_us
        )
        certain_us[rows[(found != UNKNOWN) & (found != 0)]] = tick_us
        last_us = certain_us[rows]
        lately = (last_us != UNKNOWN) & (tick_us - last_us <= HOLD_US)
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
        low = least_lag(self.lows, lags.rows, lags.since_us, tick_us=tick_us)
        is_known = (low != UNKNOWN) & (lags.produced > 0)
        each_us = evaluation.window_us / np.where(is_known, lags.produced, 1)
        wait_us = np.rint(np.where(is_known, low, 0) * each_us).astype(np.int64)
        return np.where(is_known, wait_us, UNKNOWN)
