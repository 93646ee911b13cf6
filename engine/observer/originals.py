"""Finds the first queue and offset of messages that came back, by topic and message id.

Place in the walk: `asking` finds copies in retry and dead-letter topics, asks the broker's index
for the message of the same id in the topic of origin, and remembers the place here: a message that
comes back again and again costs one question.

Invariant: a place is known only when one message of that id is there; a producer that sent twice
leaves two, and nobody knows which one came back. Pure. Absent on purpose: asking.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from engine.observer.believable import OFFSET_MAX
from engine.observer.looks import FailedMessage
from engine.protocol.message import MessageExt

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
        keys = (_key(one) for one in failed)
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
        key = _key(failed)
        place = None if key is None else self._places.get(key)
        if place is None:
            return failed
        return replace(failed, origin_queue_id=place[0], origin_offset=place[1])


def _key(failed: FailedMessage) -> MessageKey | None:
    """A copy keeps the id of the message that is in its topic of origin."""
    if failed.message_id is None or failed.origin_topic is None:
        return None
    return failed.origin_topic, failed.message_id
