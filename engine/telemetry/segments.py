"""The spool's segment files: naming, restoration at boot and the shipped mark.

Place in the walk: at boot, before the first fact. `<20-digit first seq>.seg` holds frames; its
first frame is a Life with every mark and reported offset known by then, so that older segments may
be dropped without losing one. The shipper writes beside them how far they are in the lake; a seq
that was ever shipped must not be given out again.

Invariant: after `restore` the segments hold one unbroken chain of rows up to `last_seq` (unless
damage to old, synced bytes is reported), and the newest one ends with a whole frame. Rows of a life
follow each other without a gap; each life's first frame names the row that it follows. Rows after a
hole at the end are cut off, although they can be read: nothing after it was shipped, because the
shipper syncs before it ships. The mark is never ahead of the lake, whose own transaction versions
are the authority.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final, TypeVar

import msgspec

from engine.foundation.errors import StorageError
from engine.runtime import Disk
from engine.runtime.durable import replace_durably
from engine.telemetry.frames import (
    Frame,
    Life,
    Placed,
    Turn,
    decode_frame,
    decode_frames,
    find_frames,
)
from engine.telemetry.progress import Progress

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


SEGMENT_SUFFIX: Final = ".seg"
_DIGITS: Final = 20

Answer = TypeVar("Answer")


def segment_name(first_seq: int) -> str:
    """File name of the segment whose first row has (or will have) `first_seq`."""
    return f"{first_seq:0{_DIGITS}d}{SEGMENT_SUFFIX}"


def first_seq_of(name: str) -> int:
    """The seq in a segment's file name."""
    return int(name.removesuffix(SEGMENT_SUFFIX))


def segment_names(disk: Disk, directory: str) -> list[str]:
    """Names of the segments, oldest first; other files of the folder are left out."""
    return [
        name
        for name in disk.names(directory)
        if name.endswith(SEGMENT_SUFFIX) and name.removesuffix(SEGMENT_SUFFIX).isdigit()
    ]


@dataclass(slots=True)
class Restored:
    """What earlier lives left in the spool."""

    emitter: str | None = None
    next_seq: int = 1
    last_seq: int = 0
    """Of the newest row; below `next_seq` - 1 when the last life has written none."""
    as_of: int = 0
    broker_epoch: int = 0
    progress: Progress = field(default_factory=Progress)
    newest: str | None = None
    end: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)


def restore(disk: Disk, directory: str, *, shipped_seq: int) -> Restored:
    """Read every segment, cut what is not whole off the end, and say where the next life goes on.

    Raises CorruptRecord when a newer version wrote the spool.
    """
    found = Restored()
    names = segment_names(disk, directory)
    newest = _settle_end(disk, directory, names, found.losses)
    _check_older(disk, directory, names[:-1], found, shipped_seq=shipped_seq)
    if newest is not None:
        found.newest = newest.name
        found.next_seq, found.last_seq = newest.next_seq, newest.last_seq
        found.end = newest.end_of_news
        for placed in newest.frames:
            _take(placed.frame, found)
        found.sizes[newest.name] = newest.end
    if shipped_seq >= found.next_seq:
        if newest is not None:
            found.losses.append(
                f"rows {found.next_seq} to {shipped_seq} are in the lake but no longer in the spool"
            )
        found.next_seq, found.last_seq = shipped_seq + 1, shipped_seq
    return found


def next_seq_of(last: Frame) -> int:
    """The seq of the next row after a segment's last frame."""
    return last.first_seq if isinstance(last, Life) else last.next_seq


def last_seq_of(frames: Sequence[Placed]) -> int:
    """Seq of the newest row in a segment's frames, which begin with a Life, or before them."""
    life = next(one.frame for one in reversed(frames) if isinstance(one.frame, Life))
    next_seq = next_seq_of(frames[-1].frame)
    return life.before_seq if next_seq == life.first_seq else next_seq - 1


def emitter_of(disk: Disk, directory: str) -> str | None:
    """Whose spool it is; None when nothing is written there yet. Raises StorageError."""
    for name in reversed(segment_names(disk, directory)):
        for placed in _read(disk, directory, name).frames:
            if isinstance(placed.frame, Life):
                frame = placed.frame
                return f"{frame.cluster}/{frame.broker}/{frame.broker_id}"
    return None


def _take(frame: Life | Turn, found: Restored) -> None:
    if isinstance(frame, Life):
        found.emitter = f"{frame.cluster}/{frame.broker}/{frame.broker_id}"
        found.broker_epoch = frame.broker_epoch
        found.progress = Progress.of(frame)
    else:
        found.progress.take_marks(frame.marks)
        found.progress.take_rows(frame.rows)
        found.progress.take_tails(frame.tails)
    found.as_of = max(found.as_of, frame.as_of)


