"""Two-level time wheel that holds messages until any future time, however distant.

Place in the walk: a send that names a moment is parked (`timer_records`) and put like any other;
dispatch hands the wheel its record, whose entry goes to the delay log of its hour; `delay_service`
takes what is due and puts it under its real topic.

    hour wheel     hours with entries; the next two move down to
    second wheel   seconds with entries; the next ten are read into
    what is due    entries by (due ms, log offset)

Both wheels are queues of slots that have something, so nothing turns while nothing is due: a slot
joins with its first entry, and the wheel sleeps until the earliest.

Invariant: what waits is a function of the log alone. Entries follow from records, and each delivery
says in its own record how far deliveries have come (`delivered`); a delivery and what it says are
one entry of the log. A snapshot on disk only shortens the way: without one, or with a damaged one,
the wheel is made again from the log. Of a cancellation and a delivery the first in the log counts:
one that was put is known at once, before dispatch hands it over. What waits in a file of the log
that is to go is put again first.

Absent on purpose: putting what is due (`delay_service`), what clients may ask for.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from operator import ge
from typing import Final

import msgspec

from engine.delay.delays import Due
from engine.delay.wheel.delivered import Delivered, Mark, mark_in
from engine.delay.wheel.figures import TimerFigures, due_by_hour, due_within
from engine.delay.wheel.hour_log import AGAIN, CANCELS, REPLACES, WAITS, Entry
from engine.delay.wheel.hour_logs import HourLogs
from engine.delay.wheel.rocketmq_check_point import mark_of_rocketmq
from engine.delay.wheel.timer_records import (
    cancelled_in,
    due_ms_of,
    entries_of,
    keys_of,
    origin_of,
    parked,
    put_again,
    replaced_in,
    voided_in,
)
from engine.foundation.errors import CorruptRecord, StorageError
from engine.foundation.observing import LifecycleEvent, Observer, report
from engine.foundation.units import HOUR_MS, MIB, SECOND_MS
from engine.protocol.names import TIMER_TOPIC
from engine.protocol.properties import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_MARK,
    PROPERTY_TIMER_ORIGIN,
)
from engine.protocol.timer_files import CheckPoint
from engine.protocol.timers import out_ms_of
from engine.runtime import Runtime
from engine.runtime.clock import ClockStep
from engine.store import MessageDraft, MessageStore
from engine.store.record_reading import (
    DispatchRequest,
    properties_of,
    property_value,
    store_timestamp_of,
)
from engine.store.table_file import Source, TableFile

PRELOAD_MS: Final = 10 * SECOND_MS
"""Entries of a second are read so long before it begins."""
AHEAD_MS: Final = HOUR_MS
"""An hour moves down to the second wheel so long before it begins: this hour and the next are."""
READ_ENTRIES_MAX: Final = 200_000
"""Beyond so many entries that wait in memory no further second is read."""
STEP_COUNT_MAX: Final = 128
STEP_MS_MAX: Final = 10
"""A step of the loop ends at the first of these: so many messages, and milliseconds."""
UNDECIDED_MS: Final = 20
"""What may be void, for something that dispatch has not handed over yet, is looked at again so much
later."""
READ_AGAIN_BYTES_MAX: Final = 64 * MIB
"""So much of the log a start may have to read again though no timer came or went."""
MADE_AGAIN: Final = "the delay logs are made again from the commit log"
LATE_MS: Final = 10 * SECOND_MS
"""What is due and was not delivered for so long is a fact."""
SLEEP_MS_MAX: Final = 24 * HOUR_MS

_DELIVERED: Final = "\x02".join(
    (
        f"{PROPERTY_TIMER_ENQUEUE_MS}\x01%d",
        f"{PROPERTY_TIMER_DEQUEUE_MS}\x01%d",
        f"{PROPERTY_TIMER_MARK}\x01%d,%d,%d\x02",
    )
).encode()
"""What a delivered message says beside what was stored."""
_MARK: Final = f"{PROPERTY_TIMER_MARK}\x01".encode()
_ORIGIN: Final = f"{PROPERTY_TIMER_ORIGIN}\x01".encode()
_REAL_TOPIC: Final = f"{PROPERTY_REAL_TOPIC}\x01".encode()

_log = logging.getLogger(__name__)


class _Snapshot(msgspec.Struct, frozen=True, rename="camel"):
    """How far the wheel was."""

    applied_offset: int
    marks: tuple[Mark, ...]
    """Of what was applied."""
    sizes: tuple[int, int]
    """Of the delay logs: hours, and entries."""


class TimeWheel:
    """The timers of one broker: a `LogState`, and a `Delays` of due times in ms since 1970."""

    def __init__(
        self,
        runtime: Runtime,
        store: MessageStore,
        *,
        folder: str,
        snapshot: TableFile,
        rocketmq_path: str,
        observer: Observer,
    ) -> None:
        """`folder`: of the delay logs; `snapshot`: how far they and the deliveries had come;
        `rocketmq_path`: where RocketMQ's timers say how far they were, if they had the store.
        """
        self._clock = runtime.clock
        self._disk = runtime.disk
        self._store = store
        self._logs = HourLogs(runtime.disk, folder, store.store_id)
        self._file = snapshot
        self._rocketmq_path = rocketmq_path
        self._earlier: Mark | None = None
        """What RocketMQ has delivered."""
        self._observer = observer
        self._applied = 0
        self._delivered = Delivered()
        """As the log says, up to what was applied."""
        self._sent = Delivered()
        """The same, and what was put since."""
        self._saved: _Snapshot | None = None
        """The one on disk."""
        self._begin_turning()
        self._announced: dict[bytes, int] = {}
        """Keys that were cancelled, and timers that were replaced, → where the record lies that
        says so, which may not be applied yet."""
        self._is_undecided = False
        """Does what is due wait for dispatch to say whether it is void?"""
        self._under_way: deque[tuple[int, Mark]] = deque()
        """Where deliveries lie that were put here and are not applied, and their marks."""
        self._next_record = 0
        """Offset in the topic of timers of the first record that was not applied."""
        self.enqueued: Counter[str] = Counter()
        self.dequeued: Counter[str] = Counter()
        self._is_late = False
        """Was it reported that what is due waits?"""
        self._is_damaged = False
        self.is_checked = False
        """Was every delay log looked at, and what was wrong put right?"""
        self._woken = asyncio.Event()
        self._clock.on_step(self._clock_stepped)

    def _begin_turning(self) -> None:
        """Nothing was read from any delay log."""
        self._hours = self._logs.hours()
        """The hour wheel: hours that have not moved down, a heap."""
        self._moved_to = -1
        """All hours up to this one have moved down to the second wheel."""
        self._seconds: list[int] = []
        """The second wheel: seconds that were not read, a heap."""
        self._read_to = -1
        """All seconds up to this one were read."""
        self._soon: list[tuple[int, int, int]] = []
        """What was read and waits: (due ms, log offset, size), a heap."""
        self._cancelled: dict[tuple[int, bytes], int] = {}
        """Second and key → where the last record lies that cancels timers with it."""
        self._replaced: dict[tuple[int, int], int] = {}
        """Second and origin of a timer → where the last record lies that has its place."""

    # ---- as a `LogState` --------------------------------------------------------------------

    @property
    def applied_offset(self) -> int:
        """See `LogState`."""
        return self._applied

    def apply(self, entries: Sequence[DispatchRequest], end_offset: int) -> None:
        """See `LogState`. Hot for what is no timer."""
        by_hour: dict[int, list[Entry]] = {}
        newest: Mark | None = None
        for request in entries:
            if request.topic == TIMER_TOPIC:
                self._next_record = request.queue_offset + 1
                if not property_value(request.properties, _ORIGIN):
                    self.enqueued[property_value(request.properties, _REAL_TOPIC).decode()] += 1
                for entry in self._meaning_of(request):
                    by_hour.setdefault(entry.due_ms // HOUR_MS, []).append(entry)
            elif _MARK in request.properties:
                own = self._under_way
                while own and own[0][0] < request.physical_offset:
                    own.popleft()
                if own and own[0][0] == request.physical_offset:
                    mark = own.popleft()[1]
                    # Each mark that has all of the one before stands for it as well.
                    if newest is not None and not mark.has_all(newest):
                        self._delivered.add(newest)
                    newest = mark
                else:
                    self._note_delivery(request)
        if newest is not None:
            self._delivered.add(newest)
        self._applied = end_offset
        if self._announced:
            self._announced = {
                name: lies_at for name, lies_at in self._announced.items() if lies_at >= end_offset
            }
        if by_hour:
            for hour, its_entries in by_hour.items():
                self._add(hour, its_entries)
            self._woken.set()

    def cut(self, end_offset: int) -> None:
        """See `LogState`: back to the snapshot, or to the beginning of the log when that says more
        than the log has.
        """
        saved = self._saved
        is_of_use = saved is not None and saved.applied_offset <= end_offset
        if saved is not None and is_of_use:
            self._logs.cut(saved.applied_offset)
            # Where fewer are left than there were, somebody took files away.
            is_of_use = all(map(ge, self._logs.sizes(), saved.sizes))
        if saved is None or not is_of_use:
            saved = _Snapshot(self._first_record(end_offset), (), (0, 0))
            self._logs.clear()
        # What the log has no more is void, or was put again before it went.
        self._applied = max(saved.applied_offset, min(self._store.physical_min, end_offset))
        marks = saved.marks if self._earlier is None else (*saved.marks, self._earlier)
        self._delivered, self._sent = Delivered(marks), Delivered(marks)
        self._announced.clear()
        self._under_way.clear()
        self._begin_turning()
        self._woken.set()

    def begin_at(self, offset: int) -> None:
        """See `LogState`: what is pending stands behind, put again before its files went."""
        self._saved = None
        self.cut(offset)
        self._applied = offset

    def _first_record(self, end_offset: int) -> int:
        """Where the first record lies that the wheel has to know, of those before `end_offset`."""
        first = self._store.min_offset(TIMER_TOPIC, 0)
        for log_offset, *_ in self._store.queue_units(TIMER_TOPIC, 0, first, 1) or ():
            return min(log_offset, end_offset)
        return end_offset

    def _meaning_of(self, request: DispatchRequest) -> tuple[Entry, ...]:
        timer = replaced_in(request.properties)
        if timer is not None and self._delivered.covers(*timer):
            return ()  # Too late: it was delivered, and shall not be again.
        return entries_of(request)

    def _note_delivery(self, request: DispatchRequest) -> None:
        mark = mark_in(property_value(request.properties, _MARK))
        if mark is not None and mark.applied_offset <= request.physical_offset:
            self._delivered.add(mark)
            self._sent.add(mark)

    def _add(self, hour: int, entries: list[Entry]) -> None:
        """Entries of one hour: to its log, and to where the wheels have come."""
        is_new = hour not in self._logs
        firsts = self._logs.append(hour, entries)
        if hour > self._moved_to:
            if is_new:
                heapq.heappush(self._hours, hour)
            return
        for second in firsts:
            if second > self._read_to:
                heapq.heappush(self._seconds, second)
        for entry in entries:
            if entry.due_ms // SECOND_MS <= self._read_to:
                self._take(entry)

    # ---- turning ----------------------------------------------------------------------------

    def _turn(self, now_ms: int) -> None:
        """Move hours down, and read seconds, as far as it is time."""
        while self._hours and self._hours[0] * HOUR_MS <= now_ms + AHEAD_MS:
            hour = heapq.heappop(self._hours)
            self._moved_to = hour
            if hour in self._logs:
                for second in self._logs.of(hour).seconds():
                    heapq.heappush(self._seconds, second)
        try:
            self._read_seconds(now_ms)
        except CorruptRecord as error:
            self._is_damaged = True
            self._report(str(error))
            raise

    def _read_seconds(self, now_ms: int) -> None:
        while (
            self._seconds
            and self._seconds[0] * SECOND_MS <= now_ms + PRELOAD_MS
            and len(self._soon) < READ_ENTRIES_MAX
        ):
            second = heapq.heappop(self._seconds)
            self._read_to = max(self._read_to, second)
            hour = second * SECOND_MS // HOUR_MS
            if hour in self._logs:
                for entry in self._logs.of(hour).of_second(second):
                    self._take(entry)

    def _take(self, entry: Entry) -> None:
        """An entry of a second that was read."""
        second = entry.due_ms // SECOND_MS
        if entry.kind in (WAITS, AGAIN) and not self._sent.covers(*entry[:2]):
            heapq.heappush(self._soon, entry[:3])
        if entry.kind == WAITS:
            return
        properties, lies_at = self._properties_at(*entry[1:3]), entry.log_offset
        if entry.kind == CANCELS:
            self._cancelled[second, voided_in(properties)] = lies_at
            return
        timer = replaced_in(properties) if entry.kind == REPLACES else None
        origin = origin_of(properties, lies_at) if timer is None else timer[1]
        self._replaced[second, origin] = lies_at

    def _properties_at(self, log_offset: int, size_bytes: int) -> bytes:
        """Those of a record; none when it has gone, and with it all that it could mean."""
        record = self._store.bytes_at(log_offset, size_bytes)
        with suppress(CorruptRecord):
            return b"" if record is None else properties_of(record)
        return b""

    # ---- as a `Delays` ----------------------------------------------------------------------

    def park(self, draft: MessageDraft, wait: int) -> MessageDraft:
        """Turn a draft into one that waits until this time; then `announce` it."""
        return parked(draft, wait)

    def announce(self, draft: MessageDraft, log_offset: int) -> None:
        """A parked draft was put in this step and lies there: what it cancels or replaces is not
        delivered any more.
        """
        properties = str(draft.properties).encode()
        timer, key = replaced_in(properties), cancelled_in(properties)
        if timer is not None:
            self._announced[_name_of(timer[1])] = log_offset
        if key:
            self._announced[key] = log_offset

    def due(self) -> Iterator[Due | None]:
        """See `Delays.due`."""
        clock, store = self._clock, self._store
        began_ms, count = clock.steady_ms(), 0
        while True:
            now_ms = clock.now_ms()
            self._turn(now_ms)
            if not self._soon or self._soon[0][0] > now_ms:
                return
            if count >= STEP_COUNT_MAX or clock.steady_ms() - began_ms >= STEP_MS_MAX:
                yield None
                began_ms, count = clock.steady_ms(), 0
                continue
            count += 1
            due_ms, log_offset, size_bytes = self._soon[0]
            record = store.bytes_at(log_offset, size_bytes)
            self._is_undecided = (
                log_offset >= store.physical_min
                if record is None  # Not committed yet.
                else bool(self._announced) and self._is_announced(record, log_offset)
            )
            if self._is_undecided:
                return
            mark = Mark(due_ms, log_offset, self._applied)
            if record is not None and not self._is_void(record, due_ms, log_offset):
                due = self._as_due(record, mark, now_ms)
                yield due
                if due.put_end:
                    self.dequeued[due.real_topic] += 1
                    self._under_way.append((due.put_at, mark))
            heapq.heappop(self._soon)
            self._sent.add(mark)

    async def wait(self) -> None:
        """See `Delays.wait`."""
        self._woken.clear()
        sleep_ms = max(self.next_ms() - self._clock.now_ms(), 0)
        with suppress(TimeoutError):
            async with asyncio.timeout(sleep_ms / SECOND_MS):
                await self._woken.wait()

    def next_ms(self) -> int:
        """When the wheel has something to do, as far as it knows; ms since 1970."""
        now_ms = self._clock.now_ms()
        until_ms = [now_ms + SLEEP_MS_MAX]
        if self._soon:
            until_ms.append(now_ms + UNDECIDED_MS if self._is_undecided else self._soon[0][0])
        if self._seconds and len(self._soon) < READ_ENTRIES_MAX:
            until_ms.append(self._seconds[0] * SECOND_MS - PRELOAD_MS)
        if self._hours:
            until_ms.append(self._hours[0] * HOUR_MS - AHEAD_MS)
        return min(until_ms)

    def check_point(self) -> CheckPoint:
        """How far timers are, in RocketMQ's words: every second before that time is done."""
        end = self._store.max_offset(TIMER_TOPIC, 0)
        return CheckPoint(out_ms_of(self._earliest_ms() + 1), 0, end, end)

    def figures(self) -> TimerFigures:
        """How it stands now."""
        now_ms, next_record = self._clock.now_ms(), self._next_record
        enqueue_lag = max(self._store.max_offset(TIMER_TOPIC, 0) - next_record, 0)
        stored_ms = self._store.store_time_at(TIMER_TOPIC, 0, next_record) if enqueue_lag else None
        return TimerFigures(
            enqueue_lag,
            0 if stored_ms is None else max(now_ms - stored_ms, 0),
            len(self._soon) + self._logs.count_from(self._read_to + 1),
            max(now_ms - self._soon[0][0], 0) if self._soon else 0,
            due_within(self._logs, now_ms),
            due_by_hour(self._logs, now_ms, read=len(self._soon), read_to=self._read_to),
            self.enqueued,
            self.dequeued,
        )

    def marks(self) -> tuple[Mark, ...]:
        """Which timers are done."""
        return self._sent.marks()

    def _earliest_ms(self) -> int:
        """Nothing that waits is due before this; now at the latest."""
        return min(
            [self._clock.now_ms()]
            + [due_ms for due_ms, *_ in self._soon[:1]]
            + [second * SECOND_MS for second in self._seconds[:1]]
            + [hour * HOUR_MS for hour in self._hours[:1]]
        )

    def _clock_stepped(self, _: ClockStep) -> None:
        self._woken.set()

    def _as_due(self, record: memoryview, mark: Mark, now_ms: int) -> Due:
        stored_ms = store_timestamp_of(record)
        return Due(
            TIMER_TOPIC,
            f"the timer at {mark.log_offset}",
            max(mark.due_ms - stored_ms, 0),
            mark.log_offset,
            record,
            properties=_DELIVERED % (stored_ms, now_ms, *mark),
        )

    # ---- void timers ------------------------------------------------------------------------

    def _is_void(self, record: memoryview, due_ms: int, log_offset: int) -> bool:
        """Was the timer cancelled, or replaced, or put again?"""
        if not self._cancelled and not self._replaced:
            return False
        properties, second = properties_of(record), due_ms // SECOND_MS
        origin = origin_of(properties, log_offset)
        if self._replaced.get((second, origin), -1) > log_offset:
            return True
        return any(
            self._cancelled.get((second, key), -1) > log_offset for key in keys_of(properties)
        )

    def _is_announced(self, record: memoryview, log_offset: int) -> bool:
        properties = properties_of(record)
        names = (_name_of(origin_of(properties, log_offset)), *keys_of(properties))
        return any(name in self._announced for name in names)

    def _forget_voids(self) -> None:
        """Of seconds in which nothing waits any more."""
        first = self._soon[0][0] // SECOND_MS if self._soon else self._read_to
        self._cancelled = {at: lies for at, lies in self._cancelled.items() if at[0] >= first}
        self._replaced = {at: lies for at, lies in self._replaced.items() if at[0] >= first}

    # ---- the log lets go --------------------------------------------------------------------

    def put_again(self, below: int) -> Iterator[None]:
        """Put what waits in the log before `below` once more, step by step: its file is to go.

        Raises StorageError.
        """
        store, queue_offset = self._store, self._store.min_offset(TIMER_TOPIC, 0)
        while units := store.queue_units(TIMER_TOPIC, 0, queue_offset, STEP_COUNT_MAX):
            for log_offset, size_bytes, _ in units:
                if log_offset >= below:
                    return
                record = store.bytes_at(log_offset, size_bytes)
                if record is not None and self._still_means(properties_of(record), log_offset):
                    store.put(put_again(record, log_offset))
                queue_offset += 1
            yield

    def _still_means(self, properties: bytes, log_offset: int) -> bool:
        due_ms = due_ms_of(properties)
        if cancelled_in(properties):
            waits_from_ms = min([self._clock.now_ms(), *[due for due, *_ in self._soon[:1]]])
            return due_ms + SECOND_MS >= waits_from_ms
        return not self._sent.covers(due_ms, log_offset)

    # ---- the snapshot -----------------------------------------------------------------------

    async def follow_log(self, *, was_written: bool = False) -> None:
        """Take the snapshot over and catch up with the log, from its beginning if need be.

        `was_written`: another table says that there was one. Raises CorruptRecord when neither it
        nor the version before can be read.
        """
        source = self._file.load(self._observer, self._accept)
        if source is Source.NOTHING and was_written:
            self._file.report_missing(self._observer, MADE_AGAIN)
        self._earlier = mark_of_rocketmq(self._disk, self._rocketmq_path, self._store)
        self.cut(self._store.physical_max)
        if self._saved is not None and self._applied < self._saved.applied_offset:
            self._report(f"{self._logs.folder} lacks entries that it had")
        await self._store.follow(self)
        self._next_record = self._store.max_offset(TIMER_TOPIC, 0)
        self.enqueued.clear()  # What this start has read again.

    def _accept(self, document: Mapping[str, object]) -> None:
        try:
            found = msgspec.convert(document, _Snapshot, strict=True)
        except msgspec.ValidationError as error:
            raise CorruptRecord(f"{self._file.path}: {error}") from error
        self._saved = found

    async def run(self, interval_ms: int) -> None:
        """Look at all delay logs once; save the snapshot each `interval_ms`, until cancelled."""
        await self._check_logs()
        while True:
            try:
                if self._is_damaged:
                    await self._make_again()
                self.is_checked = True
                await asyncio.sleep(interval_ms / SECOND_MS)
                self.report_lateness()
                await self.persist("TIMER")
            except StorageError as error:
                _log.warning("the time wheel is not saved yet: %s", error)

    def report_lateness(self) -> None:
        """Emit a fact when what is due has waited too long, and when that has passed."""
        late_ms = self._clock.now_ms() - self._soon[0][0] if self._soon else 0
        if (late_ms >= LATE_MS) == self._is_late:
            return
        self._is_late = not self._is_late
        detail = f"the oldest timer that is due and not delivered was due {late_ms} ms ago"
        event = LifecycleEvent("TIMERS_IN_TIME", "what is due is delivered again")
        if self._is_late:
            event = LifecycleEvent("TIMERS_LATE", detail)
        report(self._observer, _log, event)

    async def persist(self, cause: str) -> None:
        """Save how far the wheel is, once the disk has what it says; nothing when it is as saved,
        or while messages pass that are none of its own. Raises StorageError.
        """
        applied, marks = self._applied, self._delivered.marks()
        past = self._past_hours(applied, marks)
        snapshot = _Snapshot(applied, marks, self._logs.sizes(without=past))
        if self._file.is_there and self._is_saved(snapshot, is_last=cause == "SHUTDOWN"):
            return
        await self._store.flush()
        if self._store.physical_flushed < applied:
            return
        disk, folder, paths = self._disk, self._logs.folder, self._logs.take_changed()

        def sync() -> None:
            for path in paths:
                disk.sync_file(path)
            disk.sync_directory(folder)

        try:
            await disk.off_loop(sync)
            written = await self._file.write(msgspec.to_builtins(snapshot))
        except BaseException:
            self._logs.give_back(paths)
            raise
        self._saved = snapshot
        self._observer.observe(written.persisted("DELAY", cause))
        for hour in past:
            self._logs.remove(hour)

    def _is_saved(self, snapshot: _Snapshot, *, is_last: bool) -> bool:
        """Does the snapshot on disk do as well, but for a stretch of the log to read again?"""
        saved = self._saved
        if saved is None or (saved.marks, saved.sizes) != (snapshot.marks, snapshot.sizes):
            return False
        passed_bytes = snapshot.applied_offset - saved.applied_offset
        return not passed_bytes or (not is_last and 0 < passed_bytes < READ_AGAIN_BYTES_MAX)

    def _past_hours(self, applied: int, marks: tuple[Mark, ...]) -> list[int]:
        """Hours all of whose timers are done, as these marks say too."""
        self._forget_voids()
        done, past = Delivered(marks), []
        earliest_ms = self._earliest_ms()
        for hour in self._logs.hours():
            end_ms = (hour + 1) * HOUR_MS
            if end_ms > earliest_ms:
                break
            last = self._logs.of(hour).last_offset()
            is_done = marks == self._sent.marks() or done.covers_all(end_ms, last)
            if is_done and last < applied:
                past.append(hour)
        return past

    async def _check_logs(self) -> None:
        """Find damage before what is damaged is due."""
        for hour in self._logs.hours():
            if hour in self._logs and not self._is_damaged:
                fault = await self._disk.off_loop(self._logs.of(hour).check())
                if fault is not None and hour in self._logs:
                    self._is_damaged = True
                    self._report(fault)

    def _report(self, fault: str) -> None:
        detail = f"{fault}; {MADE_AGAIN}"
        report(self._observer, _log, LifecycleEvent("DAMAGED_FILE", detail))

    async def _make_again(self) -> None:
        """Make the delay logs anew from the commit log."""
        self._saved = None
        self.cut(self._applied)
        self._is_damaged = False
        await self._store.follow(self)


def _name_of(log_offset: int) -> bytes:
    """A timer, among what was announced."""
    return b"@%d" % log_offset
