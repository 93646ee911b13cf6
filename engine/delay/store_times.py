"""Converts the store times of log records to the steady clock. Pure.

Place in the walk: the delay service asks before it delivers. A record carries the wall clock's time
of its storing, and somebody may have set that clock since: an hour forward, and everything that
waits less than an hour would be due at once. So a delay is counted on the steady clock, and what is
known here is how stamps of one stretch of the log translate into it.

    step   from this place in the log on, the wall clock shows so much beyond the steady one
    mark   everything below this place was stored at this steady time at the latest

Stamps are never behind the wall clock they were made by (the log's only grow), so the steady time
found is never too early. Where they are ahead of it, after a step back or in the log of a machine
whose clock was wrong, the marks bound the error: MARK_EVERY_MS, or the time since the start.

Invariant: `stored_ms` is never earlier than the record was stored. Absent on purpose: clocks, the
store. What is not known: how the clock was set while no broker ran.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from engine.foundation.limits import CLOCK_STEPS_KEPT_MAX, STORE_TIME_MARKS_MAX
from engine.foundation.units import SECOND_MS

MARK_EVERY_MS = SECOND_MS


class StoreTimes:
    """The steps and marks of one broker's log."""

    def __init__(self, *, log_end: int, offset_ms: int, steady_ms: int) -> None:
        """`offset_ms` is what the wall clock shows beyond the steady one now."""
        self._steps = [(0, offset_ms)]
        self._marks = [(log_end, steady_ms)]

    def note_step(self, log_end: int, offset_ms: int) -> None:
        """The wall clock was set: records from `log_end` on have stamps of another time."""
        if self._steps[-1][0] == log_end:
            self._steps.pop()  # Nothing was stored in between.
        self._steps.append((log_end, offset_ms))
        if len(self._steps) > CLOCK_STEPS_KEPT_MAX:
            (begin, one), (_, other) = self._steps[:2]
            self._steps[:2] = [(begin, min(one, other))]  # Late rather than early.

    def note_end(self, log_end: int, steady_ms: int) -> None:
        """The log ends there now; seldom noted more than once in MARK_EVERY_MS."""
        newest_end, newest_ms = self._marks[-1]
        if log_end <= newest_end or steady_ms < newest_ms + MARK_EVERY_MS:
            return
        self._marks.append((log_end, steady_ms))
        if len(self._marks) > STORE_TIME_MARKS_MAX:
            del self._marks[-2::-2]  # The later of two neighbours stands for both.

    def forget_below(self, physical_offset: int) -> None:
        """No record before this one is asked about any more."""
        del self._steps[: bisect_right(self._steps, physical_offset, key=_place) - 1]
        passed = bisect_right(self._marks, physical_offset, key=_place)
        del self._marks[: min(passed, len(self._marks) - 1)]

    def stored_ms(self, physical_offset: int, store_timestamp_ms: int) -> int:
        """The steady time at which the record there, with this stamp, was stored; perhaps later by
        MARK_EVERY_MS, never earlier.
        """
        step = self._steps[max(0, bisect_right(self._steps, physical_offset, key=_place) - 1)]
        by_stamp_ms = store_timestamp_ms - step[1]
        mark = bisect_right(self._marks, physical_offset, key=_place)
        return by_stamp_ms if mark == len(self._marks) else min(by_stamp_ms, self._marks[mark][1])

    # ---- over a restart ----------------------------------------------------------------------

    def shifts(self) -> list[list[int]]:
        """The steps as places and the wall clock's distance then from that of today, to be kept:
        the steady clock of the next life counts from another zero.
        """
        newest_ms = self._steps[-1][1]
        return [[place, offset_ms - newest_ms] for place, offset_ms in self._steps]

    def take_shifts(self, shifts: Sequence[Sequence[int]], *, log_end: int) -> None:
        """Begin with the steps of the last life, as `shifts` gave them; what they say of places
        that a power cut took from the log begins at its end.
        """
        offset_ms = self._steps[-1][1]
        for place, shift_ms in shifts:
            newest_place = self._steps[-1][0]
            self.note_step(max(newest_place, min(place, log_end)), offset_ms + shift_ms)


def _place(entry: tuple[int, int]) -> int:
    return entry[0]
