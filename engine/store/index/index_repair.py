"""Repairs an index file from its entries or checksums after a crash, damage or truncation.

Place in the walk: recovery repairs or restores the newest file; `truncate_to_log` cuts; `store
check` looks.

A file without sums goes by its entries (`repair`); one with sums goes by them (`restore`). A slot
that leads too far leads to an entry that is there and names the one before it, so what points too
far is followed back and nothing else is read; only damage has all slots made again from the
entries.

Invariant: no step holds more of the file in memory than its slots; sums are written before what
they are of, so a crash on the way is brought to the same end. Absent on purpose: what happens to a
file that cannot be mended (`index`).
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping
from zlib import crc32

from engine.foundation.units import SECOND_MS
from engine.store.index.index_file import IndexFile
from engine.store.index.index_layout import (
    BLOCK_ENTRIES,
    ENTRY,
    ENTRY_BYTES,
    PAGE_SLOTS,
    SLOT_BYTES,
    DamagedIndex,
    IndexSums,
    block_place,
    page_count,
    page_place,
)

CHUNK_ENTRIES = 16 * 1024
ENTRY_INTS = 5
"""An entry is as long as five 32-bit numbers; the first is the key's hash."""
ZEROS_BYTES_MAX = 256 * 1024


class IndexRepair:
    """Repairs of one index file."""

    def __init__(self, file: IndexFile) -> None:
        self._file = file
        self._shape = file.shape

    def repair(self, log_bound: int) -> None:
        """Make slots and header agree with the entries, after an unclean stop.

        A torn header may count entries that are not there, or name another last message; the
        entries themselves decide, up to the first that no message below `log_bound` can have.
        """
        count = min(self._file.index_count, self._shape.index_count_max)
        first_physical = self._file.fields_of(1)[1] if count > 1 else 0
        low, high = 1, count
        while low < high:
            middle = (low + high) // 2
            key_hash, physical_offset, _, _ = self._file.fields_of(middle)
            unwritten = middle > 1 and physical_offset == key_hash == 0
            if unwritten or not first_physical <= physical_offset < log_bound:
                high = middle
            else:
                low = middle + 1
        while low > 2 and self._file.fields_of(low - 1)[1] < self._file.fields_of(low - 2)[1]:
            low -= 1
        self._settle(low)

    def look(self, physical_before: int, log_end: int) -> str | None:
        """What cannot be right in it, in words; None when nothing. Changes nothing. Messages of the
        file before end at `physical_before`, those of the log at `log_end`.
        """
        shape, file = self._shape, self._file.open_file().file
        if self._file.index_count > shape.index_count_max:
            return f"its header counts {self._file.index_count} entries of {shape.index_count_max}"
        newest = physical_before
        for first in range(1, self._file.index_count, CHUNK_ENTRIES):
            length = min(CHUNK_ENTRIES, self._file.index_count - first) * ENTRY_BYTES
            entries = ENTRY.iter_unpack(file.pread(length, shape.entry_position(first)))
            for number, (_, physical_offset, _, previous) in enumerate(entries, first):
                if not newest <= physical_offset < log_end:
                    return f"entry {number} names a message at {physical_offset}, after {newest}"
                if not 0 <= previous < number:
                    return f"entry {number} leads on to entry {previous}"
                newest = physical_offset
        if self._file.index_count > 1 and newest != self._file.end_physical:
            header_end = self._file.end_physical
            return f"its header says that it ends at {header_end}, its entries at {newest}"
        return None

    def restore(self) -> str | None:
        """Bring slots and header to what the sums say of them; what had been damaged, in words.

        A flush that never ended has left slots that lead behind the entries counted. Any other
        difference is damage: then all slots are made again from the entries. Raises DamagedIndex
        for entries that are not as they were.
        """
        sums = self._file.sums
        assert sums is not None, "a file without sums is repaired"
        view, damaged, pages = self._file.open_file().view, 0, dict[int, bytes]()
        self._file.newest_count()
        for page in range(len(sums.slots)):
            position, length = page_place(self._shape, page)
            if crc32(view[position : position + length]) == sums.slots[page]:
                continue
            content = self._pulled_back(page, self._file.index_count)
            if content is None or crc32(content) != sums.slots[page]:
                damaged += 1
            else:
                pages[page] = content
        if damaged:
            pages = dict(enumerate(self._slots_by_entries(self._file.index_count)))
            for page, content in pages.items():
                if crc32(content) != sums.slots[page]:
                    raise DamagedIndex(self._file.start, f"slots of page {page} are")
        self._write_pages(pages)
        sums.unchecked_pages = bytearray(len(sums.slots))
        if damaged:
            return (
                f"index file {self._file.start:017d}: {damaged} pages of slots were not as they "
                f"were flushed; all are made again from its entries"
            )
        return None

    def cut(self, physical_end: int) -> None:
        """Forget the entries of messages at or behind `physical_end`, which the first one is not.
        Raises DamagedIndex for entries or slots that are not as they were.
        """
        self._file.begin_flush()
        self._file.write_slots()
        self._file.open_file().file.sync()
        low, high = 1, self._file.index_count
        while low < high:
            middle = (low + high) // 2
            if self._file.fields_of(middle)[1] < physical_end:
                low = middle + 1
            else:
                high = middle
        end = self._shape.entry_position(self._file.index_count)
        self._settle(low, self._pages_of(low))
        file = self._file.open_file().file  # Left in place, a torn header could count them again.
        for position in range(self._shape.entry_position(low), end, ZEROS_BYTES_MAX):
            file.pwrite(bytes(min(ZEROS_BYTES_MAX, end - position)), position)

    def _pages_of(self, first: int) -> list[int]:
        """The pages of slots that lead to entries from `first` on. Raises DamagedIndex for one that
        is not as it was.
        """
        slot_count, sums = self._shape.slot_count, self._file.sums
        numbers = range(first, self._file.index_count)
        hashes = [self._file.entry(number)[0] for number in numbers]
        pages = sorted({key_hash % slot_count // PAGE_SLOTS for key_hash in hashes})
        for page in pages:
            if sums is not None and sums.unchecked_pages[page]:
                sums.check_page(page, self._file.open_file().view)
        return pages

    def _settle(self, count: int, changed: Iterable[int] | None = None) -> None:
        """Let the file end before entry `count`. `changed`: the pages of slots that lead to later
        ones, where they are known.
        """
        self._file.index_count = count
        newest, seconds = self._file.fields_of(count - 1)[1:3] if count > 1 else (0, 0)
        if newest != self._file.end_physical:
            self._file.end_physical = newest
            self._file.end_timestamp_ms = self._file.begin_timestamp_ms + seconds * SECOND_MS
        every_page = range(page_count(self._shape))
        pages = self._pages_up_to(count, every_page if changed is None else changed)
        if changed is None:
            self._file.used_slot_count = self._shape.slot_count
            self._file.used_slot_count -= sum(self._slots(page).count(0) for page in every_page)
        for page, content in pages.items():
            emptied = _numbers(content).count(0) - self._slots(page).count(0)
            self._file.used_slot_count -= emptied
        self._write_settled(pages)

    def _pages_up_to(self, count: int, changed: Iterable[int]) -> dict[int, bytes]:
        """The pages of slots that change when the file ends before entry `count`: some of these,
        unless entries are missing.
        """
        pages: dict[int, bytes] = {}
        for page in changed:
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
        header, sums = self._file.header_bytes(), self._file.sums
        if sums is not None:
            for page, content in pages.items():
                sums.note_page(page, content)
            self._cut_sums(sums)
            if header != sums.header or pages:
                sums.write(header, sums.entries).file.sync()
        self._write_pages(pages)

    def _cut_sums(self, sums: IndexSums) -> None:
        """Let the sums of entries end where the file does."""
        last, view = (self._file.index_count - 1) // BLOCK_ENTRIES, self._file.open_file().view
        position, length = block_place(self._shape, last, self._file.index_count)
        sums.entries[last] = crc32(view[position : position + length])
        for block in range(last + 1, len(sums.entries)):
            sums.entries[block] = sums.unchecked_blocks[block] = 0

    def _write_pages(self, pages: Mapping[int, bytes]) -> None:
        """Write those that differ, then the header, and sync."""
        file, view = self._file.open_file().file, self._file.open_file().view
        for page, content in pages.items():
            position, length = page_place(self._shape, page)
            if view[position : position + length] != content:
                file.pwrite(content, position)
        if self._file.header_on_disk() != self._file.header_bytes():
            file.pwrite(self._file.header_bytes(), 0)
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
            key_hash, physical_offset, _, previous = self._file.fields_of(number)
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
        shape, file, sums = self._shape, self._file.open_file().file, self._file.sums
        if sums is not None:
            for block in range(-(-count // BLOCK_ENTRIES)):
                if sums.unchecked_blocks[block]:
                    sums.check_block(block, self._file.open_file().view, self._file.index_count)
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
        return _numbers(self._file.open_file().file.pread(length, position))


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
