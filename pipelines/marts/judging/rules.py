"""Applies the queue-state rules at a tick to classify each queue and its type of problem.

Place in the walk: what is seen of queues at a tick → their rules, from which stalled windows and
group states follow.

In order, first match: BROADCAST (nothing to judge) | NO_OFFSET | DATA_LOST | OK (lag and time lag
within what is allowed) | PAUSED | STOPPED | REWOUND | STALLED | SLOW | CATCHING_UP | OK. What is
judged is the offset that is reached by what happens (`progress`), so the verdict does not depend on
how often a consumer commits. A queue whose window is not complete is judged by the rules that need
none. STALLED is one whose head is passed (`heads`), too: that needs no window.

SLOW is a queue beyond what is allowed that falls behind, however slowly, one whose lag only grew
over a window while messages wait too long, or never became less but for swings that reports and
samples make (`growths`), one whose messages wait too long while it neither falls behind nor gains,
and one whose messages wait for a multiple of what is allowed, until it is certain to gain. One that
gains is CATCHING_UP. What is allowed allows no lasting deficit: one that has been certain for long
is SLOW there, too. Of a lag that swings the course is that from one swing to the next. It is too
early to say while messages wait too long and nothing else is certain, unless a rest, a batch or a
swing of the queue explains how long they wait and what waits does become less.

DATA_LOST is also a queue of which unread messages were deleted lately, until that goes on no more:
it is neither well nor only slow (`keeping`).

Invariant: a paused consumer is shown as paused, whatever else is true of its queue: its client
works on the queue by its own account, holds nothing of it and asks for nothing. Absent on purpose:
memory; a rule sees one tick and its window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.base.settings import SECOND_US, Evaluation
from pipelines.marts.judging import progress
from pipelines.marts.judging.heads import Passed
from pipelines.marts.judging.packed import NEVER, UNKNOWN, Flags, truncated
from pipelines.marts.mart import Positions

PRODUCE_ALLOWANCE_US: Final = 5 * SECOND_US
"""A lag of what is produced in this time is normal: clients report their offsets each five
seconds.
"""

LATE_US: Final = 420 * SECOND_US
"""Messages that wait for too long without a break for so long are reported even if the queue
neither falls behind nor gains: a course that six minutes show has been found by then.
"""
LONG_WINDOWS: Final = 2
"""What has become more, and never less, for so many windows rises, however little."""
LATE_SWINGS: Final = 2
"""Where the lag swings, for so many swings more: one that comes back to what is allowed in each of
them keeps up.
"""

RULES: Final = (
    "OK",
    "BROADCAST",
    "CATCHING_UP",
    "UNKNOWN",
    "NO_OFFSET",
    "DATA_LOST",
    "STOPPED",
    "REWOUND",
    "STALLED",
    "SLOW",
    "PAUSED",
)
OK, BROADCAST, CATCHING_UP, TOO_EARLY, NO_OFFSET, DATA_LOST = range(6)
STOPPED, REWOUND, STALLED, SLOW, PAUSED = range(6, 11)
HEALTHY_MAX: Final = TOO_EARLY
"""Rules up to this one say that nothing is wrong, that it is on the mend, or that it is too early
to say: messages have waited for too long ever since somebody looks.
"""

KINDS: Final = (
    "UNDETERMINED",
    "DEAD_CONSUMER",
    "BLOCKED_ORDERLY",
    "FROZEN_HEAD",
    "DEAD_QUEUE",
    "PAUSED",
)
UNDETERMINED, DEAD_CONSUMER, BLOCKED_ORDERLY, FROZEN_HEAD, DEAD_QUEUE, PAUSED_QUEUE = range(6)

EXACT, AT_END, PURGED, UNREADABLE, NONE = range(5)
STATES: Final = ("EXACT", "AT_END", "PURGED", "UNREADABLE", "NONE")
"""Words of committed_state, by their codes."""


class Chosen(Mapping[str, Positions]):
    """Columns of some rows, each gathered when it is asked for."""

    def __init__(self, columns: Mapping[str, Positions], rows: Positions | slice) -> None:
        self._columns = columns
        self._rows = rows
        self._gathered: dict[str, Positions] = {}

    def __getitem__(self, name: str) -> Positions:
        """The column's values of these rows."""
        if name not in self._gathered:
            self._gathered[name] = self._columns[name][self._rows]
        return self._gathered[name]

    def __iter__(self) -> Iterator[str]:
        """Names of the columns."""
        return iter(self._columns)

    def __len__(self) -> int:
        """How many columns there are."""
        return len(self._columns)


