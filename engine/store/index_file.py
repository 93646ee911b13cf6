"""One index file: from a message key to the physical offsets of the messages that carry it.

Place in the walk: `index` holds the files of a store, in order.

    | header: begin time 8 | end time 8 | begin physical 8 | end physical 8 | slots used 4 |
    |         index count 4                                                                |
    | slots, 4 each: the newest entry of the slot, 0 for none                              |
    | entries, 20 each: key hash 4 | physical offset 8 | seconds since begin time 4 |      |
    |         previous entry of the slot 4                                                 |

Entry 0 is never used, so index count starts at 1; the file is full when the count reaches its
maximum.

At a flush entries are written, then the slots that lead to them, then the header that counts both,
with a sync between: whatever a crash leaves, the entries below the header's count are good, and a
slot that leads further leads to an entry that is there and names the one before it. So `repair`
follows what points too far and reads nothing else; recovery puts the keys of later messages again.
(RocketMQ deletes such a file and forgets its keys.)

Invariant: `begin_flush`, sync, `write_slots`, sync, `write_header`, sync. No step holds more of the
file in memory than its slots.
Absent on purpose: the keys themselves. Two keys may share a hash; who asks must compare the
message's own keys.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from engine.foundation.units import SECOND_MS
from engine.store.mapped_file import FileSequence, OpenFile

HEADER = Struct(">qqqqii")
SLOT = Struct(">i")
ENTRY = Struct(">iqii")
HEADER_BYTES = HEADER.size
SLOT_BYTES = SLOT.size
ENTRY_BYTES = ENTRY.size
SECONDS_MAX = 0x7FFFFFFF
PAGE_SLOTS = 1024
CHUNK_SLOTS = 64 * PAGE_SLOTS
CHUNK_ENTRIES = 16 * 1024
ENTRY_INTS = 5
"""An entry is as long as five 32-bit numbers; the first is the key's hash."""
ZEROS_BYTES_MAX = 256 * 1024
ENTRIES_IN_MEMORY_MAX = 4096

IndexKey = tuple[int, int, int]
"""key hash, physical offset, store time in ms"""


@dataclass(frozen=True, slots=True)
class IndexShape:
    """How many slots and entries an index file has; a setting of the whole store."""

    slot_count: int
    index_count_max: int

    @property
    def file_bytes(self) -> int:
        """Length of the file."""
        return HEADER.size + self.slot_count * SLOT_BYTES + self.index_count_max * ENTRY_BYTES

    def slot_position(self, slot: int) -> int:
        """Where the slot stands in the file."""
        return HEADER.size + slot * SLOT_BYTES

    def entry_position(self, entry: int) -> int:
        """Where the entry stands in the file."""
        return HEADER.size + self.slot_count * SLOT_BYTES + entry * ENTRY_BYTES


