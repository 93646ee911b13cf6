"""Flushes written data to stable storage and notifies those waiting for it.

Place in the walk: between append and answer under SYNC_FLUSH (group commit), on a timer under
ASYNC_FLUSH; consume queues, index and checkpoint follow each second.

Group commit: everything appended before a sync starts is covered by it. Whoever asks meanwhile
waits for the next one; all waiters of one sync share one `GroupCommit`, which settles once: True,
durable; False, not confirmed in time, or the sync failed.

Invariant: `flushed_offset` moves only after fdatasync returned for the bytes and, for new files,
the folder was synced. After a failed sync nothing is synced again on this log: the kernel has
forgotten which pages it lost. The store stops writing (`failure` is set), waiters get False, reads
go on. Absent on purpose: threads; `Disk.off_loop` blocks somewhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from engine.foundation.errors import DiskFull, StorageError
from engine.foundation.observing import FlushDone, LifecycleEvent, Observer
from engine.foundation.units import SECOND_MS
from engine.runtime import Runtime
from engine.runtime.kernel import UnwrittenPages
from engine.store.commit_log import CommitLog
from engine.store.config import FlushDiskType, StoreConfig
from engine.store.index.index import Index
from engine.store.mapped_file import OpenFile
from engine.store.queue_table import QueueTable
from engine.store.upkeep.checkpoint import CheckpointFile
from engine.store.upkeep.noted_ends import NotedEnds
from engine.store.upkeep.queue_flush import Flushed, QueueFlush
from engine.store.upkeep.spare_files import SpareFiles


class GroupCommit(asyncio.Future[bool]):
    """Shared by all who wait for the same sync: do not cancel it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_ms: int) -> None:
        """False after `timeout_ms`, unless it is settled before."""
        super().__init__(loop=loop)
        self._calls: list[Callable[[bool], None]] = []
        self._timer = loop.call_later(timeout_ms / 1000, self.settle, False)

    def call_when_settled(self, call: Callable[[bool], None]) -> None:
        """Have `call` made with the outcome. Hot: asyncio's callbacks take ten times as long."""
        if self.done():
            call(self.result())
        else:
            self._calls.append(call)

    def settle(self, flushed: bool) -> None:
        """This is the outcome, unless there is one already."""
        if self.done():
            return
        self._timer.cancel()
        self.set_result(flushed)
        for call in self._calls:
            try:
                call(flushed)
            except Exception as error:  # noqa: BLE001 - nobody else's answer may depend on it.
                self.get_loop().call_exception_handler(
                    {"message": "a waiter for a sync failed", "exception": error}
                )


DISK_FULL_QUIET_MS = 60 * SECOND_MS
"""A full disk is reported again when so long nothing was refused for it: small messages may still
find room where large ones do not.
"""


INDEX_PAGES_AT_ONCE = 256
"""Pages of slots that one step writes: some 5 ms, where a flush at full load has 5,000 of them."""


