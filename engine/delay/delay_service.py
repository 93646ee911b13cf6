"""The delay levels: messages wait in SCHEDULE_TOPIC_XXXX until their time, then move to their
topic.

Place in the walk: a send or send-back with a delay level is stored in the queue of its level
(queue_id = level - 1); here each level's queue is read in order and every due message is put again
under its real topic (spec: retry, DLQ, delay, section 10).

Invariant: the queues of a level are in order of their due times, because all wait equally long; so
one cursor a level suffices. A cursor reaches the disk only after the messages put before it are
durable: a crash delivers some again and loses none.

Absent on purpose: which level a retry gets, the time wheel for arbitrary delays, the file format.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from engine.foundation.errors import CorruptRecord, StorageError
from engine.foundation.limits import RETRY_TOPIC_CHARS_MAX
from engine.foundation.observing import FlushDone, LifecycleEvent, Observer, RetryStep
from engine.foundation.units import KIB, SECOND_MS
from engine.protocol.message import MessageExt
from engine.protocol.message_record import decode_record
from engine.protocol.names import RETRY_PREFIX, SCHEDULE_TOPIC
from engine.protocol.properties import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RETRY_TOPIC,
    encode_properties,
    whole_number,
)
from engine.runtime import Runtime
from engine.store import GetStatus, MessageDraft, MessageStore
from engine.store.redraft import redraft
from engine.store.table_file import TableFile

TICK_MS = 100
FIRST_TICK_MS = 1000
AFTER_FAILURE_MS = 10_000
"""Rhythm of the reading, RocketMQ's figures."""

READ_COUNT = 32
READ_BYTES = 256 * KIB
DELIVERIES_PER_TICK_MAX = 512
"""A level with more due messages goes on in the next tick, so that a backlog never holds the loop.
"""

PLACE_BYTES_MAX = RETRY_TOPIC_CHARS_MAX + 48
"""What `scheduled` adds to the properties, at most."""

_log = logging.getLogger(__name__)


def scheduled(draft: MessageDraft, level: int) -> MessageDraft:
    """Turn a draft into one that waits at `level` (1 is the shortest); its own place is kept in
    properties.
    """
    text = draft.properties.decode() if isinstance(draft.properties, bytes) else draft.properties
    if text and not text.endswith("\x02"):
        text += "\x02"
    place = {PROPERTY_REAL_TOPIC: draft.topic, PROPERTY_REAL_QUEUE_ID: str(draft.queue_id)}
    draft.properties = text + encode_properties(place)
    draft.topic, draft.queue_id = SCHEDULE_TOPIC, level - 1
    return draft


def real_place(message: MessageExt) -> tuple[str, int] | None:
    """Topic and queue id under which a scheduled message is to appear; None when it names none."""
    topic = message.properties.get(PROPERTY_REAL_TOPIC)
    queue_id = whole_number(message.properties.get(PROPERTY_REAL_QUEUE_ID, ""), -1)
    if not topic or queue_id < 0:
        return None
    return topic, queue_id


