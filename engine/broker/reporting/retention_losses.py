"""Reports messages that retention deletes before a group has consumed them.

The report is by group and queue, and at once.

Place in the walk: after a round of `store/upkeep/retention`, which never asks who consumed what.
The group learns of it from its next pull (PULL_OFFSET_MOVED to the queue's first message).

Invariant: one event per group and queue that lost something; a group without a consume offset has
not said that it wants the messages, and one that has left the topic wants them no more. Absent on
purpose: keeping files for slow groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from engine.broker.groups.readers import QueueKey
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.foundation.limits import UNCONSUMED_REPORTS_MAX
from engine.foundation.observing import LifecycleEvent, Observer, UnreadDeletion
from engine.protocol.names import SCHEDULE_TOPIC
from engine.store.upkeep.retention import Purged

KIND = "UNCONSUMED_DELETED"


class RetentionLosses:
    """Reports messages that retention took before groups consumed them."""

    def __init__(
        self,
        *,
        emit_marks: Callable[[Sequence[QueueKey]], None],
        has_left: Callable[[tuple[str, str]], bool],
        observer: Observer,
        offsets: ConsumerOffsets,
    ) -> None:
        self._emit_marks = emit_marks
        self._has_left = has_left
        self._observer = observer
        self._offsets = offsets

    def emit_unconsumed(self, purged: Purged, cursors: Mapping[int, int]) -> None:
        """Report each group's loss, and its watermarks as they are now; then that of each delay
        level, whose next offset is in `cursors`.
        """
        losers = []
        for group, topic, queue_id in list(self._offsets.keys()):
            gone = purged.get((topic, queue_id))
            committed = self._offsets.committed(group, topic, queue_id)
            if self._has_left((group, topic)):
                continue
            if gone is not None and committed is not None and committed < gone[1]:
                losers.append((group, topic, queue_id))
                if len(losers) <= UNCONSUMED_REPORTS_MAX:
                    first = max(gone[0], committed)
                    self._observer.observe(
                        UnreadDeletion(
                            *(group, topic, queue_id),
                            from_offset=first,
                            to_offset=gone[1],
                            unread=gone[1] - first,
                        )
                    )
        if len(losers) > UNCONSUMED_REPORTS_MAX:
            more = len(losers) - UNCONSUMED_REPORTS_MAX
            detail = f"{more} more queues of groups lost unread messages; their watermarks show it"
            self._observer.observe(LifecycleEvent(KIND, detail))
        if losers:
            self._emit_marks(losers)
        self._emit_undelivered(purged, cursors)

    def _emit_undelivered(self, purged: Purged, cursors: Mapping[int, int]) -> None:
        """Report what went while it waited in its delay level."""
        for (topic, queue_id), gone in purged.items():
            first = max(gone[0], cursors.get(queue_id + 1, 0))
            if topic == SCHEDULE_TOPIC and first < gone[1]:
                self._observer.observe(
                    LifecycleEvent(
                        KIND,
                        f"{gone[1] - first} messages that waited in delay level {queue_id + 1}, "
                        "retries among them, deleted by retention before their time",
                    )
                )
