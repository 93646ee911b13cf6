"""One index file: from a message key to the physical offsets of the messages that carry it.

Place in the walk: `index` holds the files of a store, in order.

    | header: begin time 8 | end time 8 | begin physical 8 | end physical 8 | slots used 4 |
    |         index count 4                                                                |
    | slots, 4 each: the newest entry of the slot, 0 for none                              |
    | entries, 20 each: key hash 4 | physical offset 8 | seconds since begin time 4 |      |
    |         previous entry of the slot 4                                                 |

Entry 0 is never used, so index count starts at 1; the file is full when the count reaches its
maximum.

Entries, slots and header are written at a flush, header last: whatever a crash leaves, the entries
below the header's count are good, and `repair` builds the slots from them; recovery puts the keys
of later messages again. (RocketMQ deletes such a file and forgets its keys.)

Invariant: `write_slots`, sync, `write_header`, sync: so every entry that a header on disk counts is
on disk itself.
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
        dirty, append = self._dirty_slots, self._entries.append
        pack, unpack_from = ENTRY.pack, SLOT.unpack_from
        for key_hash, physical_offset, stored_ms in keys[:taken]:
            slot = key_hash % slot_count
            previous = dirty.get(slot)
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

    def write_slots(self) -> None:
        """Write entries, and changed slots by the page; a sync and `write_header` come next.

        At full load thousands of slots change between two flushes: writing each by itself takes
        ten times as long.
        """
        self.write_entries()
        entry = self._open()
        pages: dict[int, list[int]] = {}
        for slot in self._dirty_slots:
            pages.setdefault(slot // PAGE_SLOTS, []).append(slot)
        for page, slots in sorted(pages.items()):
            first = page * PAGE_SLOTS
            count = min(PAGE_SLOTS, self._shape.slot_count - first)
            position = self._shape.slot_position(first)
            content = bytearray(entry.view[position : position + count * SLOT_BYTES])
            for slot in slots:
                SLOT.pack_into(content, (slot - first) * SLOT_BYTES, self._dirty_slots[slot])
            entry.file.pwrite(content, position)
        self._dirty_slots.clear()

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
        """Build slots and chains anew from the entries the header counts, after an unclean stop.

        A torn header may count entries that are not there, or name another last message; the
        entries themselves decide, up to the first that no message below `log_bound` can have.
        """
        shape = self._shape
        file = self._open().file
        count = min(self.index_count, shape.index_count_max)
        data = bytearray(file.pread((count - 1) * ENTRY_BYTES, shape.entry_position(1)))
        slots = array("i", bytes(SLOT_BYTES * shape.slot_count))
        number, newest, seconds = 1, 0, 0
        for key_hash, physical_offset, entry_seconds, _ in ENTRY.iter_unpack(bytes(data)):
            if not newest <= physical_offset < log_bound:
                break
            if number > 1 and physical_offset == key_hash == 0:
                break
            slot = key_hash % shape.slot_count
            SLOT.pack_into(data, number * ENTRY_BYTES - SLOT_BYTES, slots[slot])
            slots[slot] = number
            newest, seconds = physical_offset, entry_seconds
            number += 1
        self.index_count = number
        if newest != self.end_physical:
            self.end_physical = newest
            self.end_timestamp_ms = self.begin_timestamp_ms + seconds * SECOND_MS
        self.used_slot_count = len(slots) - slots.count(0)
        if sys.byteorder == "little":
            slots.byteswap()
        file.pwrite(data, shape.entry_position(1))
        file.pwrite(slots.tobytes(), shape.slot_position(0))
        file.pwrite(self.header_bytes(), 0)
        file.sync()

    def cut(self, physical_end: int) -> bool:
        """Forget the entries of messages at or behind `physical_end`; False when none is left."""
        self.write_entries()
        view = self._open().view
        low, high = 1, self.index_count
        while low < high:
            middle = (low + high) // 2
            if ENTRY.unpack_from(view, self._shape.entry_position(middle))[1] < physical_end:
                low = middle + 1
            else:
                high = middle
        if low == 1:
            return False
        _, newest, seconds, _ = ENTRY.unpack_from(view, self._shape.entry_position(low - 1))
        self.index_count = low
        self.end_physical = newest
        self.end_timestamp_ms = self.begin_timestamp_ms + seconds * SECOND_MS
        self.repair(physical_end)
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
        number = self._dirty_slots.get(slot) or self._slot_on_disk(slot)
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

    def _entry(self, number: int) -> tuple[int, ...]:
        in_memory_from = self.index_count - len(self._entries)
        if number >= in_memory_from:
            return ENTRY.unpack(self._entries[number - in_memory_from])
        return ENTRY.unpack_from(self._open().view, self._shape.entry_position(number))
