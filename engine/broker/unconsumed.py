"""Messages that went before a group had consumed them: told by group and queue, when it happens.

Place in the walk: after a round of `store/upkeep/retention`, which never asks who consumed what.
The group hears of it from its next pull (PULL_OFFSET_MOVED to the queue's first message).

Invariant: one event per group and queue that lost something; a group without a consume offset has
not said that it wants the messages. Absent on purpose: keeping files for slow groups.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.broker.parts import BrokerParts
from engine.foundation.limits import UNCONSUMED_REPORTS_MAX
from engine.foundation.observing import LifecycleEvent
from engine.protocol.names import SCHEDULE_TOPIC
from engine.store.upkeep.retention import Purged

KIND = "UNCONSUMED_DELETED"


def tell_unconsumed(parts: BrokerParts, purged: Purged, cursors: Mapping[int, int]) -> None:
    """Tell each group's loss, and its watermarks as they are now; then that of each delay level,
    whose next offset is in `cursors`.
    """
    losers = []
    for group, topic, queue_id in list(parts.offsets.keys()):
        gone = purged.get((topic, queue_id))
        committed = parts.offsets.committed(group, topic, queue_id)
        if gone is not None and committed is not None and committed < gone[1]:
            losers.append((group, topic, queue_id))
            if len(losers) <= UNCONSUMED_REPORTS_MAX:
                first = max(gone[0], committed)
                parts.observer.observe(
                    LifecycleEvent(
                        KIND,
                        f"group {group} had not consumed offsets [{first}, {gone[1]}) of {topic} "
                        f"queue {queue_id}: {gone[1] - first} messages deleted by retention",
                    )
                )
    if len(losers) > UNCONSUMED_REPORTS_MAX:
        more = len(losers) - UNCONSUMED_REPORTS_MAX
        parts.observer.observe(
            LifecycleEvent(KIND, f"and {more} more queues of groups; their watermarks tell")
        )
    if losers:
        parts.watermarks_wanted(losers)
    _tell_undelivered(parts, purged, cursors)


def _tell_undelivered(parts: BrokerParts, purged: Purged, cursors: Mapping[int, int]) -> None:
    """Tell what went while it waited in its delay level."""
    for (topic, queue_id), gone in purged.items():
        first = max(gone[0], cursors.get(queue_id + 1, 0))
        if topic == SCHEDULE_TOPIC and first < gone[1]:
            parts.observer.observe(
                LifecycleEvent(
                    KIND,
                    f"{gone[1] - first} messages that waited in delay level {queue_id + 1}, "
                    "retries among them, deleted by retention before their time",
                )
            )
