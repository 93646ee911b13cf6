"""Numbers made of names and bodies: Java's hash, and what tags, index keys and bodies make of it.

Place in the walk: `tags_code` goes into a consume queue's unit and into subscriptions, an index
key's hash chooses its slot, the CRC stands in the record. Invariant: the numbers are Java's own,
because a Java broker reads the same files. Absent on purpose: where the numbers are kept.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from operator import mul
from struct import Struct
from typing import Final

from engine.foundation.limits import STORE_MEMO_ENTRIES_MAX
from engine.foundation.units import Buffer

_POWERS_OF_31: Final = tuple(31**power % (1 << 32) for power in range(1023, -1, -1))
_TAIL: Final = 4
"""Of a UNIQ_KEY's characters the last ones count messages: those before them come again, for as
long as the millisecond they name."""
_REMEMBERED_CHARS_MAX: Final = 400
"""Longer texts are no UNIQ_KEYs: their beginnings are not kept."""
_BEFORE_TAIL: Final = 31**_TAIL


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, a signed 32-bit number. Hot: every index key."""
    if not text.isascii():
        value = _hash_of(_utf16_units(text))
    elif not _TAIL < len(text) <= _REMEMBERED_CHARS_MAX:
        value = _hash_of(text.encode("ascii"))
    else:
        one, two, three, four = text[-_TAIL:].encode("ascii")
        value = _hash_of_head(text[:-_TAIL]) + one * 29791 + two * 961 + three * 31 + four
        value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


@lru_cache(STORE_MEMO_ENTRIES_MAX)
def _hash_of_head(head: str) -> int:
    """What the characters before the tail give to the whole text's hash."""
    return _hash_of(head.encode("ascii")) * _BEFORE_TAIL


def _hash_of(units: Sequence[int]) -> int:
    """The hash without its sign."""
    if 0 < len(units) <= len(_POWERS_OF_31):
        # One sum of products: half the time of a multiply and an add per unit.
        total: int = sum(map(mul, units, _POWERS_OF_31[-len(units) :]))
        return total & 0xFFFFFFFF
    value = 0
    for unit in units:
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value


def _utf16_units(text: str) -> Sequence[int]:
    encoded = text.encode("utf-16-be", "surrogatepass")
    units: Sequence[int] = Struct(f">{len(encoded) // 2}H").unpack(encoded)
    return units


def tags_code(tags: str | None) -> int:
    """The number a consume queue keeps for a tag; 0 for none."""
    return java_hash(tags) if tags else 0


def index_key_hash(key: str) -> int:
    """Hash of `topic#key` in the index; never negative."""
    value = abs(java_hash(key))
    return 0 if value == 1 << 31 else value


def body_crc(body: Buffer) -> int:
    """CRC-32 of a body without its highest bit."""
    return zlib.crc32(body) & 0x7FFFFFFF
