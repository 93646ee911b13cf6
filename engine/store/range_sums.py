"""Computes CRC-32s for many ranges of a file while processing each byte about once.

Place in the walk: `sound_records` and `behind_damage` look for records in bytes that a client may
have written. Heads of records by the thousand, each of which says that its body reaches to the same
end, would have the same mebibytes summed for each.

    crc(a + b) = crc(a) shifted by the length of b, and crc(b) added: so the sum of [begin, end)
    comes from the sums of [0, begin) and [0, end), which are kept each 4 KiB

Invariant: `of` is what `zlib.crc32` says of the range. Absent on purpose: ranges of bytes that
change meanwhile.
"""

from __future__ import annotations

from array import array
from functools import cache
from zlib import crc32

STEP_BYTES = 4096
DIRECT_BYTES_MAX = 2 * STEP_BYTES
"""Shorter ranges are summed as they are."""
_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31
"""Polynomials have the power 0 in their highest bit, as CRC-32 has it in zlib."""


class RangeSums:
    """Sums over `view` from `origin` on."""

    def __init__(self, view: memoryview, origin: int = 0) -> None:
        self._view = view
        self._origin = origin
        self._sums = array("I", [0])
        """Of [origin, origin + n * STEP_BYTES)."""
        self.summed_bytes = 0
        """How many bytes went through CRC-32, each as often as it did."""

    def of(self, begin: int, end: int) -> int:
        """The sum of [begin, end), not before the origin."""
        length = end - begin
        if length <= DIRECT_BYTES_MAX:
            return self._crc(begin, end, 0)
        return self._up_to(end) ^ _shifted(self._up_to(begin), length)

    def _up_to(self, position: int) -> int:
        assert position >= self._origin, f"{position} lies before {self._origin}"
        steps, inside = divmod(position - self._origin, STEP_BYTES)
        sums = self._sums
        while len(sums) <= steps:
            at = self._origin + (len(sums) - 1) * STEP_BYTES
            sums.append(self._crc(at, at + STEP_BYTES, sums[-1]))
        return self._crc(position - inside, position, sums[steps])

    def _crc(self, begin: int, end: int, before: int) -> int:
        self.summed_bytes += end - begin
        return crc32(self._view[begin:end], before)


def _shifted(crc: int, length: int) -> int:
    """The sum of what has sum `crc` with so many bytes of nothing behind it."""
    for power, table in enumerate(_tables()):
        part = length >> 8 * power & 0xFF
        if part:
            crc = _times(table[part], crc)
    return crc


@cache
def _tables() -> tuple[tuple[int, ...], ...]:
    """x to the power of 8 * i, of 8 * 256 * i and so on, for i from 0 to 255."""
    tables = []
    byte = 1 << 23
    for _ in range(4):
        row = [_ONE]
        for _ in range(256):
            row.append(_times(row[-1], byte))
        byte = row.pop()
        tables.append(tuple(row))
    return tuple(tables)


def _times(left: int, right: int) -> int:
    """Product modulo the polynomial of CRC-32."""
    product = 0
    while left:
        if left & _ONE:
            product ^= right
        left = left << 1 & 0xFFFFFFFF
        right = right >> 1 ^ (_POLYNOMIAL if right & 1 else 0)
    return product
