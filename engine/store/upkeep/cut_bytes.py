"""Saves the bytes that recovery cuts off the log so that they can be inspected later.

Place in the walk: `recovery`, before it wipes what lies behind the log's end.

A file is called `<physical offset of its first byte, 20 digits>.<time of the cut, ms>` and holds
the bytes as they were.

Invariant: the folder never holds more than CUT_BYTES_KEPT_MAX; oldest files go first. What cannot
be kept is reported, and stops no start.
"""

from __future__ import annotations

from engine.foundation.errors import StorageError
from engine.foundation.limits import CUT_BYTES_KEPT_MAX
from engine.foundation.units import MIB
from engine.runtime.disk import Disk
from engine.runtime.durable import make_durable
from engine.store.commit_log import CommitLog

CHUNK_BYTES = 1 * MIB


class CutBytes:
    """The folder of one store."""

    def __init__(self, disk: Disk, directory: str, bytes_max: int = CUT_BYTES_KEPT_MAX) -> None:
        self._disk = disk
        self.directory = directory
        self._bytes_max = bytes_max

    def keep(self, log: CommitLog, begin: int, end: int, *, now_ms: int) -> str:
        """Put the log's bytes [begin, end) aside, as far as there is room; say where they are."""
        pieces = _pieces(log, begin, end, self._bytes_max)
        wanted_bytes = sum(stop - start for start, stop in pieces)
        try:
            make_durable(self._disk, self.directory)
            self._make_room(wanted_bytes)
            for start, stop in pieces:
                self._write(log, start, stop, now_ms)
            self._disk.sync_directory(self.directory)
        except StorageError as error:
            return f"not kept: {error}"
        if wanted_bytes < end - begin:
            return f"the first {wanted_bytes} of them kept in {self.directory}"
        return f"kept in {self.directory}"

    def _make_room(self, wanted_bytes: int) -> None:
        names = sorted(self._disk.names(self.directory), key=lambda name: name.rpartition(".")[2])
        sizes = {name: self._size_of(name) for name in names}
        for name in names:  # Oldest first.
            if sum(sizes.values()) + wanted_bytes <= self._bytes_max:
                break
            self._disk.remove(f"{self.directory}/{name}")
            del sizes[name]

    def _size_of(self, name: str) -> int:
        file = self._disk.open(f"{self.directory}/{name}")
        try:
            return file.size_bytes()
        finally:
            file.close()

    def _write(self, log: CommitLog, begin: int, end: int, now_ms: int) -> None:
        start = log.files.start_at(begin)
        view = log.file_view(start)
        file = self._disk.open(f"{self.directory}/{begin:020d}.{now_ms}", create=True)
        try:
            file.truncate(0)
            for at in range(begin, end, CHUNK_BYTES):
                file.pwrite(view[at - start : min(at + CHUNK_BYTES, end) - start], at - begin)
            file.sync()
        finally:
            file.close()


def _pieces(log: CommitLog, begin: int, end: int, bytes_max: int) -> list[tuple[int, int]]:
    """[begin, end) by the files that are there, at most `bytes_max` in all."""
    pieces: list[tuple[int, int]] = []
    for start in log.files.starts:
        first = max(begin, start)
        last = min(end, start + log.file_size_bytes, first + bytes_max)
        if first < last:
            pieces.append((first, last))
            bytes_max -= last - first
    return pieces
