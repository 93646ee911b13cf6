"""Rate limit on rows, so that what clients do cannot fill the spool.

Absent on purpose: waiting for room; a caller that finds none emits nothing, and it is counted.
"""

from __future__ import annotations

from engine.foundation.units import SECOND_MS


class RowsPerSecond:
    """How many were reported in the present second of steady time."""

    __slots__ = ("_count", "_count_max", "_second", "untold")

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._second = self._count = 0
        self.untold = 0
        """Rows for which there was no room, ever."""

    def has_room(self, now_ms: int) -> bool:
        """May one more be reported now? It is counted then."""
        second = now_ms // SECOND_MS
        if second != self._second:
            self._second, self._count = second, 0
        if self._count >= self._count_max:
            self.untold += 1
            return False
        self._count += 1
        return True
