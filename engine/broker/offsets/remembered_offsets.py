"""Decides whether a client's remembered offset is valid in the queue's present incarnation.

It may be an offset of messages that a power cut took, of a topic that was deleted and made again,
or of a store that stood where a new one is.

Place in the walk: `handlers/pull` asks before it reads, `offsets/commit_reports` before it stores,
and `handlers/offset` when a group asks where to begin.

A client keeps offsets in memory and notices none of this. In a queue that begins anew they name
other messages: it would pass over all before them, acknowledged or not, and report them as
consumed. So an offset counts if the client can have it from the present life of the queue:

    it passes over nothing      at or below the first message, or what the group has committed
    the client read it          it has pulled the queue in this life
    the client chose it         it asked for this offset, or for both ends of the queue as a seek
                                does, and does not go on from memory (`_has_chosen`)
    nobody remembers another    the group did not read an earlier life, the store is not new, and
                                the client keeps offsets itself

Of a witness of the deletion only what it has pulled counts. Any other client begins where its group
is, or at the queue's first message. One that has sent no heartbeat yet may be known by its name:
where others of its group were as far, it waits until it has. Of a life that began before the
broker's last start only the last puller of each queue is known: others that may remember another
life, the readers of a topic made again and all clients of a new store, go back to what their group
has committed. A tool, which reports without a heartbeat and waits for the answer, sets what it will
(`may_set`); if it pulls afterwards it was no tool, and what it set no longer counts (`_committed`).

Invariant: what is not known makes a client begin too early, never too late. A topic that nobody can
remember from another life costs one look-up a pull. Absent on purpose: what a tool or a reset
chooses, which counts all the same; answers and facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from engine.broker.groups.consumer_groups import ConsumerGroup, ConsumerGroups
from engine.broker.groups.group_configs import SYSTEM_GROUPS
from engine.broker.groups.readers import QueueKey, Readers
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.offsets.topic_lives import NOWHERE, Answer, Asked, TopicLives
from engine.foundation.chunked_work import dropped_in_steps
from engine.foundation.errors import RequestRefused
from engine.protocol.codes import ResponseCode
from engine.store import MessageStore

PUSH = "CONSUME_PASSIVELY"
BootEnds = dict[tuple[str, int], int] | None
"""Where each queue ended at boot, when a power cut may have taken what lay behind; else None."""
QueueEnds = tuple[None, str, int]
"""A queue that is asked for its ends, or for an offset by time, on behalf of no group."""


class Store(Enum):
    """The source of the offset from which a client begins to pull."""

    BROKER = "it asks the broker: a push consumer"
    BROKER_OR_USER = "it asks the broker, or seeks within what the broker said: a lite consumer"
    OWN = "it may have one of its own: any other"


@dataclass(slots=True)
class Client:
    """The client that names an offset; made for each pull."""

    client_id: str | None
    """None: it has sent no heartbeat on this connection."""
    address: str
    store: Store = Store.BROKER

    @property
    def name(self) -> str:
        """The client's id, or else its address."""
        return self.client_id or self.address


