"""Clock interface with steady time for durations and wall-clock time for timestamps.

How long something took, waits or may still take is a difference of `steady_ms`, which nobody can
set. The time that a record, a row or a person gets is `now_ms`.

Invariant: neither goes back within one life of the process; `now_ms` follows a step forward of the
machine's clock at once. A step back it makes up for at half speed, because a log whose stamps went
back could not be searched by time. Every step is reported to its listeners before the first reading
that follows it returns. Sleeping is asyncio's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ClockStep:
    """Somebody has set the machine's wall clock."""

    by_ms: int
    """How far; negative: back."""
    offset_ms: int
    """What the wall clock shows now beyond `steady_ms`."""


StepListener = Callable[[ClockStep], None]


class Clock(Protocol):
    """What a node believes the time is."""

    def now_ms(self) -> int:
        """Wall-clock time, milliseconds since 1970 UTC: a stamp, or a meaning. After a step back it
        is ahead of the machine's until that has caught up.
        """
        ...

    def now_us(self) -> int:
        """As `now_ms`, in microseconds."""
        ...

    def local_hour(self, at_ms: int) -> int:
        """The hour of the day, 0 to 23, that clocks on the wall there show at a time."""
        ...

    def steady_ms(self) -> int:
        """Milliseconds of a clock that nobody sets and that counts on while the machine sleeps; its
        zero has no meaning.
        """
        ...

    def steady_us(self) -> int:
        """As `steady_ms`, in microseconds."""
        ...

    def offset_ms(self) -> int:
        """What the machine's wall clock shows beyond `steady_ms`; changes with steps only."""
        ...

    def wall_ms(self) -> int:
        """The machine's wall clock as it is, which may go back: to be compared with times that were
        not made by `now_ms`, such as those of files.
        """
        ...

    def on_step(self, listener: StepListener) -> None:
        """Have `listener` called at each step of the machine's clock. It may read the clock, and
        must not wait.
        """
        ...


STEP_NS = 50_000_000
"""A difference below this is no step: half the grain in which delays are kept."""
CATCH_UP_DIVISOR = 2
"""After a step back, time passes so many times slower until the machine's clock has caught up."""
READINGS_MAX = 5
"""Two clocks cannot be read at once; of so many tries the closest pair counts."""


_steady_ns = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
"""Nanoseconds of a clock that nobody sets and that counts on while the machine sleeps."""


def _hour_here(at_ms: int) -> int:
    return time.localtime(at_ms // 1000).tm_hour


class SystemClock:
    """The machine's clocks."""

    __slots__ = (
        "_ahead_ns",
        "_hour_of",
        "_last_ns",
        "_listeners",
        "_offset_ns",
        "_seen_ns",
        "_steady",
        "_wall",
    )

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        steady_ns: Callable[[], int] = _steady_ns,
        hour_of: Callable[[int], int] = _hour_here,
    ) -> None:
        self._wall = wall_ns
        self._hour_of = hour_of
        self._steady = steady_ns
        self._listeners: list[StepListener] = []
        self._ahead_ns = 0
        self._seen_ns = steady_ns()
        self._offset_ns = self._measured_offset_ns()
        self._last_ns = 0

    def now_ms(self) -> int:
        """See `Clock.now_ms`. Hot."""
        return self._now_ns() // 1_000_000

    def local_hour(self, at_ms: int) -> int:
        """See `Clock.local_hour`; in the machine's time zone, with its summer time."""
        return self._hour_of(at_ms)

    def now_us(self) -> int:
        """See `Clock.now_us`. Hot."""
        return self._now_ns() // 1000

    def steady_ms(self) -> int:
        """See `Clock.steady_ms`."""
        return self._steady() // 1_000_000

    def steady_us(self) -> int:
        """See `Clock.steady_us`."""
        return self._steady() // 1000

    def offset_ms(self) -> int:
        """See `Clock.offset_ms`."""
        self._now_ns()
        return self._offset_ns // 1_000_000

    def wall_ms(self) -> int:
        """See `Clock.wall_ms`."""
        self._now_ns()
        return self._wall() // 1_000_000

    def on_step(self, listener: StepListener) -> None:
        """See `Clock.on_step`."""
        self._listeners.append(listener)

    def _now_ns(self) -> int:
        steady_ns, wall_ns = self._steady(), self._wall()
        if not -STEP_NS < wall_ns - steady_ns - self._offset_ns < STEP_NS:
            self._look_closer()
            steady_ns, wall_ns = self._steady(), self._wall()
        if self._ahead_ns:
            made_up_ns = (steady_ns - self._seen_ns) // CATCH_UP_DIVISOR
            self._ahead_ns = max(0, self._ahead_ns - made_up_ns)
            self._seen_ns = steady_ns
        now_ns = wall_ns + self._ahead_ns
        if now_ns > self._last_ns:  # noqa: PLR1730 - hot; else it was set back by less than a step.
            self._last_ns = now_ns
        return self._last_ns

    def _look_closer(self) -> None:
        """Report a step, unless this thread only lost its processor between two readings."""
        offset_ns = self._measured_offset_ns()
        by_ns = offset_ns - self._offset_ns
        if -STEP_NS < by_ns < STEP_NS:
            return
        self._offset_ns = offset_ns
        self._seen_ns = self._steady()
        self._ahead_ns = max(0, self._last_ns - self._seen_ns - offset_ns)
        step = ClockStep(by_ns // 1_000_000, offset_ns // 1_000_000)
        for listener in self._listeners:
            listener(step)

    def _measured_offset_ns(self) -> int:
        """Of several pairs of readings the closest."""
        closest_ns, offset_ns = -1, 0
        for _ in range(READINGS_MAX):
            before_ns, wall_ns, after_ns = self._steady(), self._wall(), self._steady()
            apart_ns = after_ns - before_ns
            if closest_ns < 0 or apart_ns < closest_ns:
                closest_ns, offset_ns = apart_ns, wall_ns - before_ns
            if apart_ns * 10 < STEP_NS:
                break
        return offset_ns
