"""Locks a store folder for one process, by the lock file that a Java broker takes too.

Place in the walk: the first thing `MessageStore.open` does, the last it lets go.
"""

from __future__ import annotations

from engine.foundation.errors import StorageError
from engine.runtime import Disk, File
from engine.store.config import StoreConfig


def take_folders(disk: Disk, config: StoreConfig) -> list[File]:
    """Lock the store for this process, and its commit log when that lies elsewhere.

    Raises StorageError when another process has one of them.
    """
    taken = [_take(disk, config.root, f"{config.root}/lock")]
    folder = config.commit_log_folder
    if folder != f"{config.root}/commitlog":
        try:
            taken.append(_take(disk, folder, f"{folder}.lock"))
        except BaseException:
            taken[0].close()
            raise
    return taken


def _take(disk: Disk, folder: str, path: str) -> File:
    lock_file = disk.open(path, create=True)
    if not lock_file.lock():
        lock_file.close()
        raise StorageError(
            f"the store in {folder} is in use by another process (its lock file is taken); "
            f"stop that one or choose another folder"
        )
    lock_file.pwrite(b"lock", 0)
    return lock_file