@dataclass(slots=True, kw_only=True, eq=False)
class RememberedOffsets:
    """Judges the offsets that clients of one broker remember."""

    boot_ends: BootEnds
    groups: ConsumerGroups
    lives: TopicLives
    offsets: ConsumerOffsets
    readers: Readers
    store: MessageStore

    def goes_back_to(
        self, key: QueueKey, offset: int, client: Client, *, shared: bool
    ) -> int | None:
        """Where a client has to begin that pulls from an offset which does not count; None when it
        does. `shared`: do the members of its group share the queues? Hot.

        Raises RequestRefused for a client that has to say first who it is.
        """
        _, topic, queue_id = key
        after_power_cut = self._taken_by_a_power_cut(key, offset) if shared else None
        if after_power_cut is not None:
            return after_power_cut
        lives = self.lives
        if not lives.may_have_had_another(topic):
            return None
        first = self.store.min_offset(topic, queue_id)
        committed = self._committed(key, client.address) if shared else None
        begin = first if committed is None else max(first, committed)
        if offset <= begin or self._can_have(key, offset, client):
            return None
        if client.client_id is None and (offset <= self._reached(key) or lives.listeners(key)):
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"offset {offset} of queue {queue_id} of {topic} may be of an earlier life of the "
                f"topic: {client.address} has sent no heartbeat; pull again after it",
            )
        self.note_answer(key, begin, client.address, asked=Asked.SENT)
        return begin

    def note_pull(self, key: QueueKey, offset: int, client: Client) -> None:
        """A client pulls from an offset that counts: from now on it knows the queue's life. Hot."""
        group, topic, queue_id = key
        if self.lives.may_have_had_another(topic):
            if client.store is not Store.BROKER and self._may_remember(key):
                self.lives.listens(key, client.name)
            self.readers.reached(key, client.name, offset)
            self.lives.reads(topic, queue_id, group, client.client_id)

    def note_answer(
        self, key: QueueKey | QueueEnds, offset: int, address: str, *, asked: Asked
    ) -> None:
        """The client on this connection is given an offset of the queue's present life; `key` has
        the group that it asked for, if it named one.
        """
        group, topic, queue_id = key
        if self.lives.may_have_had_another(topic):
            self.lives.answered(address, topic, queue_id, Answer(asked, offset, group))

    def note_group(self, key: QueueKey, offset: int, address: str) -> None:
        """The client on this connection asked where its group is; what it set is no answer."""
        if self.lives.before_set(address, key, offset) == offset:
            self.note_answer(key, offset, address, asked=Asked.GROUP)

    def note_nowhere(self, key: QueueKey, address: str) -> None:
        """The client on this connection asked where its group is, and hears that nobody knows."""
        self.note_answer(key, NOWHERE, address, asked=Asked.NOTHING)

    def may_set(self, key: QueueKey, offset: int, address: str) -> bool:
        """May a client that has sent no heartbeat set the group's offset, as tools do?

        Who was sent back, or has pulled the queue, is a consumer that may remember the offset. Any
        other is a tool for all that is known, and it is noted where the group was before.
        """
        if not self.lives.may_have_had_another(key[1]):
            return True
        answers = self.lives.answers(address, key)
        if _has_chosen(answers, offset, Store.BROKER_OR_USER):
            return True
        if any(one.asked is Asked.SENT for one in answers) or self._knows(
            key, offset, Client(None, address)
        ):
            return False
        self.lives.sets(address, key, offset, before=self.offsets.committed(*key))
        return True

    def why_report_is_void(
        self, key: QueueKey, offset: int, client: Client, *, pulled_from: int | None
    ) -> str | None:
        """Why a report does not count that its client made of its own accord; None when it does.
        `pulled_from`: where the pull begins that carries it.
        """
        group, topic, queue_id = key
        if self._taken_by_a_power_cut(key, offset) is not None:
            return (
                f"offset {offset} counts messages of queue {queue_id} of {topic} that an unclean "
                "stop of the broker took; pull before you report"
            )
        if not self.lives.may_have_had_another(topic):
            return None
        first = self.store.min_offset(topic, queue_id)
        committed = self._committed(key, client.address)
        if offset <= max(first, committed or 0) or self._can_report(
            key, offset, client, pulled_from=pulled_from
        ):
            return None
        return (
            f"offset {offset} of queue {queue_id} of {topic} is none of the queue's present life, "
            f"which group {group} has pulled up to {self._reached(key)}: the topic was made again, "
            f"or the store is another; {client.name} has to pull before it reports"
        )

    def holds_present_life(self, key: QueueKey, client: Client) -> bool:
        """Are the messages of the queue that a client says it holds those of its present life?"""
        group, topic, _ = key
        if not self.lives.may_have_had_another(topic) or self._knows(key, 0, client):
            return True
        members = self.groups.of(group)
        shares = members is None or not members.broadcasting
        if shares and self.lives.began_since_boot(topic):
            return False
        return not self._is_witness(key, client)

    def beginning_of(self, key: QueueKey) -> int | None:
        """Where a group without an offset has to begin, whatever it would choose: at the first
        message of a topic made again whose earlier life it read; None for any other.
        """
        group, topic, queue_id = key
        if group in SYSTEM_GROUPS or not self._was_read(key):
            return None
        return self.store.min_offset(topic, queue_id)

    def forget_topic(self, topic: str) -> Iterator[None]:
        """The topic was deleted: where its queues ended at boot says nothing; in steps."""
        return dropped_in_steps(self.boot_ends or {}, lambda queue: queue[0] == topic)

    def _taken_by_a_power_cut(self, key: QueueKey, offset: int) -> int | None:
        """Where a group goes on whose client remembers an offset of messages that a power cut took;
        None for any other.

        Nobody of the group has pulled the queue since and gone on from there, so what lies between
        its end by then and `offset` are other messages, which the client would pass over. So it is
        until somebody has done so, whatever starts come between: clients of RocketMQ 4 do so after
        ten seconds, and report meanwhile. Where a tool has set an offset behind that end, it is
        those behind this offset. A group without any offset may be a new one that begins at the
        end.
        """
        if self.readers.has_pulled(key):
            return None
        group, topic, queue_id = key
        reading = self.readers.of(key)
        end = None if reading is None else reading.cut_at
        if end is None and self.boot_ends is not None:
            end = self.boot_ends.get((topic, queue_id), 0)
        if end is None or offset <= end:
            return None
        committed = self.offsets.answered(group, topic, queue_id)
        return committed if committed is not None and committed < offset else None

    def _committed(self, key: QueueKey, address: str) -> int | None:
        """Where the group is for a client that pulls: where it was before, if this client set it
        where it is, for it may have set what it remembers.
        """
        offset = self.offsets.answered(*key)
        if offset is None or self.offsets.reset_pending(*key):
            return offset
        return self.lives.before_set(address, key, offset)

    def _can_have(self, key: QueueKey, offset: int, client: Client) -> bool:
        """Can the client have such an offset from the present life of the queue?"""
        group, topic, queue_id = key
        lives, store = self.lives, client.store
        if self._knows(key, offset, client):
            return True
        if self._is_witness(key, client):  # Who asks where a queue ends may only measure its lag.
            return False
        is_there = offset <= self.store.max_offset(topic, queue_id)
        if group in SYSTEM_GROUPS:
            return is_there
        answers = lives.answers(client.address, key)
        if self._may_remember(key):
            if store is not Store.BROKER and not lives.has_room_for_listeners:
                return is_there
            return is_there and _has_chosen(answers, offset, store)
        given = [one.offset for one in answers]
        if offset in given or (store is Store.BROKER_OR_USER and offset <= max(given, default=-1)):
            return True
        return is_there and (store is Store.OWN or not lives.began_since_boot(topic))

    def _can_report(
        self,
        key: QueueKey,
        offset: int,
        client: Client,
        *,
        pulled_from: int | None,
    ) -> bool:
        """Can the client have consumed the present life of the queue up to `offset`? One of
        RocketMQ's C++ clients reports the end of the earlier life whenever it holds no message of
        the next one.
        """
        topic = key[1]
        if pulled_from is not None and offset > pulled_from:
            return False
        if self._knows(key, offset, client):
            return offset <= self._reached(key)
        return not self.lives.began_since_boot(topic) and self._is_trusted(key)

    def _reached(self, key: QueueKey) -> int:
        """How far anybody of the group has pulled the queue's present life."""
        reading = self.readers.of(key)
        return 0 if reading is None else reading.pulled_up_to or 0

    def _knows(self, key: QueueKey, offset: int, client: Client) -> bool:
        """Has the client pulled the queue in its present life, and may have this offset from it?
        One that did before the broker's last start has none beyond what it had pulled by then: the
        store may be a copy that was put back, and shorter than what the client remembers.
        """
        group, topic, queue_id = key
        reading, names = self.readers.of(key), (client.name, client.address)
        if reading is not None and any(reading.knows(name, offset) for name in names):
            return True
        for known_by in (self.lives.known_by(key), self.lives.listeners(key)):
            if client.name in known_by or client.address in known_by:
                return True
        return self.lives.has_read(topic, queue_id, group, client.client_id)

    def _may_remember(self, key: QueueKey) -> bool:
        """May clients of the group remember another life of the queue, though nobody saw them in
        it?
        """
        group, topic, _ = key
        if group in SYSTEM_GROUPS:
            return False
        return self.lives.is_of_a_new_store or self._was_read(key) or self._broadcast(group, topic)

    def _is_witness(self, key: QueueKey, client: Client) -> bool:
        group, topic, _ = key
        return self.lives.is_witness(topic, group, client.client_id)

    def _is_trusted(self, key: QueueKey) -> bool:
        """Is a client of the group believed in a life that began before the broker's last start,
        whose last puller it was not?
        """
        return not self.lives.is_of_a_new_store and not self._was_read(key)

    def _was_read(self, key: QueueKey) -> bool:
        """Did the group read an earlier life of the topic, as far as that is known?"""
        group, topic, _ = key
        tombstone = self.store.tombstones.of(topic)
        return tombstone is not None and tombstone.was_read_by(group)

    def _broadcast(self, group: str, topic: str) -> bool:
        """Did the group broadcast an earlier life of the topic, and has the broker not started
        since the present one began? Of one that began before, each member would get all of it with
        each start.
        """
        tombstone = self.store.tombstones.of(topic)
        return (
            tombstone is not None
            and self.lives.began_since_boot(topic)
            and tombstone.readers.broadcast_to(group)
        )


