"""Reports unread messages, unresolved dead letters and pending retries that expire.

Place in the walk: around a round of `store/upkeep/retention`, which never asks who consumed what.
Dead letters and retries are read just before their file goes; groups are compared afterwards, and
learn of it from their next pull. A dead letter that was decided about is known by the record of
that decision (`protocol/dead_letters`), which is younger and still there.

Invariant: one event per group and queue that lost something, none for a group without a consume
offset or that has left the topic. Every dead letter ends as exactly one of re-driven, discarded or
expired, and every scheduled retry as delivered or expired, so the sums of `retry_dlq_flow` close.
Absent on purpose: keeping anything longer than the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine.broker.groups.readers import QueueKey
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.delay.waiting_messages import real_place
from engine.foundation.limits import EXPIRED_DEAD_LETTERS_MAX, UNCONSUMED_REPORTS_MAX
from engine.foundation.observing import LifecycleEvent, Observer, RetryStep, UnreadDeletion
from engine.foundation.units import SECOND_MS
from engine.protocol.dead_letters import DISCARDS_TOPIC, PROPERTY_DEAD_GROUP, PROPERTY_REDRIVEN_FROM
from engine.protocol.message import MessageExt
from engine.protocol.message_record import decode_record
from engine.protocol.names import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, retry_topic
from engine.protocol.properties import PROPERTY_RETRY_TOPIC
from engine.store import MessageStore
from engine.store.upkeep.retention import Purged

KIND = "UNCONSUMED_DELETED"


@dataclass(slots=True, kw_only=True, eq=False)
class RetentionLosses:
    """Reports messages that retention took before groups consumed them."""

    emit_marks: Callable[[Sequence[QueueKey]], None]
    has_left: Callable[[tuple[str, str]], bool]
    observer: Observer
    offsets: ConsumerOffsets

    def emit_unconsumed(self, purged: Purged, cursors: Mapping[int, int]) -> None:
        """Report each group's loss, and its watermarks as they are now; then that of each delay
        level, whose next offset is in `cursors`.
        """
        losers = []
        for group, topic, queue_id in list(self.offsets.keys()):
            gone = purged.get((topic, queue_id))
            committed = self.offsets.committed(group, topic, queue_id)
            if self.has_left((group, topic)):
                continue
            if gone is not None and committed is not None and committed < gone[1]:
                losers.append((group, topic, queue_id))
                if len(losers) <= UNCONSUMED_REPORTS_MAX:
                    first = max(gone[0], committed)
                    self.observer.observe(
                        UnreadDeletion(
                            *(group, topic, queue_id),
                            from_offset=first,
                            to_offset=gone[1],
                            unread=gone[1] - first,
                        )
                    )
        if len(losers) > UNCONSUMED_REPORTS_MAX:
            more = len(losers) - UNCONSUMED_REPORTS_MAX
            detail = f"{more} more queues of groups lost unread messages; their watermarks show it"
            self.observer.observe(LifecycleEvent(KIND, detail))
        if losers:
            self.emit_marks(losers)
        self._emit_undelivered(purged, cursors)

    def _emit_undelivered(self, purged: Purged, cursors: Mapping[int, int]) -> None:
        """Report what went while it waited in its delay level."""
        for (topic, queue_id), gone in purged.items():
            first = max(gone[0], cursors.get(queue_id + 1, 0))
            if topic == SCHEDULE_TOPIC and first < gone[1]:
                self.observer.observe(
                    LifecycleEvent(
                        KIND,
                        f"{gone[1] - first} messages that waited in delay level {queue_id + 1}, "
                        "retries among them, deleted by retention before their time",
                    )
                )


UNITS_AT_ONCE = 256
LOOKED_AT_ONCE = 16
"""Messages in one step of the loop: each takes two questions of the index and what these find."""
COPIES_MAX = 4096
"""Tries of one message looked at after its death: each re-drive adds all its tries."""
END_OF_TIME_MS = 2**63 - 1


@dataclass(slots=True, kw_only=True, eq=False)
class ExpiredDeadLetters:
    """Reports failed messages that end undelivered."""

    observer: Observer
    store: MessageStore

    def emit_expired(self, physical_min: int, cursors: Mapping[int, int]) -> Iterator[None]:
        """Report the undecided dead letters and the retries still to come below `physical_min`, at
        most EXPIRED_DEAD_LETTERS_MAX of each, in steps; `cursors` has the next offset of each delay
        level.
        """
        topics = [topic for topic, _ in self.store.queues() if topic.startswith(DLQ_PREFIX)]
        reason = "deleted by retention before anybody decided about it"
        yield from self._emit(self._undecided(topics, physical_min), reason)
        reason = "deleted by retention before its next delivery"
        yield from self._emit(self._undelivered(physical_min, cursors), reason)

    def emit_deleted(self, topic: str) -> Iterator[None]:
        """Report the undecided ones of a dead-letter topic that is about to be deleted, alike."""
        reason = "deleted with its topic before anybody decided about it"
        yield from self._emit(self._undecided([topic], self.store.physical_max), reason)

    def _emit(
        self, looked_at: Iterable[tuple[str, MessageExt] | None], reason: str
    ) -> Iterator[None]:
        count = 0
        for number, expired in enumerate(looked_at, 1):
            if not number % LOOKED_AT_ONCE:
                yield
            if expired is None:
                continue
            group, message = expired
            if count == EXPIRED_DEAD_LETTERS_MAX:
                detail = f"more than {EXPIRED_DEAD_LETTERS_MAX} {reason}"
                self.observer.observe(LifecycleEvent("EXPIRED_DEAD_LETTERS", detail))
                return
            count += 1
            self.observer.observe(
                RetryStep(
                    message_id=message.uniq_key,
                    origin_topic=message.properties.get(PROPERTY_RETRY_TOPIC),
                    origin_queue_id=None,
                    origin_offset=None,
                    group=group,
                    reconsume_times=message.reconsume_times,
                    step="EXPIRED",
                    delay_ms=None,
                    reason=reason,
                )
            )

    def _undecided(
        self, topics: Sequence[str], physical_min: int
    ) -> Iterator[tuple[str, MessageExt] | None]:
        """(group, dead letter) of those that are about to go; None for a decided one."""
        for topic in topics:
            group = topic.removeprefix(DLQ_PREFIX)
            for message in self._below((topic, 0), physical_min):
                yield None if self._is_decided(group, message) else (group, message)

    def _undelivered(
        self, physical_min: int, cursors: Mapping[int, int]
    ) -> Iterator[tuple[str, MessageExt] | None]:
        """(group, retry) of those that wait for their time and are about to go; None for others."""
        levels = [
            queue_id + 1 for topic, queue_id in self.store.queues() if topic == SCHEDULE_TOPIC
        ]
        for level in levels:
            offset = cursors.get(level, 0)
            queue = (SCHEDULE_TOPIC, level - 1)
            for message in self._below(queue, physical_min, from_offset=offset):
                place = real_place(message)
                is_retry = place is not None and place[0].startswith(RETRY_PREFIX)
                yield (place[0].removeprefix(RETRY_PREFIX), message) if place and is_retry else None

    def _below(
        self, queue: tuple[str, int], physical_min: int, *, from_offset: int = 0
    ) -> Iterator[MessageExt]:
        """The messages of a queue from an offset on that are about to go."""
        store, offset = self.store, max(from_offset, self.store.min_offset(*queue))
        while units := store.queue_units(*queue, offset, UNITS_AT_ONCE):
            for physical_offset, *_ in units:
                if physical_offset >= physical_min:
                    return
                record = store.record_at(physical_offset)
                if record is not None:
                    yield decode_record(record)
            offset += len(units)

    def _is_decided(self, group: str, message: MessageExt) -> bool:
        offset_id = message.offset_message_id
        since_ms = message.store_timestamp_ms - SECOND_MS  # The index knows seconds.
        copies = self._found(retry_topic(group), message.message_id, since_ms)
        if any(copy.properties.get(PROPERTY_REDRIVEN_FROM) == offset_id for copy in copies):
            return True
        records = self._found(DISCARDS_TOPIC, offset_id, since_ms)
        return any(
            offset_id in (record.keys or "").split()
            and record.properties.get(PROPERTY_DEAD_GROUP)
            == group  # Another's word decides nothing.
            for record in records
        )

    def _found(self, topic: str, key: str, since_ms: int) -> Iterator[MessageExt]:
        """Messages indexed under the key, oldest first; hashes may collide, callers look closer."""
        store = self.store
        found = store.query_by_key(
            topic, key, max_count=COPIES_MAX, begin_ms=since_ms, end_ms=END_OF_TIME_MS
        )
        for offset in found.physical_offsets:
            record = store.record_at(offset)
            if record is not None:
                message = decode_record(record)
                if message.topic == topic:
                    yield message
