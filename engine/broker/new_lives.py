"""The end of a topic's life, and the beginning of the next one, for the groups that read it.

Place in the walk: a deletion (`deletions`) asks here who read the topic; when the topic is made
again, whoever made it, its readers are placed at the beginning of each of its queues.

    deletion     readers  → the tombstone: they begin at the beginning, also after a restart
                 members  → witnesses: what they remember of offsets does not count any more
    made again   TOPIC_MADE_AGAIN, and an offset for each reader and queue (path NEW_LIFE)

Invariant: a group that read the earlier life passes over no message of the present one, whatever
its start policy is; it is behind by all of them from the first moment. Absent on purpose: which
remembered offset counts (`remembered_offsets`), groups that broadcast, whose members keep offsets
themselves.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.broker.parts import BrokerParts
from engine.broker.reported_offsets import tell_offset
from engine.broker.state.group_configs import SYSTEM_GROUPS
from engine.broker.state.readers import QueueKey, Reading
from engine.broker.state.topic_lives import Witness
from engine.foundation.limits import LOOP_STEP_ENTRIES_MAX
from engine.foundation.observing import LifecycleEvent


def readers_of(parts: BrokerParts, topic: str, readers: dict[str, None]) -> Iterator[None]:
    """Note in steps the groups that share the topic's queues, with an offset or a member."""
    readers |= dict.fromkeys(parts.offsets.groups_on(topic))
    for group in parts.groups.subscribers_of(topic):
        if group is None:
            yield
        elif not group.broadcasting:
            readers[group.name] = None
    for name in SYSTEM_GROUPS:
        readers.pop(name, None)


def witnesses_of(parts: BrokerParts, topic: str) -> Iterator[Witness | None]:
    """Members of all groups that subscribe to the topic; None ends a step."""
    for group in parts.groups.subscribers_of(topic):
        if group is None:
            yield None
        else:
            yield from ((group.name, client_id) for client_id in list(group.members))


def topic_made(parts: BrokerParts, topic: str) -> None:
    """A topic was made; when the store remembers an earlier life of it, this is a new one."""
    if parts.store.tombstones.of(topic) is None:
        return
    parts.lives.begin(topic)
    detail = f"topic {topic} was deleted before and is made again: its queues begin anew"
    parts.observer.observe(LifecycleEvent("TOPIC_MADE_AGAIN", detail, topic=topic))
    parts.work.add(_placed_readers(parts, topic))


def reading_forgotten(parts: BrokerParts, key: QueueKey, reading: Reading) -> None:
    """A topic or a group was deleted: the mark in the spool is void. Members of a deleted group
    that know the queue's present life go on in it.
    """
    if reading.pulled_offset:
        parts.observer.pulled(*key, 0, None)
    if reading.known_by and parts.topics.find(key[1]) is not None:
        parts.lives.keep_known(key, reading.known_by)


def place_at_beginning(parts: BrokerParts, key: QueueKey) -> None:
    """Store the queue's first offset as that of a group which has none there."""
    group, topic, queue_id = key
    first = parts.store.min_offset(topic, queue_id)
    previous = parts.offsets.place(group, topic, queue_id, first)
    tell_offset(parts, key, first, previous, path="NEW_LIFE")


def _placed_readers(parts: BrokerParts, topic: str) -> Iterator[None]:
    """Place the readers of the earlier life in steps; who asks meanwhile hears the same."""
    tombstone, config = parts.store.tombstones.of(topic), parts.topics.find(topic)
    if tombstone is None or config is None:
        return
    life = parts.lives.number(topic)
    keys = (
        (group, topic, queue_id)
        for group in sorted(tombstone.readers or ())
        if parts.group_configs.known(group)
        for queue_id in range(config.read_queue_nums)
    )
    for number, key in enumerate(keys, 1):
        if parts.lives.number(topic) != life or parts.topics.find(topic) is None:
            return  # It was deleted again.
        if parts.offsets.told(*key) is None:
            place_at_beginning(parts, key)
        if not number % LOOP_STEP_ENTRIES_MAX:
            yield