@dataclass(frozen=True, slots=True)
class Seen:
    """Queues at a tick: a number per queue in every column, UNKNOWN where it is not known."""

    tick_us: int
    now: Mapping[str, Positions]
    """The last row: event_us, broker_epoch, pulled, committed, state, waiting_since_us, min_offset,
    max_offset, last_pull_us, last_commit_us, members, lag, is_broadcast and is_locked (0 or 1);
    reached; growth: messages an hour by which it falls behind, below 0 when it gains, 0 when
    neither is certain, UNKNOWN when it was not looked at for long enough; late_us: since when
    messages wait for too long; growth_from_us: since when the least of a window (growth_least)
    never became less, and what that was (growth_from); rule: the one of the tick before.
    """
    before: Mapping[str, Positions]
    """A window ago: committed, reached, max_offset."""
    is_complete: Flags
    """Was the queue evaluated at every tick of the window?"""
    open: Positions
    """Messages from the offset that is reached to the end."""
    waiting_since_us: Positions
    """Store time of the message at the offset that is reached; NEVER when nothing waits."""
    is_reported: Flags
    """Does its client report what it holds?"""
    by_pulls: Flags
    """Does what was pulled count as reached, since it reports too rarely?"""
    is_late_from_first: Flags
    """Have messages waited for too long at every look so far?"""
    is_silent: Flags
    """Does its client say neither what it holds nor, as far as was seen, how often it reports?"""
    stands: Flags
    """Did what is reached stand, while messages wait, for longer than is usual?"""
    patience_us: Positions
    """How long it would have had to."""
    swing_us: Positions
    """How long each swing of its lag takes; UNKNOWN when it has no regular one."""
    is_deficit: Flags
    """Has it fallen behind for so long that this is reported even of what is allowed?"""
    is_other_course: Flags
    """Has it become certain at this tick that it falls behind, or uncertain?"""
    passed: Passed
    """Heads that stand while what lies behind them is finished: they need no window."""
    high: Positions
    """Offset to regain."""
    polled_us: Positions
    """How old a pull may be when it is seen first."""
    sample: Callable[[Positions], Mapping[str, Positions]]
    """Of some of the queues, what their client holds: event_us, held_count, client_pull_us, locked
    (0 or 1).
    """
    extremes: Callable[[Positions], Extremes]
    """Of some of the queues, what the window held."""


@dataclass(frozen=True, slots=True)
class Extremes:
    """Over the ticks of the window, or since the course of a queue began anew within it."""

    open_first: Positions
    """Open messages at its beginning; UNKNOWN when they were never known."""
    open_least: Positions
    reached_midway: Positions
    only_grew: Flags
    """Did open messages become more, and never fewer from one tick to the next?"""
    is_half: Flags
    """Is that half of the window at least?"""


@dataclass(frozen=True, slots=True)
class Judged:
    """What holds at a tick."""

    rule: Positions
    kind: Positions
    is_at_rest: Flags
    """Nothing but time or news can change the verdict: not its window."""
    is_within: Flags
    """Is it no further behind than is always allowed? A course that it had has ended then."""


def judged(seen: Seen, evaluation: Evaluation) -> Judged:
    """Rule and kind of every queue; what does not apply is UNDETERMINED."""
    now = seen.now
    committed, mark = now["committed"], now["reached"]
    count = len(committed)
    rule = np.zeros(count, np.int64)
    kind = np.zeros(count, np.int64)
    is_broadcast = now["is_broadcast"] == 1
    has_none = ~is_broadcast & (mark == UNKNOWN)
    is_lost = ~is_broadcast & ~has_none
    place = np.where(committed == UNKNOWN, mark, committed)
    is_judged = is_lost & (place >= now["min_offset"]) & (place <= now["max_offset"])
    is_lost &= ~is_judged
    is_within = is_judged & _is_within_allowance(seen, evaluation)
    rule[is_broadcast] = BROADCAST
    rule[is_lost] = DATA_LOST
    had_none = has_none & seen.is_complete & (seen.before["reached"] == UNKNOWN) & seen.stands
    rule[had_none & (now["max_offset"] > now["min_offset"])] = NO_OFFSET
    rest = np.flatnonzero(is_judged & ~is_within)
    if len(rest):
        _judge_rest(seen, evaluation, rest, rule)
    standing = np.flatnonzero((rule == STOPPED) | (rule == STALLED) | (rule == NO_OFFSET))
    if len(standing):
        kind[standing] = _kinds(seen, evaluation, standing)
    kind[rule == PAUSED] = PAUSED_QUEUE
    at_rest = is_broadcast | (is_within & _may_rest(seen, evaluation))
    at_rest |= (
        has_none & seen.is_complete & (seen.stands | (now["max_offset"] <= now["min_offset"]))
    )
    return Judged(rule, kind, at_rest, is_within)


