"""Data files of a lake, as executors read and write them: on a disk or in an object store.

Place in the walk: bronze files in, gold files and keyed state out. Delta's logs are none of its
business: a file that is written here belongs to nobody until the driver commits it.

Invariant: a file's name is never used twice, so what is written is never replaced. Absent on
purpose: listings, retries beyond the client's own.
"""

from __future__ import annotations

import os
from pathlib import Path

import obstore
import pyarrow as pa
from obstore.exceptions import BaseError

from engine.foundation.errors import LakeError
from pipelines.lake import Lake, first_line
from pipelines.small_files import object_store


class DataFiles:
    """The data files of one lake, by their address."""

    def __init__(self, lake: Lake) -> None:
        self._root = lake.root
        self._store = object_store(lake) if "://" in lake.root else None

    def read(self, address: str) -> pa.Buffer:
        """A file's bytes; mapped, on a disk. LakeError when it is gone."""
        try:
            if self._store is None:
                return pa.memory_map(address).read_buffer()
            return pa.py_buffer(bytes(obstore.get(self._store, self._key(address)).bytes()))
        except (OSError, BaseError) as error:
            raise LakeError(
                f"{address} cannot be read ({first_line(error)}): restore it from a copy of the "
                "lake, or compute gold again from bronze in another lake (`tidemark replay`)"
            ) from error

    def write(self, address: str, data: pa.Buffer) -> int:
        """Write a new file, synced; returns its size in bytes."""
        try:
            if self._store is None:
                path = Path(address)
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            else:
                obstore.put(self._store, self._key(address), bytes(data), mode="create")
        except (OSError, BaseError) as error:
            raise LakeError(f"{address} cannot be written ({first_line(error)})") from error
        return int(data.size)

    def _key(self, address: str) -> str:
        return address.removeprefix(f"{self._root}/")
