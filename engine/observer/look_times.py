"""How the looks at one broker go: how long they take, how many are slow, how many nobody answers.

Place in the walk: `broker_watch` counts; the log, the lake (lifecycle LOOKS_SLOW, LOOKS_IN_TIME)
and the metrics tell it. Pure.
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

    def note(self, took_ms: int, *, counts: bool) -> LifecycleEvent | None:
        """A look has ended; what is to be told of it: that they are slow now, or are no more."""
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
