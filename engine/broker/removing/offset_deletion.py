"""Deletes a group's offsets on one topic unless one of its members reads the topic.

Place in the walk: beside it, where an administrator asks for it (`handlers/group_offsets`).

Invariant: nothing of the group is left on the topic, neither offsets nor what was pulled, and one
event says so, as when its group or its topic goes. A member that may read the topic keeps its
offsets: without them it would begin where its start policy says. Absent on purpose: the offsets of
a whole group (`deletion`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.groups.readers import Readers
from engine.broker.groups.removals import Removals
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.offsets.group_queues import GroupQueues
from engine.broker.reporting.watermarks import Watermarks
from engine.foundation.errors import RequestRefused
from engine.foundation.units import SECOND_MS
from engine.protocol.codes import ResponseCode
from engine.protocol.left_topics import LEFT_AFTER_MS
from engine.protocol.reported_subscriptions import topics_in
from engine.runtime.clock import Clock


class OffsetDeletion:
    """Deletes what a group has on one topic."""

    def __init__(
        self,
        *,
        clock: Clock,
        group_queues: GroupQueues,
        groups: ConsumerGroups,
        offsets: ConsumerOffsets,
        readers: Readers,
        removals: Removals,
        watermarks: Watermarks,
        save_offsets: Callable[[], Awaitable[None]],
    ) -> None:
        self._clock = clock
        self._group_queues = group_queues
        self._groups = groups
        self._offsets = offsets
        self._readers = readers
        self._removals = removals
        self._watermarks = watermarks
        self._save_offsets = save_offsets

    def check(self, group: str, topic: str) -> None:
        """Raise RequestRefused while somebody of the group reads the topic, or may read it."""
        reason = self._who_reads(group, topic)
        if reason is not None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"the offsets of group {group} on topic {topic} are not deleted: {reason}; stop "
                f"who reads it, and delete them {LEFT_AFTER_MS // SECOND_MS} s later",
            )
        if self._offsets.is_being_forgotten(topic, group):
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"group {group} or topic {topic} is being deleted, and its offsets with it",
            )

    async def delete(self, group: str, topic: str) -> None:
        """Forget all that is known of the group on the topic, in this step of the loop, and return
        when that is on disk. Raises StorageError.
        """
        count = len(self._offsets.queues(group, topic))
        keys = self._group_queues.queues_of(group, topic)
        self._watermarks.forget_pair(group, topic)
        if count:
            self._removals.offsets_deleted(group, topic, count)
        self._offsets.forget_pair(group, topic)
        self._readers.forget_queues(keys)
        await self._save_offsets()

    def _who_reads(self, group: str, topic: str) -> str | None:
        members = self._groups.of(group)
        if members is not None:
            for subscription, ids in members.reported.items():
                if topic in topics_in(subscription):
                    return f"member {ids[0]} subscribes to it"
            for client_id, member in members.members.items():
                if not member.subscription:
                    return f"member {client_id} does not say what it reads"
        pull = self._group_queues.last_pull(group, topic)
        if pull is not None and (ago_ms := self._clock.now_ms() - pull[0]) < LEFT_AFTER_MS:
            return f"queue {pull[1]} was pulled {ago_ms // SECOND_MS} s ago"
        return None