class DelayService:
    """Reads the levels' queues on the broker's clock and puts what is due."""

    def __init__(
        self,
        runtime: Runtime,
        store: MessageStore,
        *,
        levels_ms: Sequence[int],
        cursor_file: TableFile,
        observer: Observer,
    ) -> None:
        self._clock = runtime.clock
        self._store = store
        self._levels_ms = levels_ms
        self._file = cursor_file
        self._observer = observer
        self._cursors: dict[int, int] = {}
        self._due_ms: dict[int, int] = {}
        """When the head of a level is due, once it has been looked at."""
        self._put_end = 0
        """Commit-log offset behind the last message put here."""
        self._changed = False

    @property
    def levels_ms(self) -> Sequence[int]:
        """Delay of each level; the first is level 1."""
        return self._levels_ms

    def cursors(self) -> dict[int, int]:
        """Next offset of each level's queue that is not delivered yet, by level."""
        return dict(self._cursors)

    def load(self) -> None:
        """Take over the cursors of the last life. Raises CorruptRecord when they are unreadable.

        One beyond its queue is of messages that are gone: those that get these offsets now would
        never be delivered.
        """
        self._file.load(self._observer, self._accept)
        for level, cursor in self._cursors.items():
            end = self._store.max_offset(SCHEDULE_TOPIC, level - 1)
            if cursor > end:
                self._move(level, end)
                detail = (
                    f"the cursor of delay level {level} lay beyond its queue, whose messages are "
                    f"gone; delivery goes on where the queue ends, at {end} instead of {cursor}"
                )
                _log.warning("%s", detail)
                self._observer.observe(LifecycleEvent("OFFSETS_TAKEN_BACK", detail))

    def _accept(self, document: Mapping[str, object]) -> None:
        table = document.get("offsetTable")
        if not isinstance(table, Mapping):
            raise CorruptRecord(f"{self._file.path} holds no offsetTable")
        for level, offset in table.items():
            if not str(level).isdecimal() or not isinstance(offset, int):
                raise CorruptRecord(
                    f"{self._file.path}: {level!r}: {offset!r} is no level's offset"
                )
        self._cursors = {int(level): offset for level, offset in table.items()}

    async def run(self) -> None:
        """Deliver until cancelled."""
        await asyncio.sleep(FIRST_TICK_MS / SECOND_MS)
        while True:
            pause_ms = TICK_MS
            try:
                self.deliver_due(self._clock.now_ms())
            except StorageError as error:
                _log.warning("delayed messages wait on: %s", error)
                pause_ms = AFTER_FAILURE_MS
            await asyncio.sleep(pause_ms / SECOND_MS)

    def deliver_due(self, now_ms: int) -> int:
        """Put every due message under its real topic; return how many. Raises StorageError."""
        return sum(
            self._deliver_level(level, delay_ms, now_ms)
            for level, delay_ms in enumerate(self._levels_ms, start=1)
        )

    async def run_persist(self, interval_ms: int) -> None:
        """Write the cursors each `interval_ms`, until cancelled."""
        while True:
            await asyncio.sleep(interval_ms / SECOND_MS)
            try:
                await self.persist("TIMER")
            except StorageError as error:
                _log.warning("the delay cursors are not persisted yet: %s", error)

    async def persist(self, cause: str) -> None:
        """Write the cursors, once everything delivered before them is durable; nothing when none
        moved. Raises StorageError.
        """
        if not self._changed:
            return
        self._changed = False
        cursors = {str(level): offset for level, offset in sorted(self._cursors.items())}
        put_end, store = self._put_end, self._store
        try:
            await store.flush()
            if store.physical_flushed < put_end:
                self._changed = True  # Not durable in time: the cursors on disk stay behind.
                return
            written = await self._file.write({"offsetTable": cursors})
        except BaseException:  # Cancelled as well: whether it is on disk is unknown.
            self._changed = True
            raise
        self._observer.observe(
            FlushDone(
                component="DELAY",
                action="PERSIST",
                cause=cause,
                written=written.size_bytes,
                flushed=None,
                store_time_ms=None,
                duration_us=written.duration_us,
                content_crc=written.crc,
            )
        )

    def _deliver_level(self, level: int, delay_ms: int, now_ms: int) -> int:
        if self._due_ms.get(level, 0) > now_ms + delay_ms:
            del self._due_ms[level]  # The clock was set back: look at the head again.
        delivered_count = 0
        while self._due_ms.get(level, 0) <= now_ms and delivered_count < DELIVERIES_PER_TICK_MAX:
            cursor = self._cursors.get(level, 0)
            found = self._store.get(
                SCHEDULE_TOPIC, level - 1, cursor, max_count=READ_COUNT, max_bytes=READ_BYTES
            )
            if found.status is not GetStatus.FOUND:
                if found.next_begin_offset != cursor:
                    self._move(level, found.next_begin_offset)
                break
            delivered_count += self._deliver_found(level, delay_ms, found.body(), now_ms)
        return delivered_count

    def _deliver_found(
        self, level: int, delay_ms: int, body: bytes | memoryview, now_ms: int
    ) -> int:
        """Put the records of `body` up to the first that is not due; return how many."""
        position = delivered_count = 0
        while position < len(body):
            message = decode_record(body, position)
            position += message.store_size_bytes
            due_ms = message.store_timestamp_ms + delay_ms
            if now_ms < due_ms <= now_ms + delay_ms:
                self._due_ms[level] = due_ms
                break
            self._deliver(message)
            self._move(level, message.queue_offset + 1)
            delivered_count += 1
        return delivered_count

    def _move(self, level: int, offset: int) -> None:
        self._cursors[level] = offset
        self._due_ms.pop(level, None)
        self._changed = True

    def _deliver(self, message: MessageExt) -> None:
        place = real_place(message)
        if place is None:
            _log.warning(
                "message %s in %s names no real topic; it is left out",
                message.message_id,
                SCHEDULE_TOPIC,
            )
            return
        topic, queue_id = place
        # As in RocketMQ, the stored properties keep DELAY, REAL_TOPIC and REAL_QID.
        draft = redraft(message, topic, queue_id, message.properties)
        draft.prepared_transaction_offset = message.prepared_transaction_offset
        put = self._store.put(draft)
        self._put_end = put.end_offset
        if topic.startswith(RETRY_PREFIX):
            self._observer.observe(
                RetryStep(
                    message_id=message.uniq_key,
                    origin_topic=message.properties.get(PROPERTY_RETRY_TOPIC),
                    origin_queue_id=None,
                    origin_offset=None,
                    group=topic.removeprefix(RETRY_PREFIX),
                    reconsume_times=message.reconsume_times,
                    step="DELIVERED",
                    delay_ms=None,
                    reason=None,
                )
            )
