"""The 18 delay levels, each with a queue whose messages all have the same delay.

Place in the walk: a send or send-back with a delay level is parked in the queue of its level of
SCHEDULE_TOPIC_XXXX (queue_id = level - 1); here each level's queue is read in order, and what is
due is given to `delay_service` in steps of a few milliseconds, the levels by turns.

A delay is counted on the steady clock: nobody who sets the machine's clock makes a message early,
or late by more than a tick and a mark. `StoreTimes` translates stamps of a stretch of the log:

    step   from this place in the log on, the wall clock shows so much beyond the steady one
    mark   everything below this place was stored at this steady time at the latest

Stamps are never behind the wall clock they were made by, so the steady time found is never too
early; where they are ahead of it, the marks bound the error: MARK_EVERY_MS, or the time since the
start.

Invariant: the queues of a level are in order of their due times, so one cursor a level suffices. A
cursor reaches the disk only after the messages put before it are durable: a crash delivers some
again and loses none. A level that cannot be read holds up no other. Absent on purpose: which level
a retry gets, delivery, the time wheel for arbitrary delays, how the clock was set while no broker
ran.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from engine.delay.delays import Due
from engine.delay.level_marks import LevelMarks, mark_of
from engine.delay.waiting_messages import scheduled
from engine.delay.wheel.time_wheel import READ_AGAIN_BYTES_MAX
from engine.foundation.errors import CorruptRecord, OffsetOutOfRange, StorageError
from engine.foundation.limits import CLOCK_STEPS_KEPT_MAX, STORE_TIME_MARKS_MAX
from engine.foundation.observing import LifecycleEvent, Observer, report
from engine.foundation.units import MIB, SECOND_MS
from engine.protocol.names import SCHEDULE_TOPIC
from engine.protocol.properties import PROPERTY_REAL_TOPIC
from engine.runtime import Runtime
from engine.runtime.clock import ClockStep
from engine.store import GetStatus, MessageDraft, MessageStore
from engine.store.record_reading import (
    DispatchRequest,
    check_record,
    property_value,
    store_timestamp_of,
)
from engine.store.table_file import Source, TableFile

MARK_EVERY_MS = SECOND_MS
_REAL_TOPIC = f"{PROPERTY_REAL_TOPIC}\x01".encode()


class StoreTimes:
    """The steps and marks of one broker's log."""

    def __init__(self, *, log_end: int, offset_ms: int, steady_ms: int) -> None:
        """`offset_ms` is what the wall clock shows beyond the steady one now."""
        self._steps = [(0, offset_ms)]
        self._marks = [(log_end, steady_ms)]

    def note_step(self, log_end: int, offset_ms: int) -> None:
        """The wall clock was set: records from `log_end` on have stamps of another time."""
        if self._steps[-1][0] == log_end:
            self._steps.pop()  # Nothing was stored in between.
        self._steps.append((log_end, offset_ms))
        if len(self._steps) > CLOCK_STEPS_KEPT_MAX:
            (begin, one), (_, other) = self._steps[:2]
            self._steps[:2] = [(begin, min(one, other))]  # Late rather than early.

    def note_end(self, log_end: int, steady_ms: int) -> None:
        """The log ends there now; seldom noted more than once in MARK_EVERY_MS."""
        newest_end, newest_ms = self._marks[-1]
        if log_end <= newest_end or steady_ms < newest_ms + MARK_EVERY_MS:
            return
        self._marks.append((log_end, steady_ms))
        if len(self._marks) > STORE_TIME_MARKS_MAX:
            del self._marks[-2::-2]  # The later of two neighbours stands for both.

    def forget_below(self, physical_offset: int) -> None:
        """No record before this one is asked about any more."""
        del self._steps[: bisect_right(self._steps, physical_offset, key=_place) - 1]
        passed = bisect_right(self._marks, physical_offset, key=_place)
        del self._marks[: min(passed, len(self._marks) - 1)]

    def stored_ms(self, physical_offset: int, store_timestamp_ms: int) -> int:
        """The steady time at which the record there, with this stamp, was stored; perhaps later by
        MARK_EVERY_MS, never earlier.
        """
        step = self._steps[max(0, bisect_right(self._steps, physical_offset, key=_place) - 1)]
        by_stamp_ms = store_timestamp_ms - step[1]
        mark = bisect_right(self._marks, physical_offset, key=_place)
        return by_stamp_ms if mark == len(self._marks) else min(by_stamp_ms, self._marks[mark][1])

    # ---- over a restart ----------------------------------------------------------------------

    def shifts(self) -> list[list[int]]:
        """The steps as places and the wall clock's distance then from that of today, to be kept:
        the steady clock of the next life counts from another zero.
        """
        newest_ms = self._steps[-1][1]
        return [[place, offset_ms - newest_ms] for place, offset_ms in self._steps]

    def take_shifts(self, shifts: Sequence[Sequence[int]], *, log_end: int) -> None:
        """Begin with the steps of the last life, as `shifts` gave them; what they say of places
        that a power cut took from the log begins at its end.
        """
        offset_ms = self._steps[-1][1]
        for place, shift_ms in shifts:
            newest_place = self._steps[-1][0]
            self.note_step(max(newest_place, min(place, log_end)), offset_ms + shift_ms)


