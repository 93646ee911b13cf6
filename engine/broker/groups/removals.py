"""Emits a fact for each topic, group or queue in the same step that removes it.

Place in the walk: beside it, where topics and groups are deleted. What a reader may conclude is
said at table `lifecycle`; without these facts it would only see that reports stop.

Invariant: a group is reported gone once, when the last thing that it is known by goes: its
settings, an offset or a member. Absent on purpose: deleting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.groups.group_configs import GroupConfigs
from engine.foundation.observing import LifecycleEvent, Observer


@dataclass(slots=True, kw_only=True, eq=False)
class Removals:
    """Emits the facts about what was removed from one broker."""

    group_configs: GroupConfigs
    groups: ConsumerGroups
    observer: Observer
    has_offsets: Callable[[str], bool]

    def topic_gone(self, topic: str) -> None:
        """The topic was deleted, with its queues and what groups had on them."""
        detail = f"topic {topic} was deleted"
        self.observer.observe(LifecycleEvent("TOPIC_GONE", detail, topic=topic))

    def queues_removed(self, topic: str, queue_id_from: int) -> None:
        """Nobody reads the topic's queues from this number on."""
        detail = f"topic {topic} is read up to queue {queue_id_from - 1}"
        self.observer.observe(
            LifecycleEvent("QUEUES_REMOVED", detail, topic=topic, queue_id_from=queue_id_from)
        )

    def group_gone(self, group: str) -> None:
        """The group was deleted with its offsets; members that stay are another life of it."""
        detail = f"group {group} was deleted with its offsets"
        self.observer.observe(LifecycleEvent("GROUP_GONE", detail, group=group))

    def offsets_deleted(self, group: str, topic: str, queue_count: int) -> None:
        """The group's offsets on one topic were deleted; its queues of the topic have ended."""
        queues = "1 queue" if queue_count == 1 else f"{queue_count:,} queues"
        detail = f"the offsets of group {group} on {queues} of {topic} were deleted"
        self.observer.observe(LifecycleEvent("OFFSETS_DELETED", detail, group=group, topic=topic))

    def settings_deleted(self, group: str) -> None:
        """The group's settings were deleted, and nothing else of it."""
        if self.is_known(group):
            detail = f"the settings of group {group} were deleted; its offsets or members are here"
            self.observer.observe(LifecycleEvent("GROUP_DELETED", detail, group=group))
        else:
            self.group_lost(group)

    def group_lost(self, group: str) -> None:
        """The group has lost its last offset, or its settings: is it known by anything else?"""
        if not self.is_known(group):
            detail = f"nothing of group {group} is left"
            self.observer.observe(LifecycleEvent("GROUP_GONE", detail, group=group))

    def is_known(self, group: str) -> bool:
        """Does anything here bear the group's name?"""
        return (
            self.group_configs.known(group)
            or self.has_offsets(group)
            or self.groups.of(group) is not None
        )
