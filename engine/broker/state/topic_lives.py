"""Lives of topics: whom an offset may come from that belongs to a life which is over.

Place in the walk: the deletion of a topic ends a life, its making begins the next one. Pulls and
reports of offsets ask here what their client can know of the present one
(`engine/broker/remembered_offsets` decides).

    witness   a member of a group that read the topic when it was deleted; what it remembers of a
              queue counts again once it has read the queue's present life
    answer    an offset of a queue that a client was given when it asked for one, in this life

A store that never had a message may stand where another was: its clients may remember any topic of
that one. For NEW_STORE_MS after its first start all its topics are watched.

Invariant: what is noted of a life is void when it ends. Forgetting too much makes a client begin
earlier, never later. Pure: time comes in as `now_ms`, steady. Absent on purpose: files (the
tombstones), groups' offsets and pulled marks, which go with the topic.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping

from engine.broker.state.readers import QueueKey
from engine.foundation.limits import (
    LIFE_ANSWERS_MAX,
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

ANSWERS_A_QUEUE = 4
"""Who decides where to begin asks for the first offset, the end, and one by time."""


class TopicLives:
    """What one broker knows of the lives of its topics."""

    def __init__(
        self,
        *,
        lives_max: int = TOMBSTONES_MAX,
        witnesses_max: int = LIFE_WITNESSES_MAX,
        answers_max: int = LIFE_ANSWERS_MAX,
    ) -> None:
        self._lives_max = lives_max
        self._witnesses_max = witnesses_max
        self._answers_max = answers_max
        self._new_until_ms: int | None = None
        self._is_first_start = False
        self.is_of_a_new_store = False
        """Had the store never had a message when it was opened, a while ago at most?"""
        self._numbers_given = 0
        self._numbers: OrderedDict[str, int] = OrderedDict()
        """Topic → number of its present life; topics that were deleted since boot only."""
        self._made_again: Mapping[str, object] = {}
        """Topics of which the log holds messages of an earlier life."""
        self._witnesses: OrderedDict[str, dict[Witness, set[int]]] = OrderedDict()
        """Topic → its witnesses, each with the queues whose present life it has read."""
        self._witnesses_count = 0
        self._answers: OrderedDict[tuple[str, str, int], tuple[int, tuple[int, ...]]] = (
            OrderedDict()
        )
        """(address, topic, queue id) → the life of which it was answered, and the newest offsets.
        """
        self._kept: OrderedDict[QueueKey, tuple[int, tuple[str, ...]]] = OrderedDict()
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

    def number(self, topic: str) -> int:
        """Another number for each life of the topic since boot. Hot."""
        return self._numbers.get(topic, 0)

    def may_have_had_another(self, topic: str) -> bool:
        """May a client remember another life of the topic? Hot."""
        return self.is_of_a_new_store or topic in self._made_again or topic in self._numbers

    def began_since_boot(self, topic: str) -> bool:
        """Is all that happened in the topic's present life known here?"""
        return (self.is_of_a_new_store and self._is_first_start) or topic in self._numbers

    def end(self, topic: str) -> None:
        """The topic was deleted: nothing that is known of its queues counts any more."""
        self._number_anew(topic)
        for queue_ids in self._witnesses.get(topic, {}).values():
            queue_ids.clear()

    def begin(self, topic: str) -> None:
        """The topic was made again, after a deletion in this life of the broker or before it."""
        self._number_anew(topic)

    def _number_anew(self, topic: str) -> None:
        self._numbers_given += 1
        self._numbers[topic] = self._numbers_given
        self._numbers.move_to_end(topic)
        if len(self._numbers) > self._lives_max:
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
        while self._witnesses_count > self._witnesses_max:
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

    def answered(self, address: str, topic: str, queue_id: int, offset: int) -> None:
        """A client asked for an offset of the queue, and was given this one."""
        key = (address, topic, queue_id)
        before = [one for one in self.answers(address, topic, queue_id) if one != offset]
        self._answers[key] = self.number(topic), (*before[1 - ANSWERS_A_QUEUE :], offset)
        self._answers.move_to_end(key)
        if len(self._answers) > self._answers_max:
            self._answers.popitem(last=False)

    def answers(self, address: str, topic: str, queue_id: int) -> tuple[int, ...]:
        """Offsets of the queue's present life that the client on this connection was given."""
        number, offsets = self._answers.get((address, topic, queue_id), (0, ()))
        return offsets if number == self.number(topic) else ()

    def keep_known(self, key: QueueKey, known_by: tuple[str, ...]) -> None:
        """The group was deleted: these clients know the present life of the queue all the same."""
        self._kept[key] = self.number(key[1]), known_by
        self._kept.move_to_end(key)
        if len(self._kept) > self._answers_max:
            self._kept.popitem(last=False)

    def known_by(self, key: QueueKey) -> tuple[str, ...]:
        """Clients that know the queue's present life from before their group was deleted."""
        number, known_by = self._kept.get(key, (-1, ()))
        return known_by if number == self.number(key[1]) else ()
