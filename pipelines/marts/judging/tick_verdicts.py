"""Verdicts on the queues looked at in one tick, with the arrays their rows need.

Place in the walk: `attention` makes it, `judged_rows` writes it down. Invariant: all arrays are of
one length, a queue's place in them is that in `rows`. Absent on purpose: what is remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.marts.judging.heads import Passed
from pipelines.marts.judging.packed import Flags
from pipelines.marts.judging.rules import Judged
from pipelines.marts.mart import Positions


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
