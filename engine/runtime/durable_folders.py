"""Creates a folder whose name survives a power cut, by syncing the folder above it.

Without that, everything in a new folder may be synced and still be gone with the folder itself.
"""

from __future__ import annotations

from engine.runtime.disk import Disk


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
