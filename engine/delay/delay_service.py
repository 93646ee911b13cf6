"""Delivers delayed messages: moves them from SCHEDULE_TOPIC_XXXX to their topic when due.

Place in the walk: a send or send-back with a delay level is stored in the queue of its level
(queue_id = level - 1); here each level's queue is read in order and every due message is put again
under its real topic.

A delay is counted on the steady clock (`store_times`): nobody who sets the machine's clock makes a
message early, or late by more than a tick and a mark.

What is due leaves in steps of a few milliseconds, the levels by turns, and other work of the loop
comes between any two of them; steps follow each other until nothing is due. So a level is emptied
as fast as the broker can put, and no backlog holds the loop.

Invariant: the queues of a level are in order of their due times, because all wait equally long; so
one cursor a level suffices. A cursor reaches the disk only after the messages put before it are
durable: a crash delivers some again and loses none. A record that cannot be delivered blocks no
other: it is reported and stepped over, and what can be read of it becomes a dead letter.

Absent on purpose: which level a retry gets, the time wheel for arbitrary delays, the file format.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.delay.store_times import StoreTimes
from engine.delay.waiting_messages import (
    SCHEDULE_GROUP,
    dead_letter_group,
    dead_letter_of,
    legal_place,
)
from engine.foundation.errors import (
    CorruptRecord,
    LocalProtocolError,
    OffsetOutOfRange,
    StorageError,
)
from engine.foundation.observing import LifecycleEvent, Observer, RetryStep, report
from engine.foundation.units import MIB, SECOND_MS
from engine.protocol.names import RETRY_PREFIX, SCHEDULE_TOPIC, dlq_topic
from engine.protocol.properties import (
    PROPERTY_LEFT_OUT,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_UNIQ_KEY,
    decode_properties,
)
from engine.runtime import Runtime
from engine.runtime.clock import ClockStep
from engine.store import GetStatus, MessageDraft, MessageStore
from engine.store.draft_record import draft_of
from engine.store.record import check_record, property_value, store_timestamp_of
from engine.store.table_file import Source, TableFile

TICK_MS = 100
FIRST_TICK_MS = 1000
AFTER_FAILURE_MS = 10_000
"""Rhythm of the reading, RocketMQ's figures."""

STEP_COUNT_MAX = 64
STEP_BYTES_MAX = MIB
STEP_MS_MAX = 10
"""A step of the loop ends at the first of these: so many messages, bytes, and milliseconds."""

STAMP_END_MAX = 76
"""Bytes of a record to the end of its store time."""

CLOCK_STEPS = "clockSteps"
"""Beside RocketMQ's offsetTable in the file of the cursors."""

_REAL_TOPIC = f"{PROPERTY_REAL_TOPIC}\x01".encode()
_REAL_QUEUE_ID = f"{PROPERTY_REAL_QUEUE_ID}\x01".encode()

Origin = tuple[int | None, int | None]
"""Queue and offset in a topic of origin; None: not known."""

_log = logging.getLogger(__name__)