def _place(entry: tuple[int, int]) -> int:
    return entry[0]


AFTER_DAMAGE_MS = 10_000
"""A level that could not be read is tried again so much later."""

TICK_MS = 100
"""Rhythm of the levels, RocketMQ's figure."""

STEP_COUNT_MAX = 64
STEP_BYTES_MAX = MIB
STEP_MS_MAX = 10
"""A step of the loop ends at the first of these: so many messages, bytes, and milliseconds."""

STAMP_END_MAX = 76
"""Bytes of a record to the end of its store time."""

CLOCK_STEPS = "clockSteps"
"""Beside RocketMQ's offsetTable in the file of the cursors."""
APPLIED = "applied"
"""Likewise: up to where the log has been read for them, in a Raft group."""

_log = logging.getLogger(__name__)


class DelayLevels:
    """Reads the levels' queues: a `Delays` of level numbers, the first is 1."""

    def __init__(
        self,
        runtime: Runtime,
        store: MessageStore,
        *,
        levels_ms: Sequence[int],
        cursor_file: TableFile,
        observer: Observer,
        marks: LevelMarks | None = None,
        read_again_bytes_max: int = READ_AGAIN_BYTES_MAX,
    ) -> None:
        """`marks`: of a Raft group, what the log says of deliveries, for which a start may have to
        read `read_again_bytes_max` of it again.
        """
        self._clock = runtime.clock
        self._store = store
        self._levels_ms = levels_ms
        self._file = cursor_file
        self._observer = observer
        self._marks = marks
        self._read_again_bytes_max = read_again_bytes_max
        self._cursors: dict[int, int] = {}
        self._due_ms: dict[int, int] = {}
        """When the head of a level is due, once it has been looked at; steady time."""
        self._put_end = 0
        """Commit-log offset behind the last message that was delivered."""
        self._written_end = 0
        """Up to where the file says that this is so."""
        self._copied_end = 0
        """Where the log ended when a master was asked for its cursors last."""
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

    # ---- as a `Delays` ----------------------------------------------------------------------

    def park(self, draft: MessageDraft, wait: int) -> MessageDraft:
        """Turn a draft into one that waits at this level."""
        return scheduled(draft, wait)

    def due(self) -> Iterator[Due | None]:
        """See `Delays.due`."""
        self._times.note_end(self._store.physical_max, self._clock.steady_ms())
        by_turns = deque(range(1, len(self._levels_ms) + 1))
        while by_turns:
            level = by_turns.popleft()
            if self._due_ms.get(level, 0) > self._clock.steady_ms():
                continue
            before = self._cursors.get(level, 0)
            try:
                has_more = yield from self._step(level)
            except (OffsetOutOfRange, CorruptRecord) as error:
                self._due_ms[level] = self._clock.steady_ms() + AFTER_DAMAGE_MS
                _log.error("delay level %d cannot be read at %d: %s", level, before, error)
                continue
            if has_more:
                by_turns.append(level)
            if self._cursors.get(level, 0) != before:
                yield None

    async def wait(self) -> None:
        """See `Delays.wait`."""
        await asyncio.sleep(TICK_MS / SECOND_MS)

    def floor(self) -> int:
        """Log offset of the oldest record that waits; that of the log's end when none does."""
        store, floor = self._store, self._store.physical_max
        for level in range(1, len(self._levels_ms) + 1):
            cursor = self._cursors.get(level, 0)
            for physical_offset, *_ in (
                store.queue_units(SCHEDULE_TOPIC, level - 1, cursor, 1) or ()
            ):
                floor = min(floor, physical_offset)
        return floor

    # ---- reading a level --------------------------------------------------------------------

    def _step(self, level: int) -> Generator[Due, None, bool]:
        """One step of a level: what is due; returns whether more may be. Hot."""
        store, queue_id, delay_ms = self._store, level - 1, self._levels_ms[level - 1]
        cursor, began_ms = self._cursors.get(level, 0), self._clock.steady_ms()
        units = store.queue_units(SCHEDULE_TOPIC, queue_id, cursor, STEP_COUNT_MAX)
        if not units:
            return self._follow_queue(level, cursor)
        step_bytes = 0
        for physical_offset, size_bytes, _ in units:
            record = store.bytes_at(physical_offset, size_bytes)
            if record is None and physical_offset >= store.physical_committed:
                return False
            if record is not None:
                now_ms = self._clock.steady_ms()
                if step_bytes > STEP_BYTES_MAX or now_ms - began_ms >= STEP_MS_MAX:
                    return True
                stored_ms = self._times.stored_ms(physical_offset, _stamp_of(record))
                due_ms = min(stored_ms, now_ms) + delay_ms
                if due_ms > now_ms:
                    self._due_ms[level] = due_ms
                    return False
                step_bytes += size_bytes
                where = f"message {cursor} of delay level {level}"
                mark = b"" if self._marks is None else mark_of(level, cursor + 1)
                due = Due(SCHEDULE_TOPIC, where, delay_ms, physical_offset, record, mark)
                yield due
                self._put_end = max(self._put_end, due.put_end)
            cursor += 1
            self._move(level, cursor)
        return True

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

    # ---- the cursors ------------------------------------------------------------------------

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
            self._file.report_missing(
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
        if self._marks is not None:
            self._marks.cursors = dict(self._cursors)
            self._written_end = self._marks.applied_offset

    def copy(self, document: Mapping[str, object], log_end: int) -> None:
        """Take over the cursors of a slave's master, as they were when this log ended behind
        `log_end`. Raises CorruptRecord when they are none.
        """
        cursors = self._cursors_of(document)
        self._copied_end = log_end
        self._changed = self._changed or cursors != self._cursors
        self._cursors = cursors

    async def follow_log(self) -> None:
        """Of a Raft group: go on from what the file says with what the log says since, and follow
        it from then on.
        """
        marks = self._marks
        if marks is not None:
            marks.on_moved = self._marked
            marks.applied_offset = max(marks.applied_offset, self._store.physical_min)
            await self._store.follow(marks)

    def _marked(self, level: int, offset: int) -> None:
        self._changed = True
        if offset > self._cursors.get(level, 0):  # Else this node delivered it.
            self._move(level, offset)

    async def pass_delivered(self) -> None:
        """Pass over what the log says was delivered: a former master did it after its cursors were
        copied. A level is delivered in order, each record once, with the properties it waited with.
        """
        if self._marks is not None:  # What this node delivered, and nobody agreed on, waits.
            self._cursors, self._due_ms = dict(self._marks.cursors), {}
            return
        store, delivered = self._store, Counter[tuple[str, bytes]]()
        async for entries in store.records(max(self.floor(), self._copied_end)):
            for entry in entries:
                if entry.topic != SCHEDULE_TOPIC and _REAL_TOPIC in entry.properties:
                    delivered[entry.topic, entry.properties] += 1
        for level in range(1, len(self._levels_ms) + 1):
            cursor = before = self._cursors.get(level, 0)
            while (waiting := self._waiting_at(level, cursor)) is not None:
                key = property_value(waiting.properties, _REAL_TOPIC).decode(), waiting.properties
                if not delivered[key]:
                    break
                delivered[key] -= 1
                cursor += 1
            if cursor != before:
                self._move(level, cursor)

    def _waiting_at(self, level: int, cursor: int) -> DispatchRequest | None:
        """The record at the cursor of a level; None when none can be read there."""
        store, queue_id = self._store, level - 1
        for physical_offset, *_ in store.queue_units(SCHEDULE_TOPIC, queue_id, cursor, 1) or ():
            record = store.record_at(physical_offset)
            if record is not None:
                return check_record(memoryview(record), 0, physical_offset, self._levels_ms)
        return None

    def _accept(self, document: Mapping[str, object]) -> None:
        self._cursors = self._cursors_of(document)
        applied = document.get(APPLIED, 0)
        if self._marks is not None and isinstance(applied, int):
            self._marks.applied_offset = applied
        self._times.take_shifts(
            _shifts_of(document.get(CLOCK_STEPS, [])), log_end=self._store.physical_max
        )

    def _cursors_of(self, document: Mapping[str, object]) -> dict[int, int]:
        table = document.get("offsetTable")
        if not isinstance(table, Mapping):
            raise CorruptRecord(f"{self._file.path} holds no offsetTable")
        for level, offset in table.items():
            if not str(level).isdecimal() or not isinstance(offset, int):
                raise CorruptRecord(
                    f"{self._file.path}: {level!r}: {offset!r} is no level's offset"
                )
        return {int(level): offset for level, offset in table.items()}

    async def run_persist(self, interval_ms: int) -> None:
        """Write the cursors each `interval_ms`, and soon after a clock's step; until cancelled."""
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
        moved since, unless a start would have to read much of the log again for that. Raises
        StorageError.
        """
        marks, cursors, notes = self._marks, self._cursors, {}
        unwritten_bytes = 0 if marks is None else marks.applied_offset - self._written_end
        is_due = self._changed or unwritten_bytes >= self._read_again_bytes_max
        if not is_due and self._file.is_there:
            return
        self._changed = False
        put_end, store = self._put_end, self._store
        if marks is not None:
            cursors, put_end = marks.cursors, marks.applied_offset
            notes = {APPLIED: put_end}
        table = {str(level): offset for level, offset in sorted(cursors.items())}
        try:
            await store.flush()
            if store.physical_flushed < put_end:
                self._changed = True  # Not durable in time: the cursors on disk stay behind.
                self._report_held_back(put_end)
                return
            written = await self._file.write({"offsetTable": table, **self._clock_steps(), **notes})
        except BaseException:  # Cancelled as well: whether it is on disk is unknown.
            self._changed = True
            raise
        self._is_held_back = False
        self._written_end = put_end
        self._observer.observe(written.persisted("DELAY", cause))

    def _report_held_back(self, put_end: int) -> None:
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
        self._times.forget_below(self.floor())
        shifts = self._times.shifts()
        return {CLOCK_STEPS: shifts} if len(shifts) > 1 else {}


def _shifts_of(document: object) -> list[list[int]]:
    """The steps that a file describes. Raises CorruptRecord when they are none."""
    pairs: list[Any] = document if isinstance(document, list) else [document]
    for pair in pairs:
        whole = isinstance(pair, list) and [type(number) for number in pair] == [int, int]
        if not whole:
            raise CorruptRecord(f"{CLOCK_STEPS}: {pair!r} is no place with a distance in ms")
    return pairs


def _stamp_of(record: memoryview) -> int:
    """Its store time as the bytes have it; a record too short for one is due, to be looked at."""
    return store_timestamp_of(record) if len(record) >= STAMP_END_MAX else 0
