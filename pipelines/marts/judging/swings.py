"""Finds the underlying trend and the usual pauses of a lag that swings regularly.

Place in the walk: the open messages of a queue at every tick → the last two peaks and troughs →
the period of the swing, and the rate that remains when the swing is left out; from how long the
queue stood each time → for how long it usually rests.

Between two turns of a regular swing the lag of a minute says nothing of an hour. Peaks and troughs
show the truth: when both rise the queue falls behind, when both sink it gains, and by how much is
their distance. A swing is over when the present leg is longer, or higher, than the one before it in
the same direction allows.

Invariant: what is remembered changes only at ticks that look at the queue, and begins anew when one
did not. Absent on purpose: names of states, and lines through blocks (`queue_courses`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.base.settings import HOUR_US, SECOND_US, Evaluation
from pipelines.marts.judging.packed import NEVER, UNKNOWN, Flags, places
from pipelines.marts.mart import Positions

_TURNS: Final = (
    *("peak", "peak_us", "peak_before", "peak_before_us"),
    *("trough", "trough_us", "trough_before", "trough_before_us"),
    *("peak_first", "peak_first_us", "trough_first", "trough_first_us"),
)
FIELDS: Final = (
    *("direction", "extreme", "extreme_us"),
    *_TURNS,
    *("rest_us", "rested_us", "usual_rest_us", "rests_each_us"),
    *("rested_lag", "rested_rise", "rested_rise_before", "rest_rise", "rest_slack"),
    *("falls_us", "falls_from", "falls_wait_us", "is_deficit"),
)
"""What is remembered of a queue. direction: 1 when its lag grew last, -1 when it shrank, 0 when it
has done neither yet; extreme: the furthest that it has come that way, and the last tick at which it
was there; then the last two of its peaks and troughs, and the first of those that are compared.
rest_us: how long it stood when it did so for
long last, rested_us: when that ended, usual_rest_us: as it usually does, each rests_each_us.
rested_lag: how far behind it was when the last such rest ended; rested_rise, rested_rise_before: by
how much more than when the one before it had, and the same of that one, if both were alike;
rest_rise: by how much more at the end of the last one than at its beginning; rest_slack: what
sampling may hide of rested_rise.
falls_us, falls_from, falls_wait_us, is_deficit: as `note_deficits` has them. UNKNOWN: not known
yet.
"""
_ROW: Final = {name: place for place, name in enumerate(FIELDS)}
Swings = np.ndarray[tuple[int, int], np.dtype[np.int64]]
"""A row per field, a column per queue."""

TURN_LEAST: Final = 10
"""Messages; less is no turn."""
TURN_SHARE: Final = 4
"""Nor is less than this part of what came, or was finished, in the window: that much each pull,
report and sample may bring.
"""
LEG_SIZES: Final = 1.5
"""A leg is one of the swing up to so many times the size of the one before it that way."""
LEG_TIMES: Final = 2
"""The same of how long it lasts, and of how unlike two rests may be."""
SWING_LEAST_US: Final = 50 * SECOND_US
"""The least lag of a minute leaves shorter swings out: a minute less what ticks may miss."""
REGULAR: Final = 1.25
"""Two periods are alike when the longer one is no more than so many times the shorter: chance makes
swings, too, but hardly such."""
COMPARED_US: Final = HOUR_US
"""What rises too little in one swing to be seen is looked for in as many as this holds."""
SEEN_US: Final = 30 * SECOND_US
"""A leg may last this much longer, however short those before it were: as long as it takes to see
that it has ended.
"""
FORGOTTEN: Final = 2
"""A rest that was usual is so no more when it has not come for so many times its period."""
CONFIRM_US: Final = 1_500 * SECOND_US
"""A deficit within what is allowed is reported when its course has been certain for so long: chance
would have to show it three times, ten minutes apart.
"""
WAIT_GROWTH: Final = 1.2
WAIT_JITTER_US: Final = SECOND_US // 10
"""Messages wait longer when they do for so many times as long, and so much more. Where only more
are produced, what is on its way grows, but not its wait.
"""


def begin(count: int) -> Swings:
    """Nothing is known."""
    swings = np.full((len(FIELDS), count), UNKNOWN)
    swings[_ROW["direction"]] = 0
    return swings


def _column(swings: Swings, name: str, rows: Positions) -> Positions:
    column: Positions = swings[_ROW[name]]
    return column[places(rows, len(column))]


def note(
    swings: Swings,
    rows: Positions,
    lag: Positions,
    *,
    moved: Positions,
    is_new: Flags,
    tick_us: int,
) -> None:
    """The lag of a tick; moved: messages that came, or were finished, in the window, whichever is
    more, UNKNOWN where it is. Where is_new, all that was known before is forgotten.
    """
    is_new = is_new | (lag == UNKNOWN) | (_column(swings, "extreme", rows) == UNKNOWN)
    new = np.flatnonzero(is_new)
    if len(new):
        at = rows[new]
        swings[:, at] = UNKNOWN
        swings[_ROW["direction"], at] = 0
        swings[_ROW["extreme"], at] = lag[new]
    direction, extreme = _column(swings, "direction", rows), _column(swings, "extreme", rows)
    ahead = np.where(is_new, 0, lag - extreme)
    on = np.flatnonzero(~is_new & (direction * ahead >= 0) & (direction != 0))
    swings[_ROW["extreme"], rows[on]] = lag[on]
    swings[_ROW["extreme_us"], rows[on]] = tick_us
    least = np.where(moved == UNKNOWN, NEVER, np.maximum(moved // TURN_SHARE, TURN_LEAST))
    turned = np.flatnonzero((np.abs(ahead) > least) & (direction * ahead <= 0))
    if len(turned):
        _turn(swings, rows[turned], lag[turned], direction[turned], tick_us=tick_us)
    _end_broken(swings, rows, lag, least, tick_us=tick_us)


def _turn(
    swings: Swings, at: Positions, lag: Positions, direction: Positions, *, tick_us: int
) -> None:
    for way, kind in ((1, "peak"), (-1, "trough")):
        some = at[direction == way]
        for end, of in (("", "extreme"), ("_us", "extreme_us")):
            swings[_ROW[f"{kind}_before{end}"], some] = swings[_ROW[f"{kind}{end}"], some]
            swings[_ROW[f"{kind}{end}"], some] = swings[_ROW[of], some]
        first_us = swings[_ROW[f"{kind}_first_us"], some]
        is_old = first_us == UNKNOWN
        is_old |= tick_us - np.where(is_old, tick_us, first_us) > COMPARED_US
        for end in ("", "_us"):
            turn = swings[_ROW[f"{kind}{end}"], some[is_old]]
            swings[_ROW[f"{kind}_first{end}"], some[is_old]] = turn
    started = direction == 0
    grew = lag > swings[_ROW["extreme"], at]
    swings[_ROW["direction"], at] = np.where(started, np.where(grew, 1, -1), -direction)
    swings[_ROW["extreme"], at] = lag
    swings[_ROW["extreme_us"], at] = tick_us


def _end_broken(
    swings: Swings, rows: Positions, lag: Positions, least: Positions, *, tick_us: int
) -> None:
    """Forgets swings whose present leg is none of theirs, and what rests said that is refuted."""
    rested = np.flatnonzero(_column(swings, "rested_rise_before", rows) != UNKNOWN)
    if len(rested):
        at, more = rows[rested], np.where(least[rested] == NEVER, 0, least[rested])
        rest = {name: swings[_ROW[name], at] for name in FIELDS if name.startswith("rest")}
        rise = rest["rested_rise"]
        away = lag[rested] - rest["rested_lag"]
        is_over = (rise > 0) & (away < -LEG_SIZES * rest["rest_rise"] - more)
        # The next rest has begun, perhaps.
        is_over |= (rise <= 0) & (away > more + np.where(rise == 0, rest["rest_rise"], 0))
        is_over |= tick_us - rest["rested_us"] > FORGOTTEN * rest["rests_each_us"]
        swings[_ROW["rested_rise_before"], at[is_over]] = UNKNOWN
    before = _column(swings, "peak_before", rows) != UNKNOWN
    before &= _column(swings, "trough_before", rows) != UNKNOWN
    some = np.flatnonzero(before)
    if not len(some):
        return
    at = rows[some]
    began, ended, left = _last_turns(_of(swings, at))
    size = np.abs(ended.lag - began.lag) * LEG_SIZES
    size += np.where(least[some] == NEVER, 0, least[some])
    is_over = np.abs(lag[some] - left.lag) > size
    here_us = swings[_ROW["extreme_us"], at]
    is_over |= here_us - left.at_us > LEG_TIMES * (ended.at_us - began.at_us) + SEEN_US
    is_over |= tick_us - here_us > LEG_TIMES * (left.at_us - ended.at_us) + SEEN_US
    for name in _TURNS:
        swings[_ROW[name], at[is_over]] = UNKNOWN


def _of(swings: Swings, at: Positions) -> Mapping[str, Positions]:
    return {name: swings[_ROW[name], at] for name in ("direction", *_TURNS)}


@dataclass(frozen=True, slots=True)
class _Turns:
    """A peak or a trough of each of some queues."""

    lag: Positions
    at_us: Positions


def _last_turns(of: Mapping[str, Positions]) -> tuple[_Turns, _Turns, _Turns]:
    """The last three turns of each queue, oldest first; from the last one it has been going its
    present way.
    """
    sinks = of["direction"] < 0
    pairs = (("peak_before", "trough_before"), ("trough", "peak"), ("peak", "trough"))
    began, ended, left = (
        _Turns(
            np.where(sinks, of[sinking], of[growing]),
            np.where(sinks, of[f"{sinking}_us"], of[f"{growing}_us"]),
        )
        for sinking, growing in pairs
    )
    return began, ended, left


def periods_us(swings: Swings, rows: Positions) -> Positions:
    """How long each regular swing takes, or from one rest to the next where a queue rests without
    turning; UNKNOWN where there is neither, or where it is shorter than SWING_LEAST_US.
    """
    return _periods_us(swings, rows, _swing_periods_us(swings, rows))


def _periods_us(swings: Swings, rows: Positions, swings_us: Positions) -> Positions:
    has_rested = swings_us == UNKNOWN
    has_rested &= _column(swings, "rested_rise_before", rows) != UNKNOWN
    found = np.where(has_rested, _column(swings, "rests_each_us", rows), swings_us)
    return np.where(found < SWING_LEAST_US, UNKNOWN, found)


def _swing_periods_us(swings: Swings, rows: Positions) -> Positions:
    found = np.full(len(rows), UNKNOWN)
    is_known = _column(swings, "peak_before", rows) != UNKNOWN
    is_known &= _column(swings, "trough_before", rows) != UNKNOWN
    some = np.flatnonzero(is_known)
    if len(some):
        of = _of(swings, rows[some])
        between = [of[f"{one}_us"] - of[f"{one}_before_us"] for one in ("peak", "trough")]
        longer, shorter = np.maximum(*between), np.minimum(*between)
        found[some] = np.where(longer <= REGULAR * shorter, longer, UNKNOWN)
    return found


def rates(swings: Swings, rows: Positions, slide_us: int) -> tuple[Positions, Positions]:
    """`periods_us`, and messages an hour by which the lag of each of these queues grows from one
    swing, or rest, to the next, below 0: shrinks; 0 when neither is certain, UNKNOWN without a
    period.
    """
    swings_us = _swing_periods_us(swings, rows)
    found_us = _periods_us(swings, rows, swings_us)
    has_period, is_swing = found_us != UNKNOWN, swings_us != UNKNOWN
    found = np.full(len(rows), UNKNOWN)
    for some, rates_of in (
        (np.flatnonzero(has_period & is_swing), _swing_rates),
        (np.flatnonzero(has_period & ~is_swing), _rest_rates),
    ):
        if len(some):
            found[some] = rates_of(swings, rows[some], slide_us)
    return found_us, found


def _rest_rates(swings: Swings, rows: Positions, slide_us: int) -> Positions:
    rise, former = swings[_ROW["rested_rise"], rows], swings[_ROW["rested_rise_before"], rows]
    each_us = np.maximum(swings[_ROW["rests_each_us"], rows], slide_us)
    per_hour = (rise + former) / 2 * (HOUR_US / each_us)
    least, most = np.minimum(np.abs(rise), np.abs(former)), np.maximum(*np.abs([rise, former]))
    is_certain = (np.sign(rise) == np.sign(former)) & (most <= LEG_TIMES * least)
    is_certain &= least > swings[_ROW["rest_slack"], rows]
    return np.where(is_certain, np.rint(per_hour), 0).astype(np.int64)


def _swing_rates(swings: Swings, rows: Positions, slide_us: int) -> Positions:
    of = _of(swings, rows)
    # A turn lies between two ticks: what is seen of it is short by no more than this.
    began, ended, left = _last_turns(of)
    first, second = (
        np.abs(end.lag - begin.lag) * (slide_us / np.maximum(end.at_us - begin.at_us, slide_us))
        for begin, end in ((began, ended), (ended, left))
    )
    unseen = np.minimum(first, second) + TURN_LEAST
    of_last = _rise(of, "before", unseen)
    return np.where(of_last == 0, _rise(of, "first", unseen), of_last)


def _rise(of: Mapping[str, Positions], since: str, unseen: Positions) -> Positions:
    """Messages an hour by which the last peak and trough are higher than those `since`; 0 when one
    of them does not say so for sure.
    """
    rises = [of[one] - of[f"{one}_{since}"] for one in ("peak", "trough")]
    took_us = [of[f"{one}_us"] - of[f"{one}_{since}_us"] for one in ("peak", "trough")]
    per_hour = [
        rise * (HOUR_US / np.maximum(took, 1)) for rise, took in zip(rises, took_us, strict=True)
    ]
    is_same = np.sign(rises[0]) == np.sign(rises[1])
    is_certain = is_same & (np.minimum(np.abs(rises[0]), np.abs(rises[1])) > unseen)
    least, most = np.minimum(*np.abs(per_hour)), np.maximum(*np.abs(per_hour))
    is_certain &= most <= LEG_TIMES * least
    return np.where(is_certain, np.rint((per_hour[0] + per_hour[1]) / 2), 0).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Rest:
    """Queues that have moved again."""

    stood_us: Positions
    lag: Positions
    moved: Positions
    """As `note` has it."""


def note_rests(
    swings: Swings,
    at: Positions,
    rest: Rest,
    *,
    tick_us: int,
    evaluation: Evaluation,
) -> None:
    """These queues have moved, having stood: for long, if for half of the window or more."""
    window_us, slide_us = evaluation.window_us, evaluation.slide_us
    some = np.flatnonzero(rest.stood_us >= window_us // 2)
    if not len(some):
        return
    at, rest_us, lag = at[some], rest.stood_us[some], rest.lag[some]
    moved = np.where(rest.moved[some] == UNKNOWN, 0, rest.moved[some])
    former_us, ended_us = swings[_ROW["rest_us"], at], swings[_ROW["rested_us"], at]
    former_each_us = swings[_ROW["rests_each_us"], at]
    is_alike = former_us != UNKNOWN
    is_alike &= np.maximum(rest_us, former_us) <= LEG_TIMES * np.minimum(rest_us, former_us)
    usual = np.where(is_alike, np.minimum(rest_us, former_us), UNKNOWN)
    swings[_ROW["usual_rest_us"], at] = usual
    swings[_ROW["rests_each_us"], at] = np.where(is_alike, tick_us - ended_us, UNKNOWN)
    known = is_alike & (lag != UNKNOWN) & (swings[_ROW["rested_lag"], at] != UNKNOWN)
    rise = np.where(known, lag - np.where(known, swings[_ROW["rested_lag"], at], 0), UNKNOWN)
    between_us = np.where(is_alike, tick_us - ended_us, UNKNOWN)
    is_regular = known & (former_each_us != UNKNOWN)
    is_regular &= np.maximum(between_us, former_each_us) <= REGULAR * np.minimum(
        between_us, former_each_us
    )
    is_regular &= np.maximum(rest_us, former_us) <= REGULAR * np.minimum(rest_us, former_us)
    before = np.where(is_regular, swings[_ROW["rested_rise"], at], UNKNOWN)
    swings[_ROW["rested_rise_before"], at] = before
    swings[_ROW["rested_rise"], at] = rise
    swings[_ROW["rested_lag"], at] = lag
    swings[_ROW["rest_rise"], at] = moved * rest_us // window_us
    swings[_ROW["rest_slack"], at] = moved * slide_us // window_us + TURN_LEAST
    swings[_ROW["rest_us"], at] = rest_us
    swings[_ROW["rested_us"], at] = tick_us


def usual_rests_ms(swings: Swings, rows: Positions, tick_us: int) -> Positions:
    """How long each queue usually rests; 0 where that is not known, or has been given up."""
    usual_us = _column(swings, "usual_rest_us", rows)
    is_known = usual_us != UNKNOWN
    each_us = np.where(is_known, _column(swings, "rests_each_us", rows), 0)
    since_us = tick_us - np.where(is_known, _column(swings, "rested_us", rows), 0)
    is_known &= since_us <= FORGOTTEN * each_us
    return np.where(is_known, usual_us // 1000, 0)


@dataclass(frozen=True, slots=True)
class Course:
    """Where queues go."""

    per_hour: Positions
    """Messages, as `queue_courses` reports them now."""
    was_certain: Flags
    """Was one of the two ways certain lately?"""
    lag: Positions
    wait_us: Positions
    """How long messages wait, UNKNOWN where it is; of a swing it need not be known."""
    is_swing: Flags


def note_deficits(
    swings: Swings,
    rows: Positions,
    course: Course,
    *,
    tick_us: int,
) -> None:
    """Since when and from which lag on a course says that the queue falls behind, and whether it is
    a deficit for sure. It ends when the opposite is certain, or when that lag is there again.
    """
    found, lag, wait_us = course.per_hour, course.lag, course.wait_us
    falls_us = _column(swings, "falls_us", rows)
    falls_us = np.where((found > 0) & (falls_us == UNKNOWN), tick_us, falls_us)
    is_over = ((found < 0) & (found != UNKNOWN)) | ~course.was_certain
    is_over |= (falls_us != tick_us) & (lag <= _column(swings, "falls_from", rows))
    falls_us = np.where(is_over, UNKNOWN, falls_us)
    begins = falls_us == tick_us
    falls_from = np.where(begins, lag, _column(swings, "falls_from", rows))
    wait_from = _column(swings, "falls_wait_us", rows)
    wait_from = np.where(begins | (wait_from == UNKNOWN), wait_us, wait_from)
    is_known = (wait_us != UNKNOWN) & (wait_from != UNKNOWN)
    longer = wait_us > np.where(is_known, wait_from, 0) * WAIT_GROWTH + WAIT_JITTER_US
    is_deficit = (falls_us != UNKNOWN) & (course.is_swing | (is_known & longer))
    is_deficit &= tick_us - np.where(falls_us == UNKNOWN, tick_us, falls_us) >= CONFIRM_US
    swings[_ROW["falls_us"], rows] = falls_us
    swings[_ROW["falls_from"], rows] = falls_from
    swings[_ROW["falls_wait_us"], rows] = wait_from
    swings[_ROW["is_deficit"], rows] = is_deficit


def deficits(swings: Swings, rows: Positions, lag: Positions) -> Flags:
    """Which of the queues fall behind for sure, and have done so for CONFIRM_US, so that messages
    wait longer and longer?
    """
    is_deficit = _column(swings, "is_deficit", rows) == 1
    return np.asarray(is_deficit & (lag > _column(swings, "falls_from", rows)))
