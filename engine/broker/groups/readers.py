"""Tracks which clients read each queue of a group, and how far the group has pulled it.

Place in the walk: each pull passes here twice, when it arrives (who reads now?) and when it is
answered (how far did it get?). What is learnt becomes rebalance events, redeliveries and the
`pulled` column of the watermarks. A client that lost a queue, or asks where its group goes on, is
doubtful until `reporting/client_windows` has asked what it holds.

Invariant: a pulled mark is one past the highest offset ever answered to the group; it moves up
only; at boot it is cut to the end of a log that lost its tail. Ownership is inferred: a queue
belongs to whoever pulled it last. A client that goes costs what it read, not what all read. A doubt
is settled by an answer to a question asked DOUBT_MS after it arose, or ends after DOUBT_SPAN_MS.
Absent on purpose: offsets that clients report, and sending anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from engine.foundation.chunked_work import LOOKED_AT_PER_STEP, dropped_in_steps
from engine.foundation.errors import RequestRefused
from engine.foundation.limits import DOUBTFUL_READERS_MAX, GROUP_QUEUES_MAX, QUEUE_KNOWERS_MAX
from engine.foundation.observing import Redelivery
from engine.foundation.units import SECOND_MS
from engine.protocol.codes import ResponseCode

QueueKey = tuple[str, str, int]
"""group, topic, queue_id"""

CUT: Final = ""
"""As the client of a mark: what the group had pulled beyond it is gone, at this start or before."""


@dataclass(slots=True)
class Reading:
    """One group's reading of one queue."""

    reader: str | None = None
    """Client that pulled last and has not left since."""
    reported_in: int = 0
    """Number of the leadership of this node in which that was reported."""
    last_puller: str | None = None
    """Client that pulled last, even when it has left."""
    last_pull_ms: int | None = None
    goes_on: bool = False
    """Has anybody of the group pulled it in this life of the broker, and not been sent back?"""
    began_offset: int | None = None
    """Where the first pull of the group began that counted; None: in an earlier life of the broker,
    whose mark was taken over, or not yet."""
    pulled_offset: int | None = None
    """Next offset nobody of the group has pulled."""
    pulled_by: str | None = None
    """Client whose pull moved the mark there."""
    pulled_in_epoch: int = 0
    """Life of the broker in which it did."""
    processed_offset: int | None = None
    """One past the highest finished offset, as its reader reported last."""
    stood_at: int | None = None
    """Consume offset when it was last looked whether it moves."""
    stood_since_ms: int | None = None
    """Since when it was seen there; None: never looked."""
    reached_offset: int = 0
    """Highest offset from which anybody pulled it in this life of the topic, as far as such an
    offset counts."""
    known_by: tuple[str, ...] = ()
    """Clients that pulled it in this life of the topic, from an offset that counts; the latest
    QUEUE_KNOWERS_MAX."""
    restored_for: str | None = None
    """The one of them that is known by a mark of an earlier life of the broker alone."""
    restored_end: int = 0
    """How far it had pulled by the mark: it has nothing beyond from this store."""
    cut_at: int | None = None
    """Where the queue ended when messages that the group had pulled were gone, at this boot or an
    earlier one; None when none were, or somebody has pulled since."""
    begun_by: str | None = None
    """Its reader when it was last looked who reads."""
    begun_ms: int | None = None
    """Since when that one was seen to; steady time."""

    @property
    def pulled_up_to(self) -> int | None:
        """How far anybody has pulled it in this life of the topic; None: nobody has."""
        if self.pulled_offset is None and not self.known_by:
            return None
        return max(self.pulled_offset or 0, self.reached_offset)

    def knows(self, name: str, offset: int) -> bool:
        """Is the client known to have pulled it, so that it may have this offset from it?"""
        is_within = name != self.restored_for or offset <= self.restored_end
        return name in self.known_by and is_within


