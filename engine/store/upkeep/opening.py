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
from dataclasses import KW_ONLY, dataclass

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


@dataclass(slots=True, eq=False)
class Opening:
    """One opening of one store; `run` once."""

    runtime: Runtime
    config: StoreConfig
    observer: Observer
    _: KW_ONLY
    log: CommitLog
    queues: QueueTable
    index: Index | None
    dispatcher: Dispatcher
    flusher: Flusher
    checkpoint: CheckpointFile
    tombstones: Tombstones
    epochs: Epochs
    noted_ends: NotedEnds

    async def run(self) -> None:
        """Make the store ready to be put to and read from.

        Raises ConfigError for file sizes that the store was not made with, StorageError for a
        damaged one when strictStore is on, DiskFull.
        """
        clean = not self.runtime.disk.exists(self.config.abort_path)
        self.tombstones.load(self.observer)
        self.epochs.load(self.observer)
        if self.config.strict_store and self.runtime.disk.exists(self.config.commit_log_folder):
            self._refuse_what_a_look_finds()
        self._write_abort_file()
        found = self._recover(clean=clean)
        if self.config.strict_store:  # Queues that were built again have shown more of it.
            self._refuse_damage(next(iter(found.lost), None))
        await self._make_durable(found)
        await self.tombstones.take_back(self.log.end_offset, self.observer)
        await self.epochs.take_back(self.log.end_offset)
        self._report(found)

    def _refuse_what_a_look_finds(self) -> None:
        look = StoreCheck(self.runtime.disk, self.config)
        try:
            self._refuse_damage(look.first_hole())
        finally:
            look.close()

    def _refuse_damage(self, found: LostMessages | None) -> None:
        if found is not None:
            raise StorageError(
                f"{self.config.root} is damaged and strictStore is on: {found.sentence()}; mend "
                f"the file, or start without strictStore to serve what is left"
            )

    def _write_abort_file(self) -> None:
        """Before recovery: what that writes is as unfinished as anything, if we die now."""
        path = self.config.abort_path
        try:
            self.runtime.disk.write(path, str(self.runtime.entropy.process_id()).encode())
        except DiskFull:
            if not self.runtime.disk.exists(path):
                raise
            # That it is there says enough; what it holds is for people.
        self.runtime.disk.sync_directory(self.config.root)

    def _recover(self, *, clean: bool) -> Recovered:
        recovery = Recovery(
            self.log,
            self.queues,
            self.index,
            dispatcher=self.dispatcher,
            delay_levels_ms=self.config.delay_levels_ms,
            cut_bytes=CutBytes(self.runtime.disk, f"{self.config.root}/{CUT_FOLDER}"),
            deleted=self.tombstones.ends,
            noted_ends=self.noted_ends,
        )
        now_ms = self.runtime.clock.now_ms()
        try:
            return recovery.run(self.checkpoint.value, clean=clean, now_ms=now_ms)
        except ConfigError:
            if clean:
                self.runtime.disk.remove(self.config.abort_path)  # Nothing was touched.
            raise

    async def _make_durable(self, found: Recovered) -> None:
        """Sync what the last life may have left unsynced, and note it in the checkpoint."""
        log, note, flusher = self.log, self.checkpoint.value, self.flusher
        there_ms = found.last_store_time_ms or note.physic_timestamp_ms
        is_all_seen = self.dispatcher.position == log.end_offset
        dispatched_ms = there_ms if is_all_seen else found.dispatched_store_time_ms
        flusher.last_store_time_ms = max(there_ms, note.physic_timestamp_ms)
        note.written_offset = log.end_offset
        safe = log.end_offset if found.clean else max(found.scanned_from, found.synced_to)
        log.flushed_offset = min(safe, log.end_offset)
        if not found.clean:
            self.queues.touch_all()
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
        for event in found.events(self.log.min_offset):
            if event.kind != "RECOVERY" or event.truncated_from is not None or found.dropped_bytes:
                report(self.observer, _log, event)
                continue
            self.observer.observe(event)
            if not found.clean:
                _log.info("recovered after an unclean stop: %s", event.detail)