class Flusher:
    """Knows what is dirty and makes it durable."""

    def __init__(
        self,
        runtime: Runtime,
        config: StoreConfig,
        observer: Observer,
        *,
        log: CommitLog,
        queues: QueueTable,
        index: Index | None,
        checkpoint: CheckpointFile,
        noted_ends: NotedEnds,
    ) -> None:
        self._disk = runtime.disk
        self._clock = runtime.clock
        self._config = config
        self._observer = observer
        self._log = log
        self._queue_flush = QueueFlush(queues, self._clock.steady_ms, self._sync_beside)
        self._index = index
        self._checkpoint = checkpoint
        self._noted_ends = noted_ends
        self._flushes_log = False
        """Is `run_log` there to sync what is wanted?"""
        self.failure: str | None = None
        """Why the store cannot write any more; None while it can."""
        self.last_store_time_ms = 0
        """Store time of the newest message in the log; 0 for none."""
        self.committed_store_time_ms = 0
        """Store time up to which the transient pool was committed; of no meaning without a pool."""
        self.dispatched_store_time_ms = 0
        """Store time of the newest message dispatched; 0 for none."""
        self.on_flushed: Callable[[], None] = lambda: None
        """Called after `flushed_offset` moved, before the waiters hear of it."""
        self.failed = asyncio.Event()
        """Set together with `failure`."""
        self._disk_full_ms: int | None = None
        """When a write was last refused for want of room."""
        self._stopping = asyncio.Event()
        self._work = asyncio.Event()
        self._spares = SpareFiles(runtime.disk, log, may_write=lambda: self.failure is None)
        self._sync_target = 0
        self._log_turn, self._derived_turn = asyncio.Lock(), asyncio.Lock()
        """Whoever flushes has them; both, where it is one and then the other, in reverse order."""
        self._running_group: GroupCommit | None = None
        self._next_group: GroupCommit | None = None
        self._last_flush_ms = self._clock.steady_ms()
        self._kernel: UnwrittenPages | None = None
        self._sampled_ms = self._last_flush_ms - SECOND_MS

    # ---- waiting for durability -------------------------------------------------------------

    def change_settings(self, config: StoreConfig) -> None:
        """Go by `config` from the next flush on."""
        self._config = config

    def when_flushed(self, end_offset: int) -> GroupCommit | None:
        """The group commit that covers `end_offset`; None when nothing is to be waited for.

        Resolves to False when the sync failed or took longer than sync_flush_timeout_ms: outcome
        unknown.
        """
        if self._config.flush_disk_type is FlushDiskType.ASYNC_FLUSH:
            return None
        return self.sync_wanted(end_offset)

    def sync_wanted(self, end_offset: int) -> GroupCommit | None:
        """As `when_flushed`, under ASYNC_FLUSH as well: that sync does not wait for its timer."""
        if end_offset <= self._log.flushed_offset:
            return None
        if self.failure is not None or end_offset > self._log.end_offset:  # It was cut.
            refused = self._new_group()
            refused.settle(flushed=False)
            return refused
        if self._running_group is not None and end_offset <= self._sync_target:
            return self._running_group
        if self._next_group is None:
            self._next_group = self._new_group()
        self._work.set()
        return self._next_group

    def _new_group(self) -> GroupCommit:
        return GroupCommit(asyncio.get_running_loop(), self._config.sync_flush_timeout_ms)

    def wake(self) -> None:
        """There is something to flush now (SYNC_FLUSH)."""
        self._work.set()

    # ---- the commit log ---------------------------------------------------------------------

    async def run_log(self) -> None:
        """Flush the commit log until `stop`, as the flush type says; beside that, make files ahead.

        No sync waits for a file to be made.
        """
        self._flushes_log = True
        try:
            async with asyncio.TaskGroup() as beside:
                beside.create_task(self._spares.run(), name="store spare files")
                await self._flush_until_stop()
                if self._next_group is not None:  # Who waits for it may be what a stop waits for.
                    await self.flush_log("GROUP")
        finally:
            self._flushes_log = False

    async def _flush_until_stop(self) -> None:
        if self._config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            while not self._stopping.is_set():
                await self._work.wait()
                await asyncio.sleep(0)  # What arrived meanwhile is put first: it shares the sync.
                self._work.clear()
                await self.flush_log("GROUP")
                self._spares.mind()
            return
        pause_ms = self._config.flush_interval_commit_log_ms
        while not await self._pause_until_wanted(pause_ms):
            began_ms = self._clock.steady_ms()
            waiting_ms = began_ms - self._last_flush_ms
            unflushed_bytes = self._log.committed_offset - self._log.flushed_offset
            if self._next_group is not None:
                await self.flush_log("GROUP")
            elif (
                unflushed_bytes >= self._config.flush_commit_log_least_bytes
                or waiting_ms >= self._config.flush_commit_log_thorough_interval_ms
            ):
                await self.flush_log("TIMER")
            self._spares.mind()
            # From beginning to beginning: what is written during a flush waits no interval more.
            took_ms = self._clock.steady_ms() - began_ms
            pause_ms = max(0, self._config.flush_interval_commit_log_ms - took_ms)

    def stop(self) -> None:
        """Let the loops end when what they are doing is done: a sync is never abandoned."""
        self._stopping.set()
        self._work.set()
        self._spares.stop()

    async def pause(self, pause_ms: int) -> bool:
        """Wait; True when `stop` was called meanwhile."""
        try:
            async with asyncio.timeout(pause_ms / 1000):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True

    async def _pause_until_wanted(self, pause_ms: int) -> bool:
        """As `pause`, but over at once when somebody wants a sync."""
        try:
            async with asyncio.timeout(pause_ms / 1000):
                await self._work.wait()
        except TimeoutError:
            pass
        self._work.clear()
        return self._stopping.is_set()

    @asynccontextmanager
    async def standstill(self) -> AsyncIterator[None]:
        """Nothing is flushed, so that the log can be cut: a sync under way has ended before. For
        whoever waits, or begins to, the outcome is unknown at once.
        """
        self._settle_unknown()
        async with self._derived_turn, self._log_turn:
            try:
                yield
            finally:
                self._settle_unknown()
                self._next_group = None

    def _settle_unknown(self) -> None:
        for group in (self._running_group, self._next_group):
            if group is not None:
                group.settle(flushed=False)

    async def flush_log(self, cause: str) -> None:
        """Sync everything in the files so far; settle the waiters it covers. Never raises."""
        async with self._log_turn:
            await self._flush_log(cause)

    async def _flush_log(self, cause: str) -> None:
        log = self._log
        if self.failure is not None:
            return
        if log.flushed_offset == log.committed_offset:
            # Whoever began to wait during a sync that nobody had waited for is covered by it.
            covered, self._next_group = self._next_group, None
            if covered is not None:
                covered.settle(flushed=True)
            return
        target, stored_ms = log.committed_offset, self.last_store_time_ms
        if target < log.end_offset:
            stored_ms = self.committed_store_time_ms
        files = log.unflushed_files()
        folders = [log.files.directory] if log.folder_dirty else []
        log.folder_dirty = False
        group, self._next_group = self._next_group, None
        self._running_group, self._sync_target = group, target
        started_us = self._clock.steady_us()
        try:
            await self._sync_beside(files, folders)
        except StorageError as error:
            self.fail(f"commit log: {error}")
        else:
            at_risk_bytes = log.end_offset - log.flushed_offset
            log.flushed_offset = target
            self._checkpoint.value.physic_timestamp_ms = stored_ms
            self._checkpoint.value.written_offset = log.end_offset
            self._checkpoint.value.flushed_offset = target
            self._note_flushed()
            self._last_flush_ms = self._clock.steady_ms()
            self._report_log(cause, started_us, stored_ms, at_risk_bytes)
            self.on_flushed()
        finally:
            self._running_group = None
            if group is not None:
                group.settle(flushed=log.flushed_offset >= target)

    def _note_flushed(self) -> None:
        """Into the page cache at once, before anybody is answered: after SIGKILL the next recovery
        knows all that was promised. `flush_derived` syncs it, and tries again after a full disk.
        """
        try:
            self._checkpoint.write()
        except DiskFull as error:
            self.report_disk_full(error)
        except StorageError as error:
            self.fail(f"checkpoint: {error}")

    # ---- consume queues, index, checkpoint --------------------------------------------------

    async def run_derived(self) -> None:
        """Flush consume queues, index and checkpoint until `stop`."""
        while not await self.pause(self._config.flush_interval_consume_queue_ms):
            self.on_flushed()  # What a full disk kept from being dispatched has its next try here.
            await self.flush_derived("TIMER")

    async def flush_derived(self, cause: str) -> None:
        """Sync what dispatch has written, then say so in the checkpoint. Never raises.

        A full disk only postpones it: the checkpoint stays behind and the next round tries again.
        """
        async with self._derived_turn:
            if self.failure is not None:
                return
            try:
                await self._flush_queues(cause)
                await self._flush_index(cause)
                await self._save_checkpoint()
            except DiskFull as error:
                self.report_disk_full(error)
            except StorageError as error:
                self.fail(str(error))

    async def lower_notes(self, end_offset: int, stored_ms: int) -> None:
        """In a standstill, before the log is cut at `end_offset`, behind a message stored at
        `stored_ms`: let nothing on disk vouch for what lies behind. Raises DiskFull, StorageError.
        """
        note, log, newest = self._checkpoint.value, self._log, self._noted_ends.newest
        log.flushed_offset = min(log.flushed_offset, end_offset)
        note.flushed_offset = min(note.flushed_offset, end_offset)
        note.written_offset = min(note.written_offset, end_offset)
        note.physic_timestamp_ms = min(note.physic_timestamp_ms, stored_ms)
        note.logics_timestamp_ms = min(note.logics_timestamp_ms, stored_ms)
        note.index_timestamp_ms = min(note.index_timestamp_ms, stored_ms)
        self.last_store_time_ms = min(self.last_store_time_ms, stored_ms)
        self.committed_store_time_ms = min(self.committed_store_time_ms, stored_ms)
        self.dispatched_store_time_ms = min(self.dispatched_store_time_ms, stored_ms)
        await self._noted_ends.write(
            min(newest.dispatched_offset, end_offset), min(newest.flushed_offset, end_offset)
        )
        await self._save_checkpoint()

    async def note_begin(self, offset: int) -> None:
        """In a standstill: durably, the log holds nothing and begins at `offset`. Raises DiskFull,
        StorageError.
        """
        note = self._checkpoint.value
        note.log_begin = note.flushed_offset = note.written_offset = offset
        await self._save_checkpoint()

    async def flush_cut(self) -> None:
        """In a standstill: make last what is there of queues and index. Raises DiskFull,
        StorageError.
        """
        await self._queue_flush.flush(self._config, everything=True)
        await self._flush_index("GROUP")

    async def _flush_queues(self, cause: str) -> None:
        stored_ms, started_us = self.dispatched_store_time_ms, self._clock.steady_us()
        dispatched_offset = self._noted_ends.dispatched()
        flushed = await self._queue_flush.flush(self._config, everything=cause != "TIMER")
        is_all = flushed is Flushed.EVERYTHING or self._queue_flush.is_all_flushed
        is_noted = is_all and await self._note_ends(dispatched_offset, cause)
        if flushed is Flushed.NOTHING:
            return
        if flushed is Flushed.EVERYTHING and is_noted:
            self._checkpoint.value.logics_timestamp_ms = stored_ms
        self._report("CONSUME_QUEUE", cause, started_us, stored_ms)

    async def _note_ends(self, dispatched_offset: int, cause: str) -> bool:
        """Before the checkpoint vouches for what is in the queues: have it noted, where a start
        would not read it again. False when the log could not be synced up to there.
        """
        if not self._noted_ends.is_due(dispatched_offset):
            return True
        log, target = self._log, self._log.committed_offset
        if not self._flushes_log:
            await self.flush_log(cause)
        elif (synced := self.sync_wanted(target)) is not None:
            await asyncio.shield(synced)
        if log.flushed_offset < target:
            return False
        await self._noted_ends.write(dispatched_offset, log.flushed_offset)
        return True

    async def _flush_index(self, cause: str) -> None:
        """Entries first, slots and sums when those are safe, then the header that counts them."""
        index = self._index
        if index is None:
            return
        if not index.dirty:
            return
        dirty = index.dirty_files()
        started_us = self._clock.steady_us()
        folders = [index.directory] if index.folder_dirty else []
        index.folder_dirty = False
        await self._sync_beside([], folders + index.take_folders_of_sums())
        for file in dirty:  # Oldest first: a file's header vouches for all files before it.
            if not index.holds(file):
                continue  # Damage was met meanwhile, and it went.
            header, stored_ms, is_full = file.begin_flush(), file.end_timestamp_ms, file.full
            await self._sync_beside([index.open_file(file).pin()], [])
            if not index.holds(file):
                continue
            more = True
            while more:
                more = index.holds(file) and file.write_slots(INDEX_PAGES_AT_ONCE)
                await asyncio.sleep(0)
            if not index.holds(file):
                continue
            sums = [entry.pin() for entry in file.write_sums(header)]
            folders = index.take_folders_of_sums()
            await self._sync_beside([index.open_file(file).pin(), *sums], folders)
            if not index.holds(file):
                continue
            file.write_header(header)
            await self._sync_beside([index.open_file(file).pin()], [])
            if is_full:  # RocketMQ vouches for whole files, and after a kill deletes newer ones.
                self._checkpoint.value.index_timestamp_ms = stored_ms
            self._report("INDEX", cause, started_us, stored_ms)

    async def _save_checkpoint(self) -> None:
        if self._checkpoint.changed:
            self._checkpoint.write()
            await self._disk.off_loop(self._checkpoint.sync)

    async def _sync_beside(self, files: list[OpenFile], folders: list[str]) -> None:
        """Sync pinned files and folders beside the loop, then unpin the files."""
        try:
            if files or folders:
                await self._disk.off_loop(lambda: self._sync(files, folders))
        finally:
            for entry in files:
                entry.unpin()

    def _sync(self, files: list[OpenFile], folders: list[str]) -> None:
        for folder in folders:
            try:
                self._disk.sync_directory(folder)
            except StorageError:
                if self._disk.exists(folder):  # Else its topic was deleted meanwhile.
                    raise
        for entry in files:
            entry.file.sync()

    # ---- common -----------------------------------------------------------------------------

    def report_disk_full(self, error: DiskFull) -> None:
        """A write was refused for want of room; reported once for all that follow soon after."""
        before_ms, self._disk_full_ms = self._disk_full_ms, self._clock.steady_ms()
        if before_ms is None or self._disk_full_ms - before_ms >= DISK_FULL_QUIET_MS:
            self._observer.observe(LifecycleEvent("DISK_FULL", str(error)))

    def fail(self, reason: str) -> None:
        """A sync failed: stop writing for good and release the waiters."""
        if self.failure is None:
            self.failure = reason
            self.failed.set()
            self._observer.observe(
                LifecycleEvent("WRITES_STOPPED", f"a sync failed, writing is over: {reason}")
            )
        self._settle_unknown()

    def _report_log(self, cause: str, started_us: int, stored_ms: int, at_risk_bytes: int) -> None:
        log, kernel = self._log, self._sample_kernel()
        self._observer.observe(
            FlushDone(
                "COMMIT_LOG",
                "FLUSH",
                cause,
                written=log.end_offset,
                committed=log.committed_offset,
                flushed=log.flushed_offset,
                store_time_ms=stored_ms or None,
                duration_us=self._clock.steady_us() - started_us,
                kernel_dirty=kernel.dirty_bytes if kernel else None,
                kernel_writeback=kernel.writeback_bytes if kernel else None,
                at_risk_bytes=at_risk_bytes,
            )
        )

    def _report(self, component: str, cause: str, started_us: int, stored_ms: int) -> None:
        """A flush of what is derived from the log and can be made again from it."""
        self._observer.observe(
            FlushDone(
                component,
                "FLUSH",
                cause,
                written=None,
                flushed=None,
                store_time_ms=stored_ms or None,
                duration_us=self._clock.steady_us() - started_us,
            )
        )

    def _sample_kernel(self) -> UnwrittenPages | None:
        """What the kernel holds back, read once a second: group commits come in thousands."""
        now_ms = self._clock.steady_ms()
        if now_ms - self._sampled_ms >= SECOND_MS:
            self._sampled_ms = now_ms
            self._kernel = self._disk.unwritten_pages()
        return self._kernel