@dataclass(slots=True, eq=False)
class Readers:
    """All readings of one broker; `broker_epoch` is its present life.

    `on_forgotten`: a reading is void, for its topic or its group was deleted.
    """

    broker_epoch: int
    count_max: int = GROUP_QUEUES_MAX
    _: KW_ONLY
    on_forgotten: Callable[[QueueKey, Reading], None] = lambda _key, _reading: None
    _leadership: int = field(default=0, init=False)
    """How often this node began to lead while it ran."""
    _readings: dict[QueueKey, Reading] = field(default_factory=dict, init=False)
    _read_by: dict[tuple[str, str], dict[QueueKey, None]] = field(default_factory=dict, init=False)
    """(group, client id) → the queues whose reader it is."""
    _moved: dict[QueueKey, None] = field(default_factory=dict, init=False)
    """Readings that changed, or went, since `take_moved`."""
    _heard: dict[QueueKey, None] = field(default_factory=dict, init=False)
    """Queues pulled by who pulled them before, since `take_heard`."""
    _pulled: dict[QueueKey, None] = field(default_factory=dict, init=False)
    """Queues pulled since `take_pulled`."""

    def restore(
        self,
        key: QueueKey,
        *,
        pulled_offset: int,
        max_offset: int,
        client_id: str | None,
        broker_epoch: int,
    ) -> None:
        """Take over a mark of an earlier life, so that a crash's redeliveries can be reported.

        A mark beyond `max_offset` is cut to it: those messages no longer exist, others will; and
        its client may remember them. One that was cut before names CUT.
        """
        is_there = pulled_offset <= max_offset
        is_cut = not is_there or client_id == CUT
        client_id = client_id or None
        self._readings[key] = Reading(
            last_puller=client_id,
            pulled_offset=min(pulled_offset, max_offset),
            pulled_by=client_id,
            pulled_in_epoch=broker_epoch,
            known_by=(client_id,) if client_id is not None and is_there else (),
            restored_for=client_id,
            restored_end=pulled_offset,
            cut_at=min(pulled_offset, max_offset) if is_cut else None,
        )
        self._moved[key] = None

    def of(self, key: QueueKey) -> Reading | None:
        """The reading of one queue; None when the group never pulled it."""
        return self._readings.get(key)

    def has_pulled(self, key: QueueKey) -> bool:
        """Has anybody of the group pulled the queue in this life of the broker, from an offset that
        counted? Who was sent back has not gone there yet.
        """
        reading = self._readings.get(key)
        return reading is not None and reading.goes_on

    def __contains__(self, key: QueueKey) -> bool:
        """Was the queue ever pulled for the group?"""
        return key in self._readings

    def keys(self) -> Collection[QueueKey]:
        """Every queue that was ever pulled for a group."""
        return self._readings.keys()

    def groups_on(self, topic: str) -> Iterator[str | None]:
        """Groups of which a named client pulled a queue of the topic, once a queue; None ends a
        step.
        """
        for number, key in enumerate(list(self._readings), 1):
            if key[1] == topic and self._was_pulled_by_a_member(key):
                yield key[0]
            if not number % LOOKED_AT_PER_STEP:
                yield None

    def _was_pulled_by_a_member(self, key: QueueKey) -> bool:
        reading = self._readings.get(key)
        return reading is not None and reading.last_puller is not None

    def take_moved(self) -> dict[QueueKey, None]:
        """Readings that changed, or went, since the last call; the longest ago first."""
        moved, self._moved = self._moved, {}
        return moved

    def take_heard(self) -> dict[QueueKey, None]:
        """Queues pulled since the last call by who had pulled them before."""
        heard, self._heard = self._heard, {}
        return heard

    def take_pulled(self) -> dict[QueueKey, None]:
        """Queues pulled since the last call."""
        pulled, self._pulled = self._pulled, {}
        return pulled

    def reached(self, key: QueueKey, who: str, offset: int) -> None:
        """The group pulls the queue from `offset` on, and the client knows the topic's present
        life. Hot.
        """
        reading = self._readings.get(key)
        if reading is None:
            return
        reading.reached_offset = max(reading.reached_offset, offset)
        if who == reading.restored_for:
            reading.restored_for = None
        if who not in reading.known_by:
            reading.known_by = (*reading.known_by[1 - QUEUE_KNOWERS_MAX :], who)

    def processed(self, key: QueueKey, processed_offset: int) -> None:
        """A member reported how far it is. Of a queue that the group never pulled it is passed
        over: what clients answer must not make tables grow.
        """
        reading = self._readings.get(key)
        if reading is not None and reading.processed_offset != processed_offset:
            reading.processed_offset = processed_offset
            self._moved[key] = None

    def arrived(
        self,
        key: QueueKey,
        client_id: str | None,
        *,
        now_ms: int,
        from_offset: int | None = None,
        is_sent_back: bool = False,
    ) -> tuple[bool, str | None]:
        """Note a pull; return whether the reader is new, and who read before and has not left.
        `is_sent_back`: it is sent to another offset, where it will pull next.

        A client that has sent no heartbeat on its connection yet has no name (None), so it is no
        new reader: after a broker's restart it most often is the one that read before. Raises
        RequestRefused when there are too many readings.
        """
        reading = self._readings.get(key)
        if reading is None:
            if len(self._readings) >= self.count_max:
                group, topic, queue_id = key
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR,
                    f"group {group} on queue {queue_id} of {topic} is one reader too many: this "
                    f"broker knows {self.count_max}; delete groups that are not used any more",
                )
            reading = self._readings[key] = Reading()
        previous = reading.reader if reading.reported_in == self._leadership else None
        reading.last_pull_ms = now_ms
        if not reading.goes_on and reading.pulled_offset is None and not is_sent_back:
            reading.began_offset = from_offset
        reading.goes_on = reading.goes_on or not is_sent_back
        self._pulled[key] = None
        heard = self._heard if client_id in (None, reading.last_puller) else self._moved
        heard[key] = None
        if client_id is None:
            return False, previous
        if reading.reader != client_id:
            self._let_go(key, reading.reader)
            self._read_by.setdefault((key[0], client_id), {})[key] = None
        reading.reader = reading.last_puller = client_id
        reading.reported_in = self._leadership
        return previous != client_id, previous

    def answered(
        self,
        key: QueueKey,
        client_id: str | None,
        *,
        from_offset: int,
        next_offset: int,
        count_below: Callable[[int], int],
    ) -> tuple[bool, Redelivery | None]:
        """Note an answer over [from_offset, next_offset); return whether the mark moved, and what
        of the answer was a redelivery.

        `count_below(offset)` counts its messages below an offset. A redelivery covers what this
        answer brought again: pulls that go on below the mark report the rest of it themselves, so
        ranges do not overlap and counts add up.
        """
        reading = self._readings.setdefault(key, Reading())
        mark, again = reading.pulled_offset, None
        count = count_below(mark) if mark is not None and from_offset < mark else 0
        if mark is not None and count > 0:
            group, topic, queue_id = key
            again = Redelivery(
                group=group,
                topic=topic,
                queue_id=queue_id,
                from_offset=from_offset,
                to_offset=min(mark, next_offset),
                client_id=client_id,
                previous_client_id=reading.pulled_by,
                broker_epoch_before=reading.pulled_in_epoch,
                delivered_count=count,
            )
        moved = mark is None or next_offset > mark
        if moved:
            reading.pulled_offset = next_offset
            reading.pulled_by = client_id
            reading.pulled_in_epoch = self.broker_epoch
            self._moved[key] = None
        return moved, again

    def begin_leadership(self) -> None:
        """This node leads again: nobody heard who read meanwhile, so whoever pulls a queue first is
        a new reader.
        """
        self._leadership += 1

    def release(self, group: str, client_id: str) -> list[QueueKey]:
        """The client is gone: its queues have no reader now. Returns them, in order."""
        released = sorted(self._read_by.pop((group, client_id), {}))
        for key in released:
            self._readings[key].reader = None
        self._moved.update(dict.fromkeys(released))
        return released

    def release_queues(self, keys: Iterable[QueueKey]) -> None:
        """The group has left them: they have no reader now, and who pulls one is a new reader."""
        for key in keys:
            reading = self._readings.get(key)
            if reading is not None and reading.reader is not None:
                self._let_go(key, reading.reader)
                reading.reader = None

    def forget_topic(self, topic: str) -> Iterator[None]:
        """The topic was deleted; done in steps."""
        yield from self._forget(lambda key: key[1] == topic)

    def forget_group(self, group: str) -> Iterator[None]:
        """The group was deleted; done in steps."""
        yield from self._forget(lambda key: key[0] == group)

    def forget_queues(self, keys: Iterable[QueueKey]) -> None:
        """What the group had on these queues was deleted; done at once."""
        for key in keys:
            self._drop(key)

    def _forget(self, is_gone: Callable[[QueueKey], bool]) -> Iterator[None]:
        yield from dropped_in_steps(self._readings, is_gone, self._drop)

    def _drop(self, key: QueueKey) -> None:
        reading = self._readings.pop(key, None)
        if reading is None:  # Its topic and its group are forgotten at the same time.
            return
        self._let_go(key, reading.reader)
        self._moved[key] = None
        self.on_forgotten(key, reading)

    def _let_go(self, key: QueueKey, client_id: str | None) -> None:
        """The client is no longer the queue's reader."""
        held = None if client_id is None else self._read_by.get((key[0], client_id))
        if held is not None and client_id is not None:
            held.pop(key, None)
            if not held:
                del self._read_by[key[0], client_id]


