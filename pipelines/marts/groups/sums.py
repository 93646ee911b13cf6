"""Aggregates queue figures by group: lag, trend, time to drain and time until data loss.

Place in the walk: judged rows → figures by queue number, tick by tick → a number per group. Pure.

Invariant: a figure is that of the last tick that judged the queue; UNKNOWN stands for null, is in
no sum, and every sum counts the values that are known. Absent on purpose: words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.base.settings import HOUR_US, SECOND_US, Evaluation
from pipelines.marts.consumer_lag import STEADY_PER_MINUTE
from pipelines.marts.judging.arrivals import batches
from pipelines.marts.judging.judged_rows import PERIOD_US
from pipelines.marts.judging.packed import NEVER, UNKNOWN, Flags, numbers, truncated
from pipelines.marts.mart import Positions, coded

SEVERITY: Final = (
    "OK",
    "BROADCAST",
    "CATCHING_UP",
    "UNKNOWN",
    "PAUSED",
    "SLOW",
    "NO_OFFSET",
    "REWOUND",
    "STALLED",
    "STOPPED",
    "DATA_LOST",
)
"""From harmless to worst."""
_CALM: Final = tuple(SEVERITY.index(state) for state in ("BROADCAST", "CATCHING_UP", "UNKNOWN"))
"""Shown without a rule that fires."""
CATCHING_UP, UNSEEN = SEVERITY.index("CATCHING_UP"), SEVERITY.index("UNKNOWN")

_FIGURE_TYPES: Final = {
    "is_evaluated": pa.bool_(),
    "is_bad": pa.bool_(),
    "is_beyond": pa.bool_(),
    "is_silent": pa.bool_(),
    "is_unnamed": pa.bool_(),
    "swings": pa.bool_(),
    "lag": pa.int64(),
    "open": pa.int64(),
    "open_before": pa.int64(),
    "growth": pa.int64(),
    "retained": pa.int64(),
    "waiting_since_us": pa.int64(),
    "members": pa.int64(),
    "seq": pa.int64(),
    "complete_from_us": pa.int64(),
    "jumped_us": pa.int64(),
    "tick_us": pa.int64(),
}

FIGURES: Final = pa.schema(
    [coded("severity", SEVERITY), *((name, kind) for name, kind in _FIGURE_TYPES.items())]
)
"""Of every queue, by its number, as judged last; UNKNOWN stands for null. is_beyond: its consume
offset lies beyond its end. is_silent: its client does not say what it holds. is_unnamed: no
member of its group names its topic.
jumped_us: the last tick at which its offset fell, or unread messages were deleted.
tick_us: the tick that judged it.
"""

Values = np.ndarray[tuple[int], np.dtype[Any]]
Sums = np.ndarray[tuple[int, int], np.dtype[np.int64]]
"""A row per moment, a column per group."""

TRENDS: Final = ("GROWING", "STEADY", "SHRINKING")


class JudgedFigures:
    """Judged rows, by tick."""

    def __init__(self, judged: pa.Table) -> None:
        rules = judged["rule"]
        is_bad, lag = np.asarray(judged["is_bad"]), numbers(judged["lag"])
        self.by_tick = batches(numbers(judged["tick_us"]))
        self.number = numbers(judged["number"])
        evaluated = np.asarray(judged["is_evaluated"])
        self.turned = evaluated & (is_bad != np.asarray(judged["was_bad"]))
        self.ends = np.asarray(judged["ends"])
        self.turned |= self.ends
        self.jumps = numbers(judged["jumped_us"]) == numbers(judged["tick_us"])
        self.figures: dict[str, Values] = {
            "is_evaluated": evaluated,
            "is_bad": is_bad,
            "swings": np.asarray(judged["swings"]),
            "lag": lag,
            "is_silent": np.asarray(judged["is_silent"]),
            "is_unnamed": np.asarray(judged["is_unnamed"]),
        }
        for name in _NUMBERS:
            self.figures[name] = numbers(judged[name])
        # Of one without an offset it may be known what waits, and not what is finished.
        is_unseen = (lag != 0) & (self.figures["open"] == UNKNOWN)
        ranks = _ranks(rules)
        self.figures["severity"] = _severities(ranks, is_bad, is_unseen)
        is_lost = ranks == SEVERITY.index("DATA_LOST")
        self.figures["is_beyond"] = is_unseen & is_lost & (lag == UNKNOWN)


_NUMBERS: Final = (
    *("open", "open_before", "growth", "retained"),
    *("waiting_since_us", "members", "seq", "complete_from_us", "jumped_us", "tick_us"),
)


def _ranks(rules: pa.ChunkedArray) -> Values:
    parts = []
    for chunk in rules.chunks:
        ranks = pc.index_in(chunk.dictionary, value_set=pa.array(SEVERITY)).cast(pa.int8())
        parts.append(np.asarray(ranks)[np.asarray(chunk.indices)])
    return np.concatenate(parts) if parts else np.empty(0, np.int8)


def _severities(rank: Values, is_bad: Flags, is_unseen: Flags) -> Values:
    calm = np.where(is_unseen, UNSEEN, 0)
    for one in _CALM:
        calm[rank == one] = one
    return np.where(is_bad & (rank > 0), rank, calm).astype(np.int8)


def courses(
    code: Positions,
    count: int,
    figures: Mapping[str, Values],
    recent: Positions,
    *,
    tick_us: int,
    evaluation: Evaluation,
) -> tuple[Positions, Positions]:
    """By how many messages an hour what is open of each group changes, and the place of that in
    TRENDS. It is the sum over all queues, each over the same span, and unknown when one is:

    - of their courses, where each is certain, or the queue at rest;
    - else `recent`, of the last minute, where that shows a direction;
    - else of the courses as far as they are certain, the others being none;
    - else none, where the last minute shows no direction;
    - else, where it is too early for all that, of the last window.
    """
    now, before, growth = figures["open"], figures["open_before"], figures["growth"]
    queues = np.bincount(code, minlength=count)
    both = (now != UNKNOWN) & (before != UNKNOWN)
    moved = np.where(both, now - np.where(both, before, 0), UNKNOWN)
    # One that was not looked at at this tick has rested since.
    moved[(figures["tick_us"] < tick_us) & (now != UNKNOWN)] = 0
    has_course = growth != UNKNOWN
    rests = (moved == 0) & (~has_course | (growth == 0))
    is_certain = has_course & ((growth != 0) | figures["swings"])
    course, _ = sum_of(code, count, np.where(has_course, growth, 0))
    window, known = sum_of(code, count, moved)
    window = truncated(window * 3600, evaluation.window_ms // 1000)

    def of_all(holds: Flags) -> Flags:
        return np.asarray(np.bincount(code[holds], minlength=count) == queues)

    by_course = of_all(is_certain | rests)
    by_recent = ~by_course & (recent != UNKNOWN) & (recent != 0)
    by_course |= ~by_recent & of_all(has_course | rests)
    conditions = [by_recent, by_course, recent == 0, known == queues]
    total = np.select(conditions, [recent, course, np.zeros(count, np.int64), window], UNKNOWN)
    total[~of_all(now != UNKNOWN)] = UNKNOWN
    allowance = np.where(by_course, 0, STEADY_PER_MINUTE * 60)
    place = np.select([np.abs(total) <= allowance, total > 0], [1, 0], 2)
    return total, place


SPAN_US: Final = 60 * SECOND_US
"""The recent change of a group looks back this far, or up to a period more."""
STEPS: Final = SPAN_US // PERIOD_US
SLOTS: Final = STEPS + 1
"""Sums of a group that are remembered, each a period behind the one before."""
_ONE_WAY: Final = 4
"""A direction shows where the steps that way come to so many times those the other way."""


TREND_REASONS: Final = ("QUEUE_UNKNOWN", "JUMPED", "TOO_EARLY")


def change_reasons(
    code: Positions, figures: Mapping[str, Values], change: Positions, tick_us: int
) -> pa.Array:
    """Per group why its change is unknown; null when it is known."""
    count = len(change)
    is_unseen = np.bincount(code[figures["open"] == UNKNOWN], minlength=count) > 0
    has_jumped = most_of(code, count, figures["jumped_us"]) > tick_us - SPAN_US - PERIOD_US
    place = np.select([is_unseen, has_jumped], [0, 1], 2)
    return pa.array(TREND_REASONS).take(pa.array(place, mask=change != UNKNOWN))


def slot_of(tick_us: int) -> int:
    """The place of a moment of the grid among the sums that are remembered."""
    return tick_us // PERIOD_US % SLOTS


def recent_changes(past: Sums, now: Positions, tick_us: int) -> Positions:
    """By how many messages an hour the sum of each group has changed in the last minute; 0 where it
    went to and fro, or moved in fewer than half of the steps: that is no direction. UNKNOWN where a
    sum is.

    past: sums at the moments of the grid, by `slot_of`; now: those at the tick.
    """
    base_us = tick_us // PERIOD_US * PERIOD_US
    before = [past[slot_of(base_us - back * PERIOD_US)] for back in range(STEPS, 0, -1)]
    points = np.stack([*before, now])
    is_known = (points != UNKNOWN).all(axis=0)
    steps = np.diff(np.where(is_known, points, 0), axis=0)
    rises, falls = np.maximum(steps, 0).sum(axis=0), np.maximum(-steps, 0).sum(axis=0)
    half = -(-STEPS // 2)
    is_up = (rises >= _ONE_WAY * falls) & ((steps > 0).sum(axis=0) >= half)
    is_down = (falls >= _ONE_WAY * rises) & ((steps < 0).sum(axis=0) >= half)
    span_us = tick_us - (base_us - SPAN_US)
    per_hour = truncated((rises - falls) * HOUR_US, np.full(len(rises), span_us))
    return np.where(is_known, np.where(is_up | is_down, per_hour, 0), UNKNOWN)


def drain_ms(figures: Mapping[str, Values], evaluation: Evaluation) -> Positions:
    """Per queue that catches up the time until it has done so; UNKNOWN for all others."""
    left, before, growth = figures["open"], figures["open_before"], figures["growth"]
    is_certain = (growth != UNKNOWN) & (growth < 0)
    has_window = (before != UNKNOWN) & (left != UNKNOWN)
    fell = np.where(has_window, before, 0) - np.where(has_window, left, 0)
    fell = truncated(fell * 3600, evaluation.window_ms // 1000)
    per_hour = np.where(is_certain, -np.where(is_certain, growth, 0), fell)
    catches_up = (figures["severity"] == CATCHING_UP) & (left != UNKNOWN) & (per_hour > 0)
    seconds = np.where(catches_up, left, 0) * 3600 // np.maximum(per_hour, 1)
    return np.where(catches_up, seconds * 1000, UNKNOWN)


def retained_until(
    code: Positions, count: int, figures: Mapping[str, Values], tick_us: int
) -> Positions:
    """Per group the moment at which retention reaches what waits in the first of its queues."""
    retained, growth = figures["retained"], figures["growth"]
    is_known = (retained != UNKNOWN) & (growth > 0) & figures["is_bad"]
    hours = np.where(is_known, np.maximum(retained, 0), 0) * 3600 // np.maximum(growth, 1)
    first = np.full(count, NEVER)
    np.minimum.at(first, code[is_known], tick_us + hours[is_known] * SECOND_US)
    return np.where(first == NEVER, UNKNOWN, first)


def sum_of(code: Positions, count: int, values: Positions) -> tuple[Positions, Positions]:
    """Sums of the known values, and how many are known."""
    is_known = values != UNKNOWN
    sums = np.zeros(count, np.int64)
    np.add.at(sums, code[is_known], values[is_known])
    return sums, known_of(code, count, values)


def known_of(code: Positions, count: int, values: Positions) -> Positions:
    """How many values of each are known."""
    return np.bincount(code[values != UNKNOWN], minlength=count)


def most_of(code: Positions, count: int, values: Positions) -> Positions:
    """The largest known value of each; UNKNOWN is smaller than all."""
    most = np.full(count, UNKNOWN)
    np.maximum.at(most, code, values)
    return most


_WHY_UNKNOWN: Final = ("BROADCAST", "BEYOND_END", "NO_OFFSET")
"""Why the lag of a queue is unknown; where queues differ, the last of these is their group's."""


def unknown_reasons(code: Positions, count: int, figures: Mapping[str, Values]) -> pa.Array:
    """Per group why its lag is unknown; null when it is known."""
    is_broadcast = figures["severity"] == SEVERITY.index("BROADCAST")
    place = np.select([is_broadcast, figures["is_beyond"]], [0, 1], 2)
    place = np.where(figures["lag"] == UNKNOWN, place, UNKNOWN)
    worst = most_of(code, count, place)
    return pa.array(_WHY_UNKNOWN).take(pa.array(worst, mask=worst == UNKNOWN))
