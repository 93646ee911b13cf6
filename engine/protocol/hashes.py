"""Numbers made of names and bodies: Java's hash, and what tags, index keys and bodies make of it.

Place in the walk: `tags_code` goes into a consume queue's unit and into subscriptions, an index
key's hash chooses its slot, the CRC stands in the record. Invariant: the numbers are Java's own,
because a Java broker reads the same files. Absent on purpose: where the numbers are kept.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from operator import mul
from struct import Struct
from typing import Final

from engine.foundation.units import Buffer

_POWERS_OF_31: Final = tuple(31**power % (1 << 32) for power in range(1023, -1, -1))


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, a signed 32-bit number. Hot: every index key."""
    units: Sequence[int] = text.encode("ascii") if text.isascii() else _utf16_units(text)
    if 0 < len(units) <= len(_POWERS_OF_31):
        # One sum of products: half the time of a multiply and an add per unit.
        value: int = sum(map(mul, units, _POWERS_OF_31[-len(units) :])) & 0xFFFFFFFF
    else:
        value = 0
        for unit in units:
            value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


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
