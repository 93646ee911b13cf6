"""Counts the looks at one broker: how long they take, how many are slow or unanswered.

Place in the walk: `broker_watch` counts; the log, the lake (lifecycle LOOKS_SLOW, LOOKS_IN_TIME,
LOOKS_MISSED) and the metrics show it. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.foundation.observing import LifecycleEvent


@dataclass(slots=True)
class LookTimes:
    """Since the observer began."""

    period_ms: int
    last_ms: int | None = None
    """How long the last look took; None: there was none."""
    looks: int = 0
    slow: int = 0
    """Of them, those that took longer than the period."""
    failed: int = 0
    """Of them, those that were not answered whole enough to count."""
    is_slow: bool = False

    def missed(self, last_ms: int, at_ms: int) -> LifecycleEvent | None:
        """The first look at `at_ms` behind one at `last_ms`, with others between that nobody
        answered, or none: what is to be reported when that is longer than a late look takes.
        """
        if at_ms - last_ms <= 2 * self.period_ms:
            return None
        return LifecycleEvent(
            "LOOKS_MISSED",
            f"no look was answered for {at_ms - last_ms} ms",
            time_from_ms=last_ms,
        )

    def note(self, took_ms: int, *, counts: bool) -> LifecycleEvent | None:
        """A look has ended; what to report of it: that they are slow now, or are no more."""
        is_slow = took_ms > self.period_ms
        has_changed, self.is_slow = is_slow != self.is_slow, is_slow
        self.last_ms = took_ms
        self.looks += 1
        self.slow += is_slow
        self.failed += not counts
        if not has_changed:
            return None
        words = "longer than its period" if is_slow else "no longer than its period"
        return LifecycleEvent(
            "LOOKS_SLOW" if is_slow else "LOOKS_IN_TIME",
            f"a look took {took_ms} ms, {words} of {self.period_ms} ms",
        )
