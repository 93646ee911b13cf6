"""Detects across polls when a group's offset in a queue moves, reappears or falls.

Place in the walk: under `facts`, which has one of each for every group and queue. Pure: time comes
with the looks.

Invariant: of what happened between two looks nothing is made up. Absent on purpose: by whose hand
an offset fell, which no look shows.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from engine.foundation.observing import GroupWatermark, OffsetReport, UnreadDeletion
from engine.foundation.units import SECOND_MS

PERSISTED_AFTER_MS: Final = 6 * SECOND_MS
"""A broker writes its offsets each 5 s, and takes a moment."""

READERS_KEPT_MAX: Final = 4
"""Of a queue: those that read it last."""


class Again(NamedTuple):
    """What was pulled once more."""

    from_offset: int
    to_offset: int
    """One past the last."""
    previous_client_id: str | None
    """The client that was seen to hold most of it."""


@dataclass(slots=True)
class Commits:
    """A group's consume offsets in a queue, as the looks saw them."""

    offset: int | None
    moved_ms: int | None = None
    """The look that saw it first; None: it was there at the first look of all."""
    persisted: int | None = None
    seen: deque[tuple[int, int | None]] = field(default_factory=deque)
    """(moment, offset) of those that the disk may not know yet."""

    def see(self, offset: int | None, at_ms: int) -> bool:
        """Take note of what a look found; has it moved?"""
        has_moved = offset != self.offset
        if has_moved:
            self.offset, self.moved_ms = offset, at_ms
            self.seen.append((at_ms, offset))
        while self.seen and self.seen[0][0] <= at_ms - PERSISTED_AFTER_MS:
            self.persisted = self.seen.popleft()[1]
        return has_moved


@dataclass(slots=True)
class Reader:
    """What a member was seen to hold of a queue."""

    head: int
    """The lowest offset, at the last look."""
    below: int
    """What lies before was pulled by somebody before this one began."""
    reported_to: int
    """What lies before was reported to have come again, or had not."""


@dataclass(slots=True)
class Pulls:
    """What members were seen to hold of a queue, one after the other."""

    end: int = 0
    """Where the queue ended."""
    far: int = 0
    """One past the furthest that anybody held."""
    far_by: str | None = None
    readers: dict[str, Reader] = field(default_factory=dict)
    """The last ones, as each was seen last."""

    def see(self, client_id: str, first: int, last: int, *, end: int) -> Again | None:
        """Take note that a member holds this of the queue; what of it was surely pulled before:
        by another one, or by itself, when it holds what it had left behind. What came and was
        finished between two looks is not seen.
        """
        if end < self.end:  # Another queue of that name.
            self.far, self.far_by, self.readers = 0, None, {}
        self.end = end
        reader = self.readers.pop(client_id, None)
        if reader is None or first < reader.head:
            reader = Reader(first, self.far, first)
        reader.head = first
        self.readers[client_id] = reader
        if len(self.readers) > READERS_KEPT_MAX:
            del self.readers[next(iter(self.readers))]
        begin, until = max(first, reader.reported_to), min(last + 1, reader.below)
        again = Again(begin, until, self.far_by) if begin < until else None
        if again is not None:
            reader.reported_to = until
        if last >= self.far:
            self.far, self.far_by = last + 1, client_id
        return again


def deleted_unread(before: GroupWatermark | None, now: GroupWatermark) -> UnreadDeletion | None:
    """What the queue has deleted since the look before, and the group had not read then; None when
    there is nothing. Where the group is further now, it may have read some of it in time.
    """
    if before is None or before.committed is None or now.committed is None:
        return None
    first, end = max(before.committed, before.min_offset), now.min_offset
    if first >= end:
        return None
    unread = max(0, end - max(first, now.committed)) if now.committed < end else 0
    return UnreadDeletion(now.group, now.topic, now.queue_id, first, end, unread)


def fall_of(mark: GroupWatermark, before: int | None, path: str) -> OffsetReport | None:
    """That a consume offset is lower than at the look before, or than in the broker's life before;
    None when it is not. Of a queue that ends below where the group was, it is not known what fell:
    it may be another one.
    """
    committed = mark.committed
    if committed is None or before is None or not committed < before <= mark.max_offset:
        return None
    return OffsetReport(
        *(mark.group, mark.topic, mark.queue_id),
        offset=committed,
        previous_offset=before,
        path=path,
        trigger="UNKNOWN",
        client_id=None,
        accepted=True,
        min_offset=mark.min_offset,
        max_offset=mark.max_offset,
    )
