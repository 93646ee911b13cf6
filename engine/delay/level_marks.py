"""Determines from the log how far each delay level was delivered: a `LogState`.

Place in the walk: in a Raft group each delivery of a level says in its own record how far its level
is then. What is put and what it says are one entry, so no crash and no change of the leader can
part them: whoever leads next goes on behind the last delivery that the group agreed on.

    TIMER_MARK   level,offset: the next offset of the level's queue that was not delivered

Invariant: a level never goes back, for what is visible is never cut. So a copy of what was
delivered may say it again. Absent on purpose: what a timer says in the same property, which has
three numbers (`wheel/delivered`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from engine.delay.wheel.delivered import TEXT_BYTES_MAX
from engine.protocol.properties import PROPERTY_TIMER_MARK
from engine.store.record_reading import DispatchRequest, property_value

_MARK: Final = f"{PROPERTY_TIMER_MARK}\x01".encode()
_NUMBERS = 2


def mark_of(level: int, offset: int) -> bytes:
    """The property of what is delivered of a level, which is done before `offset` by that."""
    return b"%b%d,%d\x02" % (_MARK, level, offset)


class LevelMarks:
    """Those of one log."""

    def __init__(self, applied_offset: int = 0) -> None:
        self.applied_offset = applied_offset
        """See `LogState`."""
        self.cursors: dict[int, int] = {}
        """Level → its next offset that was not delivered."""
        self.on_moved: Callable[[int, int], None] = lambda _level, _offset: None
        """Called with a level and how far it is now."""

    def apply(self, entries: Sequence[DispatchRequest], end_offset: int) -> None:
        """See `LogState`. Hot for what is no delivery."""
        for entry in entries:
            if _MARK in entry.properties:
                self._note(property_value(entry.properties, _MARK).split(b","))
        self.applied_offset = end_offset

    def _note(self, numbers: list[bytes]) -> None:
        if (
            len(numbers) == _NUMBERS
            and all(map(bytes.isdigit, numbers))
            and sum(map(len, numbers)) <= TEXT_BYTES_MAX
        ):
            level, offset = map(int, numbers)
            if offset > self.cursors.get(level, 0):
                self.cursors[level] = offset
                self.on_moved(level, offset)

    def cut(self, end_offset: int) -> None:
        """See `LogState`."""
        self.applied_offset = end_offset

    def begin_at(self, offset: int) -> None:
        """See `LogState`."""
        self.applied_offset = offset
