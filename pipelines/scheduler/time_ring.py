"""A ring of 60 slots, one per second, that holds planned runs until they are due.

Place in the walk: between a pass of planning and the sending of what is due. It is memory alone:
what it holds is claimed in the database, and who claims it after this process ended sends it.

Invariant: what was put in comes out once, at the first look at or after its time. Absent on
purpose: clocks.
"""

from __future__ import annotations

from typing import Final

SLOTS: Final = 60
"""Of one second each, as in XXL-Job."""


class TimeRing:
    """Numbers of runs by the second at which they are due."""

    def __init__(self, now_ms: int) -> None:
        self._slots: Final[list[dict[int, int]]] = [{} for _ in range(SLOTS)]
        self._looked_ms = now_ms

    def __len__(self) -> int:
        return sum(len(slot) for slot in self._slots)

    def put(self, log_id: int, due_ms: int) -> None:
        """Have it come out at its time; at the next look, when that is past. What is due in a later
        round waits in its slot for it."""
        due_ms = max(due_ms, self._looked_ms)
        self._slots[due_ms // 1000 % SLOTS][log_id] = due_ms

    def due(self, now_ms: int) -> list[int]:
        """What is due by now, in the order of time and number. Of a clock that went back the ring
        goes back too: what is put in from then on comes out by it."""
        if now_ms < self._looked_ms:
            self._looked_ms = now_ms
            return []
        first, last = self._looked_ms // 1000, now_ms // 1000
        found: list[tuple[int, int]] = []
        for second in range(first, min(last, first + SLOTS - 1) + 1):
            slot = self._slots[second % SLOTS]
            ripe = [(due_ms, log_id) for log_id, due_ms in slot.items() if due_ms <= now_ms]
            for _, log_id in ripe:
                del slot[log_id]
            found += ripe
        self._looked_ms = now_ms
        return [log_id for _, log_id in sorted(found)]
