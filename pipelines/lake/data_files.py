"""Lets executors read and write a lake's data files on disk or in an object store.

Place in the walk: bronze files in, gold files and keyed state out. Delta's logs are none of its
business: a file that is written here belongs to nobody until the driver commits it.

Invariant: a file's name is never used twice, so what is written is never replaced. Absent on
purpose: listings, retries beyond the client's own.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

import obstore
import pyarrow as pa
from obstore.exceptions import BaseError

from engine.foundation.errors import LakeError
from pipelines.lake.lake import Lake, first_line
from pipelines.lake.small_files import object_store


class FileGone(LakeError):
    """A file that a table's log has reported on is not there any more."""


RESTORE: Final = (
    "restore it from a copy of the lake, or compute gold again from bronze in another lake "
    "(`tidemark pipeline replay`)"
)


@contextmanager
def understood(address: str) -> Iterator[None]:
    """What a file says is read within: LakeError, by its address, when that cannot be what was
    written.
    """
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError) as error:
        raise LakeError(f"{address} is damaged ({first_line(error)}): {RESTORE}") from error


LOOKED_THROUGH_MAX: Final = 4_096
"""How many files a process remembers to have looked through; with more it begins anew."""
LOOKED_THROUGH_S: Final = 600.0
"""And so long: then it looks again."""
_Stamp = tuple[int, int, int]
"""Inode, size and time of the last change, ns: a file that was written to has another one."""
_looked_through: Final[dict[str, tuple[_Stamp, float]]] = {}


class _Summed:
    """A file that is written from its beginning on, and the sum of what was written."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.sum = 0

    def write(self, data: bytes) -> int:
        self.sum = zlib.crc32(data, self.sum)
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()


class DataFiles:
    """The data files of one lake, by their address."""

    def __init__(self, lake: Lake) -> None:
        self._root = lake.root
        self._store = object_store(lake) if "://" in lake.root else None

    def read(self, address: str) -> pa.Buffer:
        """A file's bytes; mapped, on a disk. FileGone when it is not there."""
        try:
            if self._store is None:
                return pa.memory_map(address).read_buffer()
            return pa.py_buffer(bytes(obstore.get(self._store, self._key(address)).bytes()))
        except (OSError, BaseError) as error:
            kind = FileGone if isinstance(error, FileNotFoundError) else LakeError
            raise kind(f"{address} cannot be read ({first_line(error)}): {RESTORE}") from error

    def require_sum(self, address: str, data: pa.Buffer, digest: str) -> None:
        """ValueError when the bytes of a file have not the sum that is reported, eight hex digits.

        What is mapped from a disk is looked through by a process when it first reads it, and again
        after LOOKED_THROUGH_S or when the file was written to: the state of a million keys is read
        in each cycle, and takes longer to sum up than to use.
        """
        stamp, now_s = self._stamp(address), time.monotonic()
        known = _looked_through.get(address)
        if known is not None and known[0] == stamp and now_s - known[1] < LOOKED_THROUGH_S:
            return
        if f"{zlib.crc32(data):08x}" != digest:
            raise ValueError(f"its sum is not {digest}, with which it was written")
        if stamp is not None:
            if len(_looked_through) >= LOOKED_THROUGH_MAX:
                _looked_through.clear()
            _looked_through[address] = stamp, now_s

    def _stamp(self, address: str) -> _Stamp | None:
        """None in a store: each reading brings other bytes."""
        if self._store is not None:
            return None
        stat = Path(address).stat()
        return stat.st_ino, stat.st_size, stat.st_mtime_ns

    def is_there(self, address: str) -> bool:
        """Is there such a file? LakeError when that cannot be said."""
        try:
            if self._store is None:
                return Path(address).exists()
            obstore.head(self._store, self._key(address))
        except FileNotFoundError:
            return False
        except (OSError, BaseError) as error:
            raise LakeError(f"{address} cannot be read ({first_line(error)})") from error
        return True

    def write(self, address: str, data: pa.Buffer) -> int:
        """Write a new file, synced; returns its size in bytes."""
        self.write_by(address, lambda sink: sink.write(data))
        return int(data.size)

    def write_by(self, address: str, fill: Callable[[pa.NativeFile], object]) -> int:
        """The same of what `fill` writes into the sink it is given: on a disk nothing is gathered
        in memory first. Returns the file's sum, CRC-32.
        """
        try:
            if self._store is None:
                path = Path(address)
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("xb") as file:  # Buffered: that writes on after a short write.
                    summed = _Summed(file)
                    fill(pa.PythonFile(summed, mode="w"))
                    file.flush()
                    os.fsync(file.fileno())
                    return summed.sum
            gathered = pa.BufferOutputStream()
            fill(gathered)
            data = gathered.getvalue()
            obstore.put(self._store, self._key(address), bytes(data), mode="create")
            return zlib.crc32(data)
        except (OSError, BaseError) as error:
            raise LakeError(f"{address} cannot be written ({first_line(error)})") from error

    def _key(self, address: str) -> str:
        return address.removeprefix(f"{self._root}/")
