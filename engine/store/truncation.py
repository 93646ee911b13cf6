"""Truncates a live log to an earlier end, along with everything derived from it.

Place in the walk: a replica whose tail is not its leader's, through `message_store.truncate`;
recovery cuts by itself, before anybody is served.

    a look      where queues are cut, and that an entry ends there; nothing is changed
    a copy      of what stays of the file that is cut, synced: views of the old one stay valid
    notes       the synced position and the noted ends of queues are lowered, durably
    queues      cut some at a time, then the index; both synced
    the log     in one step of the loop with dispatch, next offsets, and whoever follows it
    tombstones  those beyond the end are taken back to it, and so are epochs

A crash leaves what one of these steps does: until the log is cut, recovery finds its old end and
makes queues and index again; nothing on disk vouches any more for what is about to go.

Invariant: from the call on nothing is put, dispatched or flushed until all of it is durable, and
whoever waited for a sync hears that its outcome is unknown; whoever reads finds a message whole or
not at all. Absent on purpose: why the log is cut, and what is appended next.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field

from engine.foundation.errors import (
    CorruptRecord,
    DiskFull,
    OffsetOutOfRange,
    StorageError,
    WritesStopped,
)
from engine.foundation.observing import LifecycleEvent, Observer
from engine.runtime.disk import Disk
from engine.store.commit_log import NO_DELAYS, CommitLog
from engine.store.consume_queue import FILLER_SIZE, ConsumeQueue, Unit, unit_end
from engine.store.dispatch import Dispatcher
from engine.store.epochs import Epochs
from engine.store.index.index import Index
from engine.store.log_states import LogStates
from engine.store.queue_table import QueueKey, QueueTable
from engine.store.record_reading import check_record, has_queue_offset, store_timestamp_of
from engine.store.tombstones import Tombstones
from engine.store.topic_deletion import TopicDeletion
from engine.store.upkeep.dispatch_service import DispatchService
from engine.store.upkeep.flush import Flusher
from engine.store.upkeep.pool import PoolCommitter
from engine.store.upkeep.retention import Retention

QUEUES_AT_ONCE = 16
"""Cut in one step of the loop, which opens their files."""
QUEUES_LOOKED_AT_ONCE = 1000
RECORDS_AT_ONCE = 2000


@dataclass(slots=True)
class _Plan:
    """What a cut takes away."""

    end_offset: int
    stored_ms: int = 0
    """A store time that the last message before the end has not gone below; 0: unknown."""
    queues: list[tuple[QueueKey, ConsumeQueue, int]] = field(default_factory=list)
    """Each queue with units of what goes, and the first of them."""
    undispatched: dict[QueueKey, int] = field(default_factory=dict)
    """Next offsets by messages before the end that have no units yet."""


@dataclass(slots=True, eq=False)
class Truncation:
    """Cuts the log of one store."""

    disk: Disk
    observer: Observer
    _: KW_ONLY
    log: CommitLog
    queues: QueueTable
    index: Index | None
    dispatcher: Dispatcher
    dispatching: DispatchService
    flusher: Flusher
    committer: PoolCommitter
    deletion: TopicDeletion
    retention: Retention
    tombstones: Tombstones
    epochs: Epochs
    states: LogStates
    under_way: int = field(default=0, init=False)
    """Cuts asked for that have not ended."""
    on_cut: list[Callable[[int], None]] = field(default_factory=list, init=False)
    """Called with the new end, in the step in which the log falls back to it."""

    async def to(self, end_offset: int) -> None:
        """Cut the log at `end_offset`; one whose caller goes away is carried through.

        Raises OffsetOutOfRange when no entry ends there, WritesStopped, DiskFull: then nothing has
        changed. StorageError: the store writes no more, and a start finds the old end or the new.
        """
        loop = asyncio.get_running_loop()
        await asyncio.shield(loop.create_task(self._cut(end_offset)))

    async def begin_at(self, offset: int) -> None:
        """Let a log that holds nothing begin at `offset`, durably, as its leader's does.

        Raises OffsetOutOfRange when it holds anything, or no file begins there; DiskFull,
        StorageError.
        """
        async with self._standstill():
            log = self.log
            if log.end_offset > log.min_offset or log.files.start_at(offset) != offset:
                raise OffsetOutOfRange(
                    f"a log [{log.min_offset}, {log.end_offset}) with files of "
                    f"{log.file_size_bytes} bytes cannot begin at {offset}"
                )
            try:
                await self.flusher.note_begin(offset)
            except StorageError as error:
                self._refused(error)
                raise
            log.begin_at(offset)
            self.dispatcher.position = offset
            self.states.begin_at(offset)

    async def _cut(self, end_offset: int) -> None:
        async with self._standstill():
            log = self.log
            self.committer.commit("GROUP")
            if self.flusher.failure is not None:
                raise WritesStopped(f"the log cannot be cut: {self.flusher.failure}")
            if end_offset == log.end_offset:
                return
            plan = await self._plan(end_offset)
            try:
                await log.files.prepare_cut(end_offset)
                for _, queue, first in plan.queues:
                    queue.unsync_from(first)
                await self.flusher.lower_notes(end_offset, plan.stored_ms)
            except StorageError as error:
                self._refused(error)
                raise
            try:
                await self._carry_out(plan)
            except StorageError as error:
                self.flusher.fail(f"cutting the log: {error}")
                raise

    def _refused(self, error: StorageError) -> None:
        """Nothing has changed yet: on a full disk all goes on, a failed sync ends writing."""
        if isinstance(error, DiskFull):
            self.flusher.report_disk_full(error)
        else:
            self.flusher.fail(f"cutting the log: {error}")

    @asynccontextmanager
    async def _standstill(self) -> AsyncIterator[None]:
        """Nothing is put, dispatched, flushed, deleted or let go."""
        self.under_way += 1
        self.dispatching.is_paused = self.retention.is_paused = True
        try:
            async with self.flusher.standstill(), self.deletion.one_at_a_time:
                yield
        finally:
            self.under_way -= 1
            if not self.under_way:
                self.dispatching.is_paused = self.retention.is_paused = False
                self.dispatching.plan()

    async def _carry_out(self, plan: _Plan) -> None:
        log, end_offset, old_end = self.log, plan.end_offset, self.log.end_offset
        for number, (key, queue, first) in enumerate(plan.queues, 1):
            queue.truncate(first, sync=False)
            self.queues.note_written(key, queue)
            if not number % QUEUES_AT_ONCE:
                await asyncio.sleep(0)
        await self.flusher.flush_cut()
        if self.index is not None:  # In one step, which is short as all of it is flushed.
            self.index.truncate_to_log(end_offset)
            await self.flusher.flush_cut()
        log.cut(end_offset)
        self.dispatcher.cut(end_offset, plan.stored_ms)
        self.queues.go_on_at(plan.undispatched)
        for follow in self.on_cut:
            follow(end_offset)
        await self.states.cut(end_offset)
        log.folder_dirty = False
        await self.disk.off_loop(lambda: self.disk.sync_directory(log.files.directory))
        await self.tombstones.take_back(end_offset, self.observer)
        await self.epochs.take_back(end_offset)
        detail = f"commit log cut from {old_end} to {end_offset}"
        self.observer.observe(LifecycleEvent("LOG_CUT", detail))

    # ---- the look ---------------------------------------------------------------------------

    async def _plan(self, end_offset: int) -> _Plan:
        """What is to be cut. Raises OffsetOutOfRange when no entry ends at `end_offset`."""
        log, plan = self.log, _Plan(end_offset)
        if not log.min_offset <= end_offset < log.end_offset:
            raise OffsetOutOfRange(
                f"a log [{log.min_offset}, {log.end_offset}) cannot be cut at {end_offset}"
            )
        newest: tuple[int, ConsumeQueue, int] | None = None
        for number, key in enumerate(self.queues.keys(), 1):
            queue = self.queues.find(*key)
            if queue is None:
                continue
            end, next_offset = queue.end_physical, queue.max_offset
            if end > end_offset:
                next_offset = queue.first_reaching(end_offset)
                plan.queues.append((key, queue, next_offset))
                last = queue.unit(next_offset - 1)
                end = unit_end(last) if last is not None else 0
            if newest is None or end > newest[0]:
                newest = end, queue, next_offset - 1
            if not number % QUEUES_LOOKED_AT_ONCE:
                await asyncio.sleep(0)
        unit = newest[1].unit(newest[2]) if newest is not None else None
        await self._walk(plan, unit if unit is not None and unit[1] != FILLER_SIZE else (0, 0, 0))
        return plan

    async def _walk(self, plan: _Plan, newest: Unit) -> None:
        """From a place at which an entry begins to the new end, which must be one, too. `newest`:
        the last unit that leads to a message before it; of no size without any.
        """
        log, end_offset = self.log, plan.end_offset
        view = log.view(newest[0], newest[1])
        if view is not None:
            plan.stored_ms = store_timestamp_of(view)
        dispatched = self.dispatcher.position
        place, read = max(unit_end(newest), log.files.start_at(end_offset), log.min_offset), 0
        if dispatched <= end_offset:
            place = dispatched
        while place < end_offset:
            start = log.files.start_at(place)
            try:
                found = check_record(log.file_view(start), place - start, place, NO_DELAYS)
            except CorruptRecord as error:
                raise OffsetOutOfRange(
                    f"no entry is known to end at {end_offset}: {error}"
                ) from error
            if found is None:
                place = start + log.file_size_bytes
                continue
            place += found.size_bytes
            if place <= end_offset:
                plan.stored_ms = found.store_timestamp_ms
                if place > dispatched and has_queue_offset(found.sys_flag):
                    plan.undispatched[found.topic, found.queue_id] = found.queue_offset + 1
            read += 1
            if not read % RECORDS_AT_ONCE:
                await asyncio.sleep(0)
        if place != end_offset:
            raise OffsetOutOfRange(f"no entry ends at {end_offset}, one ends at {place}")
