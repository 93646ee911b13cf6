"""Clients that may still read a queue beside its reader, until they have been asked.

Place in the walk: a client asks where its group is to go on (`handlers/offset`), or loses a queue
to another reader (`handlers/pull`); a second later `reporting/client_windows` asks it what it
holds. A queue that it does not hold by then it has given back: nothing comes again by it, and that
is a fact.

Invariant: a doubt is settled by an answer to a question asked DOUBT_MS after it arose, or it ends
after DOUBT_SPAN_MS; `count_max` doubts at most are kept, and others are left to time. Pure. Absent
on purpose: asking.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from engine.foundation.limits import DOUBTFUL_READERS_MAX
from engine.foundation.units import SECOND_MS

DOUBT_MS: Final = 1 * SECOND_MS
"""Who was shown where to begin holds the queue by then, or gave it back: it says so when asked."""

DOUBT_SPAN_MS: Final = 10 * SECOND_MS
"""Who still holds the queue after so long, or did not answer, reads it as far as anybody knows."""

MemberKey = tuple[str, str]
"""(group, client id)"""
Place = tuple[str, int]
"""(topic, queue_id)"""


class DoubtfulReaders:
    """The doubts of one broker."""

    def __init__(self, count_max: int = DOUBTFUL_READERS_MAX) -> None:
        self._count_max = count_max
        self._count = 0
        self._since_ms: dict[MemberKey, dict[Place, tuple[int, int]]] = {}
        """The first and the last time of each doubt; steady time."""

    def __len__(self) -> int:
        """Doubts that are kept."""
        return self._count

    def arises(self, member: MemberKey, place: Place, now_ms: int) -> None:
        """The member may read the queue; it may have been in doubt before."""
        doubts = self._since_ms.setdefault(member, {})
        if place not in doubts:
            if self._count >= self._count_max and not self._end_oldest(now_ms):
                if not doubts:
                    del self._since_ms[member]
                return
            self._count += 1
        first_ms, _ = doubts.get(place, (now_ms, now_ms))
        doubts[place] = first_ms, now_ms

    def is_due(self, member: MemberKey, now_ms: int) -> bool:
        """Is the member to be asked about a queue? Doubts that are too old end here."""
        doubts = self._since_ms.get(member)
        if doubts is None:
            return False
        for place, (first_ms, _) in list(doubts.items()):
            if now_ms - first_ms > DOUBT_SPAN_MS:
                self._end(member, place)
        return any(now_ms - last_ms >= DOUBT_MS for _, last_ms in doubts.values())

    def given_back(
        self, member: MemberKey, held: Collection[Place], *, asked_ms: int
    ) -> list[Place]:
        """Queues that the member, asked at `asked_ms`, does not hold, and may no longer read."""
        doubts = self._since_ms.get(member, {})
        places = [
            place
            for place, (_, last_ms) in doubts.items()
            if asked_ms - last_ms >= DOUBT_MS and place not in held
        ]
        for place in places:
            self._end(member, place)
        return places

    def forget(self, member: MemberKey) -> None:
        """The member has left: that is a fact of its own."""
        self._count -= len(self._since_ms.pop(member, {}))

    def _end_oldest(self, now_ms: int) -> bool:
        """End the doubt that arose first, of whom nobody asks any more, if it is too old."""
        member = next(iter(self._since_ms))
        for place, (first_ms, _) in self._since_ms[member].items():
            if now_ms - first_ms > DOUBT_SPAN_MS:
                self._end(member, place)
                return True
        return False

    def _end(self, member: MemberKey, place: Place) -> None:
        doubts = self._since_ms[member]
        del doubts[place]
        self._count -= 1
        if not doubts:
            del self._since_ms[member]
