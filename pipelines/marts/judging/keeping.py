"""Decides how long a queue stays in a bad state and when its trend restarts.

Place in the walk: the verdicts of a tick and those shown before → the verdicts that count.

A queue stays in the trouble that it was shown in until what opened it has gone: until messages wait
no longer than is allowed, or it catches up. That a single message passed is neither. One that moves
again and neither catches up nor falls behind within a window is SLOW from then on. Behind a stretch
of which nothing is known, trouble is not over before that is seen.

A course is compared with nothing from before a turn: an offset that falls begins at the lag after
the fall, so does one that is another mark than before, and one behind which unread messages were
deleted; a queue that moves again at the lag before it moved. A deletion is no progress: while
unread messages are deleted again and again, the queue is no better than that. Invariant: a queue
within what is allowed keeps nothing. One of a topic that no member names any more may be about to
be left: until that is certain no new trouble of it is shown. Absent on purpose: rules, and memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.base.settings import SECOND_US, Evaluation
from pipelines.marts.judging import progress
from pipelines.marts.judging.packed import UNKNOWN, Flags
from pipelines.marts.judging.rules import (
    DATA_LOST,
    HEALTHY_MAX,
    OK,
    REWOUND,
    SLOW,
    STALLED,
    STOPPED,
    TOO_EARLY,
    UNDETERMINED,
    Judged,
    Seen,
)
from pipelines.marts.mart import Positions

UNNAMED_US: Final = 120 * SECOND_US
"""Within so long a topic that no member names is left: a minute after it was pulled last."""
MARKS: Final = ("committed", "reached", "pulled")
"""What `turned` compares with that of the tick before."""


@dataclass(frozen=True, slots=True)
class Turned:
    """Queues whose course begins anew at a tick."""

    fell: Flags
    """The offset that is reached is lower than at the tick before."""
    moves_again: Flags
    """It was shown as standing, and has moved."""
    is_deleted: Flags
    """Unread messages were deleted since the tick before."""
    is_other_mark: Flags
    """What was pulled counts as reached from now on, or no more: the mark jumps."""

    @property
    def anew(self) -> Flags:
        """Where nothing of before counts: neither course nor swings."""
        return np.asarray(self.fell | self.is_deleted)

    @property
    def course(self) -> Flags:
        """Where the course begins anew, and not its swings."""
        return np.asarray(self.moves_again | self.is_other_mark)


def turned(
    now: Mapping[str, Positions],
    former: Mapping[str, Positions],
    by_pulls: Flags,
    *,
    tick_us: int,
    evaluation: Evaluation,
) -> Turned:
    """`former`: MARKS of the tick before. by_pulls: does what was pulled count as
    reached?
    """
    reached, before = now["reached"], former["reached"]
    is_known = (reached != UNKNOWN) & (before != UNKNOWN)
    is_other_mark = by_pulls != (now["by_pulls"] == 1)
    # What is believed to be held moves the mark of one that goes by pulls; that is no fall.
    is_fall = ~by_pulls & ~is_other_mark
    is_fall |= (now["committed"] != UNKNOWN) & (now["committed"] < former["committed"])
    # One that goes on moving has begun its course when it moved first.
    stood = (now["is_bad"] == 1) & _stood(now)
    stood &= tick_us - now["moved_us"] >= evaluation.window_us // 2
    is_deleted = progress.was_deleted(now, former)
    return Turned(
        np.asarray(is_known & (reached < before) & is_fall),
        np.asarray(is_known & (reached > before) & stood & ~is_other_mark & ~is_deleted),
        is_deleted,
        np.asarray(is_known & is_other_mark),
    )


def _stood(now: Mapping[str, Positions]) -> Flags:
    """Was it one that stands at the tick before?"""
    return np.asarray((now["rule"] == STALLED) | (now["rule"] == STOPPED))


def keep_until_gone(
    verdict: Judged, seen: Seen, is_evaluated: Flags, evaluation: Evaluation
) -> None:
    """Into the verdict: the rule and kind that were shown, where what opened them has not gone."""
    now = seen.now
    was_losing = (now["rule"] == DATA_LOST) & (now["lost_us"] != UNKNOWN)
    was_wrong = _stood(now) | (now["rule"] == SLOW) | was_losing
    is_kept = (now["is_bad"] == 1) & was_wrong & is_evaluated
    is_kept &= (verdict.rule == OK) | (verdict.rule == TOO_EARLY)
    if not is_kept.any():
        return
    is_late = progress.is_late(seen.waiting_since_us, seen.tick_us, evaluation)
    before = progress.open_messages(seen.before["max_offset"], seen.before["reached"])
    # For how long messages wait may be unknown: then what waits must become less.
    is_late |= (seen.waiting_since_us == UNKNOWN) & (seen.open >= before)
    is_kept &= ~verdict.is_within & is_late
    verdict.rule[is_kept] = now["rule"][is_kept]
    verdict.kind[is_kept] = now["kind"][is_kept]
    based_us = np.where(now["based_us"] == UNKNOWN, seen.tick_us, now["based_us"])
    has_moved = is_kept & _stood(now) & ~seen.stands
    has_moved &= seen.tick_us - based_us > evaluation.window_us
    has_moved |= is_kept & was_losing
    verdict.rule[has_moved], verdict.kind[has_moved] = SLOW, UNDETERMINED


def hold_unnamed(verdict: Judged, seen: Seen) -> None:
    """Into the verdict: what was well when its members ceased to name its topic may be left."""
    now, rule = seen.now, verdict.rule
    held = (now["unnamed_us"] != UNKNOWN) & (seen.tick_us - now["unnamed_us"] <= UNNAMED_US)
    held &= (now["members"] != 0) & (now["is_bad"] == 0)
    held &= (rule > HEALTHY_MAX) & (rule != DATA_LOST) & (rule != REWOUND)
    verdict.rule[held], verdict.kind[held] = TOO_EARLY, UNDETERMINED
    verdict.is_at_rest[held] = False


def name_losses(verdict: Judged, seen: Seen, is_evaluated: Flags, evaluation: Evaluation) -> None:
    """Into the verdict: who goes on losing unread messages is not well, nor only slow."""
    if not (seen.now["lost_us"] != UNKNOWN).any():
        return
    goes_on = progress.goes_on_losing(seen.now, seen.tick_us, evaluation) & is_evaluated
    goes_on &= (verdict.rule <= HEALTHY_MAX) | (verdict.rule == SLOW)
    verdict.rule[goes_on], verdict.kind[goes_on] = DATA_LOST, UNDETERMINED


def keep_unseen(
    verdict: Judged, now: Mapping[str, Positions], is_unsettled: Flags, run_from_us: Positions
) -> None:
    """Behind a stretch of which nothing is known: until its window is complete again a queue keeps
    the rule and kind it had, unless it is well.
    """
    from_us = now["evaluated_from_us"]
    is_kept = (now["is_bad"] == 1) & is_unsettled & (from_us != UNKNOWN) & (from_us < run_from_us)
    is_kept &= ~verdict.is_at_rest & (verdict.rule <= HEALTHY_MAX)
    for name, found in (("rule", verdict.rule), ("kind", verdict.kind)):
        found[is_kept] = now[name][is_kept]
