"""Lives of a broker's topics as looks see them: deleted ones and those made again.

Place in the walk: under `facts`, which drops what it remembers of a topic and reports both. Pure.

A topic that no list names is gone, and made again when it is there once more. One that was never
seen away is another one all the same when a queue of it ends before where it did, or begins at 0
again: in one life of a topic, and of its broker, neither happens. A broker that was started anew
may have lost the end of its log, which is no new life: there a queue has to end before it had
begun, or to begin at 0 again, or to be empty. In both a topic is another one when the message at
offset 0 of a queue is another one: it was stored at another time than when it was asked before, or,
if it never was, later than the last message that the queue had at an earlier look.

Invariant: TOPIC_GONE comes before TOPIC_MADE_AGAIN, and each names the look after which it
happened. Absent on purpose: which topics are asked for their first message (`life_questions`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from engine.foundation.limits import FIRST_MESSAGES_MAX, GONE_TOPICS_MAX
from engine.foundation.observing import LifecycleEvent
from engine.observer.lite_topics import lite_topics_in
from engine.observer.lived_through import LivedThrough
from engine.observer.looks import Look, Place
from engine.protocol.bodies import TopicOffset

GONE: Final = "TOPIC_GONE"
MADE_AGAIN: Final = "TOPIC_MADE_AGAIN"

Ends = Mapping[Place, TopicOffset]


class TopicsSeen:
    """What was seen of the topics of one broker, over all its lives."""

    def __init__(
        self, gone_max: int = GONE_TOPICS_MAX, firsts_max: int = FIRST_MESSAGES_MAX
    ) -> None:
        self._gone_max = gone_max
        self._firsts_max = firsts_max
        self._first_ms: dict[Place, int] = {}
        """When the message at offset 0 was stored, as it was asked last."""
        self.lived = LivedThrough()
        """Members that outlive topics."""
        self._seen_ms: dict[str, int] = {}
        """The last look at which each was there."""
        self._gone_ms: dict[str, int] = {}
        """The look that missed each of those that are gone."""
        self._before: dict[Place, TopicOffset] = {}
        """Ends of the broker's life before, of topics that were not seen in this one."""

    def broker_began(self, ends: Ends) -> None:
        """The broker has begun a new life; `ends` are those of the life before."""
        self._before = {**self._before, **ends}

    def changes(self, look: Look, ends: Ends) -> Iterator[LifecycleEvent]:
        """Which topics are gone, and which of them there again; `ends` as they were known before
        the look.
        """
        known = {topic for topic, _ in ends}
        known_before = {topic for topic, _ in self._before}
        here = dict.fromkeys(topic for topic, _ in look.ends)
        if look.topics is not None:
            listed = look.topics.keys() | lite_topics_in(look.progress)
            for topic in sorted((known | known_before) - listed):
                yield self._gone(topic, look.at_ms, "is listed no more")
            here |= dict.fromkeys(sorted(listed))
        others = self._other_lives(look, ends)
        for topic, words in sorted(others.items()):
            if topic not in self._gone_ms:
                yield self._gone(topic, look.at_ms, words)
        here |= dict.fromkeys(others)
        for topic in sorted(here.keys() & self._gone_ms.keys()):
            gone_ms = self._gone_ms.pop(topic)
            between_two = gone_ms == look.at_ms  # It went and came between the same two looks.
            since_ms = self._seen_ms.get(topic, gone_ms) if between_two else gone_ms
            yield _event(MADE_AGAIN, topic, "is there again, and begins anew", since_ms)
        for topic in here:
            self._seen_ms[topic] = look.at_ms
        for place, first_ms in look.first_stored_ms.items():
            self._first_ms.pop(place, None)
            self._first_ms[place] = first_ms
        while len(self._first_ms) > self._firsts_max:
            del self._first_ms[next(iter(self._first_ms))]
        seen = {topic for topic, _ in look.ends}
        self._before = {place: one for place, one in self._before.items() if place[0] not in seen}

    def _gone(self, topic: str, at_ms: int, words: str) -> LifecycleEvent:
        self._gone_ms[topic] = at_ms
        self._before = {place: one for place, one in self._before.items() if place[0] != topic}
        self._first_ms = {place: at for place, at in self._first_ms.items() if place[0] != topic}
        while len(self._gone_ms) > self._gone_max:
            oldest = next(iter(self._gone_ms))
            del self._gone_ms[oldest]
            self._seen_ms.pop(oldest, None)
        return _event(GONE, topic, words, self._seen_ms.get(topic))

    def _other_lives(self, look: Look, ends: Ends) -> dict[str, str]:
        """Topics whose queues are not those of before, and how that shows."""
        found: dict[str, str] = {}
        for place, now in look.ends.items():
            before = ends.get(place)
            if before is not None and _goes_back(before, now):
                found[place[0]] = _words(place, before, now)
            before = self._before.get(place)
            if before is not None and _is_of_another_log(before, now):
                found[place[0]] = _words(place, before, now)
        for place, first_ms in look.first_stored_ms.items():
            before = ends.get(place) or self._before.get(place)
            if before is not None and self._is_another_message(place, before, first_ms):
                found.setdefault(place[0], _words_of_first(place, before, first_ms))
        for rows in look.progress.values():
            for place, one in rows.items():
                before = ends.get(place)
                if before is not None and one.broker_offset < before.max_offset:
                    now = TopicOffset(before.min_offset, max(one.broker_offset, 0), 0)
                    found.setdefault(place[0], _words(place, before, now))
        return found

    def _is_another_message(self, place: Place, before: TopicOffset, first_ms: int) -> bool:
        """Is the message at offset 0 another one than when the queue reached so far?"""
        if before.max_offset == 0:
            return False
        known_ms = self._first_ms.get(place)
        if known_ms is not None:
            return first_ms != known_ms
        return first_ms > before.last_update_timestamp_ms > 0


def of_topics(events: Collection[LifecycleEvent]) -> set[str]:
    """The topics that these are about."""
    return {event.topic for event in events if event.topic is not None}


def _goes_back(before: TopicOffset, now: TopicOffset) -> bool:
    return now.max_offset < before.max_offset or now.min_offset == 0 < before.min_offset


def _is_of_another_log(before: TopicOffset, now: TopicOffset) -> bool:
    """Is it more than the end of the log that is missing?"""
    is_empty = now.max_offset == 0 < before.max_offset
    return is_empty or now.max_offset < before.min_offset or now.min_offset == 0 < before.min_offset


def _words(place: Place, before: TopicOffset, now: TopicOffset) -> str:
    return (
        f"is another one: queue {place[1]} reached from {before.min_offset} to "
        f"{before.max_offset}, and reaches from {now.min_offset} to {now.max_offset}"
    )


def _words_of_first(place: Place, before: TopicOffset, first_ms: int) -> str:
    return (
        f"is another one: the first message of queue {place[1]} was stored at {first_ms} ms, and "
        f"the queue reached to {before.max_offset} at {before.last_update_timestamp_ms} ms"
    )


def _event(kind: str, topic: str, words: str, since_ms: int | None) -> LifecycleEvent:
    return LifecycleEvent(kind, f"{topic} {words}", topic=topic, time_from_ms=since_ms)
