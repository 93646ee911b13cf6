"""Messages that failed, as their copies in retry and dead-letter topics tell of them.

Place in the walk: `asking` reads what has come into `%RETRY%group` and `%DLQ%group` since it looked
last; each copy is some steps of the table retry_dlq_flow. Pure.

A copy in the retry topic was sent back, has waited, and is there now: all three are told when it is
seen, since nobody saw it wait. Invariant: a copy is told once in the life of an observer, and one
that came before the observer is not. Absent on purpose: what waits in a delay level (nobody reads
it there), and where the message was first (its copy says the topic only).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from engine.foundation.limits import MESSAGE_ID_CHARS_MAX
from engine.foundation.observing import RetryStep
from engine.observer.believable import COUNT_MAX, is_name
from engine.observer.looks import FailedMessage, Place
from engine.protocol.bodies import TopicOffset
from engine.protocol.message import MessageExt
from engine.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from engine.protocol.properties import PROPERTY_RETRY_TOPIC

UNREAD_MAX: Final = 10_000
"""Copies of one queue that are read later; older ones are left out."""

_OF_A_RETRY: Final = ("SENT_BACK", "SCHEDULED", "DELIVERED")
_OF_A_DEAD_LETTER: Final = ("SENT_BACK", "DEAD_LETTERED")


def is_of_failed(topic: str) -> bool:
    """Does it hold copies of messages that failed?"""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def failed_message(copy: MessageExt) -> FailedMessage:
    """What a copy in such a topic says, as far as it can be believed."""
    is_dead = copy.topic.startswith(DLQ_PREFIX)
    message_id = copy.uniq_key or ""
    origin = copy.properties.get(PROPERTY_RETRY_TOPIC, "")
    return FailedMessage(
        group=copy.topic.removeprefix(DLQ_PREFIX if is_dead else RETRY_PREFIX),
        is_dead=is_dead,
        message_id=message_id if is_name(message_id, MESSAGE_ID_CHARS_MAX) else None,
        origin_topic=origin if is_name(origin) else None,
        reconsume_times=min(max(copy.reconsume_times, 0), COUNT_MAX),
    )


def steps_of(failed: FailedMessage) -> Iterator[RetryStep]:
    """The steps that a copy has gone."""
    for step in _OF_A_DEAD_LETTER if failed.is_dead else _OF_A_RETRY:
        yield RetryStep(
            message_id=failed.message_id,
            origin_topic=failed.origin_topic,
            origin_queue_id=None,
            origin_offset=None,
            group=failed.group,
            reconsume_times=failed.reconsume_times,
            step=step,
            delay_ms=None,
            reason="seen in the dead-letter topic" if failed.is_dead else "seen in the retry topic",
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

    def read(self, place: Place, copies: Collection[MessageExt]) -> list[FailedMessage]:
        """These copies were read there; those that are new. None of them: there is nothing."""
        begin, end = self._next[place], self._ends[place]
        new = [one for one in copies if begin <= one.queue_offset < end and one.topic == place[0]]
        self._next[place] = max((one.queue_offset + 1 for one in new), default=end)
        return [failed_message(one) for one in new]
