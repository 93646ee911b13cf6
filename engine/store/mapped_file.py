"""Sequences of equal-sized files, named by start offset, that hold the log and the queues.

Place in the walk: `commit_log` and `consume_queue` append to and read from a `FileSequence`; it
knows names and sizes, never records. `FilePool` bounds how many files of a store are open at once.

RocketMQ's rule, kept byte for byte: a file is called by its start offset in 20 digits, has its full
length from the first moment (the unwritten part is zeros), and its start is a multiple of the file
size.

Invariant: a view handed out stays valid as long as somebody holds it, even after its file was
removed, closed by the pool or the store: mappings are dropped, never released. Absent on purpose:
what the bytes mean, durability policy.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable

from engine.foundation.errors import ConfigError, DiskFull, OffsetOutOfRange, StorageError
from engine.foundation.limits import STORE_OPEN_FILES_MAX
from engine.foundation.units import MIB
from engine.runtime.disk import Disk, File

MAKING = ".making"
"""Suffix of a file that is being made ahead, or to take the place of another."""
COPY_BYTES = 1 * MIB
"""Copied at once."""


class OpenFile:
    """One open file of a sequence, with its mapping once somebody read through it.

    `pins` counts who needs the descriptor now (a sync under way): a pinned file is closed when the
    last pin goes.
    """

    __slots__ = ("_view", "file", "pins", "retired", "sequence", "start")

    def __init__(self, sequence: FileSequence, start: int, file: File) -> None:
        self.sequence = sequence
        self.start = start
        self.file = file
        self.pins = 0
        self.retired = False
        self._view: memoryview | None = None

    @property
    def view(self) -> memoryview:
        """Read-only view of the whole file; later writes show through."""
        if self._view is None:
            self._view = self.file.view()
        return self._view

    @property
    def mapping(self) -> memoryview | None:
        """The view if there is one already."""
        return self._view

    def forget_view(self) -> None:
        """Let go of the mapping, before the file is cut; slices held elsewhere keep it alive."""
        self._view = None

    def pin(self) -> OpenFile:
        """Keep the descriptor open until `unpin`."""
        self.pins += 1
        return self

    def unpin(self) -> None:
        """Undo one `pin`."""
        self.pins -= 1
        assert self.pins >= 0, f"{self.file.path} unpinned more often than pinned"
        if self.retired and self.pins == 0:
            self.file.close()

    def retire(self) -> None:
        """Out of use: close now, or with the last pin."""
        self._view = None
        self.retired = True
        if self.pins == 0:
            self.file.close()


class FilePool:
    """The open files of one store, least recently used first; at most `open_files_max` stay open
    unpinned.
    """

    __slots__ = ("_files", "_open_files_max")

    def __init__(self, open_files_max: int = STORE_OPEN_FILES_MAX) -> None:
        self._files: OrderedDict[OpenFile, None] = OrderedDict()
        self._open_files_max = open_files_max

    @property
    def open_count(self) -> int:
        """How many files are open."""
        return len(self._files)

    def used(self, entry: OpenFile) -> None:
        """Note a use: the entry is the last to be closed."""
        self._files.move_to_end(entry)

    def add(self, entry: OpenFile) -> None:
        """Take a freshly opened file in; close the longest unused one when there are too many."""
        self._files[entry] = None
        if len(self._files) > self._open_files_max:
            for oldest in self._files:
                if oldest.pins == 0 and oldest is not entry:
                    oldest.sequence.close_file(oldest.start)
                    break

    def remove(self, entry: OpenFile) -> None:
        """Forget a file that its sequence closes."""
        self._files.pop(entry, None)


class FileSequence:
    """The files of one folder, in order; `starts` are the offsets of their first bytes."""

    def __init__(
        self, disk: Disk, directory: str, file_size_bytes: int, pool: FilePool, *, reserve: bool
    ) -> None:
        """`reserve`: take the space of a file from the device when it is made, not when written."""
        self.disk = disk
        self.directory = directory
        self.file_size_bytes = file_size_bytes
        self._reserve = reserve
        self.starts: list[int] = []
        self._pool = pool
        self._open: dict[int, OpenFile] = {}

    def path_of(self, start: int) -> str:
        """Path of the file that begins at `start`."""
        return f"{self.directory}/{start:020d}"

    def load(self, size_key: str, *, keep_below: int = 0) -> list[str]:
        """Find the files there are; return a sentence for each that was put right.

        An interrupted creation leaves an empty last file, which is removed, or a short one, which
        is filled with zeros, as is any that begins below `keep_below`. Raises ConfigError naming
        `size_key`, before anything is touched, when
        names or lengths show that the store was made with another file size.
        """
        lengths = self.look(size_key)
        names = self.disk.names(self.directory)
        for name in names:
            if name.endswith(MAKING):
                self.disk.remove(f"{self.directory}/{name}")
        return [
            self._put_right(start, found_bytes, keep_below)
            for start, found_bytes in lengths.items()
            if found_bytes < self.file_size_bytes
        ]

    def look(self, size_key: str) -> dict[int, int]:
        """Find the files there are, and change nothing: their lengths. Raises ConfigError as `load`
        does.
        """
        names = self.disk.names(self.directory)
        self.starts = [int(name) for name in names if len(name) == 20 and name.isdecimal()]
        lengths = {start: self.length_of(start) for start in self.starts}
        for start, found_bytes in lengths.items():
            if start % self.file_size_bytes or found_bytes > self.file_size_bytes:
                self.starts.clear()
                raise ConfigError(
                    size_key,
                    self.file_size_bytes,
                    f"the file size that {self.directory} was made with "
                    f"({start:020d} holds {found_bytes} bytes)",
                )
        return lengths

    def _put_right(self, start: int, found_bytes: int, keep_below: int) -> str:
        if found_bytes == 0 and start == self.starts[-1] and start >= keep_below:
            self.remove(start)
            return f"{self.path_of(start)} was empty and has been removed"
        self._fill(self.open_file(start).file)
        return (
            f"{self.path_of(start)} had {found_bytes} of {self.file_size_bytes} bytes; "
            f"zeros were added"
        )

    def _fill(self, file: File) -> None:
        """Give a file its full length, reserved if there is room for it."""
        if self._reserve:
            try:
                file.allocate(self.file_size_bytes)
            except DiskFull:
                pass  # Sparse will do: reading needs no room, and a put says what it lacks.
            else:
                return
        file.truncate(self.file_size_bytes)

    def length_of(self, start: int) -> int:
        """How long the file that begins at `start` is on disk. Raises StorageError."""
        file = self.disk.open(self.path_of(start))
        try:
            return file.size_bytes()
        finally:
            file.close()

    def start_at(self, offset: int) -> int:
        """Start of the file that `offset` lies in, whether or not it exists."""
        return offset - offset % self.file_size_bytes

    def has(self, start: int) -> bool:
        """Does the file that begins at `start` exist?"""
        place = bisect_right(self.starts, start)
        return place > 0 and self.starts[place - 1] == start

    def open_file(self, start: int) -> OpenFile:
        """The file that begins at `start`, opened if need be. Raises OffsetOutOfRange."""
        entry = self._open.get(start)
        if entry is not None:
            self._pool.used(entry)
            return entry
        if not self.has(start):
            raise OffsetOutOfRange(f"{self.directory} holds no file that begins at {start}")
        return self._register(start, self.disk.open(self.path_of(start)))

    def create(self, start: int) -> OpenFile:
        """Make the file that begins at `start`, at full length.

        Raises DiskFull, leaving no trace. Its name survives a power cut only after the folder was
        synced.
        """
        assert start % self.file_size_bytes == 0, f"{start} is no file start in {self.directory}"
        assert not self.starts or start > self.starts[-1], (
            f"{start} is not behind {self.starts[-1:]}"
        )
        path = self.path_of(start)
        file = self.disk.open(path, create=True)
        try:
            if self._reserve:
                file.allocate(self.file_size_bytes)
            else:
                file.truncate(self.file_size_bytes)
        except StorageError:
            file.close()
            self.disk.remove(path)
            raise
        return self.adopt(start, file)

    def adopt(self, start: int, file: File) -> OpenFile:
        """Take in a file of full length that somebody else made under its right name."""
        insort(self.starts, start)
        return self._register(start, file)

    def _register(self, start: int, file: File) -> OpenFile:
        entry = OpenFile(self, start, file)
        self._open[start] = entry
        self._pool.add(entry)
        return entry

    def remove(self, start: int) -> None:
        """Delete the file that begins at `start`; views of it held elsewhere stay readable."""
        self.close_file(start)
        self.disk.remove(self.path_of(start))
        self.starts.remove(start)

    def take_out(self, start: int) -> Callable[[], None]:
        """Forget the file that begins at `start`; the work returned deletes it, wherever it is run.

        A crash in between leaves the file, to be found again.
        """
        held = [self._open[start].mapping] if start in self._open else []
        self.close_file(start)
        self.starts.remove(start)
        path = self.path_of(start)

        def destroy() -> None:
            self.disk.remove(path)
            held.clear()  # The mapping goes here, where it may take its time.

        return destroy

    def take_all_out(self) -> Callable[[], None]:
        """As `take_out`, of every file and the folder."""
        works = [self.take_out(start) for start in list(self.starts)]

        def destroy() -> None:
            for work in works:
                work()
            self.disk.remove_directory(self.directory)

        return destroy

    def remove_from(self, offset: int) -> int:
        """Delete the files that begin at or after `offset`, last first; their number."""
        doomed = [start for start in self.starts if start >= offset]
        for start in reversed(doomed):
            self.remove(start)
        return len(doomed)

    async def prepare_cut(self, offset: int) -> None:
        """Copy what `cut` will leave of the file that `offset` lies in, beside the loop, and sync
        it. Raises DiskFull, StorageError.
        """
        start, disk = self.start_at(offset), self.disk
        if offset == start or not self.has(start):
            return
        source, path = self.open_file(start).pin(), self.path_of(start) + MAKING

        def work() -> None:
            copy = disk.open(path, create=True)
            try:
                copy.truncate(0)
                copy.allocate(self.file_size_bytes)  # On a full disk before anything has changed.
                for at in range(0, offset - start, COPY_BYTES):
                    part = source.file.pread(min(COPY_BYTES, offset - start - at), at)
                    copy.pwrite(part, at)
                copy.sync()
            finally:
                copy.close()

        try:
            await disk.off_loop(work)
        except StorageError:
            disk.remove(path)
            raise
        finally:
            source.unpin()

    def cut(self, offset: int) -> None:
        """Let the files end at `offset`, for which `prepare_cut` was called. Whatever a crash
        leaves of this is a shorter sequence; views of what goes show what they showed.
        """
        start = self.start_at(offset)
        self.remove_from(offset if offset == start else start + self.file_size_bytes)
        if offset != start and self.has(start):
            self.close_file(start)
            self.disk.rename(self.path_of(start) + MAKING, self.path_of(start))

    def wipe_from(self, offset: int, *, sync: bool = True) -> None:
        """Zero the file that `offset` lies in from there to its end, and sync it.

        Left in place, stale bytes behind a truncation could line up with new records and come back
        to life.
        """
        start = self.start_at(offset)
        if not self.has(start):
            return
        entry = self.open_file(start)
        entry.forget_view()
        entry.file.truncate(offset - start)
        self._fill(entry.file)
        if sync:
            entry.file.sync()

    def close_file(self, start: int) -> None:
        """Close one file, if open."""
        entry = self._open.pop(start, None)
        if entry is not None:
            self._pool.remove(entry)
            entry.retire()

    def close(self) -> None:
        """Close every file."""
        for start in list(self._open):
            self.close_file(start)
