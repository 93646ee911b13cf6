"""Index-file layout and the checksums that verify each part of a file.

    | header: begin time 8 | end time 8 | begin physical 8 | end physical 8 | slots used 4 |
    |         index count 4                                                                |
    | slots, 4 each: the newest entry of the slot, 0 for none                              |
    | entries, 20 each: key hash 4 | physical offset 8 | seconds since begin time 4 |      |
    |         previous entry of the slot 4                                                 |

Entry 0 is never used, so index count starts at 1; the file is full when the count reaches its
maximum. RocketMQ's files have no room for a checksum, and it takes every file in their folder for
one of them. So the sums of a file lie under the same name in a folder of ours, in two versions that
are written in turn: a crash while one is written leaves the other.

    | mark 8 | generation 8 | the file's header 40 |
    | CRC-32 of each 1,024 slots, 4 each | CRC-32 of each 4,096 entries, 4 each | CRC-32 of all 4 |

Place in the walk: `index_file` asks before it believes a slot or an entry of an earlier life, and
notes what it writes; the scrub looks at the rest beside the loop.

Invariant: a version is written when the entries it counts are synced, and synced before the header
that counts them is written. What a version does not know is taken as it is. Absent on purpose: what
is done about damage.
"""

from __future__ import annotations

import sys
from array import array
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from engine.foundation.errors import StorageError
from engine.store.mapped_file import FileSequence, OpenFile

HEADER = Struct(">qqqqii")
SLOT = Struct(">i")
ENTRY = Struct(">iqii")
HEADER_BYTES = HEADER.size
SLOT_BYTES = SLOT.size
ENTRY_BYTES = ENTRY.size
PAGE_SLOTS = 1024
BLOCK_ENTRIES = 4096


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


