"""Messages that went before a group had consumed them: told by group and queue, when it happens.

Place in the walk: after a round of `store/upkeep/retention`, which never asks who consumed what.
The group hears of it from its next pull (PULL_OFFSET_MOVED to the queue's first message).

Invariant: one event per group and queue that lost something; a group without a consume offset has
not said that it wants the messages. Absent on purpose: keeping files for slow groups.
"""

from __future__ import annotations

from engine.broker.parts import BrokerParts
from engine.foundation.limits import UNCONSUMED_REPORTS_MAX
from engine.foundation.observing import LifecycleEvent
from engine.store.upkeep.retention import Purged

KIND = "UNCONSUMED_DELETED"


def tell_unconsumed(parts: BrokerParts, purged: Purged) -> None:
    """Tell each group's loss, and its watermarks as they are now."""
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
