"""Java-compatible hashes for names, tags and index keys, and CRCs for message bodies.

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

from engine.foundation.limits import NAMES_REMEMBERED_MAX, STORE_MEMO_ENTRIES_MAX
from engine.foundation.units import Buffer

_POWERS_OF_31: Final[tuple[int, ...]] = tuple(
    31**power % (1 << 32) for power in range(1023, -1, -1)
)
_COUNT_CHARS: Final = 4
"""Of a UNIQ_KEY's characters the last ones count messages: those before them come again, for as
long as the millisecond they name."""
_KEY_CHARS_MAX: Final = 400
"""Longer keys are no UNIQ_KEYs: their beginnings are not kept."""


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, a signed 32-bit number."""
    value = _hash_of(text.encode("ascii") if text.isascii() else _utf16_units(text))
    return value - (1 << 32) if value >> 31 else value


def index_key_hash(topic: str, key: str) -> int:
    """Hash of `topic#key` in the index; never negative. Hot: every key of every message."""
    length = len(key)
    if _COUNT_CHARS < length <= _KEY_CHARS_MAX and key.isascii():
        one, two, three, four = key[-_COUNT_CHARS:].encode("ascii")
        value = _hash_of_topic(topic) * _POWERS_OF_31[-1 - length] + _hash_of_head(
            key[:-_COUNT_CHARS]
        )
        value = (value + one * 29791 + two * 961 + three * 31 + four) & 0xFFFFFFFF
    else:
        value = java_hash(f"{topic}#{key}") & 0xFFFFFFFF
    return (-value if value >> 31 else value) & 0x7FFFFFFF  # Java's abs; 0 for its least number.


@lru_cache(NAMES_REMEMBERED_MAX)
def _hash_of_topic(topic: str) -> int:
    return java_hash(f"{topic}#") & 0xFFFFFFFF


@lru_cache(STORE_MEMO_ENTRIES_MAX)
def _hash_of_head(head: str) -> int:
    """The share of the characters before the count in the whole key's hash."""
    return _hash_of(head.encode("ascii")) * 31**_COUNT_CHARS


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


def body_crc(body: Buffer) -> int:
    """CRC-32 of a body without its highest bit."""
    return zlib.crc32(body) & 0x7FFFFFFF
