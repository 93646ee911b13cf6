"""Tracks which clients may still report offsets from a topic's earlier incarnation.

Place in the walk: the deletion of a topic ends a life, its making begins the next one. Pulls and
reports of offsets ask here what their client can know of the present one
(`engine/broker/offsets/remembered_offsets` decides).

    witness   a member of a group that read the topic when it was deleted; what it remembers of a
              queue counts again once it has read the queue's present life
    answer    an offset of a queue that a client was given in this life, and what it had asked for

A store that never had a message may stand where another was: its clients may remember any topic of
that one. For NEW_STORE_MS after its first start all its topics are watched.

Invariant: what is noted of a life is void when it ends. Forgetting too much makes a client begin
earlier, never later. Pure: time comes in as `now_ms`, steady. Absent on purpose: files (the
tombstones), groups' offsets and pulled marks, which go with the topic.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from engine.broker.groups.readers import QueueKey
from engine.foundation.limits import (
    LIFE_ANSWERS_MAX,
    LIFE_LISTENERS_MAX,
    LIFE_WITNESSES_MAX,
    LOOP_STEP_ENTRIES_MAX,
    TOMBSTONES_MAX,
)
from engine.foundation.units import MINUTE_MS

Witness = tuple[str, str]
"""group, client id"""

NEW_STORE_MS = 60 * MINUTE_MS
"""For so long after the first start of a new store, offsets that its clients were never given are
taken for those of a store that was there before.
"""

ANSWERS_A_QUEUE = 12
"""Who decides where to begin asks for the group's offset, the first one, the end, and one by time;
consumers of several groups may share a connection.
"""

NOWHERE = -1
"""The offset of an answer that holds none."""


class Asked(Enum):
    """What a client asked for, or why it was given an offset without a question."""

    GROUP = "where the group is"
    SENT = "nothing: it pulled from an offset that does not count, and was sent there"
    NOTHING = "where the group is, and it is nowhere"
    FIRST = "the queue's first message"
    END = "the queue's end"
    TIME = "the first message from some time on"


class Answer(NamedTuple):
    """An offset that a client was given."""

    asked: Asked
    offset: int
    group: str | None = None
    """The group it was asked for; None: for none."""


class SetOffset(NamedTuple):
    """An offset that a connection set, and it may be a tool's or a consumer's."""

    life: int
    offset: int
    before: int | None
    """Where the group was, as far as this connection had no hand in it."""


@dataclass(slots=True, kw_only=True, eq=False)
class TopicLives:
    """What one broker knows of the lives of its topics."""

    lives_max: int = TOMBSTONES_MAX
    witnesses_max: int = LIFE_WITNESSES_MAX
    answers_max: int = LIFE_ANSWERS_MAX
    listeners_max: int = LIFE_LISTENERS_MAX
    _new_until_ms: int | None = field(default=None, init=False)
    _is_first_start: bool = field(default=False, init=False)
    is_of_a_new_store: bool = field(default=False, init=False)
    """Had the store never had a message when it was opened, a while ago at most?"""
    _numbers_given: int = field(default=0, init=False)
    _numbers: OrderedDict[str, int] = field(default_factory=OrderedDict, init=False)
    """Topic → number of its present life; topics that were deleted since boot only."""
    _made_again: Mapping[str, object] = field(default_factory=dict, init=False)
    """Topics of which the log holds messages of an earlier life."""
    _witnesses: OrderedDict[str, dict[Witness, set[int]]] = field(
        default_factory=OrderedDict, init=False
    )
    """Topic → its witnesses, each with the queues whose present life it has read."""
    _witnesses_count: int = field(default=0, init=False)
    _answers: OrderedDict[tuple[str, str, int], tuple[int, tuple[Answer, ...]]] = field(
        default_factory=OrderedDict, init=False
    )
    """(address, topic, queue id) → the life of which it was answered, and the newest answers.
    """
    _sets: OrderedDict[tuple[str, QueueKey], SetOffset] = field(
        default_factory=OrderedDict, init=False
    )
    """(address, queue) → the offset that was set, and did not show to be a tool's."""
    _gone_groups: OrderedDict[str, dict[str, bool]] = field(default_factory=OrderedDict, init=False)
    """Topic → groups that read it until they were deleted, and whether they had an offset."""
    _gone_groups_count: int = field(default=0, init=False)
    _listeners: dict[QueueKey, tuple[int, set[str]]] = field(default_factory=dict, init=False)
    """Queue → the life of it that clients with offsets of their own read, and who they are."""
    _listeners_count: int = field(default=0, init=False)
    _kept: OrderedDict[QueueKey, tuple[int, tuple[str, ...]]] = field(
        default_factory=OrderedDict, init=False
    )
    """Queue of a deleted group → the life in which its members read it, and who they were."""

    def watch(
        self, made_again: Mapping[str, object], *, new_until_ms: int | None, is_first_start: bool
    ) -> None:
        """Begin: which topics the store knows to have been deleted, always the same mapping; until
        when the store counts as new, None for any other; and is this its first start?
        """
        self._made_again = made_again
        self._new_until_ms = new_until_ms
        self._is_first_start = is_first_start
        self.is_of_a_new_store = new_until_ms is not None

    def grow_older(self, now_ms: int) -> None:
        """Called now and then: a store is new for a while only, and never again."""
        if self._new_until_ms is not None and now_ms >= self._new_until_ms:
            self._new_until_ms, self.is_of_a_new_store = None, False
            self._listeners = {
                key: one
                for key, one in self._listeners.items()
                if self.may_have_had_another(key[1])
            }
            self._listeners_count = sum(len(names) for _, names in self._listeners.values())

    def number(self, topic: str) -> int:
        """Another number for each life of the topic since boot. Hot."""
        return self._numbers.get(topic, 0)

    def may_have_had_another(self, topic: str) -> bool:
        """May a client remember another life of the topic? Hot."""
        return self.is_of_a_new_store or self.is_a_later_one(topic)

    def is_a_later_one(self, topic: str) -> bool:
        """Was the topic deleted before, as far as the store remembers?"""
        return topic in self._made_again or topic in self._numbers

    def began_since_boot(self, topic: str) -> bool:
        """Is all that happened in the topic's present life known here?"""
        return (self.is_of_a_new_store and self._is_first_start) or topic in self._numbers

    def end(self, topic: str) -> None:
        """The topic was deleted: nothing that is known of its queues counts any longer."""
        self._number_anew(topic)
        self._gone_groups_count -= len(self._gone_groups.pop(topic, ()))
        for queue_ids in self._witnesses.get(topic, {}).values():
            queue_ids.clear()

    def begin(self, topic: str) -> None:
        """The topic was made again, after a deletion in this life of the broker or before it."""
        self._number_anew(topic)

    def _number_anew(self, topic: str) -> None:
        self._numbers_given += 1
        self._numbers[topic] = self._numbers_given
        self._numbers.move_to_end(topic)
        if len(self._numbers) > self.lives_max:
            self._numbers.popitem(last=False)

    def add_witnesses(self, topic: str, members: Iterable[Witness | None]) -> Iterator[None]:
        """These members read the topic when it was deleted; noted in steps. None ends a step."""
        witnesses = self._witnesses.setdefault(topic, {})
        self._witnesses.move_to_end(topic)
        for number, member in enumerate(members, 1):
            if member is not None and member not in witnesses:
                witnesses[member] = set()
                self._witnesses_count += 1
            if member is None or not number % LOOP_STEP_ENTRIES_MAX:
                yield
        if not witnesses:
            del self._witnesses[topic]
        while self._witnesses_count > self.witnesses_max:
            _, oldest = self._witnesses.popitem(last=False)
            self._witnesses_count -= len(oldest)

    def is_witness(self, topic: str, group: str, client_id: str | None) -> bool:
        """Was the client a member of the group when an earlier life of the topic ended?"""
        return client_id is not None and (group, client_id) in self._witnesses.get(topic, {})

    def has_read(self, topic: str, queue_id: int, group: str, client_id: str | None) -> bool:
        """Has this witness read the queue's present life?"""
        if client_id is None:
            return False
        return queue_id in self._witnesses.get(topic, {}).get((group, client_id), ())

    def reads(self, topic: str, queue_id: int, group: str, client_id: str | None) -> None:
        """The client reads the queue's present life, whatever it remembers of others."""
        queue_ids = self._witnesses.get(topic, {}).get((group, client_id or ""))
        if queue_ids is not None:
            queue_ids.add(queue_id)

    def answered(self, address: str, topic: str, queue_id: int, answer: Answer) -> None:
        """The client on this connection is given an offset of the queue."""
        key = (address, topic, queue_id)
        before = [one for one in self._of_this_life(key) if one != answer]
        self._answers[key] = self.number(topic), (*before[1 - ANSWERS_A_QUEUE :], answer)
        self._answers.move_to_end(key)
        if len(self._answers) > self.answers_max:
            self._answers.popitem(last=False)

    def answers(self, address: str, key: QueueKey) -> list[Answer]:
        """What the clients on this connection were given of the queue's present life, for this
        group or for none: consumers of one process may share a connection.
        """
        group, topic, queue_id = key
        answers = self._of_this_life((address, topic, queue_id))
        return [one for one in answers if one.group in (None, group)]

    def _of_this_life(self, key: tuple[str, str, int]) -> tuple[Answer, ...]:
        number, answers = self._answers.get(key, (0, ()))
        return answers if number == self.number(key[1]) else ()

    def group_goes(self, group: str, topic: str, *, has_offset: bool) -> None:
        """The group is deleted, and read the topic until now."""
        groups = self._gone_groups.setdefault(topic, {})
        self._gone_groups_count += group not in groups
        groups[group] = groups.get(group, False) or has_offset
        while self._gone_groups_count > self.witnesses_max:
            _, oldest = self._gone_groups.popitem(last=False)
            self._gone_groups_count -= len(oldest)

    def gone_groups(self, topic: str) -> Mapping[str, bool]:
        """Groups that were deleted while they read the topic, and whether they had an offset: made
        again, their members go on.
        """
        return dict(self._gone_groups.get(topic, {}))

    def sets(self, address: str, key: QueueKey, offset: int, *, before: int | None) -> None:
        """Who is on this connection sets the group's offset, and may yet be a consumer."""
        origin = None if before is None else self.before_set(address, key, before)
        self._sets[address, key] = SetOffset(self.number(key[1]), offset, origin)
        self._sets.move_to_end((address, key))
        if len(self._sets) > self.answers_max:
            self._sets.popitem(last=False)

    def before_set(self, address: str, key: QueueKey, offset: int) -> int | None:
        """Where the group was before this connection set it to `offset`; there, if it did not."""
        own = self._sets.get((address, key))
        is_own = own is not None and own[:2] == (self.number(key[1]), offset)
        return own.before if own is not None and is_own else offset

    def listens(self, key: QueueKey, name: str) -> None:
        """A client with offsets of its own reads the queue's present life. Hot."""
        number, names = self._listeners.get(key, (-1, set()))
        if number != self.number(key[1]):
            self._listeners_count -= len(names)
            names = set()
            self._listeners[key] = self.number(key[1]), names
        if name not in names and self._listeners_count < self.listeners_max:
            names.add(name)
            self._listeners_count += 1

    def listeners(self, key: QueueKey) -> Collection[str]:
        """Clients with offsets of their own that read the queue's present life."""
        number, names = self._listeners.get(key, (-1, set()))
        return names if number == self.number(key[1]) else ()

    @property
    def has_room_for_listeners(self) -> bool:
        """Is each of them known?"""
        return self._listeners_count < self.listeners_max

    def keep_known(self, key: QueueKey, known_by: tuple[str, ...]) -> None:
        """The group was deleted: these clients know the present life of the queue all the same."""
        self._kept[key] = self.number(key[1]), known_by
        self._kept.move_to_end(key)
        if len(self._kept) > self.answers_max:
            self._kept.popitem(last=False)

    def known_by(self, key: QueueKey) -> tuple[str, ...]:
        """Clients that know the queue's present life from before their group was deleted."""
        number, known_by = self._kept.get(key, (-1, ()))
        return known_by if number == self.number(key[1]) else ()
