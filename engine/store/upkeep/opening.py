"""Opens a store: recovers its contents, makes them durable and reports what was found.

Place in the walk: `MessageStore.open`, once the folder is taken and before anything is put or read.

    a look, when strictStore is on    refuses damage before a byte is changed
    the abort file, durably           a kill from here on is an unclean stop
    recovery                          finds the log's end, brings queues and index to it
    flushes                           the log, then what is derived, with the checkpoint
    tombstones                        those beyond the log's end are taken back to it
    what was found                    rows and lines, damage first

Invariant: what is promised from here on starts from synced files; what is missing is reported once,
not at every later start. Absent on purpose: how the end of the log is found (`recovery`).
"""

from __future__ import annotations

import logging

from engine.foundation.errors import ConfigError, DiskFull, StorageError
from engine.foundation.observing import Observer, report
from engine.runtime import Runtime
from engine.store.check import StoreCheck
from engine.store.commit_log import CommitLog
from engine.store.config import StoreConfig
from engine.store.dispatch import Dispatcher
from engine.store.epochs import Epochs
from engine.store.holes import LostMessages
from engine.store.index.index import Index
from engine.store.queue_table import QueueTable
from engine.store.tombstones import Tombstones
from engine.store.upkeep.checkpoint import CheckpointFile
from engine.store.upkeep.cut_bytes import CutBytes
from engine.store.upkeep.flush import Flusher
from engine.store.upkeep.noted_ends import NotedEnds
from engine.store.upkeep.recovery import Recovered, Recovery

CUT_FOLDER = "cut"
"""Folder of a store in which recovery keeps what it cut off the log."""

_log = logging.getLogger(__name__)


class Opening:
    """One opening of one store; `run` once."""

    def __init__(
        self,
        runtime: Runtime,
        config: StoreConfig,
        observer: Observer,
        *,
        log: CommitLog,
        queues: QueueTable,
        index: Index | None,
        dispatcher: Dispatcher,
        flusher: Flusher,
        checkpoint: CheckpointFile,
        tombstones: Tombstones,
        epochs: Epochs,
        noted_ends: NotedEnds,
    ) -> None:
        self._runtime = runtime
        self._disk = runtime.disk
        self._config = config
        self._observer = observer
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._flusher = flusher
        self._checkpoint = checkpoint
        self._tombstones = tombstones
        self._epochs = epochs
        self._noted_ends = noted_ends

    async def run(self) -> None:
        """Make the store ready to be put to and read from.

        Raises ConfigError for file sizes that the store was not made with, StorageError for a
        damaged one when strictStore is on, DiskFull.
        """
        clean = not self._disk.exists(self._config.abort_path)
        self._tombstones.load(self._observer)
        self._epochs.load(self._observer)
        if self._config.strict_store and self._disk.exists(self._config.commit_log_folder):
            self._refuse_what_a_look_finds()
        self._write_abort_file()
        found = self._recover(clean=clean)
        if self._config.strict_store:  # Queues that were built again have shown more of it.
            self._refuse_damage(next(iter(found.lost), None))
        await self._make_durable(found)
        await self._tombstones.take_back(self._log.end_offset, self._observer)
        await self._epochs.take_back(self._log.end_offset)
        self._report(found)

    def _refuse_what_a_look_finds(self) -> None:
        look = StoreCheck(self._disk, self._config)
        try:
            self._refuse_damage(look.first_hole())
        finally:
            look.close()

    def _refuse_damage(self, found: LostMessages | None) -> None:
        if found is not None:
            raise StorageError(
                f"{self._config.root} is damaged and strictStore is on: {found.sentence()}; mend "
                f"the file, or start without strictStore to serve what is left"
            )

    def _write_abort_file(self) -> None:
        """Before recovery: what that writes is as unfinished as anything, if we die now."""
        path = self._config.abort_path
        try:
            self._disk.write(path, str(self._runtime.entropy.process_id()).encode())
        except DiskFull:
            if not self._disk.exists(path):
                raise
            # That it is there says enough; what it holds is for people.
        self._disk.sync_directory(self._config.root)

    def _recover(self, *, clean: bool) -> Recovered:
        recovery = Recovery(
            self._log,
            self._queues,
            self._index,
            dispatcher=self._dispatcher,
            delay_levels_ms=self._config.delay_levels_ms,
            cut_bytes=CutBytes(self._disk, f"{self._config.root}/{CUT_FOLDER}"),
            deleted=self._tombstones.ends,
            noted_ends=self._noted_ends,
        )
        now_ms = self._runtime.clock.now_ms()
        try:
            return recovery.run(self._checkpoint.value, clean=clean, now_ms=now_ms)
        except ConfigError:
            if clean:
                self._disk.remove(self._config.abort_path)  # Nothing was touched.
            raise

    async def _make_durable(self, found: Recovered) -> None:
        """Sync what the last life may have left unsynced, and note it in the checkpoint."""
        log, note, flusher = self._log, self._checkpoint.value, self._flusher
        there_ms = found.last_store_time_ms or note.physic_timestamp_ms
        is_all_seen = self._dispatcher.position == log.end_offset
        dispatched_ms = there_ms if is_all_seen else found.dispatched_store_time_ms
        flusher.last_store_time_ms = max(there_ms, note.physic_timestamp_ms)
        note.written_offset = log.end_offset
        safe = log.end_offset if found.clean else max(found.scanned_from, found.synced_to)
        log.flushed_offset = min(safe, log.end_offset)
        if not found.clean:
            self._queues.touch_all()
        await flusher.flush_log("RECOVERY")
        # What is missing is reported once, not at every start from now on.
        note.physic_timestamp_ms = min(note.physic_timestamp_ms, there_ms)
        note.logics_timestamp_ms = min(note.logics_timestamp_ms, dispatched_ms)
        note.flushed_offset = log.flushed_offset
        note.derived = None
        note.log_begin = log.min_offset
        log.unchecked_to = found.scanned_from
        flusher.committed_store_time_ms, flusher.dispatched_store_time_ms = there_ms, dispatched_ms
        await flusher.flush_derived("RECOVERY")

    def _report(self, found: Recovered) -> None:
        for event in found.events(self._log.min_offset):
            if event.kind != "RECOVERY" or event.truncated_from is not None or found.dropped_bytes:
                report(self._observer, _log, event)
                continue
            self._observer.observe(event)
            if not found.clean:
                _log.info("recovered after an unclean stop: %s", event.detail)
