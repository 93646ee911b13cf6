"""A store's key index, which spans several index files in chronological order.

Place in the walk: `dispatch` puts UNIQ_KEY and KEYS of each message, `query_by_key` asks,
`retention` lets it follow the log. `IndexScrub` checks every file once after a start, beside the
loop; files that came without sums, from RocketMQ, get theirs then.

A file is named by the UTC time of its creation, yyyyMMddHHmmssSSS; names only grow. One that is not
as it was flushed (`index_layout`) goes, with those behind it, and their keys are put again from the
log: by recovery, or a step at a time while the store serves (`Dispatcher.fill_index`). Until then
`is_behind` says so, and no other keys are put.

Invariant: physical offsets grow over all files; every file but the newest with entries was flushed
whole, so only that one needs repair after a crash. Absent on purpose: hashing of keys.
"""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from zlib import crc32

from engine.foundation.errors import DiskFull, StorageError
from engine.foundation.units import SECOND_MS
from engine.runtime.disk import Disk, File
from engine.store.index.index_file import IndexFile, IndexKey
from engine.store.index.index_layout import (
    DamagedIndex,
    IndexShape,
    IndexSums,
    Part,
    Version,
    read_versions,
    sums_file_bytes,
)
from engine.store.index.index_repair import IndexRepair
from engine.store.mapped_file import FilePool, FileSequence, OpenFile

SUMS_SUFFIX = "Sums"
"""The folder of the sums is named as that of the index, and so."""
PARTS_LOOKED_AT = 256


@dataclass(slots=True)
class KeyQueryResult:
    """Answer of the index. Hashes may collide: compare the messages' own keys."""

    physical_offsets: list[int]
    index_last_update_timestamp_ms: int
    index_last_update_physical_offset: int


