"""Holes: damaged or missing ranges in the synced part of the commit log.

Place in the walk: `log_walk` finds them, `commit_log` holds them, `reading` passes over them,
`recovery` and `store check` report them.

Invariant: ranges are sorted, do not touch each other, and are no more than LOG_HOLES_KEPT_MAX; what
is beyond is counted all the same. Absent on purpose: which messages were in them; consume queues
know their number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from engine.foundation.limits import LOG_HOLES_KEPT_MAX
from engine.store.consume_queue import ConsumeQueue


@dataclass(frozen=True, slots=True)
class Hole:
    """Physical offsets [start, end) of which nothing can be read, and why, in words."""

    start: int
    end: int
    reason: str

    @property
    def size_bytes(self) -> int:
        """Length of the range."""
        return self.end - self.start


class Holes:
    """The holes of one log."""

    def __init__(self, holes_max: int = LOG_HOLES_KEPT_MAX) -> None:
        self._holes: list[Hole] = []
        self._starts: list[int] = []
        self._holes_max = holes_max
        self.left_out = 0
        """Holes found and not kept, because there were too many."""

    def __len__(self) -> int:
        return len(self._holes)

    def __iter__(self) -> Iterator[Hole]:
        return iter(self._holes)

    @property
    def count(self) -> int:
        """How many there are, those that are not kept included."""
        return len(self._holes) + self.left_out

    def cut(self, end: int) -> None:
        """The log ends at `end` now: what is noted behind it counts no more."""
        kept = [hole for hole in self._holes if hole.start < end]
        self._holes = [replace(hole, end=min(hole.end, end)) for hole in kept]
        del self._starts[len(kept) :]

    @property
    def size_bytes(self) -> int:
        """Bytes in those that are kept."""
        return sum(hole.size_bytes for hole in self._holes)

    def add(self, hole: Hole) -> None:
        """Take a hole in; together with those that it overlaps or touches it becomes one."""
        first = bisect_right(self._starts, hole.start)
        if first and self._holes[first - 1].end >= hole.start:
            first -= 1
        last = first
        while last < len(self._holes) and self._holes[last].start <= hole.end:
            last += 1
        if first == last and len(self._holes) >= self._holes_max:
            self.left_out += 1
            return
        joined = joined_with(self._holes[first:last], hole)
        self._holes[first:last] = [joined]
        self._starts[first:last] = [joined.start]

    def at(self, physical_offset: int) -> Hole | None:
        """The hole that the offset lies in."""
        at = bisect_right(self._starts, physical_offset) - 1
        if at >= 0 and physical_offset < self._holes[at].end:
            return self._holes[at]
        return None

    def before(self, physical_offset: int) -> Hole | None:
        """The last hole that ends at or before the offset."""
        at = bisect_right(self._starts, physical_offset) - 1
        if at >= 0 and self._holes[at].end > physical_offset:
            at -= 1
        return self._holes[at] if at >= 0 else None

    def follow_log(self, physical_min: int) -> None:
        """Forget those that end before the log begins."""
        gone = 0
        while gone < len(self._holes) and self._holes[gone].end <= physical_min:
            gone += 1
        del self._holes[:gone], self._starts[:gone]


def joined_with(holes: Sequence[Hole], hole: Hole) -> Hole:
    """One hole over all of them; the reason is that of the part that begins first."""
    if not holes:
        return hole
    first = min([hole, *holes], key=lambda each: each.start)
    return Hole(first.start, max(hole.end, *(each.end for each in holes)), first.reason)


@dataclass(frozen=True, slots=True)
class LostMessages:
    """A hole, and what the queues know of it."""

    hole: Hole
    messages: int
    """Messages that the queues knew to lie there: at least so many are lost."""
    queues: int
    """Queues that lost some of them."""

    def sentence(self) -> str:
        """For an operator."""
        hole = self.hole
        return (
            f"commit log: hole [{hole.start}, {hole.end}), {hole.size_bytes} bytes that were on "
            f"disk and cannot be read ({hole.reason}); {self.messages} messages of {self.queues} "
            f"queues known to be lost; pulls pass over it, everything else is kept"
        )


def lost_in(hole: Hole, queues: Iterable[ConsumeQueue]) -> LostMessages:
    """Count the units that lead into the hole, and those that bridge it."""
    counts = [queue.count_between(hole.start, hole.end) for queue in queues]
    return LostMessages(hole, sum(counts), sum(count > 0 for count in counts))
