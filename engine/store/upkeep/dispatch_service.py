"""Dispatches newly appended records once per event-loop iteration.

RocketMQ's ReputMessageService.

Place in the walk: between append and arrival; under SYNC_FLUSH between the sync and arrival, so
that nobody reads what a power cut could still take. What many puts of a turn appended is dispatched
together. An index that dropped what it cannot trust is filled again beside that, step by step.

Invariant: nothing is dispatched beyond what the flush mode lets readers see; a full disk leaves the
records to the next try, any other failure ends writing. Absent on purpose: what dispatch does
(`dispatch`).
"""

from __future__ import annotations

import asyncio

from engine.foundation.errors import DiskFull, StorageError
from engine.foundation.units import GIB
from engine.runtime import Runtime
from engine.store.commit_log import CommitLog
from engine.store.config import FlushDiskType, StoreConfig
from engine.store.dispatch import Dispatcher
from engine.store.upkeep.flush import Flusher
from engine.store.upkeep.pool import PoolCommitter

INDEX_FILL_PAUSE_S = 0.005
"""Between two steps that fill a damaged index: half the time is left to everybody else."""
COPYING_PAUSE_S = 0.02
"""When no more of another log has come for so long, what was copied is dispatched."""
COPYING_MS_MAX = 250
"""A log that comes without a pause for so long is dispatched beside it, a batch each time,"""
COPIED_BYTES_MAX = GIB
"""and as fast as it comes where so much of it waits: a promotion and a stop wait for all of it."""
INDEX_FILL_FULL_DISK_S = 1.0
"""On a full disk: when it is tried again."""


class DispatchService:
    """Runs the dispatcher of one store."""

    def __init__(
        self,
        runtime: Runtime,
        config: StoreConfig,
        *,
        log: CommitLog,
        dispatcher: Dispatcher,
        flusher: Flusher,
        committer: PoolCommitter | None,
    ) -> None:
        """`committer` is None without a transient pool."""
        self._clock = runtime.clock
        self._sync_flush = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._log = log
        self._dispatcher = dispatcher
        self._flusher = flusher
        self._committer = committer
        self._loop = asyncio.get_running_loop()
        self._stopped = False
        self._fill_planned: asyncio.Handle | None = None
        """The next step that fills an index that is behind."""
        self._later: asyncio.Handle | None = None
        """The turn that waits for the end of what is copied,"""
        self._later_since_ms = 0
        """and since when."""
        self.planned = False
        """Will it run in this turn of the loop anyway?"""
        self.is_paused = False
        """Does nothing run, because the log is being cut?"""

    @property
    def behind_bytes(self) -> int:
        """Bytes that may be seen and are not yet visible to readers."""
        return min(self._log.end_offset, self._log.visible_end) - self._dispatcher.position

    def plan(self) -> None:
        """Have it run at the end of this turn of the loop."""
        if not self.planned:
            self.planned = True
            self._loop.call_soon(self.turn)

    def plan_later(self) -> None:
        """Have it run when this was not asked for a moment: what is copied comes first, as long as
        that is not for long, nor of very much.
        """
        now_ms = self._clock.steady_ms()
        if self.behind_bytes > COPIED_BYTES_MAX:
            self.plan()
            return
        if self._later is None:
            self._later_since_ms = now_ms
        elif now_ms - self._later_since_ms >= COPYING_MS_MAX:
            return
        else:
            self._later.cancel()
        self._later = self._loop.call_later(COPYING_PAUSE_S, self._end_wait)

    def _end_wait(self) -> None:
        self._later = None
        self.plan()

    def turn(self) -> None:
        """Dispatch what this turn of the loop appended (or flushed). Never raises."""
        self.planned = False
        if self._stopped or self.is_paused:
            return
        if self._committer is not None:
            self._committer.note_written()
        try:
            more = self._dispatcher.run(self._limit, now_ms=self._clock.now_ms())
        except DiskFull as error:
            self._flusher.report_disk_full(error)  # The records stay; tried again each second.
            return
        except StorageError as error:
            self._flusher.fail(f"dispatch: {error}")
            return
        self._note_dispatched()
        if more and self._later is None:
            self.plan()

    def plan_index_fill(self) -> None:
        """Have the keys put again that the index lacks, until it is behind no more."""
        if self._fill_planned is None:
            self._fill_planned = self._loop.call_soon(self._fill_turn)

    def _fill_turn(self) -> None:
        self._fill_planned = None
        if self._stopped:
            return
        pause_s = INDEX_FILL_PAUSE_S
        if self.is_paused:
            self._fill_planned = self._loop.call_later(pause_s, self._fill_turn)
            return
        try:
            more = self._dispatcher.fill_index(now_ms=self._clock.now_ms())
        except DiskFull as error:
            self._flusher.report_disk_full(error)
            more, pause_s = True, INDEX_FILL_FULL_DISK_S
        except StorageError as error:
            self._flusher.fail(f"index: {error}")
            return
        if more and self._fill_planned is None:
            self._fill_planned = self._loop.call_later(pause_s, self._fill_turn)

    def stop(self) -> None:
        """No turn dispatches any more; `finish` still does."""
        self._stopped = True
        for planned in (self._fill_planned, self._later):
            if planned is not None:
                planned.cancel()

    def finish(self) -> None:
        """Dispatch everything that is left, at once; the store is closing."""
        try:
            while self._dispatcher.run(self._limit, now_ms=self._clock.now_ms()):
                pass
        except DiskFull as error:
            self._flusher.report_disk_full(error)  # The next recovery reads them from the log.
        self._note_dispatched()

    @property
    def _limit(self) -> int:
        log = self._log
        return min(
            log.flushed_offset if self._sync_flush else log.committed_offset, log.visible_end
        )

    def _note_dispatched(self) -> None:
        if self._dispatcher.position == self._log.end_offset:
            self._flusher.dispatched_store_time_ms = self._flusher.last_store_time_ms
        else:
            self._flusher.dispatched_store_time_ms = max(
                self._flusher.dispatched_store_time_ms, self._dispatcher.last_store_time_ms
            )
