"""That a topic, a group, or queues of a topic are no more: told as facts, in the step of the loop
in which it became true.

Place in the walk: beside it, where topics and groups are deleted. What a reader may conclude is
said at table `lifecycle`; without these facts it would only see that nothing is told any more.

Invariant: a group is told gone once, when the last thing goes that it is known by: its settings, an
offset or a member. Absent on purpose: deleting.
"""

from __future__ import annotations

from engine.broker.parts import BrokerParts
from engine.foundation.observing import LifecycleEvent


def tell_topic_gone(parts: BrokerParts, topic: str) -> None:
    """The topic was deleted, with its queues and what groups had on them."""
    detail = f"topic {topic} was deleted"
    parts.observer.observe(LifecycleEvent("TOPIC_GONE", detail, topic=topic))


def tell_queues_removed(parts: BrokerParts, topic: str, queue_id_from: int) -> None:
    """Nobody reads the topic's queues from this number on."""
    detail = f"topic {topic} is read up to queue {queue_id_from - 1}"
    parts.observer.observe(
        LifecycleEvent("QUEUES_REMOVED", detail, topic=topic, queue_id_from=queue_id_from)
    )


def tell_group_gone(parts: BrokerParts, group: str) -> None:
    """The group was deleted with its offsets; members that stay are another life of it."""
    detail = f"group {group} was deleted with its offsets"
    parts.observer.observe(LifecycleEvent("GROUP_GONE", detail, group=group))


def tell_settings_deleted(parts: BrokerParts, group: str) -> None:
    """The group's settings were deleted, and nothing else of it."""
    if is_known(parts, group):
        detail = f"the settings of group {group} were deleted; its offsets or members are here"
        parts.observer.observe(LifecycleEvent("GROUP_DELETED", detail, group=group))
    else:
        tell_lost_group(parts, group)


def tell_lost_group(parts: BrokerParts, group: str) -> None:
    """The group has lost its last offset, or its settings: is it known by anything else?"""
    if not is_known(parts, group):
        detail = f"nothing of group {group} is left"
        parts.observer.observe(LifecycleEvent("GROUP_GONE", detail, group=group))


def is_known(parts: BrokerParts, group: str) -> bool:
    """Does anything here bear the group's name?"""
    return (
        parts.group_configs.known(group)
        or parts.offsets.has_any(group)
        or parts.groups.of(group) is not None
    )
