"""Commits the transient pool by writing puts held in memory to their file every 200 ms.

Place in the walk: between append and dispatch, only with transientStorePoolEnable; the flusher
syncs behind it what was committed.

SIGKILL loses what waits. A note of how far was written goes into the checkpoint file at the end of
each turn, unsynced, so that the next recovery can say how much that was.

Invariant: messages become visible to readers only after their commit; a commit that fails ends
writing, because what waits was answered as stored already.
Absent on purpose: the pool itself (`commit_log`), syncing (`flush`).
"""

from __future__ import annotations

from engine.foundation.errors import StorageError
from engine.foundation.observing import FlushDone, Observer
from engine.runtime import Runtime
from engine.store.commit_log import CommitLog
from engine.store.config import StoreConfig
from engine.store.upkeep.checkpoint import CheckpointFile
from engine.store.upkeep.flush import Flusher


class PoolCommitter:
    """Commits on a timer, and once more at the end."""

    def __init__(
        self,
        runtime: Runtime,
        config: StoreConfig,
        observer: Observer,
        *,
        log: CommitLog,
        flusher: Flusher,
        checkpoint: CheckpointFile,
    ) -> None:
        self._clock = runtime.clock
        self._config = config
        self._observer = observer
        self._log = log
        self._flusher = flusher
        self._checkpoint = checkpoint
        self._last_commit_ms = self._clock.steady_ms()

    def change_settings(self, config: StoreConfig) -> None:
        """Go by `config` from the next commit on."""
        self._config = config

    async def run(self) -> None:
        """Commit until the flusher stops."""
        while not await self._flusher.pause(self._config.commit_interval_commit_log_ms):
            config = self._config
            waiting_bytes = self._log.end_offset - self._log.committed_offset
            waiting_ms = self._clock.steady_ms() - self._last_commit_ms
            if (
                waiting_bytes >= config.commit_commit_log_least_bytes
                or waiting_ms >= config.commit_commit_log_thorough_interval_ms
            ):
                self.commit("TIMER")

    def note_written(self) -> None:
        """Once a turn: note how far was written, for recovery to count by. Never raises."""
        note = self._checkpoint.value
        if note.written_offset == self._log.end_offset or self._flusher.failure is not None:
            return
        note.written_offset = self._log.end_offset
        try:
            self._checkpoint.write()
        except StorageError as error:
            self._flusher.fail(f"noting what the pool holds: {error}")

    def commit(self, cause: str) -> None:
        """Move everything that waits to the file and make it visible. Never raises."""
        if self._flusher.failure is not None:
            return
        started_us, stored_ms = self._clock.steady_us(), self._flusher.last_store_time_ms
        before = self._log.committed_offset
        try:
            self._log.commit_pool()
        except StorageError as error:
            self._flusher.fail(f"committing the pool: {error}")
            return
        self._last_commit_ms = self._clock.steady_ms()
        self._flusher.committed_store_time_ms = stored_ms
        if self._log.committed_offset > before:
            self._observer.observe(
                FlushDone(
                    "COMMIT_LOG",
                    "COMMIT",
                    cause,
                    written=self._log.end_offset,
                    committed=self._log.committed_offset,
                    flushed=self._log.flushed_offset,
                    store_time_ms=stored_ms or None,
                    duration_us=self._clock.steady_us() - started_us,
                    at_risk_bytes=self._log.waited_bytes_max,
                )
            )
            self._log.waited_bytes_max = 0
        self._flusher.on_flushed()
