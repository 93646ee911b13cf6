"""Manages a store's life cycle: its folder lock, recovery, background tasks and shutdown.

Place in the walk: `MessageStore.open`, `start` and `close`; damage that readers meet is reported
here, and what of it can be mended is planned.

Invariant: one process at a time has the folder, by the lock file that a Java broker takes too; a
store that closes cleanly has flushed everything, and only then is its abort file removed. No task
of the store outlives it; one that fails has a bug, and the store stops writing. Absent on purpose:
putting, getting and queries (`message_store`), how the end of the log is found
(`upkeep/recovery`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from engine.foundation.errors import StorageError, WritesStopped
from engine.foundation.limits import LOG_HOLES_TOLD_MAX
from engine.foundation.observing import LifecycleEvent, Observer, report
from engine.runtime import Disk, File, Runtime
from engine.runtime.durable import make_durable
from engine.store.commit_log import CommitLog, PooledCommitLog
from engine.store.config import StoreConfig
from engine.store.dispatch import Dispatcher
from engine.store.epochs import Epochs
from engine.store.holes import Hole
from engine.store.index.index import SUMS_SUFFIX, Index, IndexScrub
from engine.store.index.index_layout import IndexShape
from engine.store.log_states import LogStates
from engine.store.mapped_file import FilePool
from engine.store.queue_table import QueueTable
from engine.store.table_file import store_id_of
from engine.store.tombstones import Tombstones
from engine.store.topic_deletion import TopicDeletion
from engine.store.truncation import Truncation
from engine.store.upkeep.checkpoint import CheckpointFile
from engine.store.upkeep.dispatch_service import DispatchService
from engine.store.upkeep.flush import Flusher
from engine.store.upkeep.noted_ends import NotedEnds
from engine.store.upkeep.opening import Opening
from engine.store.upkeep.pool import PoolCommitter
from engine.store.upkeep.queue_scrub import QueueScrub
from engine.store.upkeep.retention import Retention


def take_folders(disk: Disk, config: StoreConfig) -> list[File]:
    """Lock the store for this process, and its commit log when that lies elsewhere.

    Raises StorageError when another process has one of them.
    """
    taken = [_take(disk, config.root, f"{config.root}/lock")]
    folder = config.commit_log_folder
    if folder != f"{config.root}/commitlog":
        try:
            taken.append(_take(disk, folder, f"{folder}.lock"))
        except BaseException:
            taken[0].close()
            raise
    return taken


def _take(disk: Disk, folder: str, path: str) -> File:
    lock_file = disk.open(path, create=True)
    if not lock_file.lock():
        lock_file.close()
        raise StorageError(
            f"the store in {folder} is in use by another process (its lock file is taken); "
            f"stop that one or choose another folder"
        )
    lock_file.pwrite(b"lock", 0)
    return lock_file


class BackgroundTasks:
    """Tasks of one store, by name."""

    def __init__(self, on_failure: Callable[[str], object]) -> None:
        """`on_failure` gets what ended, in words."""
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._tasks: list[asyncio.Task[None]] = []
        self._asleep: list[asyncio.Task[None]] = []

    @property
    def begun(self) -> bool:
        """Is there any?"""
        return bool(self._tasks)

    def __iter__(self) -> Iterator[asyncio.Task[None]]:
        return iter(self._tasks)

    def begin(
        self, work: Coroutine[Any, Any, None], name: str, *, only_sleeps: bool = False
    ) -> None:
        """Run `work` until it ends by itself, as whatever flushes must; a task that only sleeps
        between short steps is cancelled instead of waited for.
        """
        task = self._loop.create_task(work, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)
        if only_sleeps:
            self._asleep.append(task)

    async def end(self) -> None:
        """Cancel who only sleeps, wait for all others; what failed was reported when it did."""
        for task in self._asleep:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        self._on_failure(f"background task {task.get_name()!r} ended: {error!r}")
        self._loop.call_exception_handler(
            {"message": f"{task.get_name()} ended", "exception": error, "task": task}
        )


_log = logging.getLogger(__name__)


def make_folders(runtime: Runtime, config: StoreConfig) -> None:
    """Make the folders of a store that is not there yet."""
    make_durable(runtime.disk, config.root)
    make_durable(runtime.disk, config.commit_log_folder)
    for folder in ("consumequeue", "index", f"index{SUMS_SUFFIX}"):
        runtime.disk.make_directories(f"{config.root}/{folder}")


class StoreLifeCycle:
    """The parts of one opened store, from taking its folder to giving it free."""

    def __init__(self, runtime: Runtime, config: StoreConfig, observer: Observer) -> None:
        """Put the parts together and take the folder; `recover` comes next."""
        self._runtime = runtime
        self._disk = runtime.disk
        self._config = config
        self._observer = observer
        self.closed = False
        self.store_id = store_id_of(runtime, config.tables_folder)
        """What distinguishes this store's tables from those of others."""
        self.tombstones = Tombstones(runtime, config, store_id=self.store_id)
        self.epochs = Epochs(runtime, config.tables_folder, self.store_id)
        self._open_files(config)
        self._locks = take_folders(self._disk, config)
        self.checkpoint = self._open_checkpoint(f"{config.root}/checkpoint")
        self._damages_met = 0
        """By readers, since the start."""
        self._make_services(runtime, config, observer)

    def _open_files(self, config: StoreConfig) -> None:
        disk, pool = self._disk, FilePool()
        log_kind = PooledCommitLog if config.transient_store_pool_enable else CommitLog
        self.log: CommitLog = log_kind(
            disk, config.commit_log_folder, config.mapped_file_size_commit_log_bytes, pool
        )
        self.queues = QueueTable(
            disk, config.consume_queue_folder, config.mapped_file_size_consume_queue_bytes, pool
        )
        shape = IndexShape(config.max_hash_slot_count, config.max_index_count)
        self.index = (
            Index(disk, config.index_folder, shape, pool) if config.message_index_enable else None
        )

    def _open_checkpoint(self, path: str) -> CheckpointFile:
        try:
            return CheckpointFile(self._disk, path)
        except BaseException:
            for lock_file in self._locks:
                lock_file.close()
            raise

    def _make_services(self, runtime: Runtime, config: StoreConfig, observer: Observer) -> None:
        log, queues, index, checkpoint = self.log, self.queues, self.index, self.checkpoint
        self.dispatcher = Dispatcher(
            log, queues, index, config.delay_levels_ms, deleted=self.tombstones.ends
        )
        self.noted_ends = NotedEnds(
            self._disk,
            config.root,
            log=log,
            queues=queues,
            dispatched=lambda: self.dispatcher.position,
        )
        self.flusher = Flusher(
            runtime,
            config,
            observer,
            log=log,
            queues=queues,
            index=index,
            checkpoint=checkpoint,
            noted_ends=self.noted_ends,
        )
        self.committer = PoolCommitter(
            runtime, config, observer, log=log, flusher=self.flusher, checkpoint=checkpoint
        )
        self.dispatching = DispatchService(
            runtime,
            config,
            log=log,
            dispatcher=self.dispatcher,
            flusher=self.flusher,
            committer=self.committer if config.transient_store_pool_enable else None,
        )
        self.flusher.on_flushed = self.dispatching.turn
        self.tasks = BackgroundTasks(on_failure=self.flusher.fail)
        if index is not None:
            index.on_damage = self._refill_index
        self.retention = Retention(
            runtime,
            config,
            observer,
            log=log,
            queues=queues,
            index=index,
            checkpoint=checkpoint,
            dispatched=lambda: self.dispatcher.position,
        )
        self.deletion = TopicDeletion(
            self._disk, log=log, queues=queues, tombstones=self.tombstones, flusher=self.flusher
        )
        self.states = LogStates(log, queues, self.dispatcher)
        self.truncation = Truncation(
            self._disk,
            observer,
            log=log,
            queues=queues,
            index=index,
            dispatcher=self.dispatcher,
            dispatching=self.dispatching,
            flusher=self.flusher,
            committer=self.committer,
            deletion=self.deletion,
            retention=self.retention,
            tombstones=self.tombstones,
            epochs=self.epochs,
            states=self.states,
        )

    async def recover(self) -> None:
        """Recover what the last process left. Raises what `MessageStore.open` raises."""
        opening = Opening(
            self._runtime,
            self._config,
            self._observer,
            log=self.log,
            queues=self.queues,
            index=self.index,
            dispatcher=self.dispatcher,
            flusher=self.flusher,
            checkpoint=self.checkpoint,
            tombstones=self.tombstones,
            epochs=self.epochs,
            noted_ends=self.noted_ends,
        )
        await opening.run()
        self.log.on_damage = self._report_hole

    def _report_hole(self, hole: Hole) -> None:
        """Report that a reader met a record of an earlier life that is damaged."""
        self._damages_met += 1
        if self._damages_met > LOG_HOLES_TOLD_MAX:
            return
        detail = (
            f"commit log: hole [{hole.start}, {hole.end}), {hole.size_bytes} bytes that were on "
            f"disk and cannot be read ({hole.reason}); pulls pass over it"
        )
        if self._damages_met == LOG_HOLES_TOLD_MAX:
            detail += "; more that are met before the next start are in the metrics alone"
        report(self._observer, _log, LifecycleEvent("LOG_HOLE", detail))

    def _refill_index(self, words: str) -> None:
        """Report damage of the index, which has dropped what it cannot trust, and plan to fill it
        again.
        """
        report(self._observer, _log, LifecycleEvent("DAMAGED_FILE", words))
        self.dispatching.plan_index_fill()

    def change_settings(self, config: StoreConfig) -> None:
        """Go by `config` from the next flush, read and retention round on.

        Sizes of files, folders and the flush mode are as they were opened.
        """
        self._config = config
        self.flusher.change_settings(config)
        self.committer.change_settings(config)
        self.retention.change_settings(config)

    def start(self) -> None:
        """Begin flushing and retention in the background."""
        tasks = self.tasks
        assert not tasks.begun, "started twice"
        tasks.begin(self.flusher.run_log(), "store flush")
        tasks.begin(self.flusher.run_derived(), "store derived flush")
        tasks.begin(self.retention.run_forever(), "store retention", only_sleeps=True)
        queue_scrub = QueueScrub(
            self._runtime,
            self._observer,
            log=self.log,
            queues=self.queues,
            dispatcher=self.dispatcher,
        )
        self.truncation.on_cut.append(queue_scrub.cut)
        tasks.begin(queue_scrub.run(self.flusher.pause), "store queue scrub")
        if self.index is not None:
            scrub = IndexScrub(self._disk, self.index, self.flusher.pause)
            tasks.begin(scrub.run(), "store index scrub")
        if self._config.transient_store_pool_enable:
            tasks.begin(self.committer.run(), "store pool commit")

    async def failed(self) -> None:
        """Return never, while the disk is sound; raise WritesStopped when a sync has failed."""
        await self.flusher.failed.wait()
        raise WritesStopped(self.why_not_writable())

    def why_not_writable(self) -> str:
        """Why no put is tried, in words."""
        if self.flusher.failure is not None:
            return f"the store stopped writing: {self.flusher.failure}; restart it on a sound disk"
        if self.closed:
            return "the store is closed"
        if self.truncation.under_way:
            return "the log is being cut; try again"
        return (
            f"the disk of {self.retention.fullest} is fuller than "
            f"{self._config.disk_warning_ratio:.0%}; writes resume when there is room"
        )

    async def close(self) -> None:
        """Stop cleanly: flush all, save the checkpoint, remove the abort file. Idempotent."""
        if self.closed:
            return
        self.closed = True
        await self.deletion.ended()
        self.dispatching.stop()
        self.flusher.stop()
        await self.tasks.end()
        if self._config.transient_store_pool_enable:
            self.committer.commit("SHUTDOWN")
        await self.flusher.flush_log("SHUTDOWN")
        self.dispatching.finish()
        if self.flusher.failure is None:
            self.log.drop_spares()
            if self.log.folder_dirty:
                self._disk.sync_directory(self.log.files.directory)
            self.checkpoint.value.written_offset = 0  # Nothing is open to be lost.
            index_print = self.index.fingerprint() if self.index is not None else 0
            if not self.log.has_strangers:  # Else queues are to be built again.
                self.checkpoint.value.derived = (self.queues.fingerprint(), index_print)
        await self.flusher.flush_derived("SHUTDOWN")
        is_dispatched = not self.dispatching.behind_bytes and not self.queues.dirty
        if self.index is not None and self.index.is_behind:
            is_dispatched = False  # The next start goes on where it ends.
        if self.flusher.failure is None and is_dispatched:
            self._disk.remove(self._config.abort_path)
            self._disk.sync_directory(self._config.root)
        self.release()

    def release(self) -> None:
        """Close all files and give the folder free, flushed or not."""
        self.closed = True
        self.dispatching.stop()
        self.log.close()
        self.queues.close()
        if self.index is not None:
            self.index.close()
        self.checkpoint.close()
        for lock_file in self._locks:
            lock_file.close()