def page_count(shape: IndexShape) -> int:
    """How many pages of slots a file has."""
    return -(-shape.slot_count // PAGE_SLOTS)


def block_count(shape: IndexShape) -> int:
    """How many blocks of entries a file has room for."""
    return -(-shape.index_count_max // BLOCK_ENTRIES)


def page_place(shape: IndexShape, page: int) -> tuple[int, int]:
    """Where a page of slots is in the file, and its length."""
    first = page * PAGE_SLOTS
    count = min(PAGE_SLOTS, shape.slot_count - first)
    return shape.slot_position(first), count * SLOT_BYTES


def block_place(shape: IndexShape, block: int, index_count: int) -> tuple[int, int]:
    """Where a block of entries is in a file that ends before entry `index_count`, and its
    length.
    """
    first = block * BLOCK_ENTRIES
    count = min(BLOCK_ENTRIES, index_count - first)
    return shape.entry_position(first), max(0, count) * ENTRY_BYTES


_MARK = b"idxsums1"
_HEAD = Struct(">8sq40s")
_CRC = Struct(">I")
VERSIONS = 2


class DamagedIndex(StorageError):
    """A part of an index file is not as it was flushed; `start` is the file's name."""

    def __init__(self, start: int, part: str) -> None:
        super().__init__(f"index file {start:017d}: {part} not as they were flushed")
        self.start = start


@dataclass(slots=True)
class Version:
    """What was flushed together."""

    generation: int
    """Counts the flushes of the file from 1."""
    header: bytes
    slots: array[int]
    entries: array[int]


@dataclass(slots=True)
class Versions:
    """What is in a file of sums."""

    newest: Version | None
    before: Version | None
    torn: bool
    """Is there something that is no whole version?"""


class Part(NamedTuple):
    """A page of slots or a block of entries of an index file."""

    is_page: bool
    number: int
    position: int
    length: int


def sums_file_bytes(shape: IndexShape) -> int:
    """Length of a file of sums."""
    return VERSIONS * _version_bytes(shape)


def _version_bytes(shape: IndexShape) -> int:
    return _HEAD.size + 4 * (page_count(shape) + block_count(shape)) + _CRC.size


def read_versions(data: bytes, shape: IndexShape) -> Versions:
    """What a file of sums holds."""
    size = _version_bytes(shape)
    found: list[Version] = []
    torn = len(data) != VERSIONS * size
    for at in range(0, VERSIONS * size, size):
        part = data[at : at + size]
        version = _decode(part, shape)
        if version is not None:
            found.append(version)
        elif part.strip(b"\0"):
            torn = True
    found.sort(key=lambda each: -each.generation)
    return Versions(found[0] if found else None, found[1] if len(found) > 1 else None, torn)


def _decode(part: bytes, shape: IndexShape) -> Version | None:
    if len(part) < _version_bytes(shape) or not part.startswith(_MARK):
        return None
    end = len(part) - _CRC.size
    if _CRC.unpack_from(part, end)[0] != crc32(part[:end]):
        return None
    _, generation, header = _HEAD.unpack_from(part)
    middle = _HEAD.size + 4 * page_count(shape)
    return Version(
        generation, header, _numbers(part[_HEAD.size : middle]), _numbers(part[middle:end])
    )


def _numbers(data: bytes) -> array[int]:
    numbers = array("I")
    numbers.frombytes(data)
    return _swapped(numbers)


def _swapped(numbers: array[int]) -> array[int]:
    """From big-endian, or to it."""
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


class IndexSums:
    """The sums of one index file as it is now, and which parts of it nobody has looked at yet."""

    def __init__(self, files: FileSequence, start: int, shape: IndexShape) -> None:
        """Of a file just made. `files`: the folder of sums."""
        self._files = files
        self._start = start
        self._shape = shape
        pages = page_count(shape)
        self.generation = 0
        self.header = bytes(40)
        self.slots = array("I", [crc32(bytes(PAGE_SLOTS * SLOT_BYTES))]) * pages
        self.slots[-1] = crc32(bytes(page_place(shape, pages - 1)[1]))
        self.entries = array("I", bytes(4 * block_count(shape)))
        self.entries[0] = crc32(bytes(ENTRY_BYTES))  # Entry 0 is never used.
        self.unchecked_pages = bytearray(pages)
        self.unchecked_blocks = bytearray(block_count(shape))
        """One byte each: 1 while it must be looked at before it is believed."""

    def take(self, version: Version, index_count: int) -> None:
        """Of a file of an earlier life, none of which was looked at."""
        self.generation, self.header = version.generation, version.header
        self.slots, self.entries = version.slots, version.entries
        self.expect_all(index_count)

    # ---- noting what is written -------------------------------------------------------------

    def note_entries(self, first: int, data: bytes) -> None:
        """Entries from number `first` on were written behind all others. Hot."""
        position = 0
        while position < len(data):
            block, inside = divmod(first, BLOCK_ENTRIES)
            end = min(len(data), position + (BLOCK_ENTRIES - inside) * ENTRY_BYTES)
            before = self.entries[block] if inside else 0
            self.entries[block] = crc32(data[position:end], before)
            first += (end - position) // ENTRY_BYTES
            position = end

    def note_page(self, page: int, content: bytes | bytearray) -> None:
        """A page of slots is about to be written."""
        self.slots[page] = crc32(content)
        self.unchecked_pages[page] = 0

    def write(self, header: bytes, entries: array[int]) -> OpenFile:
        """Write the next version, for a header and the sums of the entries that it counts; the file
        to sync. Raises DiskFull.
        """
        entry = self._file()
        generation = self.generation + 1
        body = _HEAD.pack(_MARK, generation, header)
        body += _swapped(self.slots[:]).tobytes() + _swapped(entries[:]).tobytes()
        size = _version_bytes(self._shape)
        entry.file.pwrite(body + _CRC.pack(crc32(body)), generation % VERSIONS * size)
        self.generation, self.header = generation, header
        return entry

    def _file(self) -> OpenFile:
        if self._files.has(self._start):
            return self._files.open_file(self._start)
        self._files.disk.make_directories(self._files.directory)
        return self._files.create(self._start)

    # ---- looking ----------------------------------------------------------------------------

    @property
    def unchecked(self) -> bool:
        """Is there anything that nobody has looked at?"""
        return 1 in self.unchecked_pages or 1 in self.unchecked_blocks

    def parts(self, count_max: int, index_count: int) -> list[Part]:
        """The next parts to look at of a file that ends before entry `index_count`."""
        parts: list[Part] = []
        page = self.unchecked_pages.find(1)
        while page >= 0 and len(parts) < count_max:
            parts.append(Part(True, page, *page_place(self._shape, page)))
            page = self.unchecked_pages.find(1, page + 1)
        block = self.unchecked_blocks.find(1)
        while block >= 0 and len(parts) < count_max:
            position, length = block_place(self._shape, block, index_count)
            if not length:
                break
            parts.append(Part(False, block, position, length))
            block = self.unchecked_blocks.find(1, block + 1)
        return parts

    def expect_all(self, index_count: int) -> None:
        """Every part of a file that ends before entry `index_count` is to be looked at."""
        self.unchecked_pages = bytearray(b"\1") * len(self.slots)
        used = -(-index_count // BLOCK_ENTRIES)
        self.unchecked_blocks[:used] = b"\1" * used

    def note(self, part: Part, found: int) -> None:
        """The part's sum is the one `found`, whatever it was."""
        noted, unchecked = self.entries, self.unchecked_blocks
        if part.is_page:
            noted, unchecked = self.slots, self.unchecked_pages
        noted[part.number], unchecked[part.number] = found, 0

    def judge(self, part: Part, found: int) -> None:
        """Raises DamagedIndex when the part's sum is not the one `found`."""
        noted, unchecked = self.entries, self.unchecked_blocks
        if part.is_page:
            noted, unchecked = self.slots, self.unchecked_pages
        if unchecked[part.number] and noted[part.number] != found:
            what = (
                f"slots of page {part.number}"
                if part.is_page
                else f"entries of block {part.number}"
            )
            raise DamagedIndex(self._start, f"{what} are")
        unchecked[part.number] = 0

    def check_page(self, page: int, view: memoryview) -> None:
        """Raises DamagedIndex when the page of slots in `view`, the index file, is another."""
        position, length = page_place(self._shape, page)
        found = crc32(view[position : position + length])
        self.judge(Part(True, page, position, length), found)

    def check_block(self, block: int, view: memoryview, written_count: int) -> None:
        """Raises DamagedIndex when the block of entries is another. Entries from `written_count` on
        are not in the file yet.
        """
        position, length = block_place(self._shape, block, written_count)
        found = crc32(view[position : position + length])
        self.judge(Part(False, block, position, length), found)
