"""Scrubs every index file once after a start, beside the loop.

Place in the walk: `MessageStore.start`. What a query needs is checked when it asks (`index_file`);
this finds the damage that no query meets, soon after the start and without making it longer. Files
that came without sums, from RocketMQ, get theirs here.

Invariant: bytes are read and summed beside the loop, compared on it. A file that is full never
changes; of the newest the blocks that are full do not.
Absent on purpose: what follows from damage: `Index.give_up`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from zlib import crc32

from engine.foundation.errors import DiskFull, StorageError
from engine.runtime.disk import Disk, File
from engine.store.index.index import Index
from engine.store.index.index_file import IndexFile
from engine.store.index.index_sums import DamagedIndex, Part

PARTS_AT_ONCE = 64
"""Pages of slots (256 KiB) or blocks of entries (5 MiB)."""
PAUSE_MS = 20
"""Between two looks: 250 MB a second at most, less on a slow disk."""


class IndexScrub:
    """Looks until everything was looked at; `run` once."""

    def __init__(self, disk: Disk, index: Index, pause: Callable[[int], Awaitable[bool]]) -> None:
        """`pause` waits so many milliseconds; True: stop."""
        self._disk = disk
        self._index = index
        self._pause = pause

    async def run(self) -> None:
        """What cannot be read counts as damaged. Never raises for the disk."""
        for file in list(self._index.files):
            if not self._index.holds(file):
                continue  # Its messages are gone, or it went with a damaged one before it.
            try:
                stopped = await self._look_at(file)
            except DamagedIndex as damage:
                self._index.give_up(damage)
                return
            except DiskFull:
                continue  # No room for sums: the next start makes them.
            except StorageError as error:
                self._index.give_up(
                    DamagedIndex(file.start, f"parts cannot be read ({error}) and are")
                )
                return
            if stopped:
                return

    async def _look_at(self, file: IndexFile) -> bool:
        """Look at all of a file; True when it is time to stop. Raises DamagedIndex."""
        makes = file.is_unsummed
        if makes:
            file.begin_sums(self._index.new_sums(file))
        while parts := file.parts_to_look_at(PARTS_AT_ONCE):
            found = await self._sums_of(file, parts)
            if not self._index.holds(file):
                return False
            file.looked_at(parts, found)
            if await self._pause(PAUSE_MS):
                return True
        if makes:
            await self._sync(file)
        file.end_look()
        return False

    async def _sums_of(self, file: IndexFile, parts: Sequence[Part]) -> list[int]:
        entry = self._index.open_file(file).pin()
        try:
            return await self._disk.off_loop(lambda: _sums_of(entry.file, parts))
        finally:
            entry.unpin()

    async def _sync(self, file: IndexFile) -> None:
        entry = file.end_sums().pin()
        try:
            await self._disk.off_loop(entry.file.sync)
        finally:
            entry.unpin()


def _sums_of(file: File, parts: Sequence[Part]) -> list[int]:
    return [crc32(file.pread(part.length, part.position)) for part in parts]