class IndexFile:
    """One file with the part of it that is not written yet."""

    def __init__(self, files: FileSequence, start: int, shape: IndexShape) -> None:
        self._files = files
        self.start = start
        """The file's name as a number; names sort by time."""
        self._shape = shape
        header: tuple[int, ...] = HEADER.unpack(self._open().file.pread(HEADER.size, 0))
        self.begin_timestamp_ms, self.end_timestamp_ms = header[0], header[1]
        self.begin_physical, self.end_physical = header[2], header[3]
        self.used_slot_count = header[4]
        self.index_count = max(header[5], 1)
        self._dirty_slots: dict[int, int] = {}
        """Slots of entries put since the last flush began."""
        self._due_slots: dict[int, int] = {}
        """Slots of the flush under way: written when its entries are safe."""
        self._entries: list[bytes] = []
        self._header_dirty = False

    def _open(self) -> OpenFile:
        return self._files.open_file(self.start)

    @property
    def full(self) -> bool:
        """Has it no room for another entry?"""
        return self.index_count >= self._shape.index_count_max

    @property
    def dirty(self) -> bool:
        """Is there anything to flush?"""
        return self._header_dirty

    def put(self, keys: Sequence[IndexKey]) -> int:
        """Add entries while there is room; how many were taken. Hot.

        They stay in memory until the next flush: a write per turn of the event loop would cost as
        much as all the rest here.
        """
        taken = min(len(keys), self._shape.index_count_max - self.index_count)
        if taken <= 0:
            return 0
        if self.index_count == 1:
            _, self.begin_physical, self.begin_timestamp_ms = keys[0]
        begin_ms, number = self.begin_timestamp_ms, self.index_count
        view, slot_count = self._open().view, self._shape.slot_count
        dirty, due, append = self._dirty_slots, self._due_slots, self._entries.append
        pack, unpack_from = ENTRY.pack, SLOT.unpack_from
        for key_hash, physical_offset, stored_ms in keys[:taken]:
            slot = key_hash % slot_count
            previous = dirty.get(slot) or due.get(slot)
            if previous is None:
                (previous,) = unpack_from(view, HEADER_BYTES + slot * SLOT_BYTES)
                if not 0 < previous < number:
                    previous = 0
                    self.used_slot_count += 1
            dirty[slot] = number
            seconds = (stored_ms - begin_ms) // SECOND_MS
            if not 0 <= seconds <= SECONDS_MAX:
                seconds = 0 if seconds < 0 else SECONDS_MAX
            append(pack(key_hash, physical_offset, seconds, previous))
            number += 1
        self.index_count = number
        self.end_physical, self.end_timestamp_ms = physical_offset, stored_ms
        self._header_dirty = True
        if len(self._entries) >= ENTRIES_IN_MEMORY_MAX:
            self.write_entries()
        return taken

    def newest_count(self) -> int:
        """How many entries the newest message has here."""
        number = self.index_count
        while number > 1 and self._entry(number - 1)[1] == self.end_physical:
            number -= 1
        return self.index_count - number

    def _slot_on_disk(self, slot: int) -> int:
        position = self._shape.slot_position(slot)
        value: int = SLOT.unpack_from(self._open().view, position)[0]
        return value if 0 < value < self.index_count else 0

    def write_entries(self) -> None:
        """Write the entries that are in memory only: one write."""
        if self._entries:
            first = self.index_count - len(self._entries)
            data = b"".join(self._entries)
            self._open().file.pwrite(data, self._shape.entry_position(first))
            self._entries.clear()

    def begin_flush(self) -> bytes:
        """Write the entries; what comes after is for the next flush. Returns the header as of now,
        to be written when entries and slots are safe. Raises DiskFull; the next call tries again.
        """
        self.write_entries()
        self._due_slots |= self._dirty_slots
        self._dirty_slots = {}
        return self.header_bytes()

    def write_slots(self) -> None:
        """Write the slots of the flush under way, by the page; a sync and `write_header` come next.

        At full load thousands of slots change between two flushes: writing each by itself takes
        ten times as long.
        """
        entry = self._open()
        pages: dict[int, list[int]] = {}
        for slot in self._due_slots:
            pages.setdefault(slot // PAGE_SLOTS, []).append(slot)
        for page, slots in sorted(pages.items()):
            first = page * PAGE_SLOTS
            count = min(PAGE_SLOTS, self._shape.slot_count - first)
            position = self._shape.slot_position(first)
            content = bytearray(entry.view[position : position + count * SLOT_BYTES])
            for slot in slots:
                SLOT.pack_into(content, (slot - first) * SLOT_BYTES, self._due_slots[slot])
            entry.file.pwrite(content, position)
        self._due_slots = {}

    def header_bytes(self) -> bytes:
        """The header as of now."""
        return HEADER.pack(
            self.begin_timestamp_ms,
            self.end_timestamp_ms,
            self.begin_physical,
            self.end_physical,
            self.used_slot_count,
            self.index_count,
        )

    def write_header(self, header: bytes) -> None:
        """Write the header that was taken before its entries were synced."""
        self._open().file.pwrite(header, 0)
        if header == self.header_bytes():
            self._header_dirty = False

    def repair(self, log_bound: int) -> None:
        """Make slots and header agree with the entries, after an unclean stop.

        A torn header may count entries that are not there, or name another last message; the
        entries themselves decide, up to the first that no message below `log_bound` can have.
        """
        count = min(self.index_count, self._shape.index_count_max)
        first_physical = self._entry(1)[1] if count > 1 else 0
        low, high = 1, count
        while low < high:
            middle = (low + high) // 2
            key_hash, physical_offset, _, _ = self._entry(middle)
            unwritten = middle > 1 and physical_offset == key_hash == 0
            if unwritten or not first_physical <= physical_offset < log_bound:
                high = middle
            else:
                low = middle + 1
        while low > 2 and self._entry(low - 1)[1] < self._entry(low - 2)[1]:
            low -= 1
        self._settle(low)

    def look(self, physical_before: int, log_end: int) -> str | None:
        """What cannot be right in it, in words; None when nothing. Changes nothing. Messages of the
        file before end at `physical_before`, those of the log at `log_end`.
        """
        shape, file = self._shape, self._open().file
        if self.index_count > shape.index_count_max:
            return f"its header counts {self.index_count} entries of {shape.index_count_max}"
        newest = physical_before
        for first in range(1, self.index_count, CHUNK_ENTRIES):
            length = min(CHUNK_ENTRIES, self.index_count - first) * ENTRY_BYTES
            entries = ENTRY.iter_unpack(file.pread(length, shape.entry_position(first)))
            for number, (_, physical_offset, _, previous) in enumerate(entries, first):
                if not newest <= physical_offset < log_end:
                    return f"entry {number} names a message at {physical_offset}, after {newest}"
                if not 0 <= previous < number:
                    return f"entry {number} leads on to entry {previous}"
                newest = physical_offset
        if self.index_count > 1 and newest != self.end_physical:
            return f"its header says that it ends at {self.end_physical}, its entries at {newest}"
        return None

    def _settle(self, count: int) -> None:
        """Let the file end before entry `count`."""
        self.index_count = count
        newest, seconds = self._entry(count - 1)[1:3] if count > 1 else (0, 0)
        if newest != self.end_physical:
            self.end_physical = newest
            self.end_timestamp_ms = self.begin_timestamp_ms + seconds * SECOND_MS
        if not self._pull_slots_back(count):
            self._build_slots(count)
        file = self._open().file
        if file.pread(HEADER_BYTES, 0) != self.header_bytes():
            file.pwrite(self.header_bytes(), 0)
        file.sync()

    def _pull_slots_back(self, count: int) -> bool:
        """Let every slot that leads to entry `count` or further lead to the one before; False when
        an entry on the way is not there.
        """
        shape, empty = self._shape, 0
        for first in range(0, shape.slot_count, CHUNK_SLOTS):
            slots = self._slots(first)
            if max(slots) >= count or min(slots) < 0:
                for inside, number in enumerate(slots):
                    if not 0 <= number < count:
                        before = self._entry_before(number, first + inside, count)
                        if before is None:
                            return False
                        slots[inside] = before
                self._write_slots_from(first, slots)
            empty += slots.count(0)
        self.used_slot_count = shape.slot_count - empty
        return True

    def _entry_before(self, number: int, slot: int, count: int) -> int | None:
        """The newest entry of the slot below `count`, by the chain from `number`; 0 for none."""
        while number >= count:
            if number >= self._shape.index_count_max:
                return None
            key_hash, physical_offset, _, previous = self._entry(number)
            unwritten = key_hash == physical_offset == 0
            if unwritten or key_hash % self._shape.slot_count != slot or previous >= number:
                return None
            number = previous
        return number if number >= 0 else None

    def _build_slots(self, count: int) -> None:
        """All slots anew from the hashes of the entries: of a file that others wrote, or damaged.

        20 million entries take some 2 s and the 20 MB of the slots.
        """
        shape, file = self._shape, self._open().file
        slot_count = shape.slot_count
        slots = array("i", bytes(SLOT_BYTES * slot_count))
        for first in range(1, count, CHUNK_ENTRIES):
            length = min(CHUNK_ENTRIES, count - first) * ENTRY_BYTES
            numbers = _numbers(file.pread(length, shape.entry_position(first)))
            for number, key_hash in enumerate(numbers[::ENTRY_INTS], first):
                slots[key_hash % slot_count] = number
        for first in range(0, slot_count, CHUNK_SLOTS):
            chunk = slots[first : first + CHUNK_SLOTS]
            if chunk != self._slots(first):
                self._write_slots_from(first, chunk)
        self.used_slot_count = slot_count - slots.count(0)

    def _slots(self, first: int) -> array[int]:
        """CHUNK_SLOTS slots from `first` on, as they are on disk."""
        count = min(CHUNK_SLOTS, self._shape.slot_count - first)
        position = self._shape.slot_position(first)
        return _numbers(self._open().file.pread(count * SLOT_BYTES, position))

    def _write_slots_from(self, first: int, slots: array[int]) -> None:
        written = slots[:]
        if sys.byteorder == "little":
            written.byteswap()
        self._open().file.pwrite(written.tobytes(), self._shape.slot_position(first))

    def cut(self, physical_end: int) -> bool:
        """Forget the entries of messages at or behind `physical_end`; False when none is left."""
        self.begin_flush()
        self.write_slots()
        low, high = 1, self.index_count
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle)[1] < physical_end:
                low = middle + 1
            else:
                high = middle
        if low == 1:
            return False
        end = self._shape.entry_position(self.index_count)
        self._settle(low)
        file = self._open().file  # Left in place, a torn header could count them again.
        for position in range(self._shape.entry_position(low), end, ZEROS_BYTES_MAX):
            file.pwrite(bytes(min(ZEROS_BYTES_MAX, end - position)), position)
        return True

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """May it hold messages stored in [begin_ms, end_ms]? After a cut its end is known to the
        second.
        """
        return self.index_count > 1 and (
            self.begin_timestamp_ms <= end_ms and self.end_timestamp_ms + SECOND_MS > begin_ms
        )

    def find(self, key_hash: int, count_max: int, begin_ms: int, end_ms: int) -> list[int]:
        """Physical offsets under `key_hash`, newest first, stored in [begin_ms, end_ms] to the
        second.
        """
        slot = key_hash % self._shape.slot_count
        waiting = self._dirty_slots.get(slot) or self._due_slots.get(slot)
        number = waiting or self._slot_on_disk(slot)
        found: list[int] = []
        while 0 < number < self.index_count and len(found) < count_max:
            entry_hash, physical_offset, seconds, previous = self._entry(number)
            stored_ms = self.begin_timestamp_ms + seconds * SECOND_MS
            if stored_ms + SECOND_MS <= begin_ms:
                break  # The chain only gets older from here.
            if entry_hash == key_hash and stored_ms <= end_ms:
                found.append(physical_offset)
            if previous >= number:
                break  # A chain only leads back; anything else is damage.
            number = previous
        return found

    def entry(self, number: int) -> tuple[int, int]:
        """Hash of the key and physical offset of an entry; the first is number 1."""
        key_hash, physical_offset, *_ = self._entry(number)
        return key_hash, physical_offset

    def _entry(self, number: int) -> tuple[int, ...]:
        in_memory_from = self.index_count - len(self._entries)
        if self._entries and number >= in_memory_from:
            return ENTRY.unpack(self._entries[number - in_memory_from])
        return ENTRY.unpack_from(self._open().view, self._shape.entry_position(number))


def _numbers(data: bytes) -> array[int]:
    """Big-endian 32-bit numbers."""
    numbers = array("i")
    numbers.frombytes(data)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
