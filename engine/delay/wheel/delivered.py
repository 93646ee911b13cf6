"""Determines from the commit log which timers have been delivered.

Place in the walk: the wheel delivers in the order of (due time, log offset), and each delivery
carries in its own record how far it came: a mark. What is put and what it says are one entry, so no
crash and no change of the leader can part them.

A mark says: of all timers whose records lie before `applied_offset`, those up to (`due_ms`,
`log_offset`) were delivered, or were void. One that came later and is due earlier is none of them:
so a clock that was set back needs several marks for a while, each lower and later than the one
before.

Invariant: what one mark covers, every later set of marks covers. Absent on purpose: where marks
come from (`time_wheel`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

TEXT_BYTES_MAX: Final = 62
"""Of three numbers of 64 bits with commas between them."""


class Mark(NamedTuple):
    """How far deliveries had come with one of them."""

    due_ms: int
    log_offset: int
    """Where the record of the timer that was delivered lies."""
    applied_offset: int
    """The wheel knew all timers that lie before this offset."""

    def to_text(self) -> bytes:
        """As a delivered message carries it."""
        return b"%d,%d,%d" % self

    def has_all(self, other: Mark) -> bool:
        """Does it say at least what another mark says?"""
        return self[:2] >= other[:2] and self.applied_offset >= other.applied_offset


def mark_in(text: bytes) -> Mark | None:
    """The mark that a text gives; None when it is none."""
    parts = text.split(b",", len(Mark._fields))
    if len(parts) != len(Mark._fields) or len(text) > TEXT_BYTES_MAX:
        return None
    if not (parts[0].isdigit() and parts[1].isdigit() and parts[2].isdigit()):
        return None
    mark = Mark(int(parts[0]), int(parts[1]), int(parts[2]))
    return mark if mark.log_offset < mark.applied_offset else None


class Delivered:
    """Timers that are done."""

    def __init__(self, marks: Iterable[Mark] = ()) -> None:
        self._marks: list[Mark] = []
        for mark in marks:
            self.add(mark)

    def add(self, mark: Mark) -> None:
        """Those that the mark covers are done, too. Hot."""
        marks = self._marks
        if len(marks) == 1 and mark.has_all(marks[0]):
            marks[0] = mark
            return
        if any(known.has_all(mark) for known in self._marks):
            return
        self._marks = [known for known in self._marks if not mark.has_all(known)]
        self._marks.append(mark)

    def covers(self, due_ms: int, log_offset: int) -> bool:
        """Is the timer done whose record lies there?"""
        for mark in self._marks:
            if log_offset < mark.applied_offset and (due_ms, log_offset) <= mark[:2]:
                return True
        return False

    def covers_all(self, before_ms: int, last_offset: int) -> bool:
        """Is each timer done that is due before a time and lies up to `last_offset`?"""
        return any(
            mark.due_ms >= before_ms and mark.applied_offset > last_offset for mark in self._marks
        )

    def marks(self) -> tuple[Mark, ...]:
        """What says so."""
        return tuple(self._marks)