class DelayService:
    """Reads the levels' queues and puts what is due."""

    def __init__(
        self,
        runtime: Runtime,
        store: MessageStore,
        *,
        levels_ms: Sequence[int],
        cursor_file: TableFile,
        observer: Observer,
        make_dead_letter_topic: Callable[[str], None],
        queue_there: Callable[[str, int], int] = lambda _topic, queue_id: queue_id,
        origin_of: Callable[[Mapping[str, str]], Origin] = lambda _properties: (None, None),
    ) -> None:
        """`make_dead_letter_topic` makes that of a group, when it is not there; `queue_there` says
        where a message for a queue of a topic goes, which may have been taken away meanwhile;
        `origin_of` where the message was first whose copy has these properties.
        """
        self._clock = runtime.clock
        self._store = store
        self._levels_ms = levels_ms
        self._file = cursor_file
        self._observer = observer
        self._make_dead_letter_topic = make_dead_letter_topic
        self._queue_there = queue_there
        self._origin_of = origin_of
        self._cursors: dict[int, int] = {}
        self._due_ms: dict[int, int] = {}
        """When the head of a level is due, once it has been looked at; steady time."""
        self._put_end = 0
        """Commit-log offset behind the last message put here."""
        self._changed = False
        self._is_held_back = False
        """Was it reported that the cursors on disk stay behind?"""
        self._stepped = asyncio.Event()
        self._times = StoreTimes(
            log_end=store.physical_max,
            offset_ms=self._clock.offset_ms(),
            steady_ms=self._clock.steady_ms(),
        )
        self._clock.on_step(self._clock_stepped)

    @property
    def levels_ms(self) -> Sequence[int]:
        """Delay of each level; the first is level 1."""
        return self._levels_ms

    def cursors(self) -> dict[int, int]:
        """Next offset of each level's queue that is not delivered yet, by level."""
        return dict(self._cursors)

    def load(self, *, was_written: bool = False) -> None:
        """Take over the cursors of the last life. Raises CorruptRecord when they are unreadable.

        One beyond its queue is of messages that are gone: those that get these offsets now would
        never be delivered. `was_written`: another table says that there were cursors.
        """
        source = self._file.load(self._observer, self._accept)
        if source is Source.NOTHING and was_written:
            self._file.tell_missing(
                self._observer, "delayed messages that the log still holds are delivered again"
            )
        for level, cursor in self._cursors.items():
            end = self._store.max_offset(SCHEDULE_TOPIC, level - 1)
            if cursor > end:
                self._move(level, end)
                detail = (
                    f"the cursor of delay level {level} lay beyond its queue, whose messages are "
                    f"gone; delivery goes on where the queue ends, at {end} instead of {cursor}"
                )
                report(self._observer, _log, LifecycleEvent("OFFSETS_TAKEN_BACK", detail))

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
        self._times.take_shifts(
            _shifts_of(document.get(CLOCK_STEPS, [])), log_end=self._store.physical_max
        )

    async def run(self) -> None:
        """Deliver until cancelled."""
        await asyncio.sleep(FIRST_TICK_MS / SECOND_MS)
        while True:
            pause_ms = TICK_MS
            try:
                await self.deliver_due()
            except StorageError as error:
                _log.warning("delayed messages wait on: %s", error)
                pause_ms = AFTER_FAILURE_MS
            await asyncio.sleep(pause_ms / SECOND_MS)

    async def deliver_due(self) -> int:
        """Put every due message under its real topic, step by step; return how many.

        Raises StorageError when the store takes nothing.
        """
        self._times.note_end(self._store.physical_max, self._clock.steady_ms())
        delivered_count = 0
        by_turns = deque(range(1, len(self._levels_ms) + 1))
        while by_turns:
            level = by_turns.popleft()
            if self._due_ms.get(level, 0) > self._clock.steady_ms():
                continue
            before = self._cursors.get(level, 0)
            try:
                count, has_more = self._deliver_step(level)
            except (OffsetOutOfRange, CorruptRecord) as error:
                self._due_ms[level] = self._clock.steady_ms() + AFTER_FAILURE_MS
                _log.error("delay level %d cannot be read at %d: %s", level, before, error)
                continue
            delivered_count += count
            if has_more:
                by_turns.append(level)
            if self._cursors.get(level, 0) != before:
                await asyncio.sleep(0)
        return delivered_count

    async def run_persist(self, interval_ms: int) -> None:
        """Write the cursors each `interval_ms`, and soon after a step of the clock, until
        cancelled.
        """
        while True:
            try:
                async with asyncio.timeout(interval_ms / SECOND_MS):
                    await self._stepped.wait()
            except TimeoutError:
                pass
            self._stepped.clear()
            try:
                await self.persist("TIMER")
            except StorageError as error:
                _log.warning("the delay cursors are not persisted yet: %s", error)

    async def persist(self, cause: str) -> None:
        """Write the cursors, once everything delivered before them is durable; nothing when none
        moved since. Raises StorageError.
        """
        if not self._changed and self._file.is_there:
            return
        self._changed = False
        cursors = {str(level): offset for level, offset in sorted(self._cursors.items())}
        put_end, store = self._put_end, self._store
        try:
            await store.flush()
            if store.physical_flushed < put_end:
                self._changed = True  # Not durable in time: the cursors on disk stay behind.
                self._tell_held_back(put_end)
                return
            written = await self._file.write({"offsetTable": cursors, **self._clock_steps()})
        except BaseException:  # Cancelled as well: whether it is on disk is unknown.
            self._changed = True
            raise
        self._is_held_back = False
        self._observer.observe(written.persisted("DELAY", cause))

    def _tell_held_back(self, put_end: int) -> None:
        """Once, until cursors are persisted again."""
        if self._is_held_back:
            return
        self._is_held_back = True
        detail = (
            "delayOffset.json stays behind: messages were delivered up to commit log offset "
            f"{put_end}, which is on stable storage up to {self._store.physical_flushed}"
        )
        report(self._observer, _log, LifecycleEvent("OFFSETS_HELD_BACK", detail))

    def _clock_stepped(self, step: ClockStep) -> None:
        self._times.note_step(self._store.physical_max, step.offset_ms)
        self._changed = True
        self._stepped.set()

    def _clock_steps(self) -> dict[str, list[list[int]]]:
        """Steps of the clock that messages wait over, to be kept with the cursors; RocketMQ passes
        over what it does not know.
        """
        store, waiting_from = self._store, self._store.physical_max
        for level in range(1, len(self._levels_ms) + 1):
            cursor = self._cursors.get(level, 0)
            for physical_offset, *_ in (
                store.queue_units(SCHEDULE_TOPIC, level - 1, cursor, 1) or ()
            ):
                waiting_from = min(waiting_from, physical_offset)
        self._times.forget_below(waiting_from)
        shifts = self._times.shifts()
        return {CLOCK_STEPS: shifts} if len(shifts) > 1 else {}

    def _deliver_step(self, level: int) -> tuple[int, bool]:
        """One step of a level: how many messages it put, and whether more may be due. Hot."""
        store, queue_id, delay_ms = self._store, level - 1, self._levels_ms[level - 1]
        cursor, began_ms = self._cursors.get(level, 0), self._clock.steady_ms()
        units = store.queue_units(SCHEDULE_TOPIC, queue_id, cursor, STEP_COUNT_MAX)
        if not units:
            return 0, self._follow_queue(level, cursor)
        delivered_count = step_bytes = 0
        for physical_offset, size_bytes, _ in units:
            record = store.bytes_at(physical_offset, size_bytes)
            if record is None and physical_offset >= store.physical_committed:
                return delivered_count, False
            if record is not None:
                now_ms = self._clock.steady_ms()
                if step_bytes > STEP_BYTES_MAX or now_ms - began_ms >= STEP_MS_MAX:
                    return delivered_count, True
                stored_ms = self._times.stored_ms(physical_offset, _stamp_of(record))
                due_ms = min(stored_ms, now_ms) + delay_ms
                if due_ms > now_ms:
                    self._due_ms[level] = due_ms
                    return delivered_count, False
                step_bytes += size_bytes
                delivered_count += self._deliver(level, cursor, physical_offset, record)
            cursor += 1
            self._move(level, cursor)
        return delivered_count, True

    def _follow_queue(self, level: int, cursor: int) -> bool:
        """No message stands at the cursor: it goes to where the next one is or will be; True when
        one is.
        """
        found = self._store.get(SCHEDULE_TOPIC, level - 1, cursor, max_count=1, max_bytes=1)
        if found.status is GetStatus.FOUND or found.next_begin_offset == cursor:
            return False
        self._move(level, found.next_begin_offset)
        return found.next_begin_offset < found.max_offset

    def _move(self, level: int, offset: int) -> None:
        self._cursors[level] = offset
        self._due_ms.pop(level, None)
        self._changed = True

    def _deliver(
        self, level: int, queue_offset: int, physical_offset: int, record: memoryview
    ) -> bool:
        """Put one message under its real topic; False for one that was stepped over. Hot.

        Raises StorageError when the store takes nothing.
        """
        try:
            request = check_record(record, 0, physical_offset, self._levels_ms)
            if request is None or request.topic != SCHEDULE_TOPIC:
                raise CorruptRecord(f"what lies at {physical_offset} is of no delay level")
            draft = draft_of(record)
            # As in RocketMQ, the stored properties keep DELAY, REAL_TOPIC and REAL_QID.
            told = request.properties
            topic = property_value(told, _REAL_TOPIC).decode()
            place = legal_place(topic, property_value(told, _REAL_QUEUE_ID))
            if place is None:
                raise CorruptRecord("it names no topic and queue that it could be delivered to")
        except CorruptRecord as error:
            self._step_over(level, queue_offset, record, str(error))
            return False
        if self._store.was_deleted(topic, physical_offset):
            _log.info("message %d of level %d is deleted with topic %s", queue_offset, level, topic)
            return False
        draft.topic, draft.queue_id = topic, self._queue_there(*place)
        try:
            self._put_end = self._store.put(draft).end_offset
        except LocalProtocolError as error:
            self._step_over(level, queue_offset, record, str(error))
            return False
        if topic.startswith(RETRY_PREFIX):
            self._tell_step(draft, decode_properties(told.decode()), "DELIVERED", level)
        return True

    def _step_over(self, level: int, queue_offset: int, record: memoryview, why: str) -> None:
        """Bury what can be read of a record that cannot be delivered, and report it."""
        letter = dead_letter_of(record)
        fate = "nothing of it can be read"
        if letter is not None:
            draft, properties = letter
            group = dead_letter_group(properties.get(PROPERTY_REAL_TOPIC, ""))
            self._make_dead_letter_topic(group)
            draft.topic, draft.queue_id = dlq_topic(group), 0
            try:
                self._put_end = self._store.put(draft).end_offset
                fate = f"what can be read of it is a dead letter of group {group}"
                if PROPERTY_LEFT_OUT in str(draft.properties):
                    fate += f", with a note of what it had no room for ({PROPERTY_LEFT_OUT})"
                if group != SCHEDULE_GROUP:
                    self._tell_step(
                        draft, properties, "DEAD_LETTERED", level, group=group, reason=why
                    )
            except LocalProtocolError as error:
                fate = f"no record can hold what is left of it: {error}"
        place = f"message {queue_offset} of delay level {level}"
        _log.error("%s is stepped over: %s; %s", place, why, fate)
        self._observer.observe(LifecycleEvent("UNDELIVERABLE_MESSAGE", f"{place}: {why}; {fate}"))

    def _tell_step(
        self,
        draft: MessageDraft,
        properties: Mapping[str, str],
        step: str,
        level: int,
        *,
        group: str | None = None,
        reason: str | None = None,
    ) -> None:
        queue_id, queue_offset = self._origin_of(properties)
        self._observer.observe(
            RetryStep(
                message_id=properties.get(PROPERTY_UNIQ_KEY),
                origin_topic=properties.get(PROPERTY_RETRY_TOPIC),
                origin_queue_id=queue_id,
                origin_offset=queue_offset,
                group=group or draft.topic.removeprefix(RETRY_PREFIX),
                reconsume_times=draft.reconsume_times,
                step=step,
                delay_ms=self._levels_ms[level - 1],
                reason=reason,
            )
        )


def _shifts_of(told: object) -> list[list[int]]:
    """The steps that a file describes. Raises CorruptRecord when they are none."""
    pairs: list[Any] = told if isinstance(told, list) else [told]
    for pair in pairs:
        whole = isinstance(pair, list) and [type(number) for number in pair] == [int, int]
        if not whole:
            raise CorruptRecord(f"{CLOCK_STEPS}: {pair!r} is no place with a distance in ms")
    return pairs


def _stamp_of(record: memoryview) -> int:
    """Its store time as the bytes have it; a record too short for one is due, to be looked at."""
    return store_timestamp_of(record) if len(record) >= STAMP_END_MAX else 0
