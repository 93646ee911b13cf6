"""A small file that is as it was written, or known not to be.

    mark, 4 bytes | length | CRC-32 of what follows | JSON

Place in the walk: `vote_file` and `term_starts`, which a power cut may leave old, but never half.

Invariant: it is replaced as a whole; what cannot be read is an error, never nothing. Absent on
purpose: a version before it. An older vote is a wrong one.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final
from zlib import crc32

import orjson

from engine.foundation.errors import CorruptRecord
from engine.runtime.disk import Disk
from engine.runtime.durable import make_durable, replace_durably

_HEAD: Final = Struct(">4sII")


def read_checked(disk: Disk, path: str, mark: bytes) -> dict[str, Any] | None:
    """The document; None when there is no such file. Raises CorruptRecord, StorageError."""
    if not disk.exists(path):
        return None
    data = disk.read(path)
    if len(data) < _HEAD.size:
        raise CorruptRecord(f"{path} has {len(data)} bytes, its head alone has {_HEAD.size}")
    found_mark, length, crc = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if found_mark != mark or length != len(body) or crc != crc32(body):
        raise CorruptRecord(f"{path} is not as it was written")
    document: dict[str, Any] = orjson.loads(body)
    return document


def write_checked(disk: Disk, path: str, mark: bytes, document: dict[str, Any]) -> None:
    """Replace the file, durably. Raises DiskFull, StorageError."""
    body = orjson.dumps(document)
    make_durable(disk, path.rpartition("/")[0])
    replace_durably(disk, path, _HEAD.pack(mark, len(body), crc32(body)) + body)
