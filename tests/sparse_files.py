"""Finds the written blocks of a memory file, as a sparse file system keeps them.

Blocks of zeros take no place.
"""

from __future__ import annotations

BLOCK_BYTES = 4096


def written_from(image: bytes | bytearray, position: int) -> tuple[int, int] | None:
    """See `File.written_from`."""
    begin, size_bytes = position, len(image)
    while begin < size_bytes and not _holds_data(image, begin):
        begin += BLOCK_BYTES - begin % BLOCK_BYTES
    if begin >= size_bytes:
        return None
    end = begin
    while end < size_bytes and _holds_data(image, end):
        end += BLOCK_BYTES - end % BLOCK_BYTES
    return begin, min(end, size_bytes)


def _holds_data(image: bytes | bytearray, inside: int) -> bool:
    first = inside - inside % BLOCK_BYTES
    block = image[first : first + BLOCK_BYTES]
    return block.count(0) != len(block)
