"""An index file, which maps message keys to the physical offsets of their messages.

Place in the walk: `index` holds the files of a store, in order; `index_layout` says what is where.

At a flush entries are written, then the slots that lead to them, then the header that counts both,
with a sync between: whatever a crash leaves, the entries below the header's count are good, and a
slot that leads further leads to an entry that is there and names the one before it. So
`index_repair` follows what points too far; recovery puts the keys of later messages again.
(RocketMQ deletes such a file and forgets its keys.)

What an earlier life has written is checked against its sums (`index_layout`) before it is believed:
slots and header of the newest file at the start, everything else when it is read.

Invariant: `begin_flush`, sync, `write_slots` and `write_sums`, sync, `write_header`, sync. No step
holds more of the file in memory than its slots.
Absent on purpose: the keys themselves. Two keys may share a hash; the caller must compare the
message's own keys.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from zlib import crc32

from engine.foundation.units import SECOND_MS
from engine.store.index.index_layout import (
    BLOCK_ENTRIES,
    ENTRY,
    HEADER,
    HEADER_BYTES,
    PAGE_SLOTS,
    SLOT,
    SLOT_BYTES,
    DamagedIndex,
    IndexShape,
    IndexSums,
    Part,
    Version,
    block_count,
    block_place,
    page_count,
    page_place,
)
from engine.store.mapped_file import FileSequence, OpenFile

SECONDS_MAX = 0x7FFFFFFF
ENTRIES_IN_MEMORY_MAX = 4096

IndexKey = tuple[int, int, int]
"""key hash, physical offset, store time in ms"""


class IndexFile:
    """One file with the part of it that is not written yet."""

    def __init__(self, files: FileSequence, start: int, shape: IndexShape) -> None:
        self._files = files
        self.start = start
        """The file's name as a number; names sort by time."""
        self.shape = shape
        self.sums: IndexSums | None = None
        """None: of a file without any, or one that was looked at as a whole and is full."""
        self.is_unsummed = False
        """Is it a full file that came without sums, and whose sums are still to be made?"""
        self._making: IndexSums | None = None
        self.take_header(self.header_on_disk())
        self._dirty_slots: dict[int, int] = {}
        """Slots of entries put since the last flush began."""
        self._due_slots: dict[int, int] = {}
        """Slots of the flush under way: written when its entries are safe."""
        self._due_pages: list[tuple[int, list[int]]] | None = None
        """These slots by the page, last first: what is not written yet."""
        self._due_sums: array[int] | None = None
        """Sums of the entries of the flush under way."""
        self._entries: list[bytes] = []
        self._header_dirty = False

    def take_header(self, header: bytes) -> None:
        """Go by this header."""
        fields: tuple[int, ...] = HEADER.unpack(header)
        self.begin_timestamp_ms, self.end_timestamp_ms = fields[0], fields[1]
        self.begin_physical, self.end_physical = fields[2], fields[3]
        self.used_slot_count = fields[4]
        self.index_count = max(fields[5], 1)

    def header_on_disk(self) -> bytes:
        """The header as the file has it."""
        return self.open_file().file.pread(HEADER_BYTES, 0)

    def open_file(self) -> OpenFile:
        """The file, opened."""
        return self._files.open_file(self.start)

    @property
    def full(self) -> bool:
        """Has it no room for another entry?"""
        return self.index_count >= self.shape.index_count_max

    @property
    def is_being_summed(self) -> bool:
        """Is somebody making the sums of a full file that came without?"""
        return self._making is not None

    @property
    def dirty(self) -> bool:
        """Is there anything to flush?"""
        return self._header_dirty

    def put(self, keys: Sequence[IndexKey]) -> int:
        """Add entries while there is room; how many were taken. Hot.

        They stay in memory until the next flush: a write per turn of the event loop would cost as
        much as all the rest here.
        """
        taken = min(len(keys), self.shape.index_count_max - self.index_count)
        if taken <= 0:
            return 0
        if self.index_count == 1:
            _, self.begin_physical, self.begin_timestamp_ms = keys[0]
        begin_ms, number = self.begin_timestamp_ms, self.index_count
        view, slot_count = self.open_file().view, self.shape.slot_count
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
        while number > 1 and self.fields_of(number - 1)[1] == self.end_physical:
            number -= 1
        return self.index_count - number

    def _slot_on_disk(self, slot: int) -> int:
        sums, view = self.sums, self.open_file().view
        if sums is not None and sums.unchecked_pages[slot // PAGE_SLOTS]:
            sums.check_page(slot // PAGE_SLOTS, view)
        value: int = SLOT.unpack_from(view, self.shape.slot_position(slot))[0]
        return value if 0 < value < min(self.index_count, self.shape.index_count_max) else 0

    def write_entries(self) -> None:
        """Write the entries that are in memory only: one write."""
        if self._entries:
            first = self.index_count - len(self._entries)
            data = b"".join(self._entries)
            self.open_file().file.pwrite(data, self.shape.entry_position(first))
            self._entries.clear()
            if self.sums is not None:
                self.sums.note_entries(first, data)

    def begin_flush(self) -> bytes:
        """Write the entries; what comes after is for the next flush. Returns the header as of now,
        to be written when entries and slots are safe. Raises DiskFull; the next call tries again.
        """
        self.write_entries()
        self._due_slots |= self._dirty_slots
        self._due_pages = None
        self._dirty_slots = {}
        if self.sums is not None:
            self._due_sums = self.sums.entries[:]
        return self.header_bytes()

    def write_slots(self, pages_max: int | None = None) -> bool:
        """Write the slots of the flush under way, by the page and so many of those at most; True
        while there are more. A sync and `write_header` come next.

        At full load thousands of slots change between two flushes: writing each by itself takes
        ten times as long.
        """
        entry, due = self.open_file(), self._due_pages
        if due is None:
            pages: dict[int, list[int]] = {}
            for slot in self._due_slots:
                pages.setdefault(slot // PAGE_SLOTS, []).append(slot)
            due = self._due_pages = sorted(pages.items(), reverse=True)
        stop = 0 if pages_max is None else max(0, len(due) - pages_max)
        while len(due) > stop:
            page, slots = due[-1]
            first = page * PAGE_SLOTS
            position, length = page_place(self.shape, page)
            content = bytearray(entry.view[position : position + length])
            for slot in slots:
                SLOT.pack_into(content, (slot - first) * SLOT_BYTES, self._due_slots[slot])
            if self.sums is not None:
                self.sums.note_page(page, content)
            entry.file.pwrite(content, position)
            due.pop()
        if not due:
            self._due_slots, self._due_pages = {}, None
        return bool(due)

    def write_sums(self, header: bytes) -> list[OpenFile]:
        """Write the sums of the flush under way beside its slots; the file to sync with them.
        Raises DiskFull.
        """
        if self.sums is None or self._due_sums is None:
            return []
        return [self.sums.write(header, self._due_sums)]

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
        self.open_file().file.pwrite(header, 0)
        if header == self.header_bytes():
            self._header_dirty = False
            self._forget_sums()

    # ---- sums of an earlier life --------------------------------------------------------------

    def belongs(self, version: Version) -> bool:
        """Are the newest entries that it counts those of this file?"""
        index_count = HEADER.unpack(version.header)[5]
        block = max(0, index_count - 1) // BLOCK_ENTRIES
        position, length = block_place(self.shape, block, index_count)
        noted: int = version.entries[block]
        return crc32(self.open_file().file.pread(length, position)) == noted

    def trust(self, sums: IndexSums, version: Version) -> None:
        """Take over what was noted of the file, its header at once."""
        self.take_header(version.header)
        sums.take(version, self.index_count)
        self.sums = sums

    def make_sums(self, sums: IndexSums) -> None:
        """Note the file as it is. Reads all of it. Raises DamagedIndex for a header that cannot be
        right.
        """
        if self.index_count > self.shape.index_count_max:
            raise DamagedIndex(self.start, f"{self.index_count} entries counted by its header are")
        view = self.open_file().view
        for page in range(page_count(self.shape)):
            position, length = page_place(self.shape, page)
            sums.slots[page] = crc32(view[position : position + length])
        for block in range(block_count(self.shape)):
            position, length = block_place(self.shape, block, self.index_count)
            if length:
                sums.entries[block] = crc32(view[position : position + length])
        self.sums = sums

    # ---- looking at it beside the loop ------------------------------------------------------

    def begin_sums(self, sums: IndexSums) -> None:
        """A full file without sums: take them of what is looked at from now on."""
        sums.expect_all(self.index_count)
        self._making = sums

    def parts_to_look_at(self, count_max: int) -> list[Part]:
        """The next parts of what nobody has looked at, as far as they do not change any more."""
        sums = self._making or self.sums
        if sums is None:
            return []
        written = self.index_count - len(self._entries)
        if not self.full:
            written -= written % BLOCK_ENTRIES
        return sums.parts(count_max, written)

    def sum_of(self, part: Part) -> int:
        """What the sum of a part is."""
        return crc32(self.open_file().file.pread(part.length, part.position))

    def looked_at(self, parts: Sequence[Part], found: Sequence[int]) -> None:
        """The sums of these parts were found to be these. Raises DamagedIndex."""
        for part, each in zip(parts, found, strict=True):
            if self._making is not None:
                self._making.note(part, each)
            elif self.sums is not None:
                self.sums.judge(part, each)

    def end_sums(self) -> OpenFile:
        """Write the sums that were made; the file to sync. Raises DiskFull."""
        sums, self._making, self.is_unsummed = self._making, None, False
        assert sums is not None, "sums end that never began"
        return sums.write(self.header_bytes(), sums.entries)

    def end_look(self) -> None:
        """Look at the block that is still being written to, then forget the sums of a full file.
        Raises DamagedIndex.
        """
        written, sums = self.index_count - len(self._entries), self.sums
        if sums is None:
            return
        block = (written - 1) // BLOCK_ENTRIES
        if sums.unchecked_blocks[block]:
            sums.check_block(block, self.open_file().view, written)
        self._forget_sums()

    def _forget_sums(self) -> None:
        """A full file that was looked at as a whole never needs them again."""
        if self.full and not self.dirty and self.sums is not None and not self.sums.unchecked:
            self.sums = None

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """May it hold messages stored in [begin_ms, end_ms]? A cut's end is known to the second."""
        return self.index_count > 1 and (
            self.begin_timestamp_ms <= end_ms and self.end_timestamp_ms + SECOND_MS > begin_ms
        )

    def find(self, key_hash: int, count_max: int, begin_ms: int, end_ms: int) -> list[int]:
        """Physical offsets under `key_hash`, newest first, stored in [begin_ms, end_ms] to the
        second. Raises DamagedIndex for a slot or an entry on the way that is not as it was.
        """
        slot = key_hash % self.shape.slot_count
        waiting = self._dirty_slots.get(slot) or self._due_slots.get(slot)
        number = waiting or self._slot_on_disk(slot)
        found: list[int] = []
        while 0 < number < self.index_count and len(found) < count_max:
            entry_hash, physical_offset, seconds, previous = self.fields_of(number)
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
        key_hash, physical_offset, *_ = self.fields_of(number)
        return key_hash, physical_offset

    def fields_of(self, number: int) -> tuple[int, ...]:
        """Hash, physical offset, seconds and previous entry of an entry."""
        in_memory_from = self.index_count - len(self._entries)
        if self._entries and number >= in_memory_from:
            return ENTRY.unpack(self._entries[number - in_memory_from])
        sums, view = self.sums, self.open_file().view
        if sums is not None and sums.unchecked_blocks[number // BLOCK_ENTRIES]:
            sums.check_block(number // BLOCK_ENTRIES, view, in_memory_from)
        return ENTRY.unpack_from(view, self.shape.entry_position(number))
