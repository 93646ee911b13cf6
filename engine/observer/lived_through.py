"""Detects members that outlive a topic: their process queues predate its present life.

Place in the walk: `facts` hands over what members say of their queues, and which topics are other
ones; what comes back is where such a member goes on: at its offset of the earlier life. Pure.

A RocketMQ client builds a process queue anew when its broker has sent it to another offset, and
when the queue is given to it anew. When it was built it says by the moment of its last lock, which
a client that takes no locks never moves. Invariant: nothing is concluded of a process queue that
may be another one, nor of a client that does not say this moment. Absent on purpose: what the group
passes over (gold counts it).
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Final

from engine.foundation.limits import WINDOWS_TOLD_MAX
from engine.foundation.observing import ClientWindow, OffsetReport
from engine.observer.looks import Member, Place
from engine.protocol.bodies import ProcessQueueInfo, TopicOffset

PATH: Final = "OBSERVED"


@dataclass(slots=True)
class _Built:
    """A process queue of a member, as it was seen last in one life of its topic."""

    at_ms: int
    next_offset: int
    seen_end: int | None = None
    """The queue's end when it was reported last to go on beyond it."""


class LivedThrough:
    """Of all members of one broker's groups."""

    def __init__(self, count_max: int = WINDOWS_TOLD_MAX) -> None:
        self._count_max = count_max
        self._now: dict[tuple[Member, Place], _Built] = {}
        self._before: dict[tuple[Member, Place], _Built] = {}
        """Of topics that are gone, or other ones now."""

    def other_life(self, topics: Container[str]) -> None:
        """These topics are gone, or were made again."""
        for key in [key for key in self._now if key[1][0] in topics]:
            self._before[key] = self._now.pop(key)

    def left(self, member: Member) -> None:
        """The member is no longer there."""
        for known in (self._now, self._before):
            for key in [key for key in known if key[0] == member]:
                del known[key]

    def holds(
        self, window: ClientWindow, info: ProcessQueueInfo, ends: TopicOffset
    ) -> OffsetReport | None:
        """What a member says of a queue that ends there; that it goes on where it was in the
        earlier life, when it does and that was not reported.
        """
        key = (window.group, window.client_id), (window.topic, window.queue_id)
        before = self._before.get(key)
        if before is not None:
            if info.dropped or info.last_lock_timestamp_ms != before.at_ms:
                del self._before[key]
            else:
                return self._goes_on(key, before, window, ends)
        if info.last_lock_timestamp_ms > 0 and not info.dropped:
            if key in self._now or len(self._now) < self._count_max:
                self._now[key] = _Built(info.last_lock_timestamp_ms, _next(window))
        else:
            self._now.pop(key, None)
        return None

    def _goes_on(
        self,
        key: tuple[Member, Place],
        before: _Built,
        window: ClientWindow,
        ends: TopicOffset,
    ) -> OffsetReport | None:
        if _next(window) > ends.max_offset:
            before.next_offset = max(before.next_offset, _next(window))
        if before.next_offset <= ends.max_offset:
            self._now[key] = self._before.pop(key)
        elif before.seen_end == ends.max_offset:
            return None
        before.seen_end = ends.max_offset
        return OffsetReport(
            *(window.group, window.topic, window.queue_id),
            offset=before.next_offset,
            previous_offset=None,
            path=PATH,
            trigger="UNKNOWN",
            client_id=window.client_id,
            accepted=False,
            min_offset=ends.min_offset,
            max_offset=ends.max_offset,
        )


def _next(window: ClientWindow) -> int:
    """The next offset that the member has not pulled, at least."""
    held = -1 if window.last_held is None else window.last_held
    return max(held + 1, window.client_committed or 0)
