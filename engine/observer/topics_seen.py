"""Tracks topic deletion and recreation across polls, and members that outlive a topic.

Place in the walk: under `facts`, which drops what it remembers of a topic and reports both. Pure.

A topic that no list names is gone, and made again when it is there once more. It is another one
without having been away when a queue of it ends before where it did, or begins at 0 again. A broker
that was started anew may have lost the end of its log: there a queue has to end before it had
begun, begin at 0 again, or be empty. In both a topic is another one when the message at offset 0
was stored at another time than before, or, if that was never asked, later than the queue's last
message of an earlier look.

Invariant: TOPIC_GONE comes before TOPIC_MADE_AGAIN, and each names the look after which it
happened. Absent on purpose: which topics are asked for their first message (`life_questions`).
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from engine.foundation.limits import FIRST_MESSAGES_MAX, GONE_TOPICS_MAX, WINDOWS_TOLD_MAX
from engine.foundation.observing import ClientWindow, LifecycleEvent, OffsetReport
from engine.observer.poll_result import Look, Member, Place
from engine.protocol.bodies import ProcessQueueInfo, TopicOffset
from engine.protocol.message import MessageExt

PREFIX: Final = "%LMQ%"
_QUEUES: Final = "INNER_MULTI_DISPATCH"
_OFFSETS: Final = "INNER_MULTI_QUEUE_OFFSET"


def is_lite(topic: str) -> bool:
    """Is it the queue of a lite topic?"""
    return topic.startswith(PREFIX)


def lite_topics_in(progress: Mapping[str, Mapping[Place, object]]) -> set[str]:
    """Those in which some group is so far as it says."""
    return {topic for rows in progress.values() for topic, _ in rows if is_lite(topic)}


def offset_in(message: MessageExt, topic: str) -> int | None:
    """Where a message stands in the topic that it was read from; None: it does not say."""
    if not is_lite(topic):
        return message.queue_offset
    names = message.properties.get(_QUEUES, "").split(",")
    offsets = message.properties.get(_OFFSETS, "").split(",")
    text = dict(zip(names, offsets, strict=False)).get(topic, "")
    return int(text) if text.isdecimal() and len(text) < 20 else None


PATH: Final = "OBSERVED"


@dataclass(slots=True)
class _Built:
    """A process queue of a member, as it was seen last in one life of its topic."""

    at_ms: int
    next_offset: int
    seen_end: int | None = None
    """The queue's end when it was reported last to go on beyond it."""


class LivedThrough:
    """Of all members of one broker's groups."""

    def __init__(self, count_max: int = WINDOWS_TOLD_MAX) -> None:
        self._count_max = count_max
        self._now: dict[tuple[Member, Place], _Built] = {}
        self._before: dict[tuple[Member, Place], _Built] = {}
        """Of topics that are gone, or other ones now."""

    def other_life(self, topics: Container[str]) -> None:
        """These topics are gone, or were made again."""
        for key in [key for key in self._now if key[1][0] in topics]:
            self._before[key] = self._now.pop(key)

    def left(self, member: Member) -> None:
        """The member is no longer there."""
        for known in (self._now, self._before):
            for key in [key for key in known if key[0] == member]:
                del known[key]

    def holds(
        self, window: ClientWindow, info: ProcessQueueInfo, ends: TopicOffset
    ) -> OffsetReport | None:
        """What a member says of a queue that ends there; that it goes on where it was in the
        earlier life, when it does and that was not reported.
        """
        key = (window.group, window.client_id), (window.topic, window.queue_id)
        before = self._before.get(key)
        if before is not None:
            if info.dropped or info.last_lock_timestamp_ms != before.at_ms:
                del self._before[key]
            else:
                return self._goes_on(key, before, window, ends)
        if info.last_lock_timestamp_ms > 0 and not info.dropped:
            if key in self._now or len(self._now) < self._count_max:
                self._now[key] = _Built(info.last_lock_timestamp_ms, _next(window))
        else:
            self._now.pop(key, None)
        return None

    def _goes_on(
        self,
        key: tuple[Member, Place],
        before: _Built,
        window: ClientWindow,
        ends: TopicOffset,
    ) -> OffsetReport | None:
        if _next(window) > ends.max_offset:
            before.next_offset = max(before.next_offset, _next(window))
        if before.next_offset <= ends.max_offset:
            self._now[key] = self._before.pop(key)
        elif before.seen_end == ends.max_offset:
            return None
        before.seen_end = ends.max_offset
        return OffsetReport(
            *(window.group, window.topic, window.queue_id),
            offset=before.next_offset,
            previous_offset=None,
            path=PATH,
            trigger="UNKNOWN",
            client_id=window.client_id,
            accepted=False,
            min_offset=ends.min_offset,
            max_offset=ends.max_offset,
        )


def _next(window: ClientWindow) -> int:
    """The next offset that the member has not pulled, at least."""
    held = -1 if window.last_held is None else window.last_held
    return max(held + 1, window.client_committed or 0)


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
        """Which topics are gone, and which there again; `ends` as known before the look."""
        named = {topic for topic, _ in ends}
        known_before = {topic for topic, _ in self._before}
        here = dict.fromkeys(topic for topic, _ in look.ends)
        if look.topics is not None:
            listed = look.topics.keys() | lite_topics_in(look.progress)
            for topic in sorted((named | known_before) - listed):
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
