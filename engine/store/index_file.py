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

What an earlier life has written is held against its sums (`index_sums`) before it is believed:
slots and header of the newest file at the start, everything else when it is read.

Invariant: `begin_flush`, sync, `write_slots` and `write_sums`, sync, `write_header`, sync. No step
holds more of the file in memory than its slots.
Absent on purpose: the keys themselves. Two keys may share a hash; who asks must compare the
message's own keys.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from zlib import crc32

from engine.foundation.units import SECOND_MS
from engine.store.index_sums import (
    BLOCK_ENTRIES,
    ENTRY_BYTES,
    PAGE_SLOTS,
    SLOT_BYTES,
    DamagedIndex,
    IndexSums,
    Part,
    Version,
    block_count,
    block_place,
    page_count,
    page_place,
)
from engine.store.mapped_file import FileSequence, OpenFile

HEADER = Struct(">qqqqii")
SLOT = Struct(">i")
ENTRY = Struct(">iqii")
HEADER_BYTES = HEADER.size
assert (SLOT.size, ENTRY.size) == (SLOT_BYTES, ENTRY_BYTES), "sums are of other parts"
SECONDS_MAX = 0x7FFFFFFF
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
        return self._open().file.pread(HEADER_BYTES, 0)

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
        sums, view = self.sums, self._open().view
        if sums is not None and sums.unchecked_pages[slot // PAGE_SLOTS]:
            sums.check_page(slot // PAGE_SLOTS, view)
        value: int = SLOT.unpack_from(view, self._shape.slot_position(slot))[0]
        return value if 0 < value < min(self.index_count, self._shape.index_count_max) else 0

    def write_entries(self) -> None:
        """Write the entries that are in memory only: one write."""
        if self._entries:
            first = self.index_count - len(self._entries)
            data = b"".join(self._entries)
            self._open().file.pwrite(data, self._shape.entry_position(first))
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
        entry, due = self._open(), self._due_pages
        if due is None:
            pages: dict[int, list[int]] = {}
            for slot in self._due_slots:
                pages.setdefault(slot // PAGE_SLOTS, []).append(slot)
            due = self._due_pages = sorted(pages.items(), reverse=True)
        stop = 0 if pages_max is None else max(0, len(due) - pages_max)
        while len(due) > stop:
            page, slots = due[-1]
            first = page * PAGE_SLOTS
            position, length = page_place(self._shape, page)
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
        self._open().file.pwrite(header, 0)
        if header == self.header_bytes():
            self._header_dirty = False
            self._forget_sums()

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

    # ---- sums of an earlier life --------------------------------------------------------------

    def belongs(self, version: Version) -> bool:
        """Are the newest entries that it counts those of this file?"""
        index_count = HEADER.unpack(version.header)[5]
        block = max(0, index_count - 1) // BLOCK_ENTRIES
        position, length = block_place(self._shape, block, index_count)
        noted: int = version.entries[block]
        return crc32(self._open().file.pread(length, position)) == noted

    def trust(self, sums: IndexSums, version: Version) -> None:
        """Take over what was noted of the file, its header at once."""
        self.take_header(version.header)
        sums.take(version, self.index_count)
        self.sums = sums

    def make_sums(self, sums: IndexSums) -> None:
        """Note the file as it is. Reads all of it. Raises DamagedIndex for a header that cannot be
        right.
        """
        if self.index_count > self._shape.index_count_max:
            raise DamagedIndex(self.start, f"{self.index_count} entries counted by its header are")
        view = self._open().view
        for page in range(page_count(self._shape)):
            position, length = page_place(self._shape, page)
            sums.slots[page] = crc32(view[position : position + length])
        for block in range(block_count(self._shape)):
            position, length = block_place(self._shape, block, self.index_count)
            if length:
                sums.entries[block] = crc32(view[position : position + length])
        self.sums = sums

    def restore(self) -> str | None:
        """Bring slots and header to what the sums say of them; what had been damaged, in words.

        A flush that never ended has left slots that lead behind the entries counted. Any other
        difference is damage: then all slots are made again from the entries. Raises DamagedIndex
        for entries that are not as they were.
        """
        sums = self.sums
        assert sums is not None, "a file without sums is repaired"
        view, damaged, pages = self._open().view, 0, dict[int, bytes]()
        self.newest_count()
        for page in range(len(sums.slots)):
            position, length = page_place(self._shape, page)
            if crc32(view[position : position + length]) == sums.slots[page]:
                continue
            content = self._pulled_back(page, self.index_count)
            if content is None or crc32(content) != sums.slots[page]:
                damaged += 1
            else:
                pages[page] = content
        if damaged:
            pages = dict(enumerate(self._slots_by_entries(self.index_count)))
            for page, content in pages.items():
                if crc32(content) != sums.slots[page]:
                    raise DamagedIndex(self.start, f"slots of page {page} are")
        self._write_pages(pages)
        sums.unchecked_pages = bytearray(len(sums.slots))
        if damaged:
            return (
                f"index file {self.start:017d}: {damaged} pages of slots were not as they were "
                f"flushed; all are made again from its entries"
            )
        return None

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
        return crc32(self._open().file.pread(part.length, part.position))

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
            sums.check_block(block, self._open().view, written)
        self._forget_sums()

    def _forget_sums(self) -> None:
        """A full file that was looked at as a whole never needs them again."""
        if self.full and not self.dirty and self.sums is not None and not self.sums.unchecked:
            self.sums = None

    def _settle(self, count: int) -> None:
        """Let the file end before entry `count`."""
        self.index_count = count
        newest, seconds = self._entry(count - 1)[1:3] if count > 1 else (0, 0)
        if newest != self.end_physical:
            self.end_physical = newest
            self.end_timestamp_ms = self.begin_timestamp_ms + seconds * SECOND_MS
        pages = self._pages_up_to(count)
        used = self._open().view
        empty = 0
        for page in range(page_count(self._shape)):
            position, length = page_place(self._shape, page)
            content = pages.get(page)
            if content is None:
                content = bytes(used[position : position + length])
            empty += _numbers(content).count(0)
        self.used_slot_count = self._shape.slot_count - empty
        self._write_settled(pages)

    def _pages_up_to(self, count: int) -> dict[int, bytes]:
        """The pages of slots that change when the file ends before entry `count`."""
        pages: dict[int, bytes] = {}
        for page in range(page_count(self._shape)):
            slots = self._slots(page)
            if max(slots) < count and min(slots) >= 0:
                continue
            content = self._pulled_back(page, count)
            if content is None:
                return dict(enumerate(self._slots_by_entries(count)))
            pages[page] = content
        return pages

    def _write_settled(self, pages: Mapping[int, bytes]) -> None:
        """Sums first: whatever a crash leaves of the rest, `restore` brings it there."""
        header, sums = self.header_bytes(), self.sums
        if sums is not None:
            for page, content in pages.items():
                sums.note_page(page, content)
            self._cut_sums(sums)
            if header != sums.header or pages:
                sums.write(header, sums.entries).file.sync()
        self._write_pages(pages)

    def _cut_sums(self, sums: IndexSums) -> None:
        """Let the sums of entries end where the file does."""
        last, view = (self.index_count - 1) // BLOCK_ENTRIES, self._open().view
        position, length = block_place(self._shape, last, self.index_count)
        sums.entries[last] = crc32(view[position : position + length])
        for block in range(last + 1, len(sums.entries)):
            sums.entries[block] = sums.unchecked_blocks[block] = 0

    def _write_pages(self, pages: Mapping[int, bytes]) -> None:
        """Write those that differ, then the header, and sync."""
        file, view = self._open().file, self._open().view
        for page, content in pages.items():
            position, length = page_place(self._shape, page)
            if view[position : position + length] != content:
                file.pwrite(content, position)
        if self.header_on_disk() != self.header_bytes():
            file.pwrite(self.header_bytes(), 0)
        file.sync()

    def _pulled_back(self, page: int, count: int) -> bytes | None:
        """The page of slots with every slot that leads to entry `count` or further leading to the
        one before; None when an entry on the way is not there.
        """
        slots = self._slots(page)
        for inside, number in enumerate(slots):
            if not 0 <= number < count:
                before = self._entry_before(number, page * PAGE_SLOTS + inside, count)
                if before is None:
                    return None
                slots[inside] = before
        return _big_endian(slots)

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

    def _slots_by_entries(self, count: int) -> Iterator[bytes]:
        """All pages of slots anew from the hashes of the entries: of a file that others wrote, or
        damaged. Raises DamagedIndex for entries that are not as they were.

        20 million entries take some 2 s and the 20 MB of the slots.
        """
        shape, file, sums = self._shape, self._open().file, self.sums
        if sums is not None:
            for block in range(-(-count // BLOCK_ENTRIES)):
                if sums.unchecked_blocks[block]:
                    sums.check_block(block, self._open().view, self.index_count)
        slot_count = shape.slot_count
        slots = array("i", bytes(SLOT_BYTES * slot_count))
        for first in range(1, count, CHUNK_ENTRIES):
            length = min(CHUNK_ENTRIES, count - first) * ENTRY_BYTES
            numbers = _numbers(file.pread(length, shape.entry_position(first)))
            for number, key_hash in enumerate(numbers[::ENTRY_INTS], first):
                slots[key_hash % slot_count] = number
        for first in range(0, slot_count, PAGE_SLOTS):
            yield _big_endian(slots[first : first + PAGE_SLOTS])

    def _slots(self, page: int) -> array[int]:
        """A page of slots, as they are on disk."""
        position, length = page_place(self._shape, page)
        return _numbers(self._open().file.pread(length, position))

    def cut(self, physical_end: int) -> bool:
        """Forget the entries of messages at or behind `physical_end`; False when none is left.
        Raises DamagedIndex for entries or slots that are not as they were.
        """
        self.begin_flush()
        self.write_slots()
        self._open().file.sync()
        if self.sums is not None:
            for page in range(len(self.sums.unchecked_pages)):
                if self.sums.unchecked_pages[page]:
                    self.sums.check_page(page, self._open().view)
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
        second. Raises DamagedIndex for a slot or an entry on the way that is not as it was.
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
        sums, view = self.sums, self._open().view
        if sums is not None and sums.unchecked_blocks[number // BLOCK_ENTRIES]:
            sums.check_block(number // BLOCK_ENTRIES, view, in_memory_from)
        return ENTRY.unpack_from(view, self._shape.entry_position(number))


def _big_endian(numbers: array[int]) -> bytes:
    swapped = numbers[:]
    if sys.byteorder == "little":
        swapped.byteswap()
    return swapped.tobytes()


def _numbers(data: bytes) -> array[int]:
    """Big-endian 32-bit numbers."""
    numbers = array("i")
    numbers.frombytes(data)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