def time_lag_us(tick_us: int, waiting_since_us: Positions) -> Positions:
    """How long the message at the consume offset has waited; 0 when nothing waits."""
    waited = tick_us - np.where(waiting_since_us == UNKNOWN, 0, waiting_since_us)
    return np.where(waiting_since_us == UNKNOWN, UNKNOWN, np.maximum(waited, 0))


def allowed_lag(
    max_offset: Positions, max_offset_before: Positions, evaluation: Evaluation
) -> Positions:
    """How many messages behind are never a problem."""
    produced = np.where(max_offset_before == UNKNOWN, 0, max_offset - max_offset_before)
    share = truncated(produced * PRODUCE_ALLOWANCE_US, evaluation.window_us)
    return np.maximum(share, evaluation.allowed_lag)


def _is_within_allowance(seen: Seen, evaluation: Evaluation) -> Flags:
    now = seen.now
    allowed = allowed_lag(now["max_offset"], seen.before["max_offset"], evaluation)
    is_late = progress.is_late(seen.waiting_since_us, seen.tick_us, evaluation)
    is_overdue = seen.stands & (now["reached"] > progress.place(now))
    falls_behind = seen.is_deficit & (now["growth"] > 0)
    return np.asarray((seen.open <= allowed) & ~is_late & ~is_overdue & ~falls_behind)


def _may_rest(seen: Seen, evaluation: Evaluation) -> Flags:
    """A client that reports nothing and has not reported what it pulled is waited for."""
    now = seen.now
    few = allowed_lag(now["max_offset"], seen.before["max_offset"], evaluation)
    is_late = progress.is_late(now["waiting_since_us"], seen.tick_us, evaluation)
    is_ahead = now["reached"] > progress.place(now)
    return np.asarray(seen.is_reported | ~is_ahead | ((now["lag"] <= few) & ~is_late))


def _judge_rest(seen: Seen, evaluation: Evaluation, rest: Positions, rule: Positions) -> None:
    """The rules for queues that are behind, into `rule`; the first that holds wins."""
    now = Chosen(seen.now, rest)
    complete, high = seen.is_complete[rest], seen.high[rest]
    stands = seen.stands[rest] & complete
    last_report = np.where(
        now["last_commit_us"] == UNKNOWN, now["broker_epoch"], now["last_commit_us"]
    )
    # As of the row itself: reports that changed nothing are reported with a delay.
    has_no_report = now["event_us"] - last_report >= seen.patience_us[rest]
    is_left = ~_may_be_pulled(seen, evaluation, rest) | progress.is_dead(now)
    is_stopped = stands & has_no_report & is_left & ~seen.is_reported[rest]
    is_rewound = (high != UNKNOWN) & (now["committed"] != UNKNOWN) & (now["committed"] < high)
    is_slow, is_catching_up, only_grew = _courses(seen, evaluation, rest, now)
    is_late = progress.is_late(seen.waiting_since_us[rest], seen.tick_us, evaluation)
    # Who usually rests for longer than a window is well while it does, and no longer.
    only_grew &= (seen.patience_us[rest] <= evaluation.window_us) | _outlasts(seen, rest)
    is_early = seen.is_late_from_first[rest] | (is_late & (only_grew | seen.is_silent[rest]))
    is_early |= is_late & ~_is_usual(seen, evaluation, rest)
    found = np.select(
        [
            is_stopped,
            is_rewound,
            stands | seen.passed.is_reported[rest],
            complete & is_slow,
            complete & is_catching_up,
            is_early,
        ],
        [STOPPED, REWOUND, STALLED, SLOW, CATCHING_UP, TOO_EARLY],
        OK,
    )
    idle_us = _idle_us(seen, evaluation, rest)
    # Who rests may have pulled since the last look: nothing is certain until the next one.
    found[(idle_us > 0) & (found == STALLED) & ~seen.passed.is_reported[rest]] = TOO_EARLY
    rule[rest] = np.where(idle_us > seen.polled_us[rest], PAUSED, found)


