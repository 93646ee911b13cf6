"""The layout of an index file: header, slots and entries, and the parts that sums cover.

    | header: begin time 8 | end time 8 | begin physical 8 | end physical 8 | slots used 4 |
    |         index count 4                                                                |
    | slots, 4 each: the newest entry of the slot, 0 for none                              |
    | entries, 20 each: key hash 4 | physical offset 8 | seconds since begin time 4 |      |
    |         previous entry of the slot 4                                                 |

Entry 0 is never used, so index count starts at 1; the file is full when the count reaches its
maximum. Slots are summed by the page, entries by the block.

Invariant: RocketMQ's own bytes. Pure. Absent on purpose: files.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

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
