"""Tracks changed watermarks and selects those to emit next.

Place in the walk: handlers move tables, the tables note what moved; once a second `watermarks`
takes it from here, asks whose turn it is, and notes what it emitted.

A snapshot is a round in which each key is emitted once: by its turn, or because it moved meanwhile.
An emitted key goes from the part `former` to the part `present`; a round begins by calling the
present part the former one. So its begin and its end cost the same however many keys there are, and
one that moves all the time is emitted no more often for it.

Invariant: within each part the key emitted longest ago is first. Absent on purpose: time, and
reading marks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Generic, TypeVar

from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.groups.group_configs import GroupConfigs
from engine.broker.groups.queue_locks import QueueLocks
from engine.broker.groups.readers import QueueKey, Readers
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.topics.topics import Topics
from engine.foundation.chunked_work import stepped
from engine.store import MessageStore

Key = TypeVar("Key")
Mark = TypeVar("Mark")


class EmittedMarks(Generic[Key, Mark]):
    """The last emitted mark of each key, and the keys that wait to be looked at."""

    def __init__(self) -> None:
        self._present: OrderedDict[Key, Mark] = OrderedDict()
        self._former: OrderedDict[Key, Mark] = OrderedDict()
        """Reported before this round, and not in it."""
        # A dict takes a key in a fifth of the time, and goes over the places of those taken from it
        # before it comes to its first: a few thousand of them, or a millisecond of a million.
        self._moved: dict[Key, None] = {}
        self._moved_before: dict[Key, None] = {}
        """Moved before this round, and not looked at in it."""

    def __len__(self) -> int:
        """How many were reported and are still there."""
        return len(self._present) + len(self._former)

    @property
    def waiting_count(self) -> int:
        """How many wait to be looked at."""
        return len(self._moved) + len(self._moved_before)

    def __contains__(self, key: Key) -> bool:
        """Was it reported, and is it still there?"""
        return key in self._present or key in self._former

    def get(self, key: Key) -> Mark | None:
        """The mark reported last; None for one that never was."""
        mark = self._present.get(key)
        return self._former.get(key) if mark is None else mark

    def moved(self, key: Key) -> None:
        """It may differ from what was reported; who has waited longest is looked at first."""
        if key not in self._moved_before:
            self._moved[key] = None

    def all_moved(self, keys: Iterable[Key]) -> None:
        """As `moved`, of several. Hot."""
        if self._moved_before:
            keys = [key for key in keys if key not in self._moved_before]
        self._moved.update(dict.fromkeys(keys))

    def emitted(self, key: Key, mark: Mark) -> None:
        """This was reported just now."""
        if self._former:
            self._former.pop(key, None)
        present = self._present
        present[key] = mark
        present.move_to_end(key)

    def forget(self, key: Key) -> bool:
        """Forget a key that is gone; whether it was there."""
        in_present = self._present.pop(key, None) is not None
        return self._former.pop(key, None) is not None or in_present

    def begin_round(self) -> None:
        """Every key is reported once more from here on; the round before is over."""
        assert self.round_is_over, "a round begins when the one before is over"
        self._former, self._present = self._present, self._former
        self._moved_before, self._moved = self._moved, self._moved_before

    @property
    def round_is_over(self) -> bool:
        """Was each reported that was there when the round began, and still is?"""
        return not self._former and not self._moved_before

    def due(self, *, turns: int | None, moved: int | None) -> dict[Key, bool]:
        """Whom to look at now: of those the round has not come to so many, to be reported changed
        or not (True); of those that moved so many, to be reported when changed (False). None: all.
        """
        moving = islice(chain(self._moved_before, self._moved), moved)
        if not self._former:  # So it is most of the time: between two snapshots.
            return dict.fromkeys(moving, False)
        due = dict.fromkeys(islice(self._former, turns), True)
        for key in moving:
            due.setdefault(key, False)
        return due

    def looked_at(self, keys: Collection[Key]) -> None:
        """Their marks are read now: what moves them from here on is news. Hot."""
        for waiting in (self._moved, self._moved_before):
            if waiting:
                drop = waiting.pop
                for key in keys:
                    drop(key, None)
                if not waiting:
                    waiting.clear()  # Or it goes on holding the places of all that were in it.


class EmittedPairs:
    """The queues of groups that were reported, by topic and by group: who a change concerns."""

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[str, list[int]]] = {}
        self._by_group: dict[str, dict[str, list[int]]] = {}

    def add(self, key: QueueKey) -> None:
        """The key is reported for the first time."""
        group, topic, queue_id = key
        queue_ids = self._by_topic.setdefault(topic, {}).setdefault(group, [])
        self._by_group.setdefault(group, {})[topic] = queue_ids
        queue_ids.append(queue_id)

    def drop(self, key: QueueKey) -> None:
        """The key, which was added, is gone."""
        group, topic, queue_id = key
        queue_ids = self._by_topic[topic][group]
        queue_ids.remove(queue_id)
        if not queue_ids:
            for table, name, other in (
                (self._by_topic, topic, group),
                (self._by_group, group, topic),
            ):
                del table[name][other]
                if not table[name]:
                    del table[name]

    def groups_on(self, topic: str) -> list[str]:
        """Groups of which a queue of the topic was reported."""
        return list(self._by_topic.get(topic, ()))

    def of_topic(self, topic: str) -> list[QueueKey]:
        """Every key of the topic."""
        found = self._by_topic.get(topic, {})
        return [(group, topic, one) for group, queue_ids in found.items() for one in queue_ids]

    def of_pair(self, group: str, topic: str) -> list[QueueKey]:
        """Every key of the group on the topic."""
        return [(group, topic, one) for one in self._by_group.get(group, {}).get(topic, ())]

    def topics_of(self, group: str) -> list[str]:
        """Topics of which a queue of the group was reported."""
        return list(self._by_group.get(group, ()))

    def of_group(self, group: str) -> list[QueueKey]:
        """Every key of the group."""
        found = self._by_group.get(group, {})
        return [(group, topic, one) for topic, queue_ids in found.items() for one in queue_ids]


@dataclass(slots=True, kw_only=True, eq=False)
class MovedMarks:
    """What moved in the tables of one broker."""

    store: MessageStore
    topics: Topics
    group_configs: GroupConfigs
    groups: ConsumerGroups
    locks: QueueLocks
    offsets: ConsumerOffsets
    readers: Readers

    @property
    def topics_leaving(self) -> Collection[str]:
        """Topics that are being deleted, of which nothing is read."""
        return self.topics.being_deleted

    @property
    def groups_leaving(self) -> Collection[str]:
        """Groups that are being deleted with their offsets."""
        return self.group_configs.being_deleted

    def drop_expired_locks(self, now_ms: int) -> Iterator[None]:
        """Locks whose time is over by `now_ms`, steady time, go; in steps."""
        return stepped(self.locks.drop_expired(now_ms))

    def all_queues(self) -> Iterable[tuple[str, int]]:
        """Every queue that is there."""
        return self.store.queues()

    def all_keys(self) -> Iterator[Iterable[QueueKey]]:
        """Every queue on which a group has an offset, or has pulled."""
        yield self.offsets.keys()
        yield self.readers.keys()

    def take_queues(self) -> list[tuple[str, int]]:
        """Queues whose ends moved."""
        return self.store.moved_queues()

    def take_keys(self) -> Iterator[Iterable[QueueKey]]:
        """Queues of groups whose offsets, readers or locks moved."""
        for source in (self.offsets, self.readers, self.locks):
            yield source.take_moved()

    def take_heard(self) -> Iterator[Iterable[QueueKey]]:
        """Queues of groups that pulled or reported, and nothing moved."""
        for source in (self.offsets, self.readers):
            yield source.take_heard()

    def take_topics(self) -> Iterable[str]:
        """Topics whose settings changed."""
        return self.topics.take_moved()

    def take_groups(self) -> Iterable[str]:
        """Groups whose members changed."""
        return self.groups.take_moved()

    def release_queues(self, keys: Iterable[QueueKey]) -> None:
        """The group has left the topic of these queues: nobody reads them for it."""
        self.readers.release_queues(keys)