def _courses(
    seen: Seen, evaluation: Evaluation, rest: Positions, now: Mapping[str, Positions]
) -> tuple[Flags, Flags, Flags]:
    """Which of the queues are slow, which catch up, and which only became more?"""
    count, window = seen.open[rest], seen.extremes(rest)
    since_us = seen.waiting_since_us[rest]
    is_late = progress.is_late(since_us, seen.tick_us, evaluation)
    before = np.where(window.open_first == UNKNOWN, count, window.open_first)
    allowed = allowed_lag(now["max_offset"], seen.before["max_offset"][rest], evaluation)
    growth, swing_us = now["growth"], seen.swing_us[rest]
    swings = swing_us != UNKNOWN
    turns = swings & ~_outlasts(seen, rest)
    gains = (growth != UNKNOWN) & (growth < 0)
    # A queue that has just stood still is not slow: it is about to be STALLED.
    advances = (window.reached_midway != UNKNOWN) & (now["reached"] > window.reached_midway)
    # In a swing a window says nothing of the course.
    only_grew = ~turns & (count - before > allowed) & (window.open_least == before)
    only_fell = ~swings & (before - count > allowed) & (window.open_least == count)
    # What ends trouble must last.
    only_fell &= (window.is_half | (now["is_bad"] == 0)) & ~_is_guessed(seen, rest, now)
    only_grew |= ~turns & window.only_grew
    only_grew |= _rose(seen, evaluation, rest, allowed)
    only_grew &= ~gains
    falls_behind = (growth != UNKNOWN) & (growth > 0) & ~only_fell
    since = now["late_us"]
    long_us = LATE_US + LATE_SWINGS * np.where(swings, swing_us, 0)
    is_long = (since != UNKNOWN) & (seen.tick_us - np.maximum(since, 0) >= long_us)
    holds = is_late & is_long & (growth == 0)
    advances &= window.is_half
    is_slow = falls_behind | (is_late & only_grew & advances & ~gains) | (holds & ~only_fell)
    # One that swings comes back to what is allowed, or is judged from turn to turn.
    is_far = progress.is_far_behind(since_us, seen.tick_us, evaluation) & ~swings
    is_slow |= is_far & ~gains & ~only_fell
    # Where waiting begins to be allowed again, samples make it swing.
    is_behind = is_late | ((now["rule"] == CATCHING_UP) & (count > allowed))
    return is_slow, is_behind & (gains | only_fell), only_grew


def _is_usual(seen: Seen, evaluation: Evaluation, rest: Positions) -> Flags:
    """Do messages wait no longer than a rest, a batch or a swing of the queue explains?"""
    usual_us = np.maximum(seen.patience_us[rest], seen.swing_us[rest])
    waited_us = time_lag_us(seen.tick_us, seen.waiting_since_us[rest])
    return np.asarray((usual_us > evaluation.window_us) & (waited_us <= usual_us))


def _rose(seen: Seen, evaluation: Evaluation, rest: Positions, allowed: Positions) -> Flags:
    """Did what waits become more, and never less, by more than reports and samples can feign, or
    for so long that chance cannot?
    """
    now = Chosen(seen.now, rest)
    more = now["growth_least"] - now["growth_from"]
    is_long = seen.tick_us - now["growth_from_us"] >= LONG_WINDOWS * evaluation.window_us
    return np.asarray(_outlasts(seen, rest) & ((more > allowed) | (is_long & (more > 0))))


def _outlasts(seen: Seen, rest: Positions) -> Flags:
    """Has what waits never become less for longer than a rest, or a swing, of the queue takes?"""
    usual_us = np.maximum(seen.patience_us[rest], seen.swing_us[rest])
    from_us = seen.now["growth_from_us"][rest]
    return np.asarray((from_us != UNKNOWN) & (seen.tick_us - np.maximum(from_us, 0) > usual_us))


