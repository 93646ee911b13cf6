"""The index of a store: every message key of the log, over index files in order of time.

Place in the walk: `dispatch` puts UNIQ_KEY and KEYS of each message, `query_by_key` asks,
`retention` lets it follow the log.

A file is named by the UTC time of its creation, yyyyMMddHHmmssSSS; names only grow.

Invariant: physical offsets grow over all files; every file but the newest with entries was flushed
whole, so only that one needs repair after a crash. Absent on purpose: hashing of keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from zlib import crc32

from engine.foundation.errors import StorageError
from engine.foundation.units import SECOND_MS
from engine.runtime.disk import Disk
from engine.store.index_file import IndexFile, IndexKey, IndexShape
from engine.store.mapped_file import FilePool, FileSequence, OpenFile


class Index:
    """All index files of a store, oldest first."""

    def __init__(self, disk: Disk, directory: str, shape: IndexShape, pool: FilePool) -> None:
        self._disk = disk
        self._files = _NamedByTime(disk, directory, shape, pool)
        self._shape = shape
        self.files: list[IndexFile] = []
        self.folder_dirty = False

    @property
    def directory(self) -> str:
        """The folder of the files."""
        return self._files.directory

    def load(self) -> list[str]:
        """Open what is there; return a sentence for each file that had to be given up."""
        damaged = self._files.load_named()
        self.files = [IndexFile(self._files, start, self._shape) for start in self._files.starts]
        return damaged

    def look(self, log_end: int) -> list[str]:
        """Check every file, and change nothing; a sentence for each that cannot be right. Messages
        of the log end at `log_end`.
        """
        faults: list[str] = []
        before = -1
        for name in self._disk.names(self.directory):
            if len(name) != 17 or not name.isdecimal():
                continue
            found_bytes = self._files.length_of(int(name))
            if found_bytes != self._shape.file_bytes:
                faults.append(
                    f"index file {name}: {found_bytes} bytes, where {self._shape.slot_count} slots "
                    f"and {self._shape.index_count_max} entries take {self._shape.file_bytes}"
                )
                continue
            self._files.starts.append(int(name))
            file = IndexFile(self._files, int(name), self._shape)
            fault = file.look(before, log_end)
            if fault is not None:
                faults.append(f"index file {name}: {fault}")
            before = max(before, file.end_physical)
        return faults

    def fingerprint(self) -> int:
        """Equal while the files and what their headers count are the same."""
        counts = [(file.start, file.index_count, file.end_physical) for file in self.files]
        return crc32(repr(counts).encode())

    def begin_anew(self) -> None:
        """Remove every file: the keys are to be put again from the log."""
        for file in reversed(self.files):
            self._files.remove(file.start)
        self.files.clear()
        self.folder_dirty = True

    def repair_newest(self, log_bound: int) -> None:
        """After an unclean stop: the newest file with entries, and empty ones behind it, may have
        slots of entries that never arrived. Older ones were flushed whole before it.
        """
        filled = [number for number, file in enumerate(self.files) if file.index_count > 1]
        for file in self.files[filled[-1] if filled else 0 :]:
            file.repair(log_bound)

    @property
    def end_physical(self) -> int | None:
        """Physical offset of the newest message indexed; None when there is none."""
        indexed = [file for file in self.files if file.index_count > 1]
        return indexed[-1].end_physical if indexed else None

    def newest_count(self) -> int:
        """How many keys of the newest message are there."""
        end, count = self.end_physical, 0
        for file in reversed(self.files):
            if file.index_count > 1:
                of_it = file.newest_count() if file.end_physical == end else 0
                count += of_it
                if of_it < file.index_count - 1:
                    break
        return count

    def put(self, keys: Sequence[IndexKey], *, now_ms: int) -> None:
        """Add entries, in a new file when the newest is full."""
        taken = 0
        while taken < len(keys):
            if not self.files or self.files[-1].full:
                self._add_file(now_ms)
            taken += self.files[-1].put(keys[taken:] if taken else keys)

    def _add_file(self, now_ms: int) -> None:
        start = int(index_file_name(now_ms))
        if self.files:
            start = max(
                start, self.files[-1].start + 1
            )  # Two in one millisecond, or a clock set back.
        self._disk.make_directories(self.directory)
        self._files.create(start)
        self.folder_dirty = True
        self.files.append(IndexFile(self._files, start, self._shape))

    def find(self, key_hash: int, count_max: int, begin_ms: int, end_ms: int) -> list[int]:
        """Physical offsets under `key_hash` in ascending order, the newest `count_max` of them."""
        found: dict[int, None] = {}
        for file in reversed(self.files):
            if len(found) >= count_max:
                break
            if file.overlaps(begin_ms, end_ms):
                for physical_offset in file.find(key_hash, count_max, begin_ms, end_ms):
                    found[physical_offset] = None
        return sorted(list(found)[:count_max])

    def dirty_files(self) -> list[IndexFile]:
        """Files with something to flush."""
        return [file for file in self.files if file.dirty]

    def open_file(self, file: IndexFile) -> OpenFile:
        """The open file behind an index file."""
        return self._files.open_file(file.start)

    def follow_log(self, physical_min: int) -> int:
        """Delete files whose newest message is gone from the log; the newest file always stays."""
        removed = 0
        while len(self.files) > 1 and self.files[0].end_physical < physical_min:
            self._files.remove(self.files.pop(0).start)
            self.folder_dirty = True
            removed += 1
        return removed

    def truncate_to_log(self, physical_end: int) -> None:
        """Forget the entries of messages at or behind `physical_end`."""
        for file in list(self.files):
            behind = file.index_count > 1 and file.end_physical >= physical_end
            if behind and not file.cut(physical_end):
                self.files.remove(file)
                self._files.remove(file.start)
                self.folder_dirty = True

    def close(self) -> None:
        """Close the files."""
        self._files.close()


class _NamedByTime(FileSequence):
    """A file sequence whose names are times of 17 digits, not offsets.

    Slots are read through the mapping wherever a key falls. Their room is taken when the file is
    made: to read a hole takes room on some file systems (tmpfs), and without any the process dies.
    """

    def __init__(self, disk: Disk, directory: str, shape: IndexShape, pool: FilePool) -> None:
        super().__init__(disk, directory, shape.file_bytes, pool, reserve=False)
        self._slots_end_bytes = shape.entry_position(0)

    def path_of(self, start: int) -> str:
        return f"{self.directory}/{start:017d}"

    def create(self, start: int) -> OpenFile:
        path = self.path_of(start)
        file = self.disk.open(path, create=True)
        try:
            file.truncate(self.file_size_bytes)
            file.allocate(self._slots_end_bytes)
        except StorageError:
            file.close()
            self.disk.remove(path)
            raise
        return self.adopt(start, file)

    def load_named(self) -> list[str]:
        """Find the files; remove one of another length and all behind it, and say so: recovery puts
        the keys again that were in them.
        """
        damaged: list[str] = []
        for name in self.disk.names(self.directory):
            if len(name) != 17 or not name.isdecimal():
                continue
            start = int(name)
            found_bytes = self.length_of(start)
            if found_bytes != self.file_size_bytes:
                damaged.append(
                    f"index file {name} had {found_bytes} bytes instead of {self.file_size_bytes}; "
                    f"it was removed with those behind it, their keys are put again from the log"
                )
            if damaged:
                self.disk.remove(self.path_of(start))
            else:
                self.starts.append(start)
        return damaged


def index_file_name(now_ms: int) -> str:
    """Name of an index file made at `now_ms`."""
    moment = datetime.fromtimestamp(now_ms // SECOND_MS, UTC)
    return f"{moment:%Y%m%d%H%M%S}{now_ms % SECOND_MS:03d}"
