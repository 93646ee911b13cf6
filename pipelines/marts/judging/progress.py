"""How far a group is in a queue by what happens, and since when it stands: never by commits alone.

Place in the walk: the last row of a queue and what its client tells it holds → the offset that is
reached, what is open behind it, and whether it has stood for longer than is usual.

A client that tells what it holds says itself how far it has finished: the offset it would report
now, or the first one it holds. Of one that tells nothing, reports of offsets are all that is known
of what it finished; when they come rarely, or have not been seen to come, the pulls tell that it is
alive, and what is pulled counts as finished. How long it usually takes between two reports is
learnt, and silence means something only when it is longer than that. A report that comes when the
message at its offset has already waited for longer than is allowed shows that what was pulled
behind it was not finished: as much as two reports on end have shown is believed to be held from
then on. A group that had members and has none is dead at once.

Invariant: the highest finished offset (`processed`) is no progress: behind a message that is stuck
others are finished. Absent on purpose: rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from pipelines.marts.judging.packed import NEVER, UNKNOWN, Flags
from pipelines.marts.mart import Positions
from pipelines.settings import MS_US, SECOND_US, Evaluation

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
UNLEARNT_US: Final = 1_800 * SECOND_US
"""As long as pulls go on, and it is not known yet how often offsets are reported, their standing
still says nothing for this long.
"""
UNLEARNT_STILL_US: Final = 300 * SECOND_US
"""The same when the pulls have brought nothing more for so long: nobody seems to work then."""
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


def reached(
    now: Mapping[str, Positions], told: Positions, is_told: Flags, evaluation: Evaluation
) -> Positions:
    """The first offset that is not finished, as far as anybody knows; UNKNOWN when nobody does.

    told: what the client says of it, UNKNOWN where it says nothing.
    """
    committed, end = now["committed"], now["max_offset"]
    by_pulls = np.where(goes_by_pulls(now, is_told, evaluation), _unheld(now), UNKNOWN)
    seen = np.where(is_told, told, by_pulls)
    found = np.maximum(committed, np.minimum(seen, end))
    return np.where(now["is_broadcast"] == 1, UNKNOWN, found)


def goes_by_pulls(now: Mapping[str, Positions], is_told: Flags, evaluation: Evaluation) -> Flags:
    """Nobody tells what is held, and offsets are reported too rarely to say what is finished."""
    usual_us = CADENCES * now["commit_cadence_ms"] * MS_US
    is_rare = (usual_us < 0) | (usual_us > evaluation.window_us)
    return np.asarray(~is_told & is_rare & (now["committed"] != UNKNOWN) & ~is_dead(now))


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
    """(at the last report that moved the offset, shown by the last two): messages that were pulled
    and not finished. None is held where the message at the offset is young, for then it may be at
    work; `before` is a tick ago, so that what was pulled meanwhile does not count.
    """
    committed, pulled = now["committed"], before["pulled"]
    has_moved = (before["committed"] != UNKNOWN) & (committed > before["committed"])
    since_us = now["waiting_since_us"]
    is_waiting = (since_us != UNKNOWN) & (since_us != NEVER)
    is_old = is_waiting & is_late(since_us, tick_us, evaluation) & (pulled != UNKNOWN)
    held = np.where(is_old, np.maximum(pulled - committed, 0), 0)
    last = np.where(has_moved, held, now["commit_held_last"])
    shown = np.where(has_moved, np.minimum(held, now["commit_held_last"]), now["commit_held"])
    return last, shown


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


def stood_since_us(since_us: Positions, tick_us: int, *, waits: Flags, is_same: Flags) -> Positions:
    """The tick since which an offset stands while messages wait; UNKNOWN when it does not."""
    begun = np.where(is_same & (since_us != UNKNOWN), since_us, tick_us)
    return np.where(waits, begun, UNKNOWN)


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


def report_patience_us(
    now: Mapping[str, Positions], cadence_ms: Positions, tick_us: int, evaluation: Evaluation
) -> Positions:
    """How long a consume offset may stand whose client tells nothing but its reports."""
    is_asked = (cadence_ms == UNLEARNT) & is_pulled(now, tick_us, evaluation)
    is_moving = tick_us - now["moved_us"] <= UNLEARNT_STILL_US
    unlearnt = np.where(is_moving, UNLEARNT_US, UNLEARNT_STILL_US)
    usual = patience_us(cadence_ms, evaluation)
    return np.where(is_asked, np.maximum(unlearnt, usual), usual)