def _is_guessed(seen: Seen, rest: Positions, now: Mapping[str, Positions]) -> Flags:
    """Of a client that reports rarely and holds much what it holds is believed by its last reports:
    a fall of that is none unless its reports show one.
    """
    before = {name: seen.before[name][rest] for name in ("max_offset", "committed")}
    former = progress.open_messages(before["max_offset"], before["committed"])
    unreported = progress.open_messages(now["max_offset"], now["committed"])
    has_fallen = (former != UNKNOWN) & (unreported != UNKNOWN) & (unreported < former)
    return np.asarray(seen.by_pulls[rest] & (now["commit_held"] > 0) & ~has_fallen)


def _may_be_pulled(seen: Seen, evaluation: Evaluation, chosen: Positions) -> Flags:
    now = Chosen(seen.now, chosen)
    return progress.may_be_pulled(now, seen.tick_us, evaluation)


def _idle_us(seen: Seen, evaluation: Evaluation, chosen: Positions) -> Positions:
    """For how long each client has not pulled that works on its queue by its own account and holds
    nothing of it, beyond what pulls that find nothing take; 0 of all others.
    """
    sample = seen.sample(chosen)
    pull_us = sample["client_pull_us"]
    is_sampled = (sample["held_count"] == 0) & (pull_us != UNKNOWN)
    cares = sample["event_us"] - np.where(is_sampled, pull_us, 0) <= evaluation.window_us
    now = Chosen(seen.now, chosen)
    is_idle = is_sampled & cares & ~progress.is_pulled(now, seen.tick_us, evaluation)
    last_us = now["last_pull_us"]
    age_us = np.where(last_us == UNKNOWN, NEVER, seen.tick_us - last_us)
    return np.where(is_idle, np.maximum(age_us - evaluation.window_us, 1), 0)


def _kinds(seen: Seen, evaluation: Evaluation, chosen: Positions) -> Positions:
    """The kind of trouble of queues that stand; a head is frozen where its client says it holds
    one.
    """
    pulled, committed = seen.now["pulled"][chosen], seen.now["committed"][chosen]
    in_flight = (pulled != UNKNOWN) & (committed != UNKNOWN) & (pulled > committed)
    sample = seen.sample(chosen)
    holds = sample["held_count"] > 0
    locked = (sample["locked"] == 1) | (seen.now["is_locked"][chosen] == 1)
    return np.select(
        [
            seen.now["members"][chosen] == 0,
            locked & (in_flight | holds),
            holds,
            ~_may_be_pulled(seen, evaluation, chosen) & (seen.now["members"][chosen] != UNKNOWN),
        ],
        [DEAD_CONSUMER, BLOCKED_ORDERLY, FROZEN_HEAD, DEAD_QUEUE],
        UNDETERMINED,
    )


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Queues looked at at a tick."""

    rows: Positions
    """Their places in the attention."""
    judged: Judged
    is_evaluated: Flags
    is_complete: Flags
    """Evaluated at every tick of the window."""
    is_counted: Flags
    """Evaluated, or known to be gone."""
    ends: Flags
    """Was evaluated, and is known to be gone from this tick on."""
    is_bad: Flags
    was_bad: Flags
    is_exposed: Flags
    """Messages were pulled beyond a consume offset that is shown as standing, or was not reported
    for a window though they are finished.
    """
    is_changed: Flags
    """Has rule, kind or exposure changed since the tick before?"""
    before: Mapping[str, Positions]
    complete_from_us: Positions
    open: Positions
    """Messages from the offset that is reached to the end."""
    waiting_since_us: Positions
    """Store time of the message at the offset that is reached."""
    is_reported: Flags
    stands: Flags
    """Has what was reached not moved within the window, as far as that is known?"""
    patience_us: Positions
    """How long the queue has to stand before it is reported."""
    passed: Passed
    is_anew: Flags
    """Is this the first tick behind a stretch of which nothing is known?"""
    is_early: Flags
    """Has a rule fired once, while messages wait for too long?"""
    is_silent: Flags
    by_pulls: Flags
    """Does what was pulled count as reached, though nobody says that it is finished?"""
    swings: Flags
    """Does its lag swing regularly, so that its growth is that from swing to swing?"""
