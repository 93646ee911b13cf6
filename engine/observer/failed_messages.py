"""Reconstructs the history of failed messages from their copies, and finds their origin.

Place in the walk: `polling` reads what has come into `%RETRY%group` and `%DLQ%group` since it
looked last; each copy is some steps of the table retry_dlq_flow. Pure.

A copy in the retry topic was sent back, has waited, and is there now: all three are emitted when it
is seen. A copy in a retry topic of POP was not acknowledged within its invisible time, or given
back: it is one step INVISIBLE_TIME_EXPIRED. A copy names its topic of origin only; the broker's
index says the place, once for each message (`Originals`).

Invariant: a copy is reported once in the life of an observer, and one that came before the observer
is not; a place is known only when one message of that id is there. Absent on purpose: what waits in
a delay level, which nobody reads there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from engine.foundation.limits import MESSAGE_ID_CHARS_MAX
from engine.foundation.observing import RetryStep
from engine.observer.believable import COUNT_MAX, OFFSET_MAX, is_name
from engine.observer.poll_result import FailedMessage, Place
from engine.protocol.bodies import TopicOffset
from engine.protocol.message import MessageExt
from engine.protocol.names import DLQ_PREFIX, RETRY_PREFIX, PopRetryTopic, pop_retry_of
from engine.protocol.properties import PROPERTY_ORIGIN_GROUP, PROPERTY_RETRY_TOPIC

UNREAD_MAX: Final = 10_000
"""Copies of one queue that are read later; older ones are left out."""

_OF_A_RETRY: Final[tuple[str, ...]] = ("SENT_BACK", "SCHEDULED", "DELIVERED")
_OF_A_DEAD_LETTER: Final = ("SENT_BACK", "DEAD_LETTERED")
_OF_AN_EXPIRY: Final = ("INVISIBLE_TIME_EXPIRED",)


def is_of_failed(topic: str) -> bool:
    """Does it hold copies of messages that failed?"""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def failed_message(copy: MessageExt, readers: Iterable[str] = ()) -> FailedMessage:
    """What a copy in such a topic says, as far as it can be believed.

    `readers`: groups that read the topic, which show whose it is when the copy does not.
    """
    is_dead = copy.topic.startswith(DLQ_PREFIX)
    message_id = copy.uniq_key or ""
    pop = _pop_origin(copy, readers)
    group = copy.topic.removeprefix(DLQ_PREFIX if is_dead else RETRY_PREFIX)
    origin = copy.properties.get(PROPERTY_RETRY_TOPIC, "")
    if is_dead:  # A POP group gives up what lies in its retry topic.
        known = pop_retry_of(origin, [group])
        origin = known.topic if known is not None and known.group == group else origin
    elif pop is not None:
        group, origin = pop
    return FailedMessage(
        group=group,
        is_dead=is_dead,
        message_id=message_id if is_name(message_id, MESSAGE_ID_CHARS_MAX) else None,
        origin_topic=origin if is_name(origin) else None,
        reconsume_times=min(max(copy.reconsume_times, 0), COUNT_MAX),
        is_expired=pop is not None,
    )


def _pop_origin(copy: MessageExt, readers: Iterable[str]) -> PopRetryTopic | None:
    """Group and topic of a copy in a retry topic of POP; None: it is in another one."""
    group = copy.properties.get(PROPERTY_ORIGIN_GROUP, "")
    return pop_retry_of(copy.topic, [group] if group else []) or pop_retry_of(copy.topic, readers)


def steps_of(failed: FailedMessage) -> Iterator[RetryStep]:
    """The steps that a copy has gone."""
    steps, reason = _OF_A_RETRY, "seen in the retry topic"
    if failed.is_dead:
        steps, reason = _OF_A_DEAD_LETTER, "seen in the dead-letter topic"
    elif failed.is_expired:
        steps, reason = _OF_AN_EXPIRY, "not acknowledged within its invisible time"
    for step in steps:
        yield RetryStep(
            message_id=failed.message_id,
            origin_topic=failed.origin_topic,
            origin_queue_id=failed.origin_queue_id,
            origin_offset=failed.origin_offset,
            group=failed.group,
            reconsume_times=failed.reconsume_times,
            step=step,
            delay_ms=None,
            reason=reason,
        )


class CopiesRead:
    """How far the queues of such topics were read."""

    def __init__(self) -> None:
        self._next: dict[Place, int] = {}
        self._ends: dict[Place, int] = {}
        self._first_topics: Collection[str] | None = None

    def listed(self, topics: Collection[str]) -> None:
        """The broker has these topics: those that come later are read from their beginning on."""
        if self._first_topics is None:
            self._first_topics = frozenset(filter(is_of_failed, topics))
        for place in [place for place in self._next if place[0] not in topics]:
            del self._next[place], self._ends[place]

    def seen(self, ends: Mapping[Place, TopicOffset]) -> int:
        """Queues begin and end there; how many copies are left out, since they are too many."""
        left_out_count = 0
        for place, one in ends.items():
            if not is_of_failed(place[0]):
                continue
            was_there = self._first_topics is None or place[0] in self._first_topics
            next_offset = self._next.get(place, one.max_offset if was_there else one.min_offset)
            if next_offset > one.max_offset:  # Another queue of that name.
                next_offset = one.min_offset
            first = max(next_offset, one.min_offset, one.max_offset - UNREAD_MAX)
            left_out_count += first - next_offset
            self._next[place], self._ends[place] = first, one.max_offset
        return left_out_count

    def unread(self) -> list[Place]:
        """Queues with copies that were not read."""
        return [place for place, offset in self._next.items() if offset < self._ends[place]]

    def next_offset(self, place: Place) -> int:
        """Where a queue is read on."""
        return self._next[place]

    def read(
        self, place: Place, copies: Collection[MessageExt], readers: Collection[str] = ()
    ) -> list[FailedMessage]:
        """These copies were read there; those that are new. None of them: there is nothing."""
        begin, end = self._next[place], self._ends[place]
        new = [one for one in copies if begin <= one.queue_offset < end and one.topic == place[0]]
        self._next[place] = max((one.queue_offset + 1 for one in new), default=end)
        return [failed_message(one, readers) for one in new]


ORIGINALS_MAX: Final = 20_000
"""Messages of one broker whose place is remembered; the one asked about longest ago goes first."""

MessageKey = tuple[str, str]
"""(topic, message id)"""


class Originals:
    """Places of one broker's messages."""

    def __init__(self, count_max: int = ORIGINALS_MAX) -> None:
        self._count_max = count_max
        self._places: dict[MessageKey, tuple[int, int] | None] = {}

    def wanted(self, failed: Iterable[FailedMessage]) -> list[MessageKey]:
        """Messages of these whose place was never asked for."""
        keys = (_origin_key(one) for one in failed)
        return [key for key in dict.fromkeys(keys) if key is not None and key not in self._places]

    def found(self, key: MessageKey, messages: Sequence[MessageExt]) -> None:
        """The broker has these messages of the id in the topic."""
        here = [one for one in messages if one.topic == key[0] and one.uniq_key == key[1]]
        places = {(one.queue_id, one.queue_offset) for one in here}
        place = places.pop() if len(places) == 1 else None
        is_sound = place is not None and place[0] >= 0 and 0 <= place[1] < OFFSET_MAX
        self._places[key] = place if is_sound else None
        while len(self._places) > self._count_max:
            del self._places[next(iter(self._places))]

    def placed(self, failed: FailedMessage) -> FailedMessage:
        """The same, with the place where it was first, if that is known."""
        key = _origin_key(failed)
        place = None if key is None else self._places.get(key)
        if place is None:
            return failed
        return replace(failed, origin_queue_id=place[0], origin_offset=place[1])


def _origin_key(failed: FailedMessage) -> MessageKey | None:
    """A copy keeps the id of the message that is in its topic of origin."""
    if failed.message_id is None or failed.origin_topic is None:
        return None
    return failed.origin_topic, failed.message_id
