"""Detects queues that stand still for longer than usual while messages wait.

Place in the walk: the offsets of a tick and of the one before → since when what is reached, and the
consume offset, stand, how often each usually moves, and which queues stand. Invariant: one long
stand teaches nothing (`progress.learnt`), nor does a move that a deletion made. Of a client that
reports offsets alone, a queue stands since the message at its offset was stored, where nothing
waited before. Absent on purpose: rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass

import numpy as np

from pipelines.base.settings import Evaluation
from pipelines.marts.judging import progress, swings
from pipelines.marts.judging.heads import Usual
from pipelines.marts.judging.packed import UNKNOWN, Flags, places
from pipelines.marts.judging.queue_courses import LagCourses
from pipelines.marts.judging.rules import Chosen
from pipelines.marts.mart import Positions


@dataclass(frozen=True, slots=True)
class Looked:
    """Queues at a tick."""

    rows: Positions
    now: Mapping[str, Positions]
    is_reported: Flags
    """Does its client report what it holds?"""
    by_pulls: Flags
    """Does what was pulled count as reached?"""
    is_deleted: Flags
    """Were unread messages deleted since the tick before?"""
    is_evaluated: Flags
    tick_us: int
    from_us: Positions
    """Since when each is evaluated without a break."""


@dataclass(frozen=True, slots=True)
class Stand:
    """What is found of queues at a tick."""

    patience_us: Positions
    """How long each has to stand before that says something."""
    stands: Flags
    is_unlearnt: Flags
    """Of a client that reports nothing but its offsets: is it unknown how often it does?"""


@dataclass(slots=True, eq=False)
class Standing:
    """The stands of the queues that are looked at, in the columns of `attention`."""

    columns: dict[str, Positions]
    ring: Mapping[str, np.ndarray[tuple[int, int], np.dtype[np.int64]]]
    courses: LagCourses
    _: KW_ONLY
    slot: Callable[[int], int]
    evaluation: Evaluation

    def look(self, at: Looked, usual_of: Callable[[Positions, int], Usual] | None) -> Stand:
        """Since when what is reached, and the consume offset, stand, and how often each moves, into
        their columns; whether the queues stand.

        usual_of: how the groups of some of the queues usually work, as of a tick.
        """
        rows, now, tick_us, evaluation = at.rows, at.now, at.tick_us, self.evaluation
        is_reported = at.is_reported
        place = progress.place(now)
        is_unread = (place == UNKNOWN) & (now["max_offset"] > now["min_offset"])
        is_unread &= now["is_broadcast"] == 0
        open_waits = (now["reached"] != UNKNOWN) & (now["max_offset"] > now["reached"])
        # Of what is pulled and held nothing is seen until the next report.
        open_waits &= ~at.by_pulls | (now["max_offset"] > now["pulled"])
        is_exact = ~is_reported & (now["reached"] == place)
        came_us = np.where(is_exact, now["waiting_since_us"], UNKNOWN)
        stood = self._stood(at, "reached", "", waits=open_waits & at.is_evaluated, came_us=came_us)
        waits = at.is_evaluated & ((now["lag"] > 0) | is_unread)
        commit_stood = self._stood(at, "committed", "commit_", waits=waits, came_us=came_us)
        is_dead = progress.is_dead(now)
        rests = swings.usual_rests_ms(self.courses.swings, rows, tick_us)
        is_read = progress.may_be_pulled(now, tick_us, evaluation)
        gap_ms = progress.usual_gap_ms(now["cadence_ms"], is_read & ~is_reported)
        usual = np.where(is_dead, 0, np.maximum(gap_ms, rests))
        patience = progress.patience_us(usual, evaluation)
        cadence = now["commit_cadence_ms"]
        usual = np.where(rests > 0, np.maximum(cadence, rests), cadence)
        usual = np.where(is_reported | is_dead, 0, usual)
        is_unlearnt = usual == progress.UNLEARNT
        commit_patience = progress.patience_us(progress.usual_gap_ms(usual, is_read), evaluation)
        stood_us = np.where(stood == UNKNOWN, 0, tick_us - np.maximum(stood, at.from_us))
        might = np.flatnonzero(is_reported & (stood_us >= patience))
        if len(might) and usual_of is not None:
            usual_call = usual_of(rows[might], tick_us)
            patience[might] = _patience_of_calls(patience[might], usual_call)
        has_stood = (stood != UNKNOWN) & (stood_us >= patience)
        # Where a client reports what it holds, its reports say nothing more.
        by_commits = ~is_reported | (now["reached"] == UNKNOWN)
        is_overdue = tick_us - np.maximum(commit_stood, at.from_us) >= commit_patience
        is_overdue &= (commit_stood != UNKNOWN) & by_commits
        by_reports = is_overdue & ~has_stood
        patience = np.where(by_reports, commit_patience, patience)
        return Stand(patience, has_stood | is_overdue, is_unlearnt)

    def _stood(
        self, looked: Looked, mark: str, prefix: str, *, waits: Flags, came_us: Positions
    ) -> Positions:
        """Since when a mark stands while messages wait; when it has moved, the time that it stood
        is learnt.
        """
        columns, evaluation = self.columns, self.evaluation
        rows, tick_us = looked.rows, looked.tick_us
        places_of = places(rows, len(columns[mark]))
        here = columns[mark][places_of]
        before = self.ring[mark][self.slot(tick_us - evaluation.slide_us)][places_of]
        since = columns[f"{prefix}stood_us"][places_of]
        is_same, has_moved = here == before, (here > before) & (before != UNKNOWN)
        if looked.is_deleted.any():
            # What a deletion has moved to the first message that is kept goes on standing.
            is_same |= looked.is_deleted & (here <= looked.now["min_offset"])
            has_moved &= ~looked.is_deleted
        moved = np.flatnonzero(has_moved)
        if len(moved):
            stood_us = np.where(since[moved] == UNKNOWN, 0, tick_us - since[moved])
            gap, cadence = columns[f"{prefix}gap_ms"], columns[f"{prefix}cadence_ms"]
            at = rows[moved]
            gap[at], cadence[at] = progress.learnt(gap[at], cadence[at], stood_us)
            if mark == "reached":
                past = self.slot(tick_us - evaluation.window_us)
                window = {name: self.ring[name][past][at] for name in ("max_offset", "reached")}
                self.courses.note_rests(
                    at,
                    stood_us,
                    Chosen(columns, at),
                    window,
                    tick_us=tick_us,
                    evaluation=evaluation,
                )
        if mark == "reached":
            columns["moved_us"][rows[here != before]] = tick_us
        stood = progress.stood_since_us(
            since, tick_us, waits=waits, is_same=is_same, came_us=came_us
        )
        columns[f"{prefix}stood_us"][places_of] = stood
        return np.asarray(stood)


def _patience_of_calls(patience_us: Positions, usual: Usual) -> Positions:
    """The same where queues might stand: a call that is usually long is waited for."""
    call_us = usual.always_us
    usual_us = progress.CADENCES * np.where(call_us == UNKNOWN, 0, call_us)
    return np.asarray(np.maximum(patience_us, usual_us))
