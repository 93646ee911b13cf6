"""The commit log, which stores all topics' messages in arrival order in equal-sized files.

Place in the walk: `message_store.put` appends here; `upkeep.flush` makes it durable; `dispatch` and
`reading` read it. With a transient pool (`PooledCommitLog`) an append stays in memory until
`upkeep.pool` moves it to the file.

A record never crosses files. When the next one does not fit with 8 bytes to spare, the rest of the
file becomes a blank (int32 length of the rest, int32 magic, then whatever) and the record begins
the next file.

Invariant: min_offset <= flushed_offset <= committed_offset <= end_offset; bytes below end_offset
never change, until a cut takes them away; nobody reads at or beyond committed_offset; `append`
either returns with the record stored (readable and safe from SIGKILL, unless there is a pool), or
raises with nothing visible.
Absent on purpose: what a record means, when to flush, and gathering a turn's records into one
write: `bench.store_paths` measures 1.2 us a record against 0.2 us, which is not worth having every
put's failure come later, when its answer is already made.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from struct import Struct

from engine.foundation.errors import FileTooLarge, OffsetOutOfRange
from engine.foundation.limits import LOG_HOLES_TOLD_MAX, TRANSIENT_POOL_BYTES_MAX
from engine.runtime.disk import Disk
from engine.store.holes import Hole, Holes
from engine.store.mapped_file import FilePool, FileSequence, OpenFile
from engine.store.record_reading import BLANK_MAGIC

BLANK = Struct(">ii")
BLANK_BYTES = BLANK.size

SIZE_KEY = "mappedFileSizeCommitLog"
NO_END = 1 << 63
NO_DELAYS = (0,)
"""Delay levels for a look at a record that is not interested in when it is due."""


class CommitLog:
    """The files, the three offsets, and the file being written."""

    def __init__(self, disk: Disk, directory: str, file_size_bytes: int, pool: FilePool) -> None:
        self._disk = disk
        self.files = FileSequence(disk, directory, file_size_bytes, pool, reserve=True)
        self.file_size_bytes = file_size_bytes
        self.min_offset = 0
        """First byte kept: the start of the oldest file."""
        self.flushed_offset = 0
        """Everything before this byte is on stable storage."""
        self.committed_offset = 0
        """Everything before this byte is in the files: readable, and safe from SIGKILL."""
        self.end_offset = 0
        """First byte not yet taken; equal to committed_offset where there is no pool."""
        self.visible_end = NO_END
        """Nothing at or beyond this byte is dispatched or read, whatever the log holds."""
        self.waited_bytes_max = 0
        """The most that one move out of the pool has taken, since somebody last set this to 0."""
        self.folder_dirty = False
        """Were files made since the folder was last synced?"""
        self.holes = Holes()
        """What is damaged or missing below the synced position, as far as anybody has looked."""
        self.unchecked_to = 0
        """Records before this byte are of an earlier life, and recovery had no reason to look at
        them: whoever hands one out checks it first."""
        self.on_damage: Callable[[Hole], None] = _ignore
        """Called with each hole that is met when somebody reads."""
        self._strangers: dict[int, None] = {}
        self._current: OpenFile | None = None
        self._current_start = -1

    @property
    def record_bytes_max(self) -> int:
        """The longest record a file can hold beside its closing blank."""
        return self.file_size_bytes - BLANK_BYTES

    def place_for(self, size_bytes: int) -> int:
        """Where a record of this length will begin; closes the current file when it must.

        Raises DiskFull or StorageError when the next file cannot be made, FileTooLarge when no file
        could hold it.
        """
        inside = self.end_offset % self.file_size_bytes
        if size_bytes + BLANK_BYTES <= self.file_size_bytes - inside:
            if self._current is None or self._current_start != self.end_offset - inside:
                self._enter(self.end_offset - inside)
            return self.end_offset
        if size_bytes > self.record_bytes_max:
            raise FileTooLarge(
                f"a record of {size_bytes} bytes does not fit into commit-log files of "
                f"{self.file_size_bytes} bytes; raise {SIZE_KEY}"
            )
        rest = self.file_size_bytes - inside
        self._enter(
            self.end_offset + rest
        )  # First the room, then the blank: DiskFull leaves no trace.
        closed = self.files.open_file(self.end_offset - inside)
        closed.file.pwrite(BLANK.pack(rest, BLANK_MAGIC), inside)
        self.end_offset += rest
        self.committed_offset = self.end_offset
        return self.end_offset

    def _enter(self, start: int) -> None:
        if not self.files.has(start):
            self._disk.make_directories(self.files.directory)
            self.files.create(start)
            self.folder_dirty = True
        entry = self.files.open_file(start)
        if self._current is not None:
            self._current.unpin()
        self._current = entry.pin()
        self._current_start = start

    def append(self, record: bytes | bytearray) -> None:
        """Write a record at the place that `place_for` its length returned. Hot.

        Raises FileTooLarge, with nothing written, for a record that runs past the file's end.
        """
        current, inside = self._current, self.end_offset - self._current_start
        if current is None or inside + len(record) > self.file_size_bytes:
            raise self._past_the_end(len(record))
        current.file.pwrite(record, inside)
        self.end_offset = self.committed_offset = self.end_offset + len(record)

    def append_at(self, offset: int, data: bytes | memoryview) -> None:
        """Write what another log holds from `offset` on, over file ends; the blanks that close
        files are part of it.

        Raises OffsetOutOfRange when this log does not end there. DiskFull, StorageError: whole
        files of it may be written.
        """
        if offset != self.end_offset:
            raise OffsetOutOfRange(
                f"{len(data)} bytes for {offset} cannot follow a commit log that ends at "
                f"{self.end_offset}"
            )
        taken = 0
        while taken < len(data):
            inside = self.end_offset % self.file_size_bytes
            if self._current is None or self._current_start != self.end_offset - inside:
                self._enter(self.end_offset - inside)
            assert self._current is not None
            part = data[taken : taken + self.file_size_bytes - inside]
            self._current.file.pwrite(part, inside)
            taken += len(part)
            self.end_offset = self.committed_offset = self.end_offset + len(part)

    def _past_the_end(self, size_bytes: int) -> FileTooLarge:
        return FileTooLarge(
            f"{size_bytes} bytes at {self.end_offset} run past the end of the commit-log file that "
            f"begins at {self._current_start} and has {self.file_size_bytes}; ask for a place first"
        )

    def commit_pool(self) -> None:
        """Move what waits in memory to the file; without a pool nothing waits."""

    def spare_wanted(self) -> int | None:
        """Start of the file to make ahead, once the current one is half full, or None."""
        if self._current is None:
            return None
        following = self._current_start + self.file_size_bytes
        half_full = self.end_offset - self._current_start >= self.file_size_bytes // 2
        return following if half_full and not self.files.has(following) else None

    # ---- reading ---------------------------------------------------------------------------

    def view(self, physical_offset: int, size_bytes: int) -> memoryview | None:
        """The bytes [physical_offset, +size_bytes) of one file; None if not all there. Hot."""
        end = physical_offset + size_bytes
        inside = physical_offset % self.file_size_bytes
        if (
            physical_offset < self.min_offset
            or end > self.committed_offset
            or end > self.visible_end
            or size_bytes <= 0
            or inside + size_bytes > self.file_size_bytes
        ):
            return None
        try:
            entry = self.files.open_file(physical_offset - inside)
        except OffsetOutOfRange:
            return None
        return entry.view[inside : inside + size_bytes]

    def note_damage(self, hole: Hole) -> None:
        """Report a hole that a reader met."""
        self.holes.add(hole)
        self.on_damage(hole)

    @property
    def has_strangers(self) -> bool:
        """Has anybody met an entry of a queue that leads to none of its records?"""
        return bool(self._strangers)

    def note_stranger(self, place: Hole) -> None:
        """A queue leads to where none of its records is, and nothing there is damaged: its unit is
        wrong, or the file is another store's. It is reported once; nothing is passed over for it.
        """
        if place.start in self._strangers or len(self._strangers) >= LOG_HOLES_TOLD_MAX:
            return
        self._strangers[place.start] = None
        self.on_damage(place)

    def forget_stranger(self, physical_offset: int) -> None:
        """The entry that led there was written again from the log."""
        self._strangers.pop(physical_offset, None)

    def file_view(self, start: int) -> memoryview:
        """The whole file that begins at `start`. Raises OffsetOutOfRange when there is none."""
        return self.files.open_file(start).view

    def unflushed_files(self) -> list[OpenFile]:
        """Files with bytes committed and not flushed, oldest first, pinned for the caller."""
        first = self.files.start_at(self.flushed_offset)
        return [
            self.files.open_file(start).pin()
            for start in self.files.starts
            if first <= start < self.committed_offset
        ]

    # ---- load, cut -------------------------------------------------------------------------

    def load(self, keep_below: int) -> list[str]:
        """Find the files; return a sentence for each thing put right. None goes that begins below
        `keep_below`.

        The end is for recovery to find, and what is missing between the files for it to judge.
        """
        repairs = self.files.load(SIZE_KEY, keep_below=keep_below)
        starts = self.files.starts
        self.min_offset = starts[0] if starts else 0
        return repairs

    def note_missing_files(self, synced_to: int, begin: int | None) -> int:
        """Note the files that are missing below `synced_to` as holes; how many there are. The log
        began at `begin`, if that is known: what is missing there nobody has let go of.
        """
        size_bytes, missing = self.file_size_bytes, 0
        if begin is not None and not self.files.starts:
            self.min_offset = begin
        elif begin is not None and self.min_offset > begin:
            missing = (self.min_offset - begin) // size_bytes
            self.holes.add(Hole(begin, self.min_offset, f"file {begin:020d} is missing"))
        for earlier, later in pairwise(self.files.starts):
            end = min(later, -(-synced_to // size_bytes) * size_bytes)
            if end > earlier + size_bytes:
                missing += (end - earlier) // size_bytes - 1
                start = earlier + size_bytes
                self.holes.add(Hole(start, end, f"file {start:020d} is missing"))
        return missing

    def set_end(self, end_offset: int) -> None:
        """Declare where the log ends, before the first append: everything behind is wiped."""
        start = self.files.start_at(end_offset)
        self.files.remove_from(start + self.file_size_bytes)
        if self.files.has(start):
            rest = self.files.open_file(start).view[end_offset - start :]
            dirty = written_end(rest) > 0
            del rest
            if dirty:
                self.files.wipe_from(end_offset)
        self.end_offset = self.committed_offset = end_offset
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self.folder_dirty = True

    def cut(self, end_offset: int) -> None:
        """Let the log end at `end_offset`, for which its files were prepared; an entry ends there.
        Views of what goes show what they showed.
        """
        assert self.committed_offset == self.end_offset, "bytes wait in the pool"
        if self._current is not None:
            self._current.unpin()
            self._current = None
        self.files.cut(end_offset)
        self.folder_dirty = True
        self.end_offset = self.committed_offset = end_offset
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self.unchecked_to = min(self.unchecked_to, end_offset)
        self.holes.cut(end_offset)
        self._strangers = {start: None for start in self._strangers if start < end_offset}
        if self.visible_end != NO_END:
            self.visible_end = min(self.visible_end, end_offset)

    def begin_at(self, offset: int) -> None:
        """Let the log, which holds nothing, begin at a file's start."""
        self.min_offset = self.flushed_offset = offset
        self.committed_offset = self.end_offset = offset

    def set_min(self) -> None:
        """Follow the removal of files."""
        starts = self.files.starts
        self.min_offset = starts[0] if starts else self.end_offset
        self.holes.follow_log(self.min_offset)

    def drop_spares(self) -> None:
        """Remove files made ahead and not begun; the log is closing."""
        spare_start = self.files.start_at(self.end_offset + self.file_size_bytes - 1)
        if self.files.remove_from(max(spare_start, self.file_size_bytes)):
            self.folder_dirty = True

    def close(self) -> None:
        """Close the files."""
        if self._current is not None:
            self._current.unpin()
            self._current = None
        self.files.close()


