"""Replaces a small file as a whole: a power cut leaves the old one or the new one.

Invariant: its name leads to content that is synced. Absent on purpose: a copy of the version before
(`store/table_file`, `client/consuming/local_offset_store`), which needs an order of its own.
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
