"""The grammar of a queue's state: which rule holds at a tick, and of which kind the trouble is.

Place in the walk: what is seen of queues at a tick → their rules, from which stalled windows and
group states follow.

In order, first match: BROADCAST (nothing to judge) | NO_OFFSET | DATA_LOST | OK (lag and time lag
within what is allowed) | OK (paused) | STOPPED | REWOUND | STALLED | SLOW | OK. Windows are of
time, not of commits, so the verdict does not depend on how often a consumer commits. A queue whose
window is not complete is judged by the rules that need none.

Invariant: a paused consumer is silent. It told to be asked for nothing; its lag is shown, no rule
fires. Absent on purpose: memory; a rule sees one tick and its window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.marts.judging.packed import NEVER, UNKNOWN, Flags, truncated
from pipelines.marts.mart import Positions
from pipelines.settings import SECOND_US, Evaluation

PRODUCE_ALLOWANCE_US: Final = 5 * SECOND_US
"""A lag of what is produced in this time is normal: clients report their offsets each five
seconds.
"""
HELD_PULL_US: Final = 30 * SECOND_US
"""A pull that finds nothing is held by the broker for as long as this before the client asks
again.
"""

RULES: Final = (
    "OK",
    "BROADCAST",
    "NO_OFFSET",
    "DATA_LOST",
    "STOPPED",
    "REWOUND",
    "STALLED",
    "SLOW",
)
OK, BROADCAST, NO_OFFSET, DATA_LOST, STOPPED, REWOUND, STALLED, SLOW = range(8)
HEALTHY_MAX: Final = BROADCAST
"""Rules up to this one say that nothing is wrong."""

KINDS: Final = ("UNDETERMINED", "DEAD_CONSUMER", "BLOCKED_ORDERLY", "FROZEN_HEAD", "DEAD_QUEUE")
UNDETERMINED, DEAD_CONSUMER, BLOCKED_ORDERLY, FROZEN_HEAD, DEAD_QUEUE = range(5)
HEAD_KINDS: Final = (FROZEN_HEAD, BLOCKED_ORDERLY)

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
    max_offset, last_pull_us, last_commit_us, members, lag, is_broadcast and is_locked (0 or 1).
    """
    before: Mapping[str, Positions]
    """A window ago: committed, max_offset, lag."""
    is_complete: Flags
    """Was the queue evaluated at every tick of the window?"""
    growth: Positions
    """Messages an hour by which it fell behind in each of the last three minutes; else UNKNOWN."""
    high: Positions
    """Offset to regain."""
    sample: Callable[[Positions], Mapping[str, Positions]]
    """Of some of the queues, what their client holds: event_us, held_count, client_pull_us, locked
    (0 or 1).
    """
    extremes: Callable[[Positions], Extremes]
    """Of some of the queues, what the window held."""


@dataclass(frozen=True, slots=True)
class Extremes:
    """Over the ticks of the window: least known lag, least and most known consume offset, and the
    consume offset midway.
    """

    lag_least: Positions
    committed_least: Positions
    committed_most: Positions
    committed_midway: Positions


@dataclass(frozen=True, slots=True)
class Judged:
    """What holds at a tick."""

    rule: Positions
    kind: Positions
    is_at_rest: Flags
    """Nothing but time or news can change the verdict: not its window."""


def judged(seen: Seen, evaluation: Evaluation) -> Judged:
    """Rule and kind of every queue; what does not apply is UNDETERMINED."""
    now = seen.now
    committed = now["committed"]
    count = len(committed)
    rule = np.zeros(count, np.int64)
    kind = np.zeros(count, np.int64)
    is_broadcast = now["is_broadcast"] == 1
    has_none = ~is_broadcast & ((now["state"] == NONE) | (committed == UNKNOWN))
    is_lost = ~is_broadcast & ~has_none
    is_judged = is_lost & (committed >= now["min_offset"]) & (committed <= now["max_offset"])
    is_lost &= ~is_judged
    is_within = is_judged & _is_within_allowance(seen, evaluation)
    rule[is_broadcast] = BROADCAST
    rule[is_lost] = DATA_LOST
    had_none = seen.is_complete & (seen.before["committed"] == UNKNOWN)
    rule[has_none & had_none & (now["max_offset"] > now["min_offset"])] = NO_OFFSET
    rest = np.flatnonzero(is_judged & ~is_within)
    if len(rest):
        _judge_rest(seen, evaluation, rest, rule)
    standing = np.flatnonzero((rule == STOPPED) | (rule == STALLED) | (rule == NO_OFFSET))
    if len(standing):
        kind[standing] = _kinds(seen, evaluation, standing)
    at_rest = is_broadcast | is_within | (has_none & seen.is_complete)
    return Judged(rule, kind, at_rest)


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
    latest_us = seen.tick_us - evaluation.allowed_time_ms * 1000
    since = now["waiting_since_us"]
    in_time = (since == UNKNOWN) | (since >= latest_us)
    return np.asarray((now["lag"] <= allowed) & in_time)