class PooledCommitLog(CommitLog):
    """Appends wait in memory (RocketMQ's transient store pool) for the next commit.

    A put costs no system call, and readers of the file disturb no writer; SIGKILL loses what waits.
    """

    def __init__(self, disk: Disk, directory: str, file_size_bytes: int, pool: FilePool) -> None:
        super().__init__(disk, directory, file_size_bytes, pool)
        self._waiting: list[bytes | bytearray] = []

    def _enter(self, start: int) -> None:
        self.commit_pool()  # What waits belongs to the file that is left now.
        super()._enter(start)

    def append(self, record: bytes | bytearray) -> None:
        """See `CommitLog.append`; a pool that is full commits first. Hot."""
        inside = self.end_offset - self._current_start
        if self._current is None or inside + len(record) > self.file_size_bytes:
            raise self._past_the_end(len(record))
        if self.end_offset - self.committed_offset + len(record) > TRANSIENT_POOL_BYTES_MAX:
            self.commit_pool()
        self._waiting.append(record)
        self.end_offset += len(record)

    def append_at(self, offset: int, data: bytes | memoryview) -> None:
        """See `CommitLog.append_at`; copies do not wait in the pool."""
        self.commit_pool()
        super().append_at(offset, data)

    def commit_pool(self) -> None:
        """Move what waits to the file, in one write. Raises StorageError; then it still waits."""
        if not self._waiting:
            return
        current = self._current
        assert current is not None, "bytes wait for no file"
        moved = b"".join(self._waiting)
        current.file.pwrite(moved, self.committed_offset - self._current_start)
        self._waiting.clear()
        self.committed_offset += len(moved)
        self.waited_bytes_max = max(self.waited_bytes_max, len(moved))
        assert self.committed_offset == self.end_offset, "the pool held other bytes than were put"


def _ignore(what: object) -> None:
    del what


_ZEROS = bytes(64 * 1024)


def written_end(view: memoryview) -> int:
    """Length of `view` without the zeros at its end."""
    end = len(view)
    while end > 0:
        begin = max(0, end - len(_ZEROS))
        chunk = bytes(view[begin:end])  # Comparing bytes is one memcmp; views compare one by one.
        if chunk != _ZEROS[: end - begin]:
            return begin + len(chunk.rstrip(b"\0"))
        end = begin
    return 0
