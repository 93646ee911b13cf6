"""Determines where groups start reading, including after a topic has been recreated.

Place in the walk: a deletion (`removing/deletion`) asks here who read the topic; when the topic is
made again, its readers are placed at the beginning of each of its queues. `handlers/offset` asks
for a group that has no consume offset.

    deletion     readers  → the tombstone: they begin at the beginning, also after a restart
                 members  → witnesses: what they remember of offsets does not count any more
    made again   TOPIC_MADE_AGAIN, and an offset for each reader and queue (path NEW_LIFE)
    pulled       where the group begins, and what a member passes over later (path PULL)
    start        an offset for each of these that has none yet

Invariant: a group that read the earlier life passes over no message of the present one, whatever
its start policy is; it is behind by all of them from the first moment. Absent on purpose: which
remembered offset counts (`remembered_offsets`), groups that broadcast, whose members keep offsets
themselves, and a place for groups that poll and report no offset.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.groups.group_configs import SYSTEM_GROUPS, GroupConfigs
from engine.broker.groups.readers import QueueKey, Readers, Reading
from engine.broker.identity import BrokerNode
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.offsets.offset_facts import OffsetFacts
from engine.broker.offsets.remembered_offsets import RememberedOffsets
from engine.broker.offsets.topic_lives import TopicLives, Witness
from engine.broker.topics.topics import Topics
from engine.foundation.chunked_work import ChunkedWork, sorted_in_steps
from engine.foundation.errors import RequestRefused
from engine.foundation.limits import LOOP_STEP_ENTRIES_MAX
from engine.foundation.observing import LifecycleEvent, Observer
from engine.store import MessageStore
from engine.store.tombstones import NO_READERS, EarlierReaders

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class TopicReaders:
    """Groups that read a topic, while they are looked for."""

    sharing: dict[str, None] = field(default_factory=dict)
    polling: dict[str, None] = field(default_factory=dict)
    broadcasting: dict[str, None] = field(default_factory=dict)
    found: EarlierReaders = NO_READERS


@dataclass(slots=True, kw_only=True, eq=False)
class NewLives:
    """Begins new lives of topics, and places their readers."""

    facts: OffsetFacts
    group_configs: GroupConfigs
    groups: ConsumerGroups
    lives: TopicLives
    observer: Observer
    offsets: ConsumerOffsets
    readers: Readers
    store: MessageStore
    topics: Topics
    work: ChunkedWork
    _is_serving: bool = field(default=False, init=False)
    """Are the tables loaded?"""

    def readers_of(self, topic: str, readers: TopicReaders) -> Iterator[None]:
        """Note in steps the groups that share the topic's queues, with an offset or a member, or
        did until they were deleted, those that only pull it, those that broadcast it, and those
        that an earlier tombstone names and that exist: they may not all have been placed.
        """
        sharing, polling = readers.sharing, readers.polling
        sharing |= dict.fromkeys(self.offsets.groups_on(topic))
        for group in self.groups.subscribers_of(topic):
            if group is None:
                yield
            else:
                (readers.broadcasting if group.broadcasting else sharing)[group.name] = None
        for name in self.readers.groups_on(topic):
            if name is None:
                yield
            else:
                polling[name] = None
        for gone, had_offset in self.lives.gone_groups(topic).items():
            (sharing if had_offset else polling)[gone] = None
        before = self.store.tombstones.of(topic)
        if before is not None:
            for names, earlier in (
                (sharing, before.readers.sharing),
                (polling, before.readers.polling),
                (readers.broadcasting, before.readers.broadcasting),
            ):
                names.update(dict.fromkeys(filter(self.group_configs.known, earlier)))
                yield
        for name in SYSTEM_GROUPS:
            sharing.pop(name, None)
            polling.pop(name, None)
        readers.found = EarlierReaders(
            tuple((yield from sorted_in_steps(sharing))),
            tuple((yield from sorted_in_steps(name for name in polling if name not in sharing))),
            tuple((yield from sorted_in_steps(readers.broadcasting))),
            has_more=before is not None and before.readers.has_more,
        )

    def topic_goes(self, topic: str, polling: Iterable[str]) -> Iterator[None]:
        """The topic is deleted: what is known of its queues counts no more, and who may remember it
        is noted, in steps. `polling`: groups that only pull it.
        """
        self.lives.end(topic)
        return self.lives.add_witnesses(topic, self._witnesses_of(topic, polling))

    def group_goes(self, group: str) -> Iterator[None]:
        """The group is deleted: topics that are deleted after it name it as a reader all the same;
        noted in steps.
        """
        for number, topic in enumerate(self.offsets.topics_of(group), 1):
            self.lives.group_goes(group, topic, has_offset=True)
            if not number % LOOP_STEP_ENTRIES_MAX:
                yield

    def _witnesses_of(self, topic: str, polling: Iterable[str]) -> Iterator[Witness | None]:
        """Members of all groups that subscribe to the topic, or pull it; None ends a step."""
        for group in self.groups.subscribers_of(topic):
            if group is None:
                yield None
            else:
                yield from ((group.name, client_id) for client_id in list(group.members))
        for name in polling:
            members = self.groups.of(name)
            if members is not None:
                yield from ((name, client_id) for client_id in list(members.members))

    def topic_made(self, topic: str) -> None:
        """A topic was made; when the store remembers an earlier life of it, this is a new one."""
        if not self._is_serving or self.store.tombstones.of(topic) is None:
            return
        self.lives.begin(topic)
        detail = f"topic {topic} was deleted before and is made again: its queues begin anew"
        self.observer.observe(LifecycleEvent("TOPIC_MADE_AGAIN", detail, topic=topic))
        self.work.add(self._placed_readers(topic))

    def pulled_from(self, key: QueueKey, offset: int) -> None:
        """A member of the group pulls a queue of a later life from an offset that counts: show
        where the group begins, and each offset that lies beyond all it has pulled and stored. Hot.

        Of a life that began before the broker's last start the marks may be lost: only what begins
        at the first message is known then.
        """
        _, topic, queue_id = key
        if not self.lives.is_a_later_one(topic):
            return
        reading, committed = self.readers.of(key), self.offsets.answered(*key)
        pulled = None if reading is None else reading.pulled_up_to
        if pulled is not None and offset <= max(pulled, committed or 0):
            return
        if offset <= self.store.min_offset(topic, queue_id) or self.lives.began_since_boot(topic):
            self.facts.emit(key, offset, pulled, path="PULL", accepted=False)

    def serve(self) -> Iterator[None]:
        """The tables are loaded: a topic made from now on is a new one. Readers of topics made
        again are placed, in steps, that an earlier life of the broker had not placed yet, or whose
        places were not persisted.
        """
        self._is_serving = True
        return self._placed_after_start()

    def _placed_after_start(self) -> Iterator[None]:
        for topic in list(self.store.tombstones.ends):
            yield from self._placed_readers(topic)
            yield

    def reading_forgotten(self, key: QueueKey, reading: Reading) -> None:
        """A topic or a group was deleted: the mark in the spool is void. Members of a deleted group
        that know the queue's present life go on in it.
        """
        if reading.pulled_offset:
            self.observer.pulled(*key, 0, None)
        if self.topics.find(key[1]) is None:
            return
        if reading.last_puller is not None:
            self.lives.group_goes(*key[:2], has_offset=False)
        if reading.known_by:
            self.lives.keep_known(key, reading.known_by)

    def place_at_beginning(self, key: QueueKey) -> None:
        """Store the queue's first offset as that of a group which has none there."""
        self.place_at(key, self.store.min_offset(*key[1:]))

    def place_at(self, key: QueueKey, offset: int) -> None:
        """A group goes on there, whatever else was stored, maybe of an earlier life."""
        previous = self.offsets.place(*key, offset)
        self.facts.emit(key, offset, previous, path="NEW_LIFE")

    def _placed_readers(self, topic: str) -> Iterator[None]:
        """Place the readers of the earlier life in steps; who asks meanwhile hears the same."""
        tombstone, config = self.store.tombstones.of(topic), self.topics.find(topic)
        if tombstone is None or config is None:
            return
        life = self.lives.number(topic)
        keys = (
            (group, topic, queue_id)
            for group in tombstone.readers.sharing
            if self.group_configs.known(group)
            for queue_id in range(config.read_queue_nums)
        )
        for number, key in enumerate(keys, 1):
            if self.lives.number(topic) != life or self.topics.find(topic) is None:
                return  # It was deleted again.
            if self.offsets.answered(*key) is None:
                try:
                    self.place_at_beginning(key)
                except RequestRefused as error:  # No room for offsets: it is placed when it asks.
                    _log.warning(
                        "group %s is not placed on topic %s made again: %s", *key[:2], error
                    )
                    return
            if not number % LOOP_STEP_ENTRIES_MAX:
                yield


