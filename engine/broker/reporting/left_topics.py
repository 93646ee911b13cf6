"""Uses members' heartbeats to detect topics that their group no longer reads.

Place in the walk: beside `watermarks`, which reports no marks of a topic that a group has left. The
rule is the one that an observer of a broker uses as well (`engine/protocol/left_topics`); a broker
also knows the pulls: a group that pulls a topic reads it, whatever its members name.

Invariant: a group is looked at when what its members say may have changed, when it has something of
a new topic, and when its minute is over; so what nobody changes costs nothing. Absent on purpose:
marks, and what a restart forgets: after it a topic that was left is the group's lag until its
members have said for a minute what they read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.groups.group_configs import GroupConfigs
from engine.broker.groups.readers import QueueKey
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.offsets.progress import GroupQueues
from engine.broker.reporting.dirty_marks import EmittedPairs
from engine.broker.topics.topics import Topics
from engine.foundation.observing import LifecycleEvent
from engine.protocol.left_topics import LEFT_AFTER_MS, TOPIC_LEFT, LeftTopics
from engine.runtime.clock import Clock
from engine.store import MessageStore


@dataclass(frozen=True, slots=True)
class Left:
    """A group has left a topic, or is about to, or is so no more."""

    event: LifecycleEvent
    keys: list[QueueKey]
    """Its queues of a topic that it has left, of which marks were reported."""


@dataclass(slots=True, kw_only=True, eq=False)
class LeavingTopics:
    """The topics that groups have left, and those that they may be about to leave."""

    clock: Clock
    group_configs: GroupConfigs
    group_queues: GroupQueues
    groups: ConsumerGroups
    offsets: ConsumerOffsets
    store: MessageStore
    topics: Topics
    pairs: EmittedPairs
    _known: LeftTopics = field(default_factory=LeftTopics, init=False)
    _wanted: dict[str, None] = field(default_factory=dict, init=False)
    """Groups to be looked at."""
    _due: list[tuple[int, str]] = field(default_factory=list, init=False)
    """A heap of when to look again, and at which group; steady time."""
    _timed: dict[str, None] = field(default_factory=dict, init=False)
    """Groups that are in `_due`."""

    def __contains__(self, pair: tuple[str, str]) -> bool:
        """Has the group left the topic? Hot."""
        return pair in self._known

    def __bool__(self) -> bool:
        """Has any group left a topic?"""
        return bool(self._known)

    def want(self, group: str) -> None:
        """Look at the group in the next sample."""
        self._wanted[group] = None

    def changes(self, now_ms: int) -> Iterator[Left | list[QueueKey] | None]:
        """What groups have left or name no more, and queues of topics that they read again; None
        after each group. `now_ms` is steady time.
        """
        self._wanted.update(self.groups.take_said_anew())
        while self._due and self._due[0][0] <= now_ms:
            _, group = heappop(self._due)
            del self._timed[group]
            self._wanted[group] = None
        wanted, self._wanted = self._wanted, {}
        for group in wanted:
            yield from self._look(group, now_ms)
            yield None

    def forget_group(self, group: str) -> None:
        """The group was deleted."""
        self._known.forget(group)

    def forget_pair(self, group: str, topic: str) -> None:
        """The group's offsets on the topic were deleted."""
        self._known.forget_pair(group, topic)

    def forget_topic(self, topic: str) -> Iterator[None]:
        """The topic was deleted, in steps."""
        yield from self._known.forget_topic(topic)

    def _look(self, group: str, now_ms: int) -> Iterator[Left | list[QueueKey]]:
        members = self.groups.of(group)
        if members is None:
            self._known.pause(group)
            return
        if members.broadcasting or group in self.group_configs.being_deleted:
            return
        was_left = self._known.topics_of(group)
        topics = [
            topic
            for topic in dict.fromkeys((*self.pairs.topics_of(group), *was_left))
            if topic not in self.topics.being_deleted
        ]
        found = self._known.look(
            group,
            members.subscriptions_reported(),
            {topic: self._unread(group, topic) for topic in topics},
            now_ms,
            pulled_ms=self._pulled(group, topics, now_ms),
        )
        for event in found:
            assert event.topic is not None, "a topic is left"
            is_left = event.kind == TOPIC_LEFT
            yield Left(event, self.pairs.of_pair(group, event.topic) if is_left else [])
        for topic in was_left:
            if (group, topic) not in self._known:
                yield self.group_queues.queues_of(group, topic)
        since_ms = self._known.unnamed_since_ms(group)
        if since_ms is not None and group not in self._timed:
            heappush(self._due, (since_ms + LEFT_AFTER_MS, group))
            self._timed[group] = None

    def _unread(self, group: str, topic: str) -> int:
        offsets, store = self.offsets.queues(group, topic), self.store
        return sum(
            max(0, store.max_offset(topic, queue_id) - offset)
            for queue_id, offset in offsets.items()
        )

    def _pulled(self, group: str, topics: list[str], now_ms: int) -> dict[str, int]:
        """When each topic was pulled last, in steady time."""
        ahead_ms = now_ms - self.clock.now_ms()
        found = {topic: self.group_queues.last_pull(group, topic) for topic in topics}
        return {topic: one[0] + ahead_ms for topic, one in found.items() if one is not None}