def _has_chosen(answers: Sequence[Answer], offset: int, store: Store) -> bool:
    """Do its questions show that a client chose this offset, though it may remember the same one of
    another life?

    A consumer that goes on from memory asks nothing; a gauge of its lag beside it asks for one end
    or both, and where the group is. One that begins hears that its group is nowhere, and asks on; a
    lite consumer that seeks asks for both ends, and who polls cannot seek.
    """
    asked = {one.asked for one in answers}
    exact = {one.asked for one in answers if one.offset == offset}
    if exact & {Asked.GROUP, Asked.SENT} or (exact and Asked.NOTHING in asked):
        return True
    if store is Store.BROKER:
        return False
    if Asked.TIME in exact:
        return True
    if store is Store.OWN:
        return False
    ends = [one.offset for one in answers if one.asked is Asked.END]
    return Asked.FIRST in asked and offset <= max(ends, default=NOWHERE)


def pull_store(group: ConsumerGroup | None, *, is_lite: bool, suspends: bool) -> Store:
    """Where a pull's offset comes from, as its kind and its group show. One that comes before the
    first heartbeat is a push consumer's if it may be held.
    """
    if is_lite:
        return Store.BROKER_OR_USER
    if group is None:
        return Store.BROKER if suspends else Store.OWN
    return Store.BROKER if group.consume_type == PUSH and not group.broadcasting else Store.OWN
