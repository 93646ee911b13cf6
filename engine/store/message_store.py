"""The message store: one commit log, what is derived from it, and the promises made about it.

Place in the walk: `handlers/send` puts, waits for `when_flushed`, answers; `handlers/pull` gets;
long polls hear of arrivals. `MessageStore.open` recovers whatever the last process left.

What an answer may promise:

    ASYNC_FLUSH  `put` returned: the message survives SIGKILL of this process; its bytes are in the
                 page cache. With the transient pool only from its next commit on (200 ms).
    SYNC_FLUSH   the future of `when_flushed` gave True: it survives a power cut; its bytes, and
                 its file's name, were synced.

Invariant: a queue offset names one message for ever; survivors of any crash are a prefix of the
log; one process at a time has the folder. A failed sync ends writing, a full disk suspends it,
reads always go on.
Absent on purpose: topics' settings, subscriptions, replication, transactions' meaning.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from engine.foundation.errors import ConfigError, DiskFull, StorageError, WritesStopped
from engine.foundation.limits import LOG_HOLES_TOLD_MAX
from engine.foundation.observing import LifecycleEvent, Observer
from engine.runtime import Runtime
from engine.runtime.durable_folders import make_durable
from engine.store.check import StoreCheck
from engine.store.commit_log import CommitLog, PooledCommitLog
from engine.store.config import FlushDiskType, StoreConfig
from engine.store.dispatch import Arrival, Dispatcher
from engine.store.draft_record import BatchDraft, DraftRecord, MessageDraft, PutResult
from engine.store.folder_lock import take_folders
from engine.store.holes import Hole
from engine.store.index import Index
from engine.store.index_file import IndexShape
from engine.store.lost_messages import LostMessages
from engine.store.mapped_file import FilePool
from engine.store.queries import StoreQueries
from engine.store.queue_table import QueueKey, QueueTable
from engine.store.table_file import store_id_of
from engine.store.tombstones import Tombstones
from engine.store.upkeep.checkpoint import CheckpointFile
from engine.store.upkeep.cut_bytes import CutBytes
from engine.store.upkeep.flush import Flusher
from engine.store.upkeep.group_commit import GroupCommit
from engine.store.upkeep.pool import PoolCommitter
from engine.store.upkeep.recovery import Recovery
from engine.store.upkeep.retention import Retention

CUT_FOLDER = "cut"
"""Folder of a store in which recovery keeps what it cut off the log."""

_log = logging.getLogger(__name__)


class MessageStore(StoreQueries):
    """One store folder, opened."""

    def __init__(self, runtime: Runtime, config: StoreConfig, observer: Observer) -> None:
        """Use `open`; this only puts the parts together."""
        disk, root = runtime.disk, config.root
        pool = FilePool()
        shape = IndexShape(config.max_hash_slot_count, config.max_index_count)
        log_kind = PooledCommitLog if config.transient_store_pool_enable else CommitLog
        self.store_id = store_id_of(runtime, config.tables_folder)
        """What tells this store's tables from those of others."""
        self.tombstones = Tombstones(runtime, config, store_id=self.store_id)
        super().__init__(
            config,
            log_kind(
                disk, config.commit_log_folder, config.mapped_file_size_commit_log_bytes, pool
            ),
            QueueTable(
                disk, config.consume_queue_folder, config.mapped_file_size_consume_queue_bytes, pool
            ),
            Index(disk, config.index_folder, shape, pool) if config.message_index_enable else None,
            deleted=self.tombstones.ends,
        )
        self._runtime = runtime
        self._disk = disk
        self._clock = runtime.clock
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        derived, deleted = (self._log, self._queues, self._index), self.tombstones.ends
        self._dispatcher = Dispatcher(*derived, config.delay_levels_ms, deleted=deleted)
        self._abort_path = f"{root}/abort"
        self._locks = take_folders(disk, config)
        self._checkpoint = self._open_checkpoint(f"{root}/checkpoint")
        self._flusher = Flusher(
            runtime,
            config,
            observer,
            log=self._log,
            queues=self._queues,
            index=self._index,
            checkpoint=self._checkpoint,
        )
        self._flusher.on_flushed = self._dispatch_turn
        self._committer = PoolCommitter(
            runtime,
            config,
            observer,
            log=self._log,
            flusher=self._flusher,
            checkpoint=self._checkpoint,
        )
        self.retention = Retention(
            runtime,
            config,
            observer,
            log=self._log,
            queues=self._queues,
            index=self._index,
            dispatched=lambda: self._dispatcher.position,
        )
        self._sync_flush = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._dispatch_planned = False
        self._deleting: dict[str, None] = {}
        """Topics whose deletion is being written down: nothing is put into them meanwhile."""
        self._deletion = asyncio.Lock()
        self._closed = False
        self._tasks: list[asyncio.Task[None]] = []

    def _open_checkpoint(self, path: str) -> CheckpointFile:
        try:
            return CheckpointFile(self._disk, path)
        except BaseException:
            for lock_file in self._locks:
                lock_file.close()
            raise

    # ---- life -------------------------------------------------------------------------------

    @classmethod
    async def open(cls, runtime: Runtime, config: StoreConfig, observer: Observer) -> MessageStore:
        """Take the folder, recover, report.

        Raises StorageError when another process has it, ConfigError for file sizes that the store
        was not made with.
        """
        make_durable(runtime.disk, config.root)
        make_durable(runtime.disk, config.commit_log_folder)
        for folder in ("consumequeue", "index"):
            runtime.disk.make_directories(f"{config.root}/{folder}")
        store = cls(runtime, config, observer)
        try:
            await store._recover()
        except BaseException:
            store._release()
            raise
        return store

    async def _recover(self) -> None:
        clean = not self._disk.exists(self._abort_path)
        self.tombstones.load(self._observer)
        recovery = Recovery(
            self._log,
            self._queues,
            self._index,
            dispatcher=self._dispatcher,
            delay_levels_ms=self._config.delay_levels_ms,
            cut_bytes=CutBytes(self._disk, f"{self._config.root}/{CUT_FOLDER}"),
            deleted=self.tombstones.ends,
        )
        if self._config.strict_store and self._disk.exists(self._config.commit_log_folder):
            look = StoreCheck(self._disk, self._config)
            try:
                self._refuse_damage(look.first_hole())
            finally:
                look.close()
        # First the abort file: what recovery writes is as unfinished as anything, if we die now.
        try:
            self._disk.write(self._abort_path, str(self._runtime.entropy.process_id()).encode())
        except DiskFull:
            if not self._disk.exists(self._abort_path):
                raise
            # That it is there says enough; what it holds is for people.
        self._disk.sync_directory(self._config.root)
        try:
            found = recovery.run(self._checkpoint.value, clean=clean, now_ms=self._clock.now_ms())
        except ConfigError:
            if clean:
                self._disk.remove(self._abort_path)  # Nothing was touched.
            raise
        if self._config.strict_store:  # Queues that were built again have shown more of it.
            self._refuse_damage(next(iter(found.lost), None))
        note = self._checkpoint.value
        there_ms = found.last_store_time_ms or note.physic_timestamp_ms
        self._flusher.last_store_time_ms = max(there_ms, note.physic_timestamp_ms)
        note.written_offset = self._log.end_offset
        safe = self._log.end_offset if clean else max(found.scanned_from, found.synced_to)
        self._log.flushed_offset = min(safe, self._log.end_offset)
        if not clean:
            self._queues.touch_all()
        await self._flusher.flush_log("RECOVERY")
        # What is missing is told once, not at every start from now on.
        note.physic_timestamp_ms = min(note.physic_timestamp_ms, there_ms)
        note.logics_timestamp_ms = min(note.logics_timestamp_ms, there_ms)
        note.flushed_offset = self._log.flushed_offset
        note.derived = None
        self._log.unchecked_to = found.scanned_from
        self._log.on_damage = self._met_damage
        self._flusher.dispatched_store_time_ms = self._flusher.committed_store_time_ms = there_ms
        await self._flusher.flush_derived("RECOVERY")
        await self.tombstones.take_back(self._log.end_offset, self._observer)
        for event in found.events(self._log.min_offset):
            self._observer.observe(event)
            if event.kind != "RECOVERY" or event.truncated_from is not None or found.dropped_bytes:
                _log.warning("%s", event.detail)
            elif not clean:
                _log.info("recovered after an unclean stop: %s", event.detail)

    def _refuse_damage(self, found: LostMessages | None) -> None:
        if found is not None:
            raise StorageError(
                f"{self._config.root} is damaged and strictStore is on: {found.sentence()}; mend "
                f"the file, or start without strictStore to serve what is left"
            )

    def _met_damage(self, hole: Hole) -> None:
        """A reader came upon a record of an earlier life that is none any more."""
        if self._log.holes.count > LOG_HOLES_TOLD_MAX:
            return
        detail = (
            f"commit log: hole [{hole.start}, {hole.end}), {hole.size_bytes} bytes that were on "
            f"disk and cannot be read ({hole.reason}); a pull passed over it"
        )
        self._observer.observe(LifecycleEvent("LOG_HOLE", detail))
        _log.warning("%s", detail)

    def change_settings(self, config: StoreConfig) -> None:
        """Go by `config` from the next flush, read and retention round on.

        Sizes of files, folders and the flush mode are as they were opened.
        """
        self._config = config
        self._flusher.change_settings(config)
        self._committer.change_settings(config)
        self.retention.change_settings(config)

    def start(self) -> None:
        """Begin flushing and retention in the background."""
        assert not self._tasks, "started twice"
        self._tasks = [
            self._background(self._flusher.run_log(), "store flush"),
            self._background(self._flusher.run_derived(), "store derived flush"),
            self._background(self.retention.run_forever(), "store retention"),
        ]
        if self._config.transient_store_pool_enable:
            self._tasks.append(self._background(self._committer.run(), "store pool commit"))

    def _background(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = self._loop.create_task(work, name=name)
        task.add_done_callback(self._background_ended)
        return task

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        """A background task that fails has a bug: stop writing rather than go on without it."""
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        self._flusher.fail(f"background task {task.get_name()!r} ended: {error!r}")
        self._loop.call_exception_handler(
            {"message": f"{task.get_name()} ended", "exception": error, "task": task}
        )

    async def close(self) -> None:
        """Stop cleanly: flush all, save the checkpoint, remove the abort file.

        Twice does nothing.
        """
        if self._closed:
            return
        self._closed = True
        self._flusher.stop()
        for task in self._tasks[2:3]:  # Retention only sleeps; a flush is left to end by itself.
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._config.transient_store_pool_enable:
            self._committer.commit("SHUTDOWN")
        await self._flusher.flush_log("SHUTDOWN")
        try:
            while self._dispatcher.run(self._dispatch_limit(), now_ms=self._clock.now_ms()):
                pass
        except DiskFull as error:
            self._flusher.tell_disk_full(error)  # The next recovery reads the records from the log.
        self._note_dispatched()
        if self._flusher.failure is None:
            self._log.drop_spares()
            if self._log.folder_dirty:
                self._disk.sync_directory(self._log.files.directory)
            self._checkpoint.value.written_offset = 0  # Nothing is open to be lost.
            index_print = self._index.fingerprint() if self._index is not None else 0
            self._checkpoint.value.derived = (self._queues.fingerprint(), index_print)
        await self._flusher.flush_derived("SHUTDOWN")
        is_dispatched = self._dispatcher.position == self._log.end_offset and not self._queues.dirty
        if self._flusher.failure is None and is_dispatched:
            self._disk.remove(self._abort_path)
            self._disk.sync_directory(self._config.root)
        self._release()

    def _release(self) -> None:
        self._closed = True
        self._log.close()
        self._queues.close()
        if self._index is not None:
            self._index.close()
        self._checkpoint.close()
        for lock_file in self._locks:
            lock_file.close()

    async def failed(self) -> None:
        """Return never, while the disk is sound; raise WritesStopped when a sync has failed."""
        await self._flusher.failed.wait()
        raise WritesStopped(self._why_not_writable())

    # ---- writing ----------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        """Would a put be tried?

        False after a failed sync, while the disk is too full, after close.
        """
        return self._flusher.failure is None and not self._closed and not self.retention.stop_writes

    def put(self, draft: MessageDraft) -> PutResult:
        """Append one message; it is in the page cache when this returns.

        Raises WritesStopped (after a failed sync, too full a disk, close), DiskFull (nothing was
        stored; works again once there is room), StorageError, LocalProtocolError for a draft that
        no record can hold.
        """
        record, queues, log = DraftRecord(draft), self._queues, self._log
        queue_offset, stored_ms = self._begin(draft)
        placed_at = queue_offset if record.takes_queue_offset else 0
        try:
            place = log.place_for(record.size_bytes)
            log.append(record.encode(placed_at, place, stored_ms))
        except DiskFull as error:
            self._flusher.tell_disk_full(error)
            raise
        if record.takes_queue_offset:
            queues.advance(draft.topic, draft.queue_id, queue_offset + 1)
        dispatcher = self._dispatcher
        dispatcher.tell(record.request(placed_at, place, stored_ms, dispatcher.delay_levels_ms))
        self._appended(stored_ms)
        size_bytes = record.size_bytes
        return PutResult(placed_at, place, size_bytes, stored_ms, place + size_bytes)

    def new_batch(self) -> BatchDraft:
        """A batch to add messages to, for `put_batch`."""
        return BatchDraft(self._dispatcher.delay_levels_ms)

    def put_batch(self, drafts: Sequence[MessageDraft] | BatchDraft) -> list[PutResult]:
        """Append messages for one queue as one write: all of them or none, offsets in a row. A
        `BatchDraft` is put once.

        A batch lies in one commit-log file, as RocketMQ's does; one longer than a file is put
        message by message. Raises what `put` raises.
        """
        if isinstance(drafts, BatchDraft):
            batch = drafts
        else:
            batch = self.new_batch()
            for draft in drafts:
                batch.add(draft)
        if not batch:
            return []
        if batch.size_bytes > self._log.record_bytes_max:
            return [self.put(draft) for draft in batch.drafts]
        first = batch.first
        queue_offset, stored_ms = self._begin(first)
        try:
            placed = batch.place(queue_offset, self._log.place_for(batch.size_bytes), stored_ms)
            self._log.append(placed.encoded)
        except DiskFull as error:
            self._flusher.tell_disk_full(error)
            raise
        self._queues.advance(first.topic, first.queue_id, placed.next_queue_offset)
        self._dispatcher.tell_all(placed.requests)
        self._appended(stored_ms)
        return placed.results

    def _begin(self, draft: MessageDraft) -> tuple[int, int]:
        """The queue offset and the store time that the next message of its queue gets. Hot."""
        if not self.writable:
            raise WritesStopped(self._why_not_writable())
        if self._deleting and draft.topic in self._deleting:
            raise WritesStopped(f"topic {draft.topic} is being deleted; try again")
        queue_offset = self._queues.next_offset(draft.topic, draft.queue_id)
        return queue_offset, max(self._clock.now_ms(), self._flusher.last_store_time_ms)

    def _appended(self, stored_ms: int) -> None:
        """Messages are in the log; have them flushed or dispatched. Hot."""
        self._flusher.last_store_time_ms = stored_ms
        if self._sync_flush:
            self._flusher.wake()  # Also for those nobody waits for: readers see what is flushed.
        elif not self._dispatch_planned:
            self._plan_dispatch()

    def _why_not_writable(self) -> str:
        if self._flusher.failure is not None:
            return f"the store stopped writing: {self._flusher.failure}; restart it on a sound disk"
        if self._closed:
            return "the store is closed"
        return (
            f"the disk of {self.retention.fullest} is fuller than "
            f"{self._config.disk_warning_ratio:.0%}; writes resume when there is room"
        )

    def when_flushed(self, end_offset: int) -> GroupCommit | None:
        """Outcome of the sync that makes the log durable up to `end_offset`; None when there is
        nothing to wait for (durable already, or ASYNC_FLUSH).

        Shared by all who wait for the same sync: do not cancel it. False: not confirmed within
        sync_flush_timeout_ms, or the sync failed; the message is stored, its durability unknown
        (FLUSH_DISK_TIMEOUT).
        """
        return self._flusher.when_flushed(end_offset)

    async def flush(self) -> None:
        """Have everything put so far synced, whatever the flush mode; `physical_flushed` says how
        far that went. Never raises: after a failed sync, or one that takes longer than
        sync_flush_timeout_ms, it stays behind.
        """
        end_offset = self._log.end_offset
        if self._config.transient_store_pool_enable:
            self._committer.commit("GROUP")
        synced = self._flusher.sync_wanted(end_offset)
        if synced is not None and not self._tasks:
            await self._flusher.flush_log("GROUP")
        elif synced is not None:
            await asyncio.shield(synced)

    # ---- dispatch ---------------------------------------------------------------------------

    def on_arrival(self, callback: Arrival) -> None:
        """Have `callback` called with messages that became visible to `get`, in log order."""
        self._dispatcher.arrivals.append(callback)

    def _dispatch_limit(self) -> int:
        return self._log.flushed_offset if self._sync_flush else self._log.committed_offset

    def _plan_dispatch(self) -> None:
        if not self._dispatch_planned:
            self._dispatch_planned = True
            self._loop.call_soon(self._dispatch_turn)

    def _dispatch_turn(self) -> None:
        """Dispatch what this turn of the loop appended (or flushed)."""
        self._dispatch_planned = False
        if self._closed:
            return
        if self._config.transient_store_pool_enable:
            self._committer.note_written()
        try:
            more = self._dispatcher.run(self._dispatch_limit(), now_ms=self._clock.now_ms())
        except DiskFull as error:
            self._flusher.tell_disk_full(error)  # The records stay; tried again each second.
            return
        except StorageError as error:
            self._flusher.fail(f"dispatch: {error}")
            return
        self._note_dispatched()
        if more:
            self._plan_dispatch()

    def _note_dispatched(self) -> None:
        if self._dispatcher.position == self._log.end_offset:
            self._flusher.dispatched_store_time_ms = self._flusher.last_store_time_ms
        else:
            self._flusher.dispatched_store_time_ms = max(
                self._flusher.dispatched_store_time_ms, self._dispatcher.last_store_time_ms
            )

    async def delete_topic(self, topic: str, forget: Callable[[], object] = lambda: None) -> int:
        """Delete the topic, durably: its queues, and its messages for whoever asks; returns how
        many queues. Made again, it begins at 0, and what was there before never shows again.

        `forget` is called when that is so, before anything else can be put or asked. Raises
        DiskFull, StorageError: then nothing has changed.
        """
        return await asyncio.shield(self._loop.create_task(self._delete_topic(topic, forget)))

    async def _delete_topic(self, topic: str, forget: Callable[[], object]) -> int:
        async with self._deletion:
            log_begin = self._log.min_offset
            self.tombstones.check_room(topic, log_begin=log_begin)
            self._deleting[topic] = None
            try:
                await self.tombstones.add(topic, self._log.end_offset, log_begin=log_begin)
            except DiskFull:
                raise
            except StorageError as error:  # Whether it is on disk is unknown.
                self._flusher.fail(f"deleting topic {topic}: {error}")
                raise
            finally:
                del self._deleting[topic]
            forget()
            return self._queues.delete_topic(topic)

    def moved_queues(self) -> list[QueueKey]:
        """Queues whose ends moved, or that went, since the last call."""
        return self._queues.take_moved()

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes written and not yet visible to `get`."""
        return self._log.end_offset - self._dispatcher.position
