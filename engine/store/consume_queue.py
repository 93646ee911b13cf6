"""A consume queue: an ordered sequence of 20-byte pointers into the commit log.

Place in the walk: `dispatch` appends units, `reading` turns a run of units into records,
`retention` cuts the front.

    | 0 ... 7         | 8 .. 11 | 12 ... 19 |   20 bytes, big-endian;
    | physical_offset | size    | tags_code |   queue offset = byte offset / 20

The newest units wait in memory, to be written some at a time or with the next flush: a broker of
ten thousand topics would else open a file for each message. A kill loses them, and recovery reads
them from the log again, as it does after a power cut.

Files hold a whole number of units; a unit of zeros is space not yet written. A queue that does not
begin at offset 0 fills its first file up to the first message with (0, 0x7FFFFFFF, 0), so that a
reader never takes them for the end. Offsets whose messages went in a hole of the log before they
were ever in the queue's files are bridged by units of no size: (start of the hole, 0x7FFFFFFF, 0).

Invariant: units are only added at `max_offset`, and physical offsets grow with the queue offset.
Absent on purpose: the commit log, tags, waiting readers. The file is derived: everything here can
be built again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import pairwise
from struct import Struct

from engine.foundation.limits import QUEUE_UNITS_WAITING_MAX
from engine.runtime.disk import Disk
from engine.store.mapped_file import FilePool, FileSequence, OpenFile

UNIT = Struct(">qiq")
UNIT_BYTES = UNIT.size
FILLER_SIZE = 0x7FFFFFFF
FILLER = UNIT.pack(0, FILLER_SIZE, 0)
WAITING_BYTES_MAX = QUEUE_UNITS_WAITING_MAX * UNIT_BYTES
LOAD_CHUNK_BYTES = 3200 * UNIT_BYTES

Unit = tuple[int, int, int]
"""physical_offset, size in bytes, tags_code"""


def unit_end(unit: Unit) -> int:
    """Commit-log offset behind the unit's message; a unit that bridges lost ones has no length."""
    return unit[0] if unit[1] == FILLER_SIZE else unit[0] + unit[1]


