"""Allocates the next commit-log file in advance so that a roll-over need not wait for it.

RocketMQ's AllocateMappedFileService.

Place in the walk: beside the flushes. Once the current file is half full, the next one gets its
room on disk under another name, beside the loop, and its own name when it is whole.

Invariant: a log that has made the file itself meanwhile keeps its own, one that was cut has no
file that does not follow its last; a file that cannot be made
ahead is the roll's to make, and to report. Absent on purpose: when a file is needed (`commit_log`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from engine.foundation.errors import StorageError
from engine.runtime.disk import Disk
from engine.store.commit_log import CommitLog
from engine.store.mapped_file import MAKING


class SpareFiles:
    """Those of one log."""

    def __init__(self, disk: Disk, log: CommitLog, *, may_write: Callable[[], bool]) -> None:
        self._disk = disk
        self._log = log
        self._may_write = may_write
        self._due = asyncio.Event()
        self._stopping = False

    def mind(self) -> None:
        """The log has grown: have the next file made, when it is time."""
        if self._log.spare_wanted() is not None:
            self._due.set()

    async def run(self) -> None:
        """Make files until `stop`."""
        await self._due.wait()
        while not self._stopping:  # A stop would remove what was made for it.
            self._due.clear()
            await self.make()
            await self._due.wait()

    def stop(self) -> None:
        """Let `run` end when the file under way is made."""
        self._stopping = True
        self._due.set()

    async def make(self) -> None:
        """Make the next file, if one is wanted. Never raises."""
        start = self._log.spare_wanted()
        if start is None or not self._may_write():
            return
        path, size_bytes = self._log.files.path_of(start), self._log.file_size_bytes
        making = path + MAKING
        disk = self._disk

        def work() -> None:
            file = disk.open(making, create=True)
            try:
                file.allocate(size_bytes)
                file.sync()
            finally:
                file.close()

        try:
            await disk.off_loop(work)
        except StorageError:
            disk.remove(making)  # No room yet: the roll will try for itself and say so.
            return
        if self._log.spare_wanted() != start:  # The log has made it, or was cut.
            disk.remove(making)
            return
        disk.rename(making, path)
        self._log.folder_dirty = True
        self._log.files.adopt(start, disk.open(path))
