"""Estimates how long messages wait in queues that the observer may not read.

The question it asks (QUERY_CONSUME_TIME_SPAN) needs no right to read.

Place in the walk: `asking` asks QUERY_CONSUME_TIME_SPAN of a group and topic where reading a
message was refused → estimates of the store time of the message at a consume offset. Pure.

The answer says how long the first message that was not consumed has waited, by the broker's clock,
at some moment between question and answer. So its store time is known to half of that time, by the
observer's clock, whatever the broker's is. Which offset it is about is not said: a group that goes
on meanwhile is a period further at most, as all that is polled. Invariant: an estimate is kept as
long as its offset stands; what was never plausible is none.
"""

from __future__ import annotations

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
        self._known: dict[Key, Estimate] = {}

    def wanted(
        self, progress: Mapping[str, Mapping[Place, QueueProgress]]
    ) -> dict[tuple[str, str], None]:
        """The groups and topics with messages that wait, of which no estimate is known; those of
        offsets that have moved are forgotten.
        """
        offsets = waiting(progress)
        self._known = {
            key: one for key, one in self._known.items() if offsets.get(key) == one.offset
        }
        return {key[:2]: None for key in offsets if key not in self._known}

    def forget_topics(self, topics: Container[str]) -> None:
        """Their offsets are those of other messages now."""
        self._known = {key: one for key, one in self._known.items() if key[1] not in topics}

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
            self._known[group, *place] = Estimate(
                one.consumer_offset, middle_ms - span.delay_time_ms, error_ms
            )

    @property
    def known(self) -> Mapping[Key, Estimate]:
        """Those that hold."""
        return self._known
