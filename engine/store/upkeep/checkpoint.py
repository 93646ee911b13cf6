"""The checkpoint file, which records how far each type of file is known to be synced.

Place in the walk: `flush` advances it; `recovery` and `store check` ask how far back an unclean
stop reaches, and for the synced position, below which nothing of the log is cut.

    | 0 ... 7     | 8 ... 15    | 16 ... 23  | 24 ... 31      | 32 ... 39      | ... 4095 |
    | physic time | logics time | index time | master flushed | confirm offset | zeros    |

    | 256 .. 263   | 264 .. 271     | 272 .. 279  | 280 .. 283      |   ours, in what RocketMQ
    | mark of ours | flushed offset | physic time | CRC-32 of both  |   leaves zero
    | 320 .. 327   | 328 .. 331 | 332 .. 335 | 336 .. 343   | 344 .. 347   |
    | mark of ours | queues     | index      | logics time  | CRC-32       |
    | 384 .. 391   | 392 .. 399 | 400 .. 407  | 408 .. 411      |
    | mark of ours | log begins | physic time | CRC-32 of both  |
    | 2048 .. 2055 | 2056 .. 2063   | 2064 .. 2067         |
    | mark of ours | written offset | CRC-32 of the offset |

The flushed offset and the log's begin count only beside the physic time they were written with,
and what a clean stop noted of queues and index beside its logics time: RocketMQ writes its times,
which are later then, and leaves our notes as they were. All lie in one sector.

Invariant: times and flushed offset are written only after everything up to them was synced; where
the log begins, before the first record of a store and before a file of the log is let go: a file
that is missing at its front is missed. The synced position is never beyond what a sync or a clean
stop has covered. A damaged or missing checkpoint costs time, never a message.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from zlib import crc32

from engine.foundation.units import KIB, SECOND_MS
from engine.runtime.disk import Disk, File
from engine.store.behind_damage import BehindDamage
from engine.store.commit_log import CommitLog, written_end
from engine.store.queue_table import QueueTable
from engine.store.sound_records import record_at

CHECKPOINT_BYTES = 4 * KIB
_LAYOUT = Struct(">5q")
_WRITTEN_AT = 2 * KIB
_WRITTEN_MARK = b"written:"
_WRITTEN = Struct(">8sqI")
_OFFSET = Struct(">q")
_FLUSHED_AT = 256
_FLUSHED_MARK = b"flushed:"
_FLUSHED = Struct(">8sqqI")
_FLUSHED_PAIR = Struct(">qq")
_DERIVED_AT = 320
_DERIVED_MARK = b"derived:"
_DERIVED = Struct(">8sIIqI")
_DERIVED_NOTE = Struct(">IIq")
_BEGIN_AT = 384
_BEGIN_MARK = b"begins :"
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
    written_offset: int = 0
    """How far the log was written, safe or not: the base for a crash's cost; 0 when closed."""
    flushed_offset: int = 0
    """Every byte of the log before it is on stable storage; 0 when nothing says so."""
    derived: tuple[int, int] | None = None
    """Fingerprints of consume queues and index as a clean stop left them; None while running."""
    log_begin: int | None = None
    """Where the log begins, as far as nobody has let go of its files; None when nothing says so."""

    @property
    def is_blank(self) -> bool:
        """Does it say nothing at all? Then nobody knows what of the log was synced."""
        return self == Checkpoint(written_offset=self.written_offset)

    @property
    def recover_from_ms(self) -> int:
        """Whatever was stored up to this time is on disk in log and consume queues."""
        return max(0, min(self.physic_timestamp_ms, self.logics_timestamp_ms) - SAFETY_MARGIN_MS)

    @property
    def has_lost_derived(self) -> bool:
        """Does it lack what a clean stop of ours has noted of queues and index? RocketMQ's lacks it
        as well; but then it has times, and no note beside them is ours.
        """
        return self.derived is None and (self.is_blank or self.log_begin is not None)

    def encode(self) -> bytes:
        """The file's whole content."""
        times = _LAYOUT.pack(
            self.physic_timestamp_ms,
            self.logics_timestamp_ms,
            self.index_timestamp_ms,
            self.master_flushed_offset,
            self.confirm_physical_offset,
        )
        written = b""
        if self.written_offset:
            crc = crc32(_OFFSET.pack(self.written_offset))
            written = _WRITTEN.pack(_WRITTEN_MARK, self.written_offset, crc)
        flushed = b""
        if self.flushed_offset:
            flushed = _note_of(_FLUSHED_MARK, self.flushed_offset, self.physic_timestamp_ms)
        derived = b""
        if self.derived is not None:
            note = *self.derived, self.logics_timestamp_ms
            derived = _DERIVED.pack(_DERIVED_MARK, *note, crc32(_DERIVED_NOTE.pack(*note)))
        head = times.ljust(_FLUSHED_AT, b"\0") + flushed
        head = head.ljust(_DERIVED_AT, b"\0") + derived
        if self.log_begin is not None:
            note_at = head.ljust(_BEGIN_AT, b"\0")
            head = note_at + _note_of(_BEGIN_MARK, self.log_begin, self.physic_timestamp_ms)
        return (head.ljust(_WRITTEN_AT, b"\0") + written).ljust(CHECKPOINT_BYTES, b"\0")


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Read a checkpoint; one that was cut counts as empty, as do negative times."""
    if len(data) < CHECKPOINT_BYTES:
        return Checkpoint()
    values = _LAYOUT.unpack_from(data)
    times = values if min(values) >= 0 else (0, 0, 0, 0, 0)
    return Checkpoint(
        *times,  # type: ignore[misc]
        written_offset=_written_offset(data),
        flushed_offset=_noted(data, _FLUSHED_AT, _FLUSHED_MARK, times[0]) or 0,
        derived=_derived(data, times[1]),
        log_begin=_noted(data, _BEGIN_AT, _BEGIN_MARK, times[0]),
    )


def _note_of(mark: bytes, offset: int, physic_timestamp_ms: int) -> bytes:
    pair = offset, physic_timestamp_ms
    return _FLUSHED.pack(mark, *pair, crc32(_FLUSHED_PAIR.pack(*pair)))


def _derived(data: bytes, logics_timestamp_ms: int) -> tuple[int, int] | None:
    """What a clean stop noted of the derived files; None when nothing belongs to the times."""
    if len(data) < _DERIVED_AT + _DERIVED.size:
        return None
    mark, queues, index, beside_ms, crc = _DERIVED.unpack_from(data, _DERIVED_AT)
    whole = mark == _DERIVED_MARK and crc == crc32(_DERIVED_NOTE.pack(queues, index, beside_ms))
    return (queues, index) if whole and beside_ms == logics_timestamp_ms else None


def _noted(data: bytes, place: int, mark: bytes, physic_timestamp_ms: int) -> int | None:
    """The offset that is noted there; None when there is none that belongs to the times. Times that
    are earlier than the note's are damaged: whoever else wrote them would have written later ones.
    """
    if len(data) < place + _FLUSHED.size:
        return None
    found_mark, offset, beside_ms, crc = _FLUSHED.unpack_from(data, place)
    whole = found_mark == mark and crc == crc32(_FLUSHED_PAIR.pack(offset, beside_ms))
    return max(0, offset) if whole and beside_ms >= physic_timestamp_ms else None


def _written_offset(data: bytes) -> int:
    """The last note of how far the log was written; 0 when there is none that is whole."""
    if len(data) < _WRITTEN_AT + _WRITTEN.size:
        return 0
    mark, written_offset, crc = _WRITTEN.unpack_from(data, _WRITTEN_AT)
    whole = mark == _WRITTEN_MARK and crc == crc32(_OFFSET.pack(written_offset))
    return max(0, written_offset) if whole else 0


class CheckpointFile:
    """The file beside its value in memory."""

    def __init__(self, disk: Disk, path: str) -> None:
        existed = disk.exists(path)
        self._file: File = disk.open(path, create=True)
        if not existed:
            self._file.truncate(CHECKPOINT_BYTES)
        self.value = decode_checkpoint(self._file.pread(CHECKPOINT_BYTES, 0))
        self._written = self.value.encode()
        self._writes = self._writes_synced = 0
        if existed and self._file.size_bytes() != CHECKPOINT_BYTES:
            self._file.truncate(CHECKPOINT_BYTES)

    @property
    def changed(self) -> bool:
        """Is there something to save? What was written and not synced may be on disk or not, also
        when the value is again what was synced before.
        """
        return self._writes_synced != self._writes or self.value.encode() != self._written

    def write(self) -> None:
        """Put the value into the file; `sync` makes it last. Raises DiskFull, StorageError."""
        content = self.value.encode()
        self._file.pwrite(content, 0)
        self._written = content
        self._writes += 1

    def sync(self) -> None:
        """Sync the file. Blocks; raises StorageError."""
        covered = self._writes  # What is written while the sync runs is for the next one.
        self._file.sync()
        self._writes_synced = covered

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def synced_position(
    log: CommitLog, queues: QueueTable, checkpoint: Checkpoint, *, clean: bool
) -> int:
    """As noted; else, after a clean stop, all that is not zero, and after an unclean one what store
    times say. All that is not zero, too, beside a checkpoint that was lost: what was never synced
    may be among it, and nothing that was is taken for it.
    """
    if checkpoint.flushed_offset:
        return checkpoint.flushed_offset
    if not clean and not checkpoint.is_blank:
        return _synced_by_time(log, BehindDamage(log, queues), checkpoint.physic_timestamp_ms)
    reached = written_to(log, log.min_offset)
    # A record may end in zeros, and the newest file may be empty or gone; a unit that says more
    # than that is damaged.
    newest = max([queue.end_physical for queue in queues.all()], default=0)
    return max(reached, newest) if newest <= log.end_offset + log.file_size_bytes else reached


def _synced_by_time(log: CommitLog, behind_damage: BehindDamage, physic_timestamp_ms: int) -> int:
    """End of the newest record that is older than the newest synced one."""
    for start in reversed(log.files.starts):
        file_end = start + log.file_size_bytes
        place, synced_to = start, 0
        while place < file_end:
            request = record_at(log, place)
            if request is None:
                place = behind_damage.find(place, file_end)
                continue
            if request.store_timestamp_ms >= physic_timestamp_ms:
                break
            place = synced_to = place + request.size_bytes
        if synced_to:
            return synced_to
    return 0


def first_unvouched(log: CommitLog, checkpoint: Checkpoint, indexed: int) -> int:
    """Start of the newest file whose first message is older than all that the checkpoint vouches
    for, and not behind `indexed`.
    """
    for start in reversed(log.files.starts):
        request = record_at(log, start)
        if request is None or request.store_timestamp_ms > checkpoint.recover_from_ms:
            continue
        if indexed >= start:
            return start
    return log.min_offset


def written_to(log: CommitLog, begin: int) -> int:
    """Offset behind the last byte at or after `begin` that is not zero; 0 when all are."""
    first = log.files.start_at(begin)
    for start in reversed(log.files.starts):
        if start < first:
            break
        inside = begin - start if start == first else 0
        length = written_end(log.file_view(start)[inside:])
        if length:
            return start + inside + length
    return 0
