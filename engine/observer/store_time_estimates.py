"""Estimates store times for waiting messages that a poll does not read.

Place in the walk: `polling` → the store time of the message at a consume offset. Pure.

    PolledEnds   a message was stored between the last look at which its queue did not reach it and
                 the first at which it did; the middle is at most half of that away from it
    Estimates    QUERY_CONSUME_TIME_SPAN, which needs no right to read, says how long the first
                 unconsumed message has waited at some moment between question and answer

Both are moments of the observer's clock. Which offset a time span is about is not said: a group
that goes on meanwhile is a period further at most.

Invariant: bars hold, however few looks are remembered; an estimate stays as long as its offset.
Absent on purpose: queues at which nobody waits for anything.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Container, Mapping
from typing import Final, NamedTuple

from engine.admin.api.groups import QueueProgress
from engine.protocol.bodies_admin import QueueTimeSpan

WAITED_MS_MAX: Final = 366 * 24 * 3_600_000
"""Of a message that is gone the answer counts from 1970."""

Place = tuple[str, int]
"""(topic, queue_id)"""
Key = tuple[str, str, int]
"""(group, topic, queue_id)"""


class Estimate(NamedTuple):
    """Of the store time of the message at an offset."""

    offset: int
    stored_ms: int
    error_ms: int


def waiting(progress: Mapping[str, Mapping[Place, QueueProgress]]) -> dict[Key, int]:
    """Where groups have messages that wait: the offsets of the first ones."""
    return {
        (group, *place): one.consumer_offset
        for group, rows in progress.items()
        for place, one in rows.items()
        if one.consumer_offset < one.broker_offset
    }


class Estimates:
    """Of all queues of a broker at which messages wait."""

    def __init__(self) -> None:
        self.known: dict[Key, Estimate] = {}
        """Those that hold."""

    def wanted(
        self, progress: Mapping[str, Mapping[Place, QueueProgress]]
    ) -> dict[tuple[str, str], None]:
        """The groups and topics with messages that wait, of which no estimate is known; those of
        offsets that have moved are forgotten.
        """
        offsets = waiting(progress)
        self.known = {key: one for key, one in self.known.items() if offsets.get(key) == one.offset}
        return {key[:2]: None for key in offsets if key not in self.known}

    def forget_topics(self, topics: Container[str]) -> None:
        """Their offsets are those of other messages now."""
        self.known = {key: one for key, one in self.known.items() if key[1] not in topics}

    def take(
        self,
        group: str,
        rows: Mapping[Place, QueueProgress],
        spans: Collection[QueueTimeSpan],
        *,
        asked_ms: int,
        answered_ms: int,
    ) -> None:
        """An answer, and between which moments it was given."""
        for span in spans:
            queue = span.message_queue.queue()
            place = (queue.topic, queue.queue_id)
            one = rows.get(place)
            if one is None or one.consumer_offset >= one.broker_offset:
                continue
            if not 0 < span.delay_time_ms <= WAITED_MS_MAX:
                continue
            middle_ms = (asked_ms + answered_ms) // 2
            error_ms = (answered_ms - asked_ms + 1) // 2 + 1
            self.known[group, *place] = Estimate(
                one.consumer_offset, middle_ms - span.delay_time_ms, error_ms
            )


ENDS_REMEMBERED_MAX: Final = 32
"""Of one queue. Beyond it every second one is forgotten, and bars are wider by that."""


class _Reached(NamedTuple):
    """A queue had this end."""

    end: int
    first_ms: int
    """It was seen by then."""
    last_ms: int
    """It was the end as late as this."""


class PolledEnds:
    """Of all queues of a broker."""

    def __init__(self) -> None:
        self._newest: dict[Place, _Reached] = {}
        self._waiting: dict[Place, list[_Reached]] = {}
        """Of queues at which messages wait: in order, from the end that the group which is furthest
        behind has passed.
        """

    def seen(
        self,
        progress: Mapping[str, Mapping[Place, QueueProgress]],
        *,
        asked_ms: int,
        answered_ms: int,
    ) -> None:
        """How far all are at a look, and between which moments that was found out."""
        lowest: dict[Place, int] = {}
        newest: dict[Place, _Reached] = {}
        for rows in progress.values():
            for place, one in rows.items():
                newest[place] = _Reached(one.broker_offset, answered_ms, asked_ms)
                if one.consumer_offset < one.broker_offset:
                    lowest[place] = min(one.consumer_offset, lowest.get(place, one.consumer_offset))
        self._waiting = {
            place: _pruned(_with(self._known(place), newest[place]), at)
            for place, at in lowest.items()
        }
        self._newest = newest

    def forget_topics(self, topics: Container[str]) -> None:
        """Their offsets are those of other messages now."""
        self._newest = {at: one for at, one in self._newest.items() if at[0] not in topics}
        self._waiting = {at: ends for at, ends in self._waiting.items() if at[0] not in topics}

    def _known(self, place: Place) -> list[_Reached]:
        if place in self._waiting:
            return self._waiting[place]
        return [self._newest[place]] if place in self._newest else []

    def estimate(self, place: Place, offset: int) -> Estimate | None:
        """Of the message at an offset; None when it was there before the first look that is
        remembered, or is not there yet.
        """
        reached = self._waiting.get(place, [])
        at = bisect_right(reached, offset, key=lambda one: one.end)
        if not 0 < at < len(reached):
            return None
        after_ms, by_ms = reached[at - 1].last_ms, reached[at].first_ms
        return Estimate(offset, (after_ms + by_ms) // 2, max(0, by_ms - after_ms + 1) // 2 + 1)

    def estimates(
        self, waiting: Mapping[Key, int], known: Mapping[tuple[str, int, int], int]
    ) -> dict[Key, Estimate]:
        """Of the messages at which groups wait and of which no time is `known`, as far as looks
        report.
        """
        found = {}
        for (group, topic, queue_id), offset in waiting.items():
            if (topic, queue_id, offset) not in known:
                estimate = self.estimate((topic, queue_id), offset)
                if estimate is not None:
                    found[group, topic, queue_id] = estimate
        return found


def _with(reached: list[_Reached], new: _Reached) -> list[_Reached]:
    if reached and new.end < reached[-1].end:
        return [new]  # Another life of the queue.
    if reached and new.end == reached[-1].end:
        return [*reached[:-1], reached[-1]._replace(last_ms=new.last_ms)]
    return [*reached, new]


def _pruned(reached: list[_Reached], lowest: int) -> list[_Reached]:
    """From the last end that does not lie beyond the lowest offset, and not too many."""
    begin = max(0, bisect_right(reached, lowest, key=lambda one: one.end) - 1)
    kept = reached[begin:]
    if len(kept) > ENDS_REMEMBERED_MAX:
        return [*kept[:-1][::2], kept[-1]]
    return kept