DOUBT_MS: Final = 1 * SECOND_MS
"""Who was shown where to begin holds the queue by then, or gave it back: it says so when asked."""

DOUBT_SPAN_MS: Final = 10 * SECOND_MS
"""Who still holds the queue after so long, or did not answer, reads it as far as anybody knows."""

MemberKey = tuple[str, str]
"""(group, client id)"""
Place = tuple[str, int]
"""(topic, queue_id)"""


class DoubtfulReaders:
    """The doubts of one broker."""

    def __init__(self, count_max: int = DOUBTFUL_READERS_MAX) -> None:
        self._count_max = count_max
        self._count = 0
        self._since_ms: dict[MemberKey, dict[Place, tuple[int, int]]] = {}
        """The first and the last time of each doubt; steady time."""

    def __len__(self) -> int:
        """Doubts that are kept."""
        return self._count

    def arises(self, member: MemberKey, place: Place, now_ms: int) -> None:
        """The member may read the queue; it may have been in doubt before."""
        doubts = self._since_ms.setdefault(member, {})
        if place not in doubts:
            if self._count >= self._count_max and not self._end_oldest(now_ms):
                if not doubts:
                    del self._since_ms[member]
                return
            self._count += 1
        first_ms, _ = doubts.get(place, (now_ms, now_ms))
        doubts[place] = first_ms, now_ms

    def is_due(self, member: MemberKey, now_ms: int) -> bool:
        """Is the member to be asked about a queue? Doubts that are too old end here."""
        doubts = self._since_ms.get(member)
        if doubts is None:
            return False
        for place, (first_ms, _) in list(doubts.items()):
            if now_ms - first_ms > DOUBT_SPAN_MS:
                self._end(member, place)
        return any(now_ms - last_ms >= DOUBT_MS for _, last_ms in doubts.values())

    def given_back(
        self, member: MemberKey, held: Collection[Place], *, asked_ms: int
    ) -> list[Place]:
        """Queues that the member, asked at `asked_ms`, does not hold, and may no longer read."""
        doubts = self._since_ms.get(member, {})
        places = [
            place
            for place, (_, last_ms) in doubts.items()
            if asked_ms - last_ms >= DOUBT_MS and place not in held
        ]
        for place in places:
            self._end(member, place)
        return places

    def forget(self, member: MemberKey) -> None:
        """The member has left: that is a fact of its own."""
        self._count -= len(self._since_ms.pop(member, {}))

    def _end_oldest(self, now_ms: int) -> bool:
        """End the doubt that arose first, of whom nobody asks any more, if it is too old."""
        member = next(iter(self._since_ms))
        for place, (first_ms, _) in self._since_ms[member].items():
            if now_ms - first_ms > DOUBT_SPAN_MS:
                self._end(member, place)
                return True
        return False

    def _end(self, member: MemberKey, place: Place) -> None:
        doubts = self._since_ms[member]
        del doubts[place]
        self._count -= 1
        if not doubts:
            del self._since_ms[member]