@dataclass(slots=True)
class _Segment:
    name: str
    frames: list[Placed]
    end: int
    size_bytes: int

    @property
    def begins_with_life(self) -> bool:
        return bool(self.frames) and isinstance(self.frames[0].frame, Life)

    @property
    def next_seq(self) -> int:
        return next_seq_of(self.frames[-1].frame)

    @property
    def last_seq(self) -> int:
        return last_seq_of(self.frames)

    @property
    def end_of_news(self) -> int:
        """Where the next frame goes: over a heartbeat at the end, else after the last frame."""
        last = self.frames[-1]
        over = isinstance(last.frame, Turn) and last.frame.is_heartbeat
        return last.start if over else last.end


def _read(disk: Disk, directory: str, name: str) -> _Segment:
    data = disk.read(f"{directory}/{name}")
    frames, end = decode_frames(data)
    return _Segment(name, frames, end, len(data))


def _settle_end(disk: Disk, directory: str, names: list[str], losses: list[str]) -> _Segment | None:
    """Drop newest segments that do not continue the one before; cut the tail of what stays."""
    while names:
        segment = _read(disk, directory, names[-1])
        if segment.begins_with_life and _continues(disk, directory, names, segment):
            break
        if segment.size_bytes:
            losses.append(
                f"{segment.name}: dropped, {segment.size_bytes} bytes "
                "that do not follow what is before them"
            )
        disk.remove(f"{directory}/{segment.name}")
        names.pop()
    else:
        return None
    torn_bytes = segment.size_bytes - segment.end
    if torn_bytes:
        _cut(disk, f"{directory}/{segment.name}", segment.end)
        losses.append(
            f"{segment.name}: cut {torn_bytes} bytes of an unfinished write "
            f"after seq {segment.last_seq}; its turn had answered nobody, unless power failed"
        )
    # The life before may have died before it synced: what was read here must not be lost later on,
    # when the rows that follow it are on the disk.
    for name in names:
        _unless_dropped(disk, f"{directory}/{name}", disk.sync_file)
    disk.sync_directory(directory)
    return segment


def _cut(disk: Disk, path: str, size_bytes: int) -> None:
    file = disk.open(path)
    try:
        file.truncate(size_bytes)
    finally:
        file.close()


def _continues(disk: Disk, directory: str, names: list[str], segment: _Segment) -> bool:
    if len(names) == 1:
        return True
    path = f"{directory}/{names[-2]}"
    before = _unless_dropped(disk, path, lambda _: _read(disk, directory, names[-2]))
    if before is None:
        return True  # It goes only when what follows it is whole.
    life = segment.frames[0].frame
    assert isinstance(life, Life), "asked of a segment that begins with one"
    return before.begins_with_life and before.last_seq == life.before_seq


def _unless_dropped(disk: Disk, path: str, work: Callable[[str], Answer]) -> Answer | None:
    """What `work` makes of an older segment; None when the shipper, which may do so at any moment,
    has dropped it meanwhile."""
    try:
        return work(path)
    except StorageError:
        if disk.exists(path):
            raise
        return None


def _check_older(
    disk: Disk, directory: str, names: list[str], found: Restored, *, shipped_seq: int
) -> None:
    """Verify the checksums of the closed segments; a damaged one stays, and what cannot be shipped
    of it is named."""
    for name, following in zip_longest(names, names[1:]):
        data = _unless_dropped(disk, f"{directory}/{name}", disk.read)
        if data is None:
            continue
        spans, end = find_frames(data)
        found.sizes[name] = len(data)
        if end == len(data) or following is None:
            continue
        kept = next_seq_of(decode_frame(data, *spans[-1])) if spans else first_seq_of(name)
        first, last = max(kept, shipped_seq + 1), before_seq_of(disk, directory, following)
        if first <= last:
            found.losses.append(
                f"{name}: damaged at byte {end}; rows {first} to {last} cannot be read"
            )


def before_seq_of(disk: Disk, directory: str, name: str) -> int:
    """Seq of the row before a segment; one that lacks its first frame is taken to follow without a
    gap, and one that was dropped meanwhile as well."""
    data = _unless_dropped(disk, f"{directory}/{name}", disk.read) or b""
    spans, _ = find_frames(data)
    first = decode_frame(data, *spans[0]) if spans else None
    return first.before_seq if isinstance(first, Life) else first_seq_of(name) - 1
