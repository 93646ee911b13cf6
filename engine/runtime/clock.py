"""Time as a port: wall-clock time for stamps and meanings, steady time for durations and time-outs.

Invariant: `steady_ms` never goes back; `now_ms` does so only from one life of the process to the
next. Sleeping is asyncio's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Protocol


class Clock(Protocol):
    """What a node believes the time is."""

    def now_ms(self) -> int:
        """Wall-clock time, milliseconds since 1970 UTC."""
        ...

    def now_us(self) -> int:
        """Wall-clock time, microseconds since 1970 UTC."""
        ...

    def local_hour(self, at_ms: int) -> int:
        """The hour of the day, 0 to 23, that clocks on the wall there show at a time."""
        ...

    def steady_ms(self) -> int:
        """Milliseconds of a clock that only moves forward; its zero has no meaning."""
        ...

    def steady_us(self) -> int:
        """As `steady_ms`, in microseconds."""
        ...


CHECK_NS = 1_000_000_000
"""How often the steady clock's idea of the wall clock is compared with the machine's."""
SLEW_DIVISOR = 200
"""Of a difference at most 1/200 of the time passed is made up for: 5 ms a second."""


_steady_ns = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
"""Nanoseconds of a clock that nobody sets and that counts on while the machine sleeps."""


class SystemClock:
    """The machine's clocks. Steps of its wall clock are followed slowly, in either direction.

    A delayed message would be early after a step forward and, after one back, nobody knew how late;
    stamps would jump. Here `now_ms` runs with the steady clock and makes up for a step by 5 ms a
    second; a restart takes the machine's time as it is.
    """

    __slots__ = ("_check_at_ns", "_checked_ns", "_offset_ns", "_steady_ns", "_wall_ns")

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        steady_ns: Callable[[], int] = _steady_ns,
    ) -> None:
        self._wall_ns = wall_ns
        self._steady_ns = steady_ns
        self._checked_ns = steady_ns()
        self._check_at_ns = self._checked_ns + CHECK_NS
        self._offset_ns = wall_ns() - self._checked_ns

    def now_ms(self) -> int:
        """See `Clock.now_ms`. Hot."""
        steady_ns = self._steady_ns()
        if steady_ns >= self._check_at_ns:
            self._slew(steady_ns)
        return (steady_ns + self._offset_ns) // 1_000_000

    def local_hour(self, at_ms: int) -> int:
        """See `Clock.local_hour`; in the machine's time zone, with its summer time."""
        return time.localtime(at_ms // 1000).tm_hour

    def now_us(self) -> int:
        """See `Clock.now_us`. Hot."""
        steady_ns = self._steady_ns()
        if steady_ns >= self._check_at_ns:
            self._slew(steady_ns)
        return (steady_ns + self._offset_ns) // 1000

    def _slew(self, steady_ns: int) -> None:
        most_ns = (steady_ns - self._checked_ns) // SLEW_DIVISOR
        gap_ns = self._wall_ns() - (steady_ns + self._offset_ns)
        self._offset_ns += max(-most_ns, min(most_ns, gap_ns))
        self._checked_ns = steady_ns
        self._check_at_ns = steady_ns + CHECK_NS

    def steady_ms(self) -> int:
        """See `Clock.steady_ms`."""
        return time.monotonic_ns() // 1_000_000

    def steady_us(self) -> int:
        """See `Clock.steady_us`."""
        return time.monotonic_ns() // 1000