def _judge_rest(seen: Seen, evaluation: Evaluation, rest: Positions, rule: Positions) -> None:
    """The rules for queues that are behind, into `rule`; the first that holds wins."""
    now = Chosen(seen.now, rest)
    committed, lag = now["committed"], now["lag"]
    complete, high = seen.is_complete[rest], seen.high[rest]
    window = seen.extremes(rest)
    lag_before = seen.before["lag"][rest]
    max_before = seen.before["max_offset"][rest]
    waits = complete & (window.lag_least > 0) & (window.lag_least != NEVER)
    last_report = np.where(
        now["last_commit_us"] == UNKNOWN, now["broker_epoch"], now["last_commit_us"]
    )
    # As of the row itself: reports that changed nothing are told with a delay.
    is_stopped = waits & (now["event_us"] - last_report >= evaluation.window_us)
    is_rewound = (high != UNKNOWN) & (committed < high)
    is_stalled = waits & (window.committed_least == window.committed_most)
    grown = np.where(lag_before == UNKNOWN, 0, lag - lag_before)
    # A queue that has just stood still is not slow: it is about to be STALLED.
    midway = window.committed_midway
    allowed = allowed_lag(now["max_offset"], max_before, evaluation)
    only_grew = (grown > allowed) & (window.lag_least == lag_before)
    # However small a part of what is produced: an hour of it would be too much.
    falls_behind = seen.growth[rest] > allowed
    advances = (midway != UNKNOWN) & (committed > midway)
    is_slow = complete & (falls_behind | (only_grew & advances))
    found = np.select(
        [is_stopped, is_rewound, is_stalled, is_slow], [STOPPED, REWOUND, STALLED, SLOW], OK
    )
    is_paused = _is_paused(seen, evaluation, rest)
    rule[rest] = np.where(is_paused, OK, found)


def _is_pulled(seen: Seen, evaluation: Evaluation, chosen: Positions) -> Flags:
    """Somebody asks for this queue: lately, or with a request that the broker holds since all is
    pulled.
    """
    last_pull = seen.now["last_pull_us"][chosen]
    is_known = last_pull != UNKNOWN
    age = seen.tick_us - np.where(is_known, last_pull, 0)
    lately = age <= max(evaluation.window_us, PRODUCE_ALLOWANCE_US)
    has_all = seen.now["pulled"][chosen] >= seen.now["max_offset"][chosen]
    is_held = has_all & (age <= evaluation.window_us + HELD_PULL_US)
    return np.asarray(is_known & (lately | is_held))


def _is_paused(seen: Seen, evaluation: Evaluation, chosen: Positions) -> Flags:
    """The client works on the queue by its own account, holds nothing of it, and pulls nothing."""
    sample = seen.sample(chosen)
    pull_us = sample["client_pull_us"]
    is_sampled = (sample["held_count"] == 0) & (pull_us != UNKNOWN)
    cares = sample["event_us"] - np.where(is_sampled, pull_us, 0) <= evaluation.window_us
    return np.asarray(is_sampled & cares & ~_is_pulled(seen, evaluation, chosen))


def _kinds(seen: Seen, evaluation: Evaluation, chosen: Positions) -> Positions:
    """The kind of trouble of queues that stand."""
    pulled, committed = seen.now["pulled"][chosen], seen.now["committed"][chosen]
    in_flight = (pulled != UNKNOWN) & (committed != UNKNOWN) & (pulled > committed)
    sample = seen.sample(chosen)
    holds = sample["held_count"] > 0
    locked = (sample["locked"] == 1) | (seen.now["is_locked"][chosen] == 1)
    is_pulled = _is_pulled(seen, evaluation, chosen)
    return np.select(
        [
            seen.now["members"][chosen] == 0,
            locked & (in_flight | holds),
            holds | (in_flight & is_pulled),
            ~is_pulled,
        ],
        [DEAD_CONSUMER, BLOCKED_ORDERLY, FROZEN_HEAD, DEAD_QUEUE],
        UNDETERMINED,
    )
