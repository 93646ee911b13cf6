"""Metrics for polls of a single broker: counts, durations and failures.

Place in the walk: `broker_watch` counts; the log, the lake (lifecycle LOOKS_SLOW, LOOKS_IN_TIME,
LOOKS_MISSED) and each scrape show it. Pure. Absent on purpose: what the looks found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.broker.metrics.exposition import Family, LeftOut, Series, written
from engine.foundation.observing import LifecycleEvent
from engine.foundation.units import SECOND_MS
from engine.observer.poll_result import BrokerKey


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


Figure = Callable[[LookTimes], float | None]

_FAMILIES: Final[Sequence[tuple[str, str, str, Figure]]] = (
    (
        "look_seconds", "gauge", "How long the last look at the broker took",
        lambda one: None if one.last_ms is None else one.last_ms / SECOND_MS,
    ),
    (
        "period_seconds", "gauge", "From one look to the next: one that takes longer is slow",
        lambda one: one.period_ms / SECOND_MS,
    ),
    ("looks_total", "counter", "Looks that have ended", lambda one: one.looks),
    ("slow_looks_total", "counter", "Looks that took longer than the period", lambda one: one.slow),
    (
        "failed_looks_total", "counter", "Looks that the broker did not answer whole enough",
        lambda one: one.failed,
    ),
)  # fmt: skip


def pages_of(times_of: Mapping[BrokerKey, LookTimes], *, series_max: int) -> Iterator[str]:
    """The text of one scrape, in pieces."""
    families = (
        Family(f"tidemark_observer_{name}", kind, meaning, _series(times_of, figure))
        for name, kind, meaning, figure in _FAMILIES
    )
    yield from written(families, series_max=series_max, left_out=LeftOut())


def _series(times_of: Mapping[BrokerKey, LookTimes], figure: Figure) -> Iterator[Series]:
    for (cluster, broker), times in sorted(times_of.items()):
        value = figure(times)
        if value is not None:
            yield Series({"cluster": cluster, "broker": broker}, value)