class StartingPoints:
    """Those of the groups of one broker."""

    def __init__(
        self,
        *,
        node: BrokerNode,
        store: MessageStore,
        topics: Topics,
        group_configs: GroupConfigs,
        remembered: RememberedOffsets,
        new_lives: NewLives,
    ) -> None:
        self._store = store
        self._topics = topics
        self._group_configs = group_configs
        self._remembered = remembered
        self._new_lives = new_lives
        self._resident_bytes = node.config.store.resident_bytes

    def place(self, key: QueueKey) -> int | None:
        """Where a group that read an earlier life of the topic has to begin, stored as its offset;
        None for any other group.
        """
        group, topic, queue_id = key
        config = self._topics.find(topic)
        if config is None or not 0 <= queue_id < config.read_queue_nums:
            return None
        if not self._group_configs.known(group):
            return None
        first = self._remembered.beginning_of(key)
        if first is not None:
            self._new_lives.place_at_beginning(key)
        return first

    def is_young(self, topic: str, queue_id: int) -> bool:
        """Is the queue's first message still there, and near the end of the log?

        A group without an offset then begins at 0, so that none of a new topic is missed; an old
        queue that was never cut must not be read from its beginning by everybody who comes.
        """
        store = self._store
        if store.min_offset(topic, queue_id) > 0:
            return False
        first = store.queue_units(topic, queue_id, 0, 1)
        if not first:
            return False
        return store.physical_max - first[0][0] <= self._resident_bytes
