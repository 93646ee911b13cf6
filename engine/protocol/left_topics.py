"""Detects topics that a group no longer reads because no member subscribes to them.

Place in the walk: heartbeats (a broker) and running infos (who watches one from outside) → what
each member subscribes to → TOPIC_UNNAMED, TOPIC_NAMED, TOPIC_LEFT. Pure: time comes with the looks.

A deployment takes its time, so a topic is left only when that has been so for LEFT_AFTER_MS; until
then it is reported that no member names it, and that one does again. With
any subscription unknown nothing is concluded, and what was left comes back; without members a group
has left what it had left. Invariant: each leaving is reported once. Absent on purpose: topics of
messages that failed, which no member names, and groups that broadcast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Final

from engine.foundation.limits import LEFT_TOPICS_MAX
from engine.foundation.observing import LifecycleEvent
from engine.foundation.units import SECOND_MS
from engine.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from engine.protocol.reported_subscriptions import Subscription, topics_in

TOPIC_UNNAMED: Final = "TOPIC_UNNAMED"
TOPIC_NAMED: Final = "TOPIC_NAMED"
TOPIC_LEFT: Final = "TOPIC_LEFT"
LEFT_AFTER_MS: Final = 60 * SECOND_MS


class LeftTopics:
    """What was seen of the subscriptions of all groups on a broker."""

    def __init__(self, count_max: int = LEFT_TOPICS_MAX) -> None:
        self._count_max = count_max
        self._count = 0
        self._unnamed_ms: dict[str, dict[str, int]] = {}
        """group → topics that no member names, and since when."""
        self._left_ms: dict[str, dict[str, int]] = {}
        """group → topics that it has left, and when."""

    def __contains__(self, pair: tuple[str, str]) -> bool:
        """Has the group left the topic? Hot."""
        group, topic = pair
        return group in self._left_ms and topic in self._left_ms[group]

    def __bool__(self) -> bool:
        """Has any group left a topic?"""
        return bool(self._left_ms)

    def topics_of(self, group: str) -> list[str]:
        """Topics that the group has left."""
        return list(self._left_ms.get(group, ()))

    def unnamed_since_ms(self, group: str) -> int | None:
        """Since when no member names a topic that the group has not left yet; the longest."""
        return min(self._unnamed_ms.get(group, {}).values(), default=None)

    def look(
        self,
        group: str,
        said: Iterable[Subscription] | None,
        unread: Mapping[str, int],
        at_ms: int,
        *,
        pulled_ms: Mapping[str, int] = MappingProxyType({}),
    ) -> Iterator[LifecycleEvent]:
        """What the members of a group subscribe to; None: not all of them say.

        unread: messages that the group has not read, of each topic that it has offsets on or has
        pulled; `pulled_ms`: when somebody pulled a topic for the group last.
        """
        named = None if said is None else topics_in(chain.from_iterable(said))
        for topic, unread_count in unread.items():
            if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                continue
            is_unnamed = topic in self._unnamed_ms.get(group, {})
            if named is None or topic in named:
                self.forget_pair(group, topic)
                if is_unnamed:
                    yield LifecycleEvent(TOPIC_NAMED, None, group=group, topic=topic)
                continue
            last_pull_ms = pulled_ms.get(topic, at_ms - LEFT_AFTER_MS)
            left_ms = self._left_ms.get(group, {}).get(topic)
            if left_ms is not None:
                if last_pull_ms > left_ms:
                    self.forget_pair(group, topic)
                continue
            since_ms = self._unnamed(group, topic, at_ms, last_pull_ms)
            if since_ms is not None and not is_unnamed:
                yield LifecycleEvent(TOPIC_UNNAMED, None, group=group, topic=topic)
            if since_ms is not None and at_ms - since_ms >= LEFT_AFTER_MS:
                self._drop(self._unnamed_ms, group, topic)
                self._left_ms.setdefault(group, {})[topic] = at_ms
                self._count += 1
                yield _left(group, topic, unread_count)

    def pause(self, group: str) -> None:
        """The group has no members: those that come have a minute to name their topics."""
        self._count -= len(self._unnamed_ms.pop(group, ()))

    def forget(self, group: str) -> None:
        """The group is gone."""
        for table in (self._unnamed_ms, self._left_ms):
            self._count -= len(table.pop(group, ()))

    def forget_pair(self, group: str, topic: str) -> None:
        """The group has nothing on the topic any more."""
        for table in (self._unnamed_ms, self._left_ms):
            self._drop(table, group, topic)

    def forget_topic(self, topic: str) -> Iterator[None]:
        """The topic is gone: a step for each group that knew it."""
        for table in (self._unnamed_ms, self._left_ms):
            for group in [group for group, topics in table.items() if topic in topics]:
                self._drop(table, group, topic)
                yield

    def _unnamed(self, group: str, topic: str, at_ms: int, last_pull_ms: int) -> int | None:
        """Since when no member names it and nobody pulls it; None: too many are watched."""
        topics = self._unnamed_ms.get(group, {})
        if topic not in topics:
            if self._count >= self._count_max:
                return None
            self._count += 1
            topics = self._unnamed_ms.setdefault(group, topics)
        topics[topic] = max(topics.get(topic, at_ms), last_pull_ms)
        return topics[topic]

    def _drop(self, table: dict[str, dict[str, int]], group: str, topic: str) -> None:
        topics = table.get(group)
        if topics is None or topics.pop(topic, None) is None:
            return
        self._count -= 1
        if not topics:
            del table[group]


def _left(group: str, topic: str, unread: int) -> LifecycleEvent:
    words = "1 message" if unread == 1 else f"{unread:,} messages"
    return LifecycleEvent(TOPIC_LEFT, f"{words} unread", group=group, topic=topic)
