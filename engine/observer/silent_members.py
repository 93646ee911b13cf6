"""Reports members that answer a question about their windows with nothing.

Place in the walk: under `facts`. Pure: time comes with the looks. An empty body is an answer, as Go
clients that broadcast give it: such a member says nothing, and nobody knows what it holds.

Invariant: each kind of client of a group is reported once in each `again_ms`, so that readers who
look back that far find it. Absent on purpose: what the other members say.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.foundation.limits import SILENT_KINDS_MAX
from engine.foundation.observing import LifecycleEvent
from engine.observer.looks import Member

SAYS_NOTHING = "SAYS_NOTHING"


class SilentMembers:
    """Which kinds of clients of which groups were reported to say nothing, and when."""

    def __init__(self, again_ms: int, count_max: int = SILENT_KINDS_MAX) -> None:
        self._again_ms = again_ms
        self._count_max = count_max
        self._reported_ms: dict[tuple[str, str], int] = {}

    def of(self, member: Member, kind: str | None, at_ms: int) -> Iterator[LifecycleEvent]:
        """A member has answered with nothing; `kind`: its language and version, None: not known."""
        group, client_id = member
        words = client_id if kind is None else f"a client in {kind}"
        key = (group, words)
        before_ms = self._reported_ms.pop(key, None)
        if before_ms is not None and at_ms - before_ms < self._again_ms:
            self._reported_ms[key] = before_ms
            return
        while len(self._reported_ms) >= self._count_max:
            del self._reported_ms[next(iter(self._reported_ms))]
        self._reported_ms[key] = at_ms
        yield LifecycleEvent(SAYS_NOTHING, f"{words} says nothing of what it holds", group=group)
