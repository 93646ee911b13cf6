"""Time as a port: wall-clock time for stamps and meanings, steady time for durations and time-outs.

Invariant: `steady_ms` never goes back; `now_ms` may, when somebody sets the clock. Sleeping is
asyncio's.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What a node believes the time is."""

    def now_ms(self) -> int:
        """Wall-clock time, milliseconds since 1970 UTC."""
        ...

    def now_us(self) -> int:
        """Wall-clock time, microseconds since 1970 UTC."""
        ...

    def steady_ms(self) -> int:
        """Milliseconds of a clock that only moves forward; its zero has no meaning."""
        ...

    def steady_us(self) -> int:
        """As `steady_ms`, in microseconds."""
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        """See `Clock.now_ms`."""
        return time.time_ns() // 1_000_000

    def now_us(self) -> int:
        """See `Clock.now_us`."""
        return time.time_ns() // 1000

    def steady_ms(self) -> int:
        """See `Clock.steady_ms`."""
        return time.monotonic_ns() // 1_000_000

    def steady_us(self) -> int:
        """See `Clock.steady_us`."""
        return time.monotonic_ns() // 1000
