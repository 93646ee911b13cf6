"""The file that says how far the spool's segments are in the lake.

It lies beside the segments, so that whole ones may be dropped.

The shipper writes it, after the lake's files are synced; the broker reads it at boot, because a seq
that was ever shipped must not be given out again.

Invariant: never ahead of the lake. It may be behind (the shipper died in between): the lake's own
transaction versions are the authority, and the shipper reads them first.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from engine.foundation.errors import StorageError
from engine.runtime import Disk
from engine.runtime.durable import replace_durably

SHIPPED_MARK_NAME: Final = "shipped"

_log = logging.getLogger(__name__)


class ShippedMark(msgspec.Struct, frozen=True):
    """Every row of `emitter` up to `seq` is in the lake at `lake`, on stable storage.

    `tables`: the last seq that went into each table; a table that knows less has lost rows.
    """

    emitter: str
    seq: int
    as_of: int
    lake: str
    tables: dict[str, int] = {}


def read_shipped_mark(disk: Disk, directory: str) -> ShippedMark | None:
    """The mark, or None when nothing was shipped yet or the file cannot be read (then the lake must
    be asked)."""
    path = f"{directory}/{SHIPPED_MARK_NAME}"
    if not disk.exists(path):
        return None
    try:
        return msgspec.json.decode(disk.read(path), type=ShippedMark)
    except (StorageError, msgspec.DecodeError) as error:
        _log.warning(
            "shipped mark %s is not readable (%s); going by the segments and the lake", path, error
        )
        return None


def write_shipped_mark(disk: Disk, directory: str, mark: ShippedMark) -> None:
    """Replace the mark as a whole, synced: after a power cut it is the old one or the new one."""
    path = f"{directory}/{SHIPPED_MARK_NAME}"
    replace_durably(disk, path, msgspec.json.encode(mark))
