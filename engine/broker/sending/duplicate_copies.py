"""Second copies of resent messages, and the groups that were handed both.

Place in the walk: `resends` notes second copies here when they are stored, and asks which of
them an answer brings to a group.

Invariant: a copy is reported once for a group; those of a queue come in its order; the newest
SECOND_COPIES_MAX are known. Absent on purpose: finding them, reading messages, refusing them (that
is `deduplication`, on topics that ask for it).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.broker.groups.readers import QueueKey
from engine.foundation.limits import SECOND_COPIES_MAX


@dataclass(frozen=True, slots=True)
class SecondCopy:
    """A message whose UNIQ_KEY and body an earlier message of its topic has."""

    message_id: str
    topic: str
    queue_id: int
    queue_offset: int
    earlier_queue_id: int
    earlier_queue_offset: int
    later_ms: int
    """How long after the earlier copy it was stored."""
    reported_to: list[str] = field(default_factory=list)
    """Groups that were handed it, and of which that was reported."""


def _queue_offset(copy: SecondCopy) -> int:
    return copy.queue_offset


class DuplicateCopies:
    """The second copies that one broker knows of."""

    def __init__(self, copies_max: int = SECOND_COPIES_MAX) -> None:
        self._copies_max = copies_max
        self._of_queues: dict[tuple[str, int], list[SecondCopy]] = {}
        self._oldest_first: deque[SecondCopy] = deque()

    def __len__(self) -> int:
        """How many there are."""
        return len(self._oldest_first)

    def add(self, copy: SecondCopy) -> None:
        """Note a second copy; beyond the limit the one noted first goes."""
        self._of_queues.setdefault((copy.topic, copy.queue_id), []).append(copy)
        self._oldest_first.append(copy)
        if len(self._oldest_first) > self._copies_max:
            self._drop(self._oldest_first.popleft())

    def handed(self, key: QueueKey, span: range, holds: Callable[[int], bool]) -> list[SecondCopy]:
        """The copies of a queue that an answer brings to the group for the first time.

        The answer covers the queue offsets `span`; `holds(queue_offset)` says whether it has one of
        them, or a filter has left it out.
        """
        group, topic, queue_id = key
        copies = self._of_queues.get((topic, queue_id), [])
        first = bisect_left(copies, span.start, key=_queue_offset)
        end = bisect_left(copies, span.stop, key=_queue_offset)
        brought = [
            copy
            for copy in copies[first:end]
            if group not in copy.reported_to and holds(copy.queue_offset)
        ]
        for copy in brought:
            copy.reported_to.append(group)
        return brought

    def forget_topic(self, topic: str) -> None:
        """The topic and its messages are gone."""
        self._oldest_first = deque(copy for copy in self._oldest_first if copy.topic != topic)
        for key in [key for key in self._of_queues if key[0] == topic]:
            del self._of_queues[key]

    def _drop(self, copy: SecondCopy) -> None:
        key = (copy.topic, copy.queue_id)
        self._of_queues[key].remove(copy)
        if not self._of_queues[key]:
            del self._of_queues[key]
