"""Infers from offsets where a group began reading a queue of a recreated topic.

Place in the walk: positions of a group in the new life, one after the other → a verdict. Pure.

What a member remembers outlives the topic: a running client goes on where it was in the earlier
life, and a RocketMQ that is asked for an offset beyond the end of a queue sends it to that end. So
what lies before either was passed over. Nobody says so; these say it:

PULL          where the group begins to pull, as the broker says that placed it (NEW_LIFE), and each
              time it goes on beyond all that it has pulled: exact.
beyond the end  an offset of the earlier life. It counts until the queue has grown up to it (the
              group goes on there), or until it is lower (the group was sent to the end; to the
              beginning, when the queue was empty).
a member that goes on  at its offset of the earlier life, as an observer saw of its process queue.
anything else, while the member that read the queue then was there all the time: nobody saw where it
              went on. That is unknown, and no 0.
anything else: whoever came asked the broker, and began at the beginning.

Invariant: where a group began is found once; what it skips later is added to it. Absent on
purpose: tables, which rows are handed over, sentences (`pipelines/sentences/new_lives`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pipelines.base.settings import SECOND_US

READ: Final = "READ"
PASSED_OVER: Final = "PASSED_OVER"
UNKNOWN: Final = "UNKNOWN"
SET: Final = "SET"
"""Somebody chose where the group begins."""
PLACED: Final = "NEW_LIFE"
"""Path of an offset that a broker has set since the topic was made again."""
PULLED: Final = "PULL"
"""Path of one from which a member pulls."""

SAME_LOOK_US: Final = SECOND_US
"""Rows of one look are reported within less."""

Row = Mapping[str, Any]


class Verdict(NamedTuple):
    """Where the group began."""

    outcome: str
    from_offset: int
    to_offset: int
    """One past the last that was passed over, or may have been."""
    messages: int | None
    error_messages: int | None
    """How many more it may be."""
    how: str


@dataclass(slots=True)
class Case:
    """What is known so far."""

    reached: int
    """How far the group was in the earlier life, pulled or committed."""
    reader: str | None
    """The member that read the queue then and has been there ever since; None: there is none."""
    is_polled: bool
    made_us: int
    """When the topic was made again."""
    begin: int | None = None
    """Where the new life begins; None: no row has said it yet."""
    has_left: bool = False
    """Was there such a member for a while?"""
    carried: int | None = None
    """An offset of the earlier life that the group still has."""
    is_stored: bool = False
    """Has the broker stored it, so that any other one was stored after it?"""
    end: int | None = None
    """Where the queue ended when it had it last."""
    is_placed: bool = False
    """Did the broker set an offset? It shows where the group begins to pull, too."""
    is_settled: bool = False
    """Is it known where the group began?"""

    def left(self, client_id: str | None, event_us: int) -> None:
        """A member has left, or is no reader of the queue any more. One that is missed at the look
        that found the new life was away before.
        """
        if self.reader is not None and client_id == self.reader:
            self.reader = None
            self.has_left = self.is_polled and event_us - self.made_us > SAME_LOOK_US

    def placed(self, row: Row) -> Verdict | None:
        """An accepted report of an offset."""
        self._begins(row["min_offset"])
        if row["path"] == PLACED:
            self.is_placed = True
            return None
        if row["path"] != "RESET":
            return self._at(row["offset"], row["max_offset"])
        # Whoever sets an offset knows what is passed over by it.
        if self.carried is None:
            return self._set(row["offset"])
        return self._of_carried(self.carried, min(self.carried, row["offset"]))

    def pulled(self, row: Row) -> Verdict | None:
        """A member pulls from an offset: the first of its group, or beyond all that it pulled."""
        self._begins(row["min_offset"])
        offset, before = row["offset"], row["previous_offset"]
        if before is not None:
            begin = max(before, row["min_offset"])
            how = f"a member went on at offset {offset}, and the group had pulled up to {before}"
            return Verdict(PASSED_OVER, begin, offset, offset - begin, None, how)
        if self.is_settled:
            return None
        if offset <= row["min_offset"]:
            return self._read()
        return self._passed(offset, None, f"its first pull began at offset {offset}")

    def lived(self, row: Row) -> Verdict | None:
        """A member was seen to go on where it was in the earlier life, and nobody has stored it."""
        self._begins(row["min_offset"])
        if row["offset"] <= row["max_offset"]:
            return self._went_on(row["offset"], row["offset"])
        self.carried, self.end = row["offset"], max(row["max_offset"], self.end or 0)
        return None

    def answered(self, row: Row) -> Verdict | None:
        """Somebody asked where to go on, and forgets where it was."""
        self.left(row["client_id"], self.made_us)
        if self.is_placed:
            return None
        if row["told_offset"] is None or row["told_offset"] <= self._first:
            return self._read()
        self.carried = row["told_offset"]
        return None

    def held(self, row: Row) -> Verdict | None:
        """A member holds messages of the queue."""
        first = row["first_held"]
        if first is None or row["client_id"] != self.reader or self.carried is not None:
            return None
        if first <= self._first:
            return self._read()
        return self._went_on(first, first) if first == self.reached else None

    def marked(self, row: Row) -> Verdict | None:
        """The marks of the queue."""
        self._begins(row["min_offset"])
        if row["committed"] is None:
            return None
        nobody_reads = self.is_polled and row["members"] == 0 and not self.has_left
        if nobody_reads and self.carried is None and row["committed"] == self.reached:
            self.carried, self.is_stored = self.reached, True  # The broker has kept it.
        return self._at(row["committed"], row["max_offset"])

    @property
    def _first(self) -> int:
        return self.begin or 0

    def _begins(self, min_offset: int | None) -> None:
        if self.begin is None:
            self.begin = min_offset

    def _at(self, offset: int, end: int | None) -> Verdict | None:
        """The group has this offset in a queue that ends there."""
        if end is not None and offset > end:
            self.carried, self.end = max(offset, self.carried or 0), max(end, self.end or 0)
            self.is_stored = True
            return None
        if self.is_placed:  # No pull was shown: the broker may have lost its marks in a crash.
            how = f"nobody saw where a member began, and it is at offset {offset}"
            return None if offset <= self._first else self._unseen(offset, how)
        if offset <= self._first and self.is_polled and not self.is_stored:
            # Of a foreign broker it is the word for "none" as well.
            may_be_none = self.reader is not None or self.has_left or self.carried is not None
            return None if may_be_none else self._read()
        if self.carried is not None:
            return self._of_carried(self.carried, offset)
        if offset <= self._first:
            return self._read()
        if self.reader is not None and offset >= self.reached and not self.is_polled:
            return self._went_on(self.reached, offset)
        if self.reader is None and not self.has_left:
            return self._read()
        return self._unknown(min(offset, self.reached))

    def _of_carried(self, carried: int, offset: int) -> Verdict:
        if offset >= carried:
            return self._went_on(carried, carried)
        passed = min(max(self._first, self.end or 0), offset)
        if passed == self._first and offset > passed and self.is_polled:
            return self._unknown(offset)  # It may have been sent to the end when there was none.
        how = f"its offset, {carried}, lay beyond the end and was set to the end"
        return self._passed(passed, offset - passed, how)

    def _unknown(self, to_offset: int) -> Verdict:
        return self._unseen(
            to_offset, "its reader lived through it, and nobody saw where it went on"
        )

    def _unseen(self, to_offset: int, how: str) -> Verdict:
        return Verdict(UNKNOWN, self._first, to_offset, None, None, how)

    def _went_on(self, reached: int, seen: int) -> Verdict:
        """The group was seen at an offset at which it went on, or behind it."""
        how = f"it went on at offset {reached}, where it was in the earlier life"
        return self._passed(reached, seen - reached if self.is_polled else None, how)

    def _set(self, offset: int) -> Verdict:
        """Somebody set the group's offset."""
        if offset <= self._first:
            return self._read()
        return Verdict(SET, self._first, offset, None, None, f"it was set to offset {offset}")

    def _passed(self, to_offset: int, error: int | None, how: str) -> Verdict:
        if to_offset <= self._first:
            return self._read()
        count = to_offset - self._first
        error = error if self.is_polled else error or None
        return Verdict(PASSED_OVER, self._first, to_offset, count, error, how)

    def _read(self) -> Verdict:
        return Verdict(READ, self._first, self._first, 0, None, f"it began at {self._first}")
