"""Detects queue offsets that are assigned to other messages after a power cut.

It reports which message a group had pulled there, and which one is there now.

Place in the walk: each sample notes the newest pulled message of queues that are pulled beyond what
is synced, and the spool carries it; a boot compares it with the log, and when another message gets
its offset both are reported.

A group may be handed a message that no sync has covered yet (RocketMQ's brokers do the same). If a
power cut takes it, its offset is given again, and nothing in the log says what was there. So the
spool has to. The newest message of a queue is enough: all offsets from the queue's end on up to it
are given again.

Invariant: only a message that lies beyond the end of the recovered log is called lost; at most
HANDED_TAILS_MAX are known. Absent on purpose: messages that were pulled and lost between two
samples, and those of all but HANDED_TAILS_A_SAMPLE_MAX queues.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from engine.broker.groups.readers import QueueKey
from engine.broker.identity import BrokerNode
from engine.foundation.limits import HANDED_TAILS_A_SAMPLE_MAX, MESSAGE_ID_CHARS_MAX
from engine.foundation.observing import HandedTail, Observer, ReusedOffset
from engine.store import MessageStore
from engine.store.record_reading import (
    PLACE,
    RECORD_BYTES_MIN,
    DispatchRequest,
    glance,
    property_value,
)

Queue = tuple[str, int]
"""topic, queue_id"""


@dataclass(frozen=True, slots=True)
class Pulled:
    """How far a group had pulled a queue beyond what was synced."""

    group: str
    pulled_offset: int
    client_id: str | None


@dataclass(frozen=True, slots=True)
class LostTail:
    """A message of an earlier life that its log has lost."""

    tail: HandedTail
    queue_end: int
    """Where the queue ended when this life began: from there on offsets are given again."""


class UnsyncedReads:
    """Those of one broker."""

    def __init__(self) -> None:
        self._pulled: dict[Queue, Pulled] = {}
        self.lost: dict[Queue, LostTail] = {}
        """Tails whose offsets nobody has got yet."""

    def pulled(self, key: QueueKey, pulled_offset: int, client_id: str | None) -> None:
        """A group is beyond what is synced; the furthest of a queue counts. Hot."""
        known = self._pulled.get(key[1:])
        if known is None or known.pulled_offset < pulled_offset:
            self._pulled[key[1:]] = Pulled(key[0], pulled_offset, client_id)

    def take_pulled(self, count_max: int) -> list[tuple[Queue, Pulled]]:
        """So many of them that were not taken yet; nobody waits for the rest, which may be synced
        by then.
        """
        taken, self._pulled = list(islice(self._pulled.items(), count_max)), {}
        return taken

    def forget_topic(self, topic: str) -> None:
        """The topic and its messages are gone: what comes under its name has offsets of its own."""
        for queues in (self._pulled, self.lost):
            for queue in [queue for queue in queues if queue[0] == topic]:
                del queues[queue]


_UNIQ_KEY: Final = b"UNIQ_KEY\x01"


@dataclass(slots=True, kw_only=True, eq=False)
class OffsetReuse:
    """Finds other messages in the places of some that were handed out before their sync."""

    unsynced: UnsyncedReads
    node: BrokerNode
    observer: Observer
    store: MessageStore

    def note_handed(
        self,
    ) -> None:
        """Have the spool carry what groups have pulled beyond what is synced."""
        synced_to = self.store.physical_flushed
        for queue, by in self.unsynced.take_pulled(HANDED_TAILS_A_SAMPLE_MAX):
            message = self._message_at(queue, by.pulled_offset - 1)
            if message is not None and message.physical_offset + message.size_bytes > synced_to:
                self.observer.handed(
                    HandedTail(
                        topic=queue[0],
                        queue_id=queue[1],
                        queue_offset=message.queue_offset,
                        physical_offset=message.physical_offset,
                        message_id=_message_id(message),
                        group=by.group,
                        client_id=by.client_id,
                    )
                )

    def find_lost(self, tails: Iterable[HandedTail]) -> None:
        """Find the offsets of an earlier life that the log no longer holds."""
        log_end = self.store.physical_max
        for tail in tails:
            queue = tail.topic, tail.queue_id
            end = self.store.max_offset(*queue)
            if tail.physical_offset >= log_end and tail.queue_offset >= end:
                self.unsynced.lost[queue] = LostTail(tail, end)

    def emit_reused(
        self,
    ) -> None:
        """Report each lost message whose offset names another one by now."""
        lost = self.unsynced.lost
        for queue, one in list(lost.items()):
            tail = one.tail
            if self.store.max_offset(*queue) <= tail.queue_offset:
                continue
            del lost[queue]
            message = self._message_at(queue, tail.queue_offset)
            self.observer.observe(
                ReusedOffset(
                    group=tail.group,
                    topic=tail.topic,
                    queue_id=tail.queue_id,
                    offset=tail.queue_offset,
                    queue_end=one.queue_end,
                    message_id_before=tail.message_id,
                    message_id=_message_id(message),
                    client_id=tail.client_id,
                )
            )

    def _message_at(self, queue: Queue, queue_offset: int) -> DispatchRequest | None:
        """The message there, without its body; None when the log does not show it."""
        store = self.store
        units = store.queue_units(*queue, queue_offset, 1)
        if not units or units[0][1] < RECORD_BYTES_MIN:
            return None
        place, size_bytes, _ = units[0]
        view = None if store.holes.at(place) is not None else store.bytes_at(place, size_bytes)
        if view is None or PLACE.unpack_from(view) != (size_bytes, queue[1], queue_offset, place):
            return None
        return glance(view, 0, self.node.config.store.delay_levels_ms)


def _message_id(message: DispatchRequest | None) -> str | None:
    """Its UNIQ_KEY; None when it has none, or one that is longer than this broker takes."""
    key = b"" if message is None else property_value(message.properties, _UNIQ_KEY)
    text = key.decode("utf-8", "replace")
    return text if 0 < len(text) <= MESSAGE_ID_CHARS_MAX else None
