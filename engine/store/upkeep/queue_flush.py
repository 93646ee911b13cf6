"""Flushes the consume queues that are due, a few at a time.

Place in the walk: `flush` calls each second, and notes in the checkpoint up to where everything
was flushed; recovery reads from there.

Few queues are flushed all at once. To flush thousands each second would keep the disk busy with
nothing else, so that those with little to lose wait for a flush of all (RocketMQ: each minute).

Invariant: EVERYTHING is said only when each queue that was dirty at the beginning is on stable
storage, its files' names included. Absent on purpose: timers, the checkpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from itertools import islice

from engine.foundation.errors import StorageError
from engine.store.config import StoreConfig
from engine.store.consume_queue import ConsumeQueue
from engine.store.mapped_file import OpenFile
from engine.store.queue_table import QueueTable

CHUNK_QUEUES = 16
"""Consume queues synced in one go: bounds the files open for it."""

WRITTEN_AT_ONCE = 4
"""Of them, written in one step of the loop: to make the first file of a queue takes a quarter of a
millisecond, and ten times as long when the machine has to look for room."""


class Flushed(Enum):
    """What a flush came to."""

    NOTHING = "NOTHING"
    """Nothing was due."""
    SOME = "SOME"
    EVERYTHING = "EVERYTHING"


class QueueFlush:
    """Knows when all queues were flushed last."""

    def __init__(
        self,
        queues: QueueTable,
        steady_ms: Callable[[], int],
        sync: Callable[[list[OpenFile], list[str]], Awaitable[None]],
    ) -> None:
        """`sync` makes pinned files and folders durable, and unpins the files."""
        self._queues = queues
        self._steady_ms = steady_ms
        self._sync = sync
        self._last_ms = steady_ms()

    async def flush(self, config: StoreConfig, *, everything: bool) -> Flushed:
        """Flush what is due, or `everything`. Raises DiskFull or StorageError; what was not flushed
        is dirty still.
        """
        queues = self._queues
        everything = everything or self._all_due(config)
        least_bytes = 0 if everything else config.flush_consume_queue_least_bytes
        due = queues.take_dirty(least_bytes)
        if not due and not queues.folder_dirty:
            return Flushed.NOTHING
        try:
            while due or queues.folder_dirty:
                some = dict(islice(due.items(), CHUNK_QUEUES))
                await self._flush_some(list(some.values()))
                for key in some:
                    del due[key]
        except StorageError:
            queues.dirty = due | queues.dirty
            raise
        if everything:
            self._last_ms = self._steady_ms()
        return Flushed.EVERYTHING if everything else Flushed.SOME

    @property
    def is_all_flushed(self) -> bool:
        """Is there nothing to be flushed, for the moment?"""
        return not self._queues.dirty and not self._queues.folder_dirty

    def _all_due(self, config: StoreConfig) -> bool:
        return (
            len(self._queues.dirty) <= config.flush_consume_queues_at_once
            or self._steady_ms() - self._last_ms >= config.flush_consume_queue_thorough_interval_ms
        )

    async def _flush_some(self, queues: list[ConsumeQueue]) -> None:
        """Names first, then units."""
        ends: list[tuple[int, int]] = []
        for number, queue in enumerate(queues, 1):
            queue.write_out()
            ends.append((queue.max_offset, queue.end_physical))
            if not number % WRITTEN_AT_ONCE:
                await asyncio.sleep(0)
        folders = [queue.directory for queue in queues if queue.folder_dirty]
        if self._queues.folder_dirty or folders:
            folders += sorted({folder.rsplit("/", 1)[0] for folder in folders})
            folders.append(self._queues.directory)
        self._queues.folder_dirty = False
        for queue in queues:
            queue.folder_dirty = False
        await self._sync([], folders)
        await self._sync([entry for queue in queues for entry in queue.take_dirty()], [])
        for queue, end in zip(queues, ends, strict=True):
            queue.synced_offset, queue.synced_physical = end
