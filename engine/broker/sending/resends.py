"""Detects messages that are stored twice because their producer resent them.

A producer does so when it got no answer; groups that are handed the second copy get a fact.

Place in the walk: dispatch passes each message here; a pull answer that holds a second copy becomes
a row of retry_dlq_flow (SENT_AGAIN), from which gold makes a window with the cause SEND_RETRY.

A resend brings the very properties of the first send, so what is remembered of a message is a
checksum of its property string. A known one is only a suspicion; the index and the two records
decide.

Invariant: what is reported as a second copy has the UNIQ_KEY and the body of an earlier message of
its topic, and is no copy on purpose; it is reported once for a group. What is not seen: a resend to
another broker, with other properties, after SENDS_REMEMBERED_MAX other messages, or over a restart
if the first copy is not among the newest SENDS_READ_BACK_MAX; groups that share no queues
(BROADCASTING); anything while messageIndexEnable is false. Absent on purpose: refusing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from engine.broker.groups.readers import QueueKey
from engine.broker.identity import BrokerNode
from engine.foundation.errors import CorruptRecord
from engine.foundation.limits import (
    SECOND_COPIES_LOOKED_UP_A_SECOND,
    SECOND_COPIES_LOOKED_UP_MAX,
    SECOND_COPIES_MAX,
    SEND_RETRY_SPAN_MS,
    SENDS_READ_BACK_MAX,
    SENDS_REMEMBERED_MAX,
)
from engine.foundation.observing import LifecycleEvent, Observer, RetryStep
from engine.foundation.units import SECOND_MS, Buffer
from engine.protocol.message import MessageExt
from engine.protocol.message_record import decode_record, queue_offsets
from engine.protocol.names import DLQ_PREFIX, RETRY_PREFIX, WAITING_TOPICS, is_system_topic
from engine.protocol.properties import PROPERTY_ORIGIN_MESSAGE_ID
from engine.store import MessageStore
from engine.store.record_reading import DispatchRequest, glance


@dataclass(frozen=True, slots=True)
class SecondCopy:
    """A message whose UNIQ_KEY and body an earlier message of its topic has."""

    message_id: str
    topic: str
    queue_id: int
    queue_offset: int
    earlier_queue_id: int
    earlier_queue_offset: int
    later_ms: int
    """How long after the earlier copy it was stored."""
    reported_to: list[str] = field(default_factory=list)
    """Groups that were handed it, and of which that was reported."""


def _queue_offset(copy: SecondCopy) -> int:
    return copy.queue_offset


class DuplicateCopies:
    """The second copies that one broker knows of."""

    def __init__(self, copies_max: int = SECOND_COPIES_MAX) -> None:
        self._copies_max = copies_max
        self._of_queues: dict[tuple[str, int], list[SecondCopy]] = {}
        self._oldest_first: deque[SecondCopy] = deque()

    def __len__(self) -> int:
        """How many there are."""
        return len(self._oldest_first)

    def add(self, copy: SecondCopy) -> None:
        """Note a second copy; beyond the limit the one noted first goes."""
        self._of_queues.setdefault((copy.topic, copy.queue_id), []).append(copy)
        self._oldest_first.append(copy)
        if len(self._oldest_first) > self._copies_max:
            self._drop(self._oldest_first.popleft())

    def handed(self, key: QueueKey, span: range, holds: Callable[[int], bool]) -> list[SecondCopy]:
        """The copies of a queue that an answer brings to the group for the first time.

        The answer covers the queue offsets `span`; `holds(queue_offset)` says whether it has one of
        them, or a filter has left it out.
        """
        group, topic, queue_id = key
        copies = self._of_queues.get((topic, queue_id), [])
        first = bisect_left(copies, span.start, key=_queue_offset)
        end = bisect_left(copies, span.stop, key=_queue_offset)
        brought = [
            copy
            for copy in copies[first:end]
            if group not in copy.reported_to and holds(copy.queue_offset)
        ]
        for copy in brought:
            copy.reported_to.append(group)
        return brought

    def forget_topic(self, topic: str) -> None:
        """The topic and its messages are gone."""
        self._oldest_first = deque(copy for copy in self._oldest_first if copy.topic != topic)
        for key in [key for key in self._of_queues if key[0] == topic]:
            del self._of_queues[key]

    def _drop(self, copy: SecondCopy) -> None:
        key = (copy.topic, copy.queue_id)
        self._of_queues[key].remove(copy)
        if not self._of_queues[key]:
            del self._of_queues[key]


COPIES_MAX: Final = 8
"""Newest entries of the index looked at under one key; more copies at once are not distinguished.
"""


@dataclass(slots=True, kw_only=True, eq=False)
class Resends:
    """The look-out of one broker."""

    node: BrokerNode
    observer: Observer
    duplicate_copies: DuplicateCopies
    store: MessageStore
    _newer: set[int] = field(default_factory=set, init=False)
    _older: set[int] = field(default_factory=set, init=False)
    _second_s: int = field(default=0, init=False)
    _looks_left: int = field(default=SECOND_COPIES_LOOKED_UP_MAX, init=False)
    _passed_over_count: int = field(default=0, init=False)

    def begin(self) -> None:
        """Read the newest keys back from the log, then hear of each message."""
        store, levels_ms = self.store, self.node.config.store.delay_levels_ms
        queues = store.queues()
        per_queue = max(1, SENDS_READ_BACK_MAX // max(1, len(queues)))
        places: list[int] = []
        for topic, queue_id in queues:
            begin = max(
                store.min_offset(topic, queue_id), store.max_offset(topic, queue_id) - per_queue
            )
            units = store.queue_units(topic, queue_id, begin, per_queue) or []
            places += [physical_offset for physical_offset, *_ in units]
        for place in sorted(places)[-SENDS_READ_BACK_MAX:]:
            record = store.record_at(place)
            request = None if record is None else glance(memoryview(record), 0, levels_ms)
            if request is not None:
                self.arrived([request])
        store.on_arrival(self.arrived)

    def arrived(self, messages: Sequence[DispatchRequest]) -> None:
        """Messages became visible. Hot: one look shows that all of them are new."""
        # What waits comes again, with the same properties, under the topic it waits for.
        messages = [one for one in messages if one.topic not in WAITING_TOPICS]
        marks = [crc32(one.properties) for one in messages]
        newer, older = self._newer, self._older
        if newer.isdisjoint(marks) and older.isdisjoint(marks) and len(set(marks)) == len(marks):
            newer.update(marks)
        else:
            for message, mark in zip(messages, marks, strict=True):
                if mark in newer or mark in older:
                    self._look_closer(message)
                else:
                    newer.add(mark)
        if len(newer) >= SENDS_REMEMBERED_MAX:  # Nothing is done for one that gets old.
            self._newer, self._older = set(), newer

    def handed(self, key: QueueKey, span: range, bodies: Sequence[Buffer]) -> None:
        """An answer brings a group further, over `span`: report which of it are second copies."""
        copies = self.duplicate_copies
        if not copies:
            return
        offsets: list[int] = []

        def holds(queue_offset: int) -> bool:
            if not offsets:
                offsets.extend(offset for body in bodies for offset in queue_offsets(body))
            return queue_offset in offsets

        group, topic, queue_id = key
        for copy in copies.handed(key, span, holds):
            self.observer.observe(
                RetryStep(
                    message_id=copy.message_id,
                    origin_topic=topic,
                    origin_queue_id=queue_id,
                    origin_offset=copy.queue_offset,
                    group=group,
                    reconsume_times=0,
                    step="SENT_AGAIN",
                    delay_ms=None,
                    reason=f"its producer sent it again {copy.later_ms} ms later; an earlier "
                    f"copy is at queue {copy.earlier_queue_id}, offset {copy.earlier_queue_offset}",
                )
            )

    def _look_closer(self, message: DispatchRequest) -> None:
        """Is it a second copy?"""
        topic = message.topic
        if not self._may_look(message.store_timestamp_ms // SECOND_MS):
            return
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) or is_system_topic(topic):
            return
        second = self._message_at(message.physical_offset)
        if second is None or PROPERTY_ORIGIN_MESSAGE_ID in second.properties:
            return
        found = self.store.query_by_key(
            topic,
            second.message_id,
            max_count=COPIES_MAX,
            begin_ms=message.store_timestamp_ms - SEND_RETRY_SPAN_MS,
            end_ms=message.store_timestamp_ms,
        )
        places = [place for place in found.physical_offsets if place < message.physical_offset]
        earlier = next(
            (one for place in places if (one := self._message_at(place)) and _same(one, second)),
            None,
        )
        if earlier is not None:
            self.duplicate_copies.add(
                SecondCopy(
                    message_id=second.message_id,
                    topic=topic,
                    queue_id=second.queue_id,
                    queue_offset=second.queue_offset,
                    earlier_queue_id=earlier.queue_id,
                    earlier_queue_offset=earlier.queue_offset,
                    later_ms=second.store_timestamp_ms - earlier.store_timestamp_ms,
                )
            )

    def _may_look(self, second_s: int) -> bool:
        """Many may be sent again at once, after a restart; a client that sends nothing else must
        not slow the others. What is passed over is reported as a number.
        """
        if second_s != self._second_s:
            more = SECOND_COPIES_LOOKED_UP_A_SECOND * max(0, second_s - self._second_s)
            self._second_s = second_s
            self._looks_left = min(SECOND_COPIES_LOOKED_UP_MAX, self._looks_left + more)
            if self._passed_over_count:
                detail = (
                    f"{self._passed_over_count} messages that may be second copies were not "
                    "compared: too many in a second"
                )
                self._passed_over_count = 0
                self.observer.observe(LifecycleEvent("RESENDS", detail))
        if self._looks_left:
            self._looks_left -= 1
            return True
        self._passed_over_count += 1
        return False

    def _message_at(self, physical_offset: int) -> MessageExt | None:
        record = self.store.record_at(physical_offset)
        try:
            return None if record is None else decode_record(record)
        except CorruptRecord:  # Properties that are no text, in a store of another broker's.
            return None


def _same(earlier: MessageExt, second: MessageExt) -> bool:
    """Two bodies under one id are two messages: ids are made by clients and can collide."""
    return (
        earlier.topic == second.topic
        and earlier.uniq_key == second.uniq_key
        and earlier.body == second.body
    )
