"""Reports how many messages wait for a moment, by the hour in which they are due.

Place in the walk: once a second, with the marks of slaves → flush_checkpoints (TIMER).

Invariant: what is reported is what the wheel knows; it holds until the next report, and is reported
each EACH_MS at most. Absent on purpose: topics, which only the waiting messages name; a slave's
wheel, which has what its master's has.
"""

from __future__ import annotations

from typing import Final

from engine.broker.identity import BrokerNode
from engine.delay import TimeWheel
from engine.foundation.observing import FlushDone, Observer
from engine.foundation.units import MINUTE_MS, SECOND_MS
from engine.runtime.clock import Clock

COMPONENT: Final = "TIMER"
ACTION: Final = "WAIT"
CAUSE: Final = "TIMER"
EACH_MS: Final = 10 * SECOND_MS
AT_REST_MS: Final = 10 * MINUTE_MS
"""What has not changed is reported again after so long."""


class TimerMarks:
    """What was reported of the timers of one broker."""

    def __init__(
        self, *, node: BrokerNode, observer: Observer, wheel: TimeWheel, clock: Clock
    ) -> None:
        self._node = node
        self._observer = observer
        self._wheel = wheel
        self._clock = clock
        self._emitted: tuple[int, ...] = ()
        """Of each hour, and of all, as reported last."""
        self._again_ms = self._at_rest_ms = 0
        """Steady time from which on it is looked again, and from which on the same is reported."""

    def sample(self) -> None:
        """Report how many wait, when that is not what was reported last."""
        now_ms = self._clock.steady_ms()
        if not self._node.is_master or now_ms < self._again_ms:
            return
        self._again_ms = now_ms + EACH_MS
        figures = self._wheel.figures()
        found = (*figures.due_by_hour, figures.dequeue_lag)
        if found == self._emitted and now_ms < self._at_rest_ms:
            return
        self._emitted, self._at_rest_ms = found, now_ms + AT_REST_MS
        self._observer.observe(
            FlushDone(
                COMPONENT,
                ACTION,
                CAUSE,
                figures.dequeue_lag,
                flushed=None,
                store_time_ms=None,
                duration_us=0,
                ended=0,
                due_by_hour=figures.due_by_hour,
            )
        )