class Index:
    """All index files of a store, oldest first."""

    def __init__(self, disk: Disk, directory: str, shape: IndexShape, pool: FilePool) -> None:
        self._disk = disk
        slots_end_bytes = shape.entry_position(0)
        self._files = _NamedByTime(
            disk, directory, shape.file_bytes, pool, reserved_bytes=slots_end_bytes
        )
        sums_bytes = sums_file_bytes(shape)
        self._sums = _NamedByTime(
            disk, directory + SUMS_SUFFIX, sums_bytes, pool, reserved_bytes=sums_bytes
        )
        self._shape = shape
        self.files: list[IndexFile] = []
        self.folder_dirty = False
        self.is_behind = False
        """Are keys missing that are to be put again from the log?"""
        self.filled_to: int | None = None
        """Then: the keys of records before this were; None: as far as the files say."""
        self.on_damage: Callable[[str], None] = _ignore
        """Called when damage was met after the start, once the files are gone."""

    @property
    def directory(self) -> str:
        """The folder of the files."""
        return self._files.directory

    def load(self, *, clean: bool = True, ours: bool = True) -> list[str]:
        """Open what is there; return a sentence for each file that had to be given up, or has
        another header than it was flushed with.

        `clean`: was it flushed whole? `ours`: or may RocketMQ have been at work on it since?
        """
        damaged = [
            f"{fault}; it was removed with those behind it, their keys are put again from the log"
            for fault in self._files.load_named(drop_behind=True)
        ]
        faults = self._sums.load_named(drop_behind=False)
        if clean:  # A crash may leave them so.
            damaged += [f"{fault}; its sums are made anew" for fault in faults]
        for start in [start for start in self._sums.starts if not self._files.has(start)]:
            self._sums.remove(start)
        self.files = [IndexFile(self._files, start, self._shape) for start in self._files.starts]
        for file in self.files:
            if not clean:
                self._make_last(file)
            fault = self._judge_sums(file, clean=clean, ours=ours, mend=True)
            if fault is not None:
                damaged.append(fault)
            file.is_unsummed = file.sums is None
        return damaged

    def _make_last(self, file: IndexFile) -> None:
        """What a killed process has written and not synced is read here: a power cut must not take
        it back once something was built on it; entries first, as in a flush.
        """
        self._files.open_file(file.start).file.sync()
        if self._sums.has(file.start):
            self._sums.open_file(file.start).file.sync()

    def _judge_sums(self, file: IndexFile, *, clean: bool, ours: bool, mend: bool) -> str | None:
        """Take over the file's sums when they are its own; a sentence when it, or they, are not as
        they were.
        """
        if not self._sums.has(file.start):
            return None
        entry = self._sums.open_file(file.start)
        found = read_versions(entry.file.pread(self._sums.file_size_bytes, 0), self._shape)
        version, header = found.newest, file.header_on_disk()
        fault = None
        if found.torn and clean:  # A crash may leave them so.
            fault = f"the sums of index file {file.start:017d} are damaged; they are made anew"
        if version is not None and (
            header == version.header or self._is_half_flushed(header, found.before)
        ):
            sums = self.new_sums(file)
            file.trust(sums, version)
            if found.torn and mend:
                sums.write(version.header, version.entries).file.sync()
            return fault
        if version is None or found.torn or not ours or not file.belongs(version):
            if mend:  # Of an earlier state, or of another file.
                self._sums.remove(file.start)
            return fault
        file.trust(self.new_sums(file), version)
        return f"index file {file.start:017d}: its header was not as it was flushed"

    def _is_half_flushed(self, header: bytes, before: Version | None) -> bool:
        """Is it the header that was to be written over when the process ended?"""
        return header == before.header if before is not None else not header.strip(b"\0")

    def look(self, log_end: int, *, clean: bool = True) -> list[str]:
        """Check every file, and change nothing; a sentence for each that cannot be right, or is not
        as it was flushed. Messages of the log end at `log_end`. `clean`: nothing is being written.
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
            faults += self._look_at_sums(file, clean=clean)
            fault = IndexRepair(file).look(before, log_end)
            if fault is not None:
                faults.append(f"index file {name}: {fault}")
            before = max(before, file.end_physical)
        return faults

    def _look_at_sums(self, file: IndexFile, *, clean: bool) -> list[str]:
        """Is it as it was flushed? Of a file that may be written to only what does not change."""
        path = self._sums.path_of(file.start)
        if not self._disk.exists(path) or not (clean or file.full):
            return []
        if self._sums.length_of(file.start) == self._sums.file_size_bytes:
            self._sums.starts.append(file.start)
        header = file.header_bytes()
        fault = self._judge_sums(file, clean=clean, ours=True, mend=False)
        faults = [] if fault is None else [fault]
        try:
            while parts := file.parts_to_look_at(PARTS_LOOKED_AT):
                file.looked_at(parts, [file.sum_of(part) for part in parts])
            file.end_look()
        except DamagedIndex as damage:
            faults.append(str(damage))
        file.take_header(header)
        return faults

    def fingerprint(self) -> int:
        """Equal while the files and what their headers count are the same."""
        counts = [(file.start, file.index_count, file.end_physical) for file in self.files]
        return crc32(repr(counts).encode())

    def begin_anew(self) -> None:
        """Remove every file: the keys are to be put again from the log."""
        if self.files:
            self.drop_from(self.files[0].start)

    def drop_from(self, start: int) -> None:
        """Remove the file of that name and those behind it: their keys are to be put again."""
        for file in [file for file in reversed(self.files) if file.start >= start]:
            self._remove(file)
        self.folder_dirty = True

    def _remove(self, file: IndexFile) -> None:
        if self._sums.has(file.start):
            self._sums.remove(file.start)
        self._files.remove(file.start)
        self.files.remove(file)

    def give_up(self, damage: DamagedIndex) -> None:
        """Damage was met after the start: drop what is not as it was, and fall behind."""
        self.drop_from(damage.start)
        self.is_behind, self.filled_to = True, None
        self.on_damage(f"{damage}; its keys and all later ones are put again from the log")

    def repair_newest(self, log_bound: int, *, clean: bool = False) -> list[str]:
        """The newest file with entries, and empty ones behind it, may after an unclean stop have
        slots of entries that never arrived. Older ones were flushed whole before it. Returns a
        sentence for each that was not as it was flushed.
        """
        filled = [number for number, file in enumerate(self.files) if file.index_count > 1]
        faults: list[str] = []
        for file in self.files[filled[-1] if filled else 0 :]:
            file.is_unsummed = False
            try:
                if file.sums is not None:
                    damage = IndexRepair(file).restore()
                    faults += [] if damage is None else [damage]
                    continue
                if not clean:
                    IndexRepair(file).repair(log_bound)
                sums = self.new_sums(file)
                file.make_sums(sums)
                sums.write(file.header_bytes(), sums.entries).file.sync()
            except DiskFull:  # It is taken without them; the next start makes them.
                file.sums = None
            except DamagedIndex as error:
                self.drop_from(file.start)
                faults.append(f"{error}; its keys are put again from the log")
                break
        return faults

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
        file = IndexFile(self._files, start, self._shape)
        file.sums = self.new_sums(file)
        self.files.append(file)

    def find(self, key_hash: int, count_max: int, begin_ms: int, end_ms: int) -> list[int]:
        """Physical offsets under `key_hash` in ascending order, the newest `count_max` of them."""
        found: dict[int, None] = {}
        for file in self.files[::-1]:
            if len(found) >= count_max:
                break
            if file.overlaps(begin_ms, end_ms):
                try:
                    offsets = file.find(key_hash, count_max, begin_ms, end_ms)
                except DamagedIndex as error:
                    self.give_up(error)
                    continue
                for physical_offset in offsets:
                    found[physical_offset] = None
        return sorted(list(found)[:count_max])

    @property
    def dirty(self) -> bool:
        """Is there anything to flush?"""
        return self.folder_dirty or self._sums.folder_dirty or bool(self.dirty_files())

    def take_folders_of_sums(self) -> list[str]:
        """The folder of the sums, when it is to be synced for the names of files made."""
        folders = [self._sums.directory] if self._sums.folder_dirty else []
        self._sums.folder_dirty = False
        return folders

    def dirty_files(self) -> list[IndexFile]:
        """Files with something to flush."""
        return [file for file in self.files if file.dirty]

    def new_sums(self, file: IndexFile) -> IndexSums:
        """Sums to be made of a file that has none."""
        return IndexSums(self._sums, file.start, self._shape)

    def holds(self, file: IndexFile) -> bool:
        """Is the file still one of the index?"""
        return self._files.has(file.start)

    def open_file(self, file: IndexFile) -> OpenFile:
        """The open file behind an index file."""
        return self._files.open_file(file.start)

    def follow_log(self, physical_min: int) -> int:
        """Delete files whose newest message is gone from the log; the newest file always stays."""
        removed = 0
        while len(self.files) > 1 and self.files[0].end_physical < physical_min:
            self._remove(self.files[0])
            self.folder_dirty = True
            removed += 1
        return removed

    def truncate_to_log(self, physical_end: int) -> None:
        """Forget the entries of messages at or behind `physical_end`: newest first, so that what a
        crash leaves lacks no key amid others.
        """
        for file in [each for each in reversed(self.files) if each.index_count > 1]:
            if file.end_physical < physical_end:
                return
            try:
                if file.entry(1)[1] < physical_end:
                    self._disk.sync_directory(self.directory)  # Those behind it are gone for good.
                    self._cut(file, physical_end)
                    return
            except DamagedIndex as error:
                self.give_up(error)
                return
            self._remove(file)
            self.folder_dirty = True

    def _cut(self, file: IndexFile, physical_end: int) -> None:
        """Raises DamagedIndex for a file that is not as it was, or that the scrub is looking at."""
        if file.is_being_summed:
            raise DamagedIndex(file.start, "its sums are not made yet: its entries count as")
        file.is_unsummed = False  # The next start makes sums of what is left.
        if file.sums is None:  # It was full, and is not any more.
            self._judge_sums(file, clean=True, ours=True, mend=False)
        IndexRepair(file).cut(physical_end)

    def close(self) -> None:
        """Close the files."""
        self._files.close()
        self._sums.close()


def _ignore(words: str) -> None:
    del words


class _NamedByTime(FileSequence):
    """A file sequence whose names are times of 17 digits, not offsets.

    Slots are read through the mapping wherever a key falls. Their room is taken when the file is
    made: to read a hole takes room on some file systems (tmpfs), and without any the process dies.
    """

    def __init__(
        self, disk: Disk, directory: str, file_bytes: int, pool: FilePool, *, reserved_bytes: int
    ) -> None:
        super().__init__(disk, directory, file_bytes, pool, reserve=False)
        self._reserved_bytes = reserved_bytes
        self.folder_dirty = False
        """Were files made since the folder was synced?"""

    def path_of(self, start: int) -> str:
        return f"{self.directory}/{start:017d}"

    def create(self, start: int) -> OpenFile:
        path = self.path_of(start)
        file = self.disk.open(path, create=True)
        try:
            file.truncate(self.file_size_bytes)
            file.allocate(self._reserved_bytes)
        except StorageError:
            file.close()
            self.disk.remove(path)
            raise
        self.folder_dirty = True
        return self.adopt(start, file)

    def load_named(self, *, drop_behind: bool) -> list[str]:
        """Find the files; remove one of another length, and with `drop_behind` all behind it, and
        say so.
        """
        damaged: list[str] = []
        for name in self.disk.names(self.directory):
            if len(name) != 17 or not name.isdecimal():
                continue
            start = int(name)
            found_bytes = self.length_of(start)
            wrong = found_bytes != self.file_size_bytes
            if wrong:
                damaged.append(
                    f"{posixpath.basename(self.directory)} file {name} had {found_bytes} bytes "
                    f"instead of {self.file_size_bytes}"
                )
            if wrong or (damaged and drop_behind):
                self.disk.remove(self.path_of(start))
            else:
                self.starts.append(start)
        return damaged


def index_file_name(now_ms: int) -> str:
    """Name of an index file made at `now_ms`."""
    moment = datetime.fromtimestamp(now_ms // SECOND_MS, UTC)
    return f"{moment:%Y%m%d%H%M%S}{now_ms % SECOND_MS:03d}"


PARTS_AT_ONCE = 64
"""Pages of slots (256 KiB) or blocks of entries (5 MiB)."""
PAUSE_MS = 20
"""Between two looks: 250 MB a second at most, less on a slow disk."""


class IndexScrub:
    """Looks until everything was looked at; `run` once."""

    def __init__(self, disk: Disk, index: Index, pause: Callable[[int], Awaitable[bool]]) -> None:
        """`pause` waits so many milliseconds; True: stop."""
        self._disk = disk
        self._index = index
        self._pause = pause

    async def run(self) -> None:
        """What cannot be read counts as damaged. Never raises for the disk."""
        for file in list(self._index.files):
            if not self._index.holds(file):
                continue  # Its messages are gone, or it went with a damaged one before it.
            try:
                stopped = await self._look_at(file)
            except DamagedIndex as damage:
                self._index.give_up(damage)
                return
            except DiskFull:
                continue  # No room for sums: the next start makes them.
            except StorageError as error:
                self._index.give_up(
                    DamagedIndex(file.start, f"parts cannot be read ({error}) and are")
                )
                return
            if stopped:
                return

    async def _look_at(self, file: IndexFile) -> bool:
        """Look at all of a file; True when it is time to stop. Raises DamagedIndex."""
        makes = file.is_unsummed
        if makes:
            file.begin_sums(self._index.new_sums(file))
        while parts := file.parts_to_look_at(PARTS_AT_ONCE):
            found = await self._sums_of(file, parts)
            if not self._index.holds(file):
                return False
            file.looked_at(parts, found)
            if await self._pause(PAUSE_MS):
                return True
        if makes:
            await self._sync(file)
        file.end_look()
        return False

    async def _sums_of(self, file: IndexFile, parts: Sequence[Part]) -> list[int]:
        entry = self._index.open_file(file).pin()
        try:
            return await self._disk.off_loop(lambda: _sums_of(entry.file, parts))
        finally:
            entry.unpin()

    async def _sync(self, file: IndexFile) -> None:
        entry = file.end_sums().pin()
        try:
            await self._disk.off_loop(entry.file.sync)
        finally:
            entry.unpin()


def _sums_of(file: File, parts: Sequence[Part]) -> list[int]:
    return [crc32(file.pread(part.length, part.position)) for part in parts]
