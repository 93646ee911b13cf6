"""Replaces small files and creates folders atomically, even across a power cut.

A new folder's name is synced in the folder above: otherwise everything in it may be synced and
still be gone with it. Absent on purpose: a copy of a file's version before (`store/table_file`,
`client/consuming/offset_store`), which needs an order of its own.
"""

from __future__ import annotations

from engine.runtime.disk import Disk


def replace_durably(disk: Disk, path: str, data: bytes) -> None:
    """Make `data` the file, its name on stable storage. Raises DiskFull, StorageError; then it is
    the old one, or nobody knows which.
    """
    fresh = f"{path}.tmp"
    disk.write(fresh, data)
    disk.sync_file(fresh)
    disk.rename(fresh, path)
    disk.sync_directory(path.rpartition("/")[0])


def make_durable(disk: Disk, path: str) -> None:
    """Make a folder and those above it that are missing, each name on stable storage.

    Raises StorageError.
    """
    parents = []
    missing = path.rstrip("/")
    while missing and not disk.exists(missing):
        missing = missing.rpartition("/")[0]
        parents.append(missing or "/")
    disk.make_directories(path)
    for parent in reversed(parents):
        disk.sync_directory(parent)
