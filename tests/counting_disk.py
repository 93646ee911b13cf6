"""The machine's disk, counting the bytes that are read from its files."""

from __future__ import annotations

from engine.runtime import SystemDisk
from engine.runtime.disk import File


class CountingDisk(SystemDisk):
    """Counts in `read_bytes`."""

    __slots__ = ("read_bytes",)

    def __init__(self) -> None:
        self.read_bytes = 0

    def open(self, path: str, *, create: bool = False) -> File:
        return CountedFile(super().open(path, create=create), self)  # type: ignore[return-value]


class CountedFile:
    """Any file, its reads counted by its disk."""

    def __init__(self, file: File, disk: CountingDisk) -> None:
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def pread(self, length: int, position: int) -> bytes:
        self._disk.read_bytes += length
        return self._file.pread(length, position)
