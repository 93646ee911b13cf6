"""The checkpoint file: up to which store time each kind of file is on stable storage.

Place in the walk: `flush` advances it, `recovery` reads it to know how far back an unclean stop
reaches.

    | 0 ... 7     | 8 ... 15    | 16 ... 23  | 24 ... 31      | 32 ... 39      | ... 4095 |
    | physic time | logics time | index time | master flushed | confirm offset | zeros    |

Invariant: a timestamp is written only after everything stored up to it was synced. A damaged or
missing checkpoint costs time (recovery looks further back), never a message.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from engine.foundation.units import KIB, SECOND_MS
from engine.runtime.disk import Disk, File

CHECKPOINT_BYTES = 4 * KIB
_LAYOUT = Struct(">5q")
SAFETY_MARGIN_MS = 3 * SECOND_MS
"""RocketMQ looks this much further back than the timestamps say."""


@dataclass(slots=True)
class Checkpoint:
    """Store times in milliseconds, physical offsets in bytes; 0 is 'nothing yet'."""

    physic_timestamp_ms: int = 0
    logics_timestamp_ms: int = 0
    index_timestamp_ms: int = 0
    master_flushed_offset: int = 0
    confirm_physical_offset: int = 0

    @property
    def recover_from_ms(self) -> int:
        """Whatever was stored up to this time is on disk in log and consume queues."""
        return max(0, min(self.physic_timestamp_ms, self.logics_timestamp_ms) - SAFETY_MARGIN_MS)

    def encode(self) -> bytes:
        """The file's whole content."""
        return _LAYOUT.pack(
            self.physic_timestamp_ms,
            self.logics_timestamp_ms,
            self.index_timestamp_ms,
            self.master_flushed_offset,
            self.confirm_physical_offset,
        ).ljust(CHECKPOINT_BYTES, b"\0")


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Read a checkpoint; one that is too short or has negative times counts as empty."""
    if len(data) < _LAYOUT.size:
        return Checkpoint()
    values = _LAYOUT.unpack_from(data)
    return Checkpoint(*values) if min(values) >= 0 else Checkpoint()


class CheckpointFile:
    """The file beside its value in memory."""

    def __init__(self, disk: Disk, path: str) -> None:
        existed = disk.exists(path)
        self._file: File = disk.open(path, create=True)
        if not existed:
            self._file.truncate(CHECKPOINT_BYTES)
        self.value = decode_checkpoint(self._file.pread(CHECKPOINT_BYTES, 0))
        self._written = self.value.encode()
        if existed and self._file.size_bytes() != CHECKPOINT_BYTES:
            self._file.truncate(CHECKPOINT_BYTES)

    @property
    def changed(self) -> bool:
        """Is there something to save?"""
        return self.value.encode() != self._written

    def write(self) -> None:
        """Put the value into the file; `sync` makes it last. Raises DiskFull, StorageError."""
        content = self.value.encode()
        self._file.pwrite(content, 0)
        self._written = content

    def sync(self) -> None:
        """Sync the file. Blocks; raises StorageError."""
        self._file.sync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
