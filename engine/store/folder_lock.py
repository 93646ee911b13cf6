"""One process at a time has a store folder: the lock file, which a Java broker takes as well.

Place in the walk: the first thing `MessageStore.open` does, the last it lets go.
"""

from __future__ import annotations

from engine.foundation.errors import StorageError
from engine.runtime import Disk, File


def take_folder(disk: Disk, root: str) -> File:
    """Lock the store folder for this process. Raises StorageError when another one has it."""
    lock_file = disk.open(f"{root}/lock", create=True)
    if not lock_file.lock():
        lock_file.close()
        raise StorageError(
            f"the store in {root} is in use by another process (its lock file is taken); "
            f"stop that one or choose another folder"
        )
    lock_file.pwrite(b"lock", 0)
    return lock_file
