"""A read-only view of the machine's file system.

Invariant: nothing on the disk changes through it; works on a file system that is mounted to be
read. Absent on purpose: another process's changes.
"""

from __future__ import annotations

import os

from engine.foundation.errors import StorageError
from engine.runtime.disk import File, SystemDisk


class ReadOnlyDisk(SystemDisk):
    """What would change something raises StorageError."""

    __slots__ = ()
    access = os.O_RDONLY

    def open(self, path: str, *, create: bool = False) -> File:
        """See `Disk.open`; the file cannot be written."""
        if create and not self.exists(path):
            raise _refused(path)
        return super().open(path)

    def make_directories(self, path: str) -> None:
        """Refused."""
        raise _refused(path)

    def write(self, path: str, data: bytes) -> None:
        """Refused."""
        del data
        raise _refused(path)

    def rename(self, source: str, target: str) -> None:
        """Refused."""
        del target
        raise _refused(source)

    def remove(self, path: str) -> None:
        """Refused."""
        raise _refused(path)

    def remove_directory(self, path: str) -> None:
        """Refused."""
        raise _refused(path)


def _refused(path: str) -> StorageError:
    return StorageError(f"{path}: opened to be read only")