class ConsumeQueue:
    """The pointers of one (topic, queue_id)."""

    def __init__(self, disk: Disk, directory: str, file_size_bytes: int, pool: FilePool) -> None:
        assert file_size_bytes % UNIT_BYTES == 0, f"{file_size_bytes} holds no whole units"
        self._files = FileSequence(disk, directory, file_size_bytes, pool, reserve=False)
        self.min_offset = 0
        """First queue offset whose message the commit log still holds."""
        self.max_offset = 0
        """Queue offset that the next unit gets."""
        self.end_physical = 0
        """Commit-log offset just behind the newest message; 0 when there is none."""
        self.loaded_to = 0
        """Units before this queue offset are of an earlier life: whoever follows one has to check
        what it leads to."""
        self.synced_offset = 0
        """Units before this queue offset are on stable storage."""
        self.synced_physical = 0
        """Where the message of the newest one of them ends."""
        self._waiting = bytearray()
        """The units before `max_offset` that are in no file yet."""
        self._waiting_after = 0
        """Where the message of the unit before them ends; of no meaning without any."""
        self.last_store_time_ms: int | None = None
        """Store time of the newest message dispatched since the store was opened, else unknown."""
        self._dirty: list[int] = []
        self.dirty_bytes = 0
        """What was written since the last flush."""
        self.folder_dirty = False
        """Were files made or removed since the folder was last synced?"""

    @property
    def directory(self) -> str:
        """The folder of the queue's files."""
        return self._files.directory

    @property
    def _written_offset(self) -> int:
        """First queue offset that is in no file."""
        return self.max_offset - len(self._waiting) // UNIT_BYTES

    @property
    def first_in_files(self) -> int:
        """Queue offset with which its oldest file begins; 0 without files."""
        return self.ends[0] // UNIT_BYTES

    @property
    def ends(self) -> tuple[int, int, int]:
        """Where the queue's files begin, its next offset, and the end of its newest message: what
        is lost of the files shows here, but for damage in their middle.
        """
        starts = self._files.starts
        return starts[0] if starts else 0, self.max_offset, self.end_physical

    def append(self, units: Iterable[Unit]) -> None:
        """Add units behind the newest one. Hot.

        Raises DiskFull, with nothing added, when those before cannot be written.
        """
        packed = b"".join([UNIT.pack(*unit) for unit in units])
        if len(self._waiting) + len(packed) > WAITING_BYTES_MAX:
            self.write_out()
        last_physical, last_size, _ = UNIT.unpack_from(packed, len(packed) - UNIT_BYTES)
        if not self._waiting:
            self._waiting_after = self.end_physical
        self._waiting += packed
        self.max_offset += len(packed) // UNIT_BYTES
        self.dirty_bytes += len(packed)
        self.end_physical = last_physical + last_size

    def write_out(self) -> None:
        """Write what waits. Raises DiskFull or StorageError; then it still waits."""
        if self._waiting:
            self._write(bytes(self._waiting), self._written_offset * UNIT_BYTES)
            self._waiting.clear()

    def _write(self, packed: bytes, position: int) -> None:
        """One write for each file touched."""
        file_size_bytes = self._files.file_size_bytes
        taken = 0
        while taken < len(packed):
            inside = (position + taken) % file_size_bytes
            start = position + taken - inside
            if not self._files.has(start):
                self._files.disk.make_directories(self.directory)
                self._files.create(start)
                self.folder_dirty = True
            part = packed[taken : taken + file_size_bytes - inside]
            self._files.open_file(start).file.pwrite(part, inside)
            if start not in self._dirty:
                self._dirty.append(start)
            taken += len(part)

    def mend(self, queue_offset: int, unit: Unit) -> bool:
        """Write a unit again, in its place; the one just before `min_offset` is kept from now on.
        False when its file is gone. Raises DiskFull, StorageError.
        """
        position, written = queue_offset * UNIT_BYTES, self._written_offset
        packed = UNIT.pack(*unit)
        if queue_offset >= written:
            begin = (queue_offset - written) * UNIT_BYTES
            self._waiting[begin : begin + UNIT_BYTES] = packed
        elif self._files.has(self._files.start_at(position)):
            self._write(packed, position)
            self.dirty_bytes += UNIT_BYTES
        else:
            return False
        self.min_offset = min(self.min_offset, queue_offset)
        if queue_offset == self.max_offset - 1:
            self.end_physical = unit_end(unit)
        if queue_offset == written - 1:
            self._waiting_after = unit_end(unit)
        return True

    def unit_in_file(self, queue_offset: int) -> Unit | None:
        """What is written at `queue_offset`, beyond the end, too; None for zeros."""
        position = queue_offset * UNIT_BYTES
        start = self._files.start_at(position)
        if not self._files.has(start):
            return None
        data = self._files.open_file(start).file.pread(UNIT_BYTES, position - start)
        return UNIT.unpack(data) if any(data) and len(data) == UNIT_BYTES else None

    def put_right(self, queue_offset: int, unit: Unit) -> None:
        """Write a unit again, and look for the queue's end again: when it was just loaded."""
        self._write(UNIT.pack(*unit), queue_offset * UNIT_BYTES)
        self._find_end(self._files.starts[-3:])

    def file_of(self, queue_offset: int) -> str:
        """Path of the file that holds the unit at `queue_offset`."""
        return self._files.path_of(self._files.start_at(queue_offset * UNIT_BYTES))

    def skip_to(self, queue_offset: int) -> None:
        """Make `queue_offset` the next one: fill what lies before it in its file, drop older files.

        Happens when the log no longer holds (or never held) the messages in between.
        """
        assert queue_offset > self.max_offset, f"{queue_offset} is not beyond {self.max_offset}"
        self.write_out()
        start = self._files.start_at(queue_offset * UNIT_BYTES)
        if start > self.max_offset * UNIT_BYTES:
            self._files.remove_from(0)
            self._dirty.clear()
            self.folder_dirty = True
            self.max_offset = start // UNIT_BYTES
        filled = FILLER * (queue_offset - self.max_offset)
        self._write(filled, self.max_offset * UNIT_BYTES)
        self.dirty_bytes += len(filled)
        self.min_offset = self.max_offset = queue_offset

    def bridge_to(self, queue_offset: int, physical_offset: int) -> None:
        """Make `queue_offset` the next one; what is kept before it stays. Their messages were lost
        in a hole that begins at `physical_offset`.
        """
        assert queue_offset > self.max_offset, f"{queue_offset} is not beyond {self.max_offset}"
        self.write_out()
        self.end_physical = max(physical_offset, self.end_physical)
        filler = UNIT.pack(self.end_physical, FILLER_SIZE, 0)
        while self.max_offset < queue_offset:
            count = min(queue_offset - self.max_offset, LOAD_CHUNK_BYTES // UNIT_BYTES)
            self._write(filler * count, self.max_offset * UNIT_BYTES)
            self.max_offset += count
            self.dirty_bytes += count * UNIT_BYTES

    def begin_anew(self) -> None:
        """Forget every unit: they are to be built again from the log."""
        self._waiting.clear()
        self._files.remove_from(0)
        self._dirty.clear()
        self.folder_dirty = True
        self.min_offset = self.max_offset = self.end_physical = self.dirty_bytes = 0
        self.last_store_time_ms = None

    def units(self, queue_offset: int, count_max: int) -> list[Unit]:
        """The units from `queue_offset` on: at most `count_max`, none from beyond its file. Hot."""
        if not self.min_offset <= queue_offset < self.max_offset:
            return []
        position = queue_offset * UNIT_BYTES
        file_size_bytes = self._files.file_size_bytes
        inside = position % file_size_bytes
        count = min(
            count_max, self.max_offset - queue_offset, (file_size_bytes - inside) // UNIT_BYTES
        )
        in_memory = queue_offset + count - self._written_offset
        if in_memory <= 0:
            data = self._files.open_file(position - inside).file.pread(count * UNIT_BYTES, inside)
            return list(UNIT.iter_unpack(data))
        if in_memory < count:
            return self.units(queue_offset, count - in_memory) + self.units(
                self._written_offset, in_memory
            )
        begin = (queue_offset - self._written_offset) * UNIT_BYTES
        return list(UNIT.iter_unpack(self._waiting[begin : begin + count * UNIT_BYTES]))

    def units_over_files(self, queue_offset: int, count_max: int) -> list[Unit]:
        """As `units`, over file ends."""
        units: list[Unit] = []
        while len(units) < count_max:
            more = self.units(queue_offset + len(units), count_max - len(units))
            if not more:
                break
            units += more
        return units

    def unit(self, queue_offset: int) -> Unit | None:
        """The unit at `queue_offset`; None outside [min_offset, max_offset)."""
        found = self.units(queue_offset, 1)
        return found[0] if found else None

    def next_file_offset(self, queue_offset: int) -> int:
        """First queue offset of the file behind the one that holds `queue_offset`."""
        units_per_file = self._files.file_size_bytes // UNIT_BYTES
        return queue_offset - queue_offset % units_per_file + units_per_file

    def first_reaching(self, physical_offset: int) -> int:
        """The first queue offset whose message ends behind `physical_offset`; max_offset if
        none. What waits is looked at first: with ten thousand queues every read opens a file.
        """
        if self.end_physical <= physical_offset:
            return self.max_offset
        if self._waiting and self._waiting_after <= physical_offset:
            ends = [unit[0] + unit[1] for unit in UNIT.iter_unpack(self._waiting)]
            found = self._written_offset + bisect_right(ends, physical_offset)
            return max(found, self.min_offset)
        return self._first_where(lambda unit: unit_end(unit) > physical_offset)

    def count_between(self, begin: int, end: int) -> int:
        """How many units name messages that begin in the log's range [begin, end), bridged ones
        included.
        """
        return self._first_from(end) - self._first_from(begin)

    def _first_from(self, physical_offset: int) -> int:
        """The first queue offset whose message begins at or behind `physical_offset`."""
        return self._first_where(lambda unit: unit[0] >= physical_offset)

    def _first_where(self, holds: Callable[[Unit], bool]) -> int:
        """First queue offset whose unit, and all behind it, pass a test; max_offset if none."""
        low, high = self.min_offset, self.max_offset
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            assert unit is not None, f"{self.directory} lost unit {middle}"
            if holds(unit):
                high = middle
            else:
                low = middle + 1
        return low

    # ---- load, cut, flush -------------------------------------------------------------------

    def load(self, size_key: str, *, clean: bool) -> list[str]:
        """Find the files and the end of the queue; return a sentence for each thing put right.

        The end is the first unit that no message can have: looked for from the third newest file
        on, after a clean stop in the newest one that holds any.
        """
        repairs = self._files.load(size_key)
        starts = self._files.starts
        for earlier, later in pairwise(starts):
            if later - earlier != self._files.file_size_bytes:
                dropped = self._files.remove_from(later)
                repairs.append(f"{self.directory}: {dropped} files behind a missing one removed")
                break
        self._find_ends(newest_only=clean)
        return repairs

    def look(self, size_key: str) -> None:
        """Find the files and the end of the queue, and change nothing: as far as whole files follow
        each other.
        """
        lengths, starts = self._files.look(size_key), self._files.starts
        size_bytes = self._files.file_size_bytes
        for at, (earlier, later) in enumerate(pairwise(starts), 1):
            if later - earlier != size_bytes or lengths[earlier] < size_bytes:
                del starts[at:]
                break
        self._find_ends(newest_only=False)

    def _find_ends(self, *, newest_only: bool) -> None:
        starts = self._files.starts
        if starts:
            self.min_offset = starts[0] // UNIT_BYTES
            self._find_end(starts[-1:] if newest_only else starts[-3:])
            if newest_only and self.end_physical == 0:
                self._find_end(starts[-3:])

    def _find_end(self, starts: list[int]) -> None:
        self.end_physical = 0
        self.max_offset = starts[0] // UNIT_BYTES
        for start in starts:
            for inside in range(0, self._files.file_size_bytes, LOAD_CHUNK_BYTES):
                room = self._files.file_size_bytes - inside
                data = self._files.open_file(start).file.pread(min(LOAD_CHUNK_BYTES, room), inside)
                whole_bytes = len(data) - len(data) % UNIT_BYTES
                if not self._count(data[:whole_bytes]) or not whole_bytes:
                    return

    def _count(self, data: bytes) -> bool:
        """Move the end over the units in `data`; False when one of them is none. Hot."""
        end, count = self.end_physical, 0
        for physical_offset, size_bytes, _ in UNIT.iter_unpack(data):
            if size_bytes <= 0 or physical_offset < end:
                if physical_offset != 0 or size_bytes != FILLER_SIZE:
                    break
            elif size_bytes == FILLER_SIZE:
                end = physical_offset
            else:
                end = physical_offset + size_bytes
            count += 1
        self.end_physical = end
        self.max_offset += count
        return count == len(data) // UNIT_BYTES

    def follow_log(self, physical_min: int) -> int:
        """Move `min_offset` up to the first message the log still holds; drop files before it.

        Returns the number of files removed; the newest file always stays.
        """
        starts = self._files.starts
        if not starts and not self._waiting:
            return 0
        if starts:
            self.min_offset = max(self.min_offset, starts[0] // UNIT_BYTES)
        self.min_offset = self._first_kept(physical_min)
        doomed = [
            start
            for start in starts[:-1]
            if start + self._files.file_size_bytes <= self.min_offset * UNIT_BYTES
        ]
        for start in doomed:
            self._files.remove(start)
            self.folder_dirty = True
        return len(doomed)

    def _first_kept(self, physical_min: int) -> int:
        """As `first_reaching`; one damaged unit that seems to lead before the log hides none of
        those before it.
        """
        if physical_min <= 0:
            return self.min_offset
        found = self.first_reaching(physical_min)
        before = self.unit(found - 2)
        if before is None or unit_end(before) <= physical_min:
            return found
        at = self.min_offset
        while at < found:
            for unit in self.units(at, LOAD_CHUNK_BYTES // UNIT_BYTES):
                if unit_end(unit) > physical_min:
                    return at
                at += 1
        return found

    def truncate_to_log(self, physical_end: int) -> int:
        """Drop the units of messages that end behind `physical_end`; return how many there were."""
        if self.end_physical <= physical_end:
            return 0
        return self.truncate(self.first_reaching(physical_end))

    def truncate(self, queue_offset: int, *, sync: bool = True) -> int:
        """Make `queue_offset` the next one again; return how many units were dropped. Without
        `sync` the next flush makes it last.
        """
        dropped, written = self.max_offset - queue_offset, self._written_offset
        assert dropped >= 0, f"cannot cut {self.directory} at {queue_offset}, beyond its end"
        self.unsync_from(queue_offset)
        del self._waiting[max(0, queue_offset - written) * UNIT_BYTES :]
        self.max_offset = queue_offset
        self.min_offset = min(self.min_offset, queue_offset)
        self.loaded_to = min(self.loaded_to, queue_offset)
        if queue_offset < written:
            self._cut_files(queue_offset * UNIT_BYTES, sync=sync)
        newest = self.unit(queue_offset - 1)
        self.end_physical = unit_end(newest) if newest else 0
        self.last_store_time_ms = None
        return dropped

    def _cut_files(self, position: int, *, sync: bool) -> None:
        self._files.remove_from(position)
        self._files.wipe_from(position, sync=sync)
        self.folder_dirty = True
        self._dirty = [start for start in self._dirty if self._files.has(start)]
        start = self._files.start_at(position)
        if not sync and self._files.has(start) and start not in self._dirty:
            self._dirty.append(start)

    def unsync_from(self, queue_offset: int) -> None:
        """No unit from `queue_offset` on counts as synced any more."""
        if queue_offset < self.synced_offset:
            newest = self.unit(queue_offset - 1)
            self.synced_offset = queue_offset
            self.synced_physical = unit_end(newest) if newest else 0

    def wipe_behind_end(self) -> None:
        """Zero whatever stands behind the last good unit, files behind it included."""
        self.write_out()
        position = self.max_offset * UNIT_BYTES
        start = self._files.start_at(position)
        if self._files.remove_from(start + self._files.file_size_bytes):
            self.folder_dirty = True
        if not self._files.has(start):
            return
        file, inside = self._files.open_file(start).file, position - start
        # What was never written takes no reading: megabytes in each of ten thousand queues.
        while (written := file.written_from(inside)) is not None:
            begin, inside = written
            rest = file.pread(inside - begin, begin)
            if rest.count(0) != len(rest):
                self._files.wipe_from(position)
                return

    def take_dirty(self) -> list[OpenFile]:
        """Files written since the last call, pinned for the flush that has to sync them; what
        waits meanwhile stays dirty.

        Writes nothing: a full disk would leave what other queues have handed over unsynced.
        """
        dirty, self._dirty, self.dirty_bytes = self._dirty, [], len(self._waiting)
        return [self._files.open_file(start).pin() for start in dirty if self._files.has(start)]

    def touch(self) -> None:
        """Count the newest files as written: an earlier process may not have synced them."""
        self._dirty = list(self._files.starts[-3:])
        self.folder_dirty = True

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def take_out(self) -> Callable[[], None]:
        """Forget the queue, with what waits: a flush under way may still hold it. The work returned
        deletes its files, wherever it is run.
        """
        self._waiting.clear()
        return self._files.take_all_out()
