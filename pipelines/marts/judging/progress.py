"""Determines a group's real progress in a queue from more evidence than commits alone.

Place in the walk: the last row of a queue and what its client says it holds → the offset that is
reached, what is open behind it, and whether it has stood for longer than is usual.

A client that reports what it holds says itself how far it has finished: the offset it would report
now, or the first one it holds. Of one that reports nothing of it, reports of offsets are all that
is known of what it finished: what is pulled is not finished, and the consume offset decides. Only
where reports are known to come rarely the pulls show that it is alive, and what is pulled counts as
reached until the next report is overdue. How long it usually takes between two reports is learnt;
before it has been seen to report twice, it is taken to do so as RocketMQ's clients do
(PRIOR_CADENCE_MS). Silence means something when it is longer. A report that comes when the message
at its offset has already waited for longer than is allowed shows that what was pulled behind it was
not finished: once two reports on end have shown some, as much as the last one did is believed to be
held. A group that had members and has none is dead at once.

Invariant: the highest finished offset (`processed`) is no progress: behind a message that is stuck
others are finished. Absent on purpose: rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from pipelines.base.settings import MS_US, SECOND_US, Evaluation
from pipelines.marts.judging.packed import NEVER, UNKNOWN, Flags
from pipelines.marts.mart import Positions

HELD_PULL_US: Final = 30 * SECOND_US
"""A pull that finds nothing is held by the broker for as long as this before the client asks
again.
"""
PULLED_LATELY_US: Final = 5 * SECOND_US
"""A queue was pulled lately when its last pull is no older than this, or than the window."""
CADENCES: Final = 2
"""Silence of that many usual gaps says that something is wrong."""
CADENCE_MS_MAX: Final = 3_600_000
"""Longer gaps are not learnt: a client of which nothing is seen for twice this long stands."""
PRIOR_CADENCE_MS: Final = 5_000
"""How often a client reports its offsets that was not seen to do so twice: RocketMQ's clients do it
each five seconds, unless somebody has configured them otherwise.
"""
STILL_RARE: Final = 1.5
"""A group that reports rarely does so until its usual gap is this much shorter."""
UNLEARNT: Final = -1
"""In place of a gap or a cadence."""
DECAY: Final = 8
"""A cadence shrinks by this part of it with every shorter gap."""


def is_pulled(now: Mapping[str, Positions], tick_us: int, evaluation: Evaluation) -> Flags:
    """Somebody asks for this queue: lately, or with a request that the broker holds since all is
    pulled.
    """
    last_pull = now["last_pull_us"]
    is_known = last_pull != UNKNOWN
    age = tick_us - np.where(is_known, last_pull, 0)
    lately = age <= max(evaluation.window_us, PULLED_LATELY_US)
    has_all = now["pulled"] >= now["max_offset"]
    is_held = has_all & (age <= evaluation.window_us + HELD_PULL_US)
    return np.asarray(is_known & (lately | is_held))


def may_be_pulled(now: Mapping[str, Positions], tick_us: int, evaluation: Evaluation) -> Flags:
    """Is it pulled, or was it at a moment that nobody reports, by a group that has members?"""
    is_untimed = (now["last_pull_us"] == UNKNOWN) & (now["pulled"] != UNKNOWN)
    is_untimed &= now["members"] > 0
    return np.asarray(is_pulled(now, tick_us, evaluation) | is_untimed)


def place(now: Mapping[str, Positions]) -> Positions:
    """The consume offset, or where a group without one began to read; UNKNOWN: nobody knows."""
    began = np.where(now["lag"] == UNKNOWN, UNKNOWN, now["max_offset"] - now["lag"])
    return np.where(now["committed"] == UNKNOWN, began, now["committed"])


def reached(
    now: Mapping[str, Positions], reported: Positions, is_reported: Flags, is_by_pulls: Flags
) -> Positions:
    """The first offset that is not finished, as far as anybody knows; UNKNOWN when nobody does.

    reported: what the client says of it, UNKNOWN where it says nothing.
    """
    by_pulls = np.where(is_by_pulls, _unheld(now), UNKNOWN)
    seen = np.where(is_reported, reported, by_pulls)
    found = np.maximum(place(now), np.minimum(seen, now["max_offset"]))
    return np.where(now["is_broadcast"] == 1, UNKNOWN, found)


def goes_by_pulls(
    now: Mapping[str, Positions], is_reported: Flags, evaluation: Evaluation
) -> Flags:
    """Nobody reports what is held, and offsets are known to be reported too rarely to say what is
    finished.
    """
    usual_us = CADENCES * now["commit_cadence_ms"] * MS_US
    is_rare = usual_us > evaluation.window_us
    # A habit is not exact, and every change of the mark would begin its course anew.
    is_rare |= (now["by_pulls"] == 1) & (STILL_RARE * usual_us > evaluation.window_us)
    # Of what the last report alone has shown to be held nobody knows how much it was.
    is_rare &= (now["commit_held_last"] == 0) | (now["commit_held"] > 0)
    return np.asarray(~is_reported & is_rare & (now["committed"] != UNKNOWN) & ~is_dead(now))


def _unheld(now: Mapping[str, Positions]) -> Positions:
    """The offset that is pulled, less what reports have shown to be held; of more than that was
    pulled nothing is known."""
    pulled = np.minimum(now["pulled"], now["max_offset"])
    return np.where(pulled == UNKNOWN, UNKNOWN, pulled - now["commit_held"])


def held_at_report(
    now: Mapping[str, Positions],
    before: Mapping[str, Positions],
    tick_us: int,
    evaluation: Evaluation,
) -> tuple[Positions, Positions]:
    """(at the last report that moved the offset, the same once two on end have shown any): messages
    that were pulled and not finished. None is held where the message at the offset is young, for
    then it may be at work; `before` is a tick ago: what was pulled meanwhile does not count.
    """
    committed, pulled = now["committed"], before["pulled"]
    has_moved = (before["committed"] != UNKNOWN) & (committed > before["committed"])
    since_us = now["waiting_since_us"]
    is_waiting = (since_us != UNKNOWN) & (since_us != NEVER)
    is_old = is_waiting & is_late(since_us, tick_us, evaluation) & (pulled != UNKNOWN)
    held = np.where(is_old, np.maximum(pulled - committed, 0), 0)
    last = np.where(has_moved, held, now["commit_held_last"])
    confirmed = np.where(now["commit_held_last"] > 0, held, 0)
    shown = np.where(has_moved, confirmed, now["commit_held"])
    return last, shown


def was_deleted(now: Mapping[str, Positions], former: Mapping[str, Positions]) -> Flags:
    """Were messages deleted since the tick before that nobody had finished or pulled by then?"""
    mark = np.maximum(former["reached"], former["committed"])
    seen = np.maximum(mark, former["pulled"])
    is_lost = (mark != UNKNOWN) & (now["min_offset"] > seen)
    return np.asarray(is_lost & (now["is_broadcast"] == 0))


def goes_on_losing(now: Mapping[str, Positions], tick_us: int, evaluation: Evaluation) -> Flags:
    """Were messages deleted unread within the last window, or as often as they lately were?"""
    last_us, before_us = now["lost_us"], now["lost_before_us"]
    is_known = last_us != UNKNOWN
    gap_us = np.where(before_us == UNKNOWN, 0, last_us - before_us)
    usual_us = CADENCES * np.minimum(gap_us, CADENCE_MS_MAX * MS_US)
    ago_us = tick_us - np.where(is_known, last_us, 0)
    return np.asarray(is_known & (ago_us <= np.maximum(usual_us, evaluation.window_us)))


def open_messages(max_offset: Positions, mark: Positions) -> Positions:
    """How many messages lie from an offset to the end; UNKNOWN for one that is unknown, or beyond
    the end.
    """
    is_known = (mark != UNKNOWN) & (max_offset >= mark)
    return np.where(is_known, max_offset - np.where(is_known, mark, 0), UNKNOWN)


def is_dead(now: Mapping[str, Positions]) -> Flags:
    """The group had members, and has none."""
    return np.asarray((now["members"] == 0) & (now["had_members"] == 1))


def waiting_since_us(now: Mapping[str, Positions]) -> Positions:
    """Store time of the message at the offset that is reached; NEVER when there is none, UNKNOWN
    when it is unknown. Between the consume offset and the end of the queue it is interpolated.
    """
    since, mark, committed = now["waiting_since_us"], now["reached"], now["committed"]
    end, newest = now["max_offset"], now["last_store_us"]
    is_ahead = (mark > committed) & (since != UNKNOWN) & (since != NEVER) & (committed != UNKNOWN)
    is_between = is_ahead & (mark < end) & (newest != UNKNOWN)
    rows = np.flatnonzero(is_between)
    found = np.where(is_ahead & (mark >= end), NEVER, since)
    if len(rows):
        begin = since[rows]
        span = np.maximum(newest[rows] - begin, 0)
        share = (mark[rows] - committed[rows]) / (end[rows] - committed[rows])
        found[rows] = begin + np.floor(span * share).astype(np.int64)
    return found


def is_late(since_us: Positions, tick_us: int, evaluation: Evaluation) -> Flags:
    """Has the message with this store time waited for longer than is allowed?"""
    latest_us = tick_us - evaluation.allowed_time_ms * MS_US
    return np.asarray((since_us != UNKNOWN) & (since_us < latest_us))


def is_far_behind(since_us: Positions, tick_us: int, evaluation: Evaluation) -> Flags:
    """Has the message with this store time waited for a multiple of what is allowed?"""
    latest_us = tick_us - evaluation.far_times * evaluation.allowed_time_ms * MS_US
    return np.asarray((since_us != UNKNOWN) & (since_us < latest_us))


def stood_since_us(
    since_us: Positions, tick_us: int, *, waits: Flags, is_same: Flags, came_us: Positions
) -> Positions:
    """The moment since which an offset stands while messages wait; UNKNOWN when it does not.

    came_us: since when the message at the offset of a queue waits at which nothing waited before;
    UNKNOWN: it is this tick.
    """
    is_known = (came_us != UNKNOWN) & (came_us != NEVER)
    came = np.where(is_known, np.minimum(came_us, tick_us), tick_us)
    begun = np.where(since_us != UNKNOWN, since_us, came)
    return np.where(waits, np.where(is_same, begun, tick_us), UNKNOWN)


def learnt(
    last_gap_ms: Positions, cadence_ms: Positions, gap_us: Positions
) -> tuple[Positions, Positions]:
    """The last gap and the usual one after an offset has moved; `gap_us` is how long it stood.

    A gap is usual when it has come twice: one long stand teaches nothing.
    """
    gap = np.minimum(gap_us // MS_US, CADENCE_MS_MAX)
    twice = np.minimum(gap, last_gap_ms)
    usual = np.where(
        last_gap_ms == UNLEARNT, UNLEARNT, np.maximum(twice, cadence_ms - cadence_ms // DECAY)
    )
    return gap, usual


def patience_us(cadence_ms: Positions, evaluation: Evaluation) -> Positions:
    """How long an offset may stand that usually moves so often; the window when it is unlearnt."""
    return np.maximum(CADENCES * cadence_ms * MS_US, evaluation.window_us)


def usual_gap_ms(cadence_ms: Positions, is_read: Flags) -> Positions:
    """The same, and before it is learnt how often RocketMQ's clients report; nobody reports of a
    queue that nobody reads, so there the window alone is waited for.
    """
    prior = np.where(is_read, PRIOR_CADENCE_MS, 0)
    return np.where(cadence_ms == UNLEARNT, prior, cadence_ms)
