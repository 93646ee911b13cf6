"""Encodes several message tags in the 64 bits that normally hold one tag's hash.

    bit  63  62  61 ............ 0
        | 0 | 1 | bits of the tags |     each tag sets TAG_BITS of the 62, the same for ever

Place in the walk: on a topic whose attribute says so, the broker marks each message by RocketMQ's
own flag MULTI_TAGS; dispatch then puts this word into the consume queue, a pull tests it, and the
client tests the tags themselves. TAGS holds the tags joined by `||`, as a subscription does: no tag
that can be subscribed to contains it.

The two forms cannot be confused: a hash is a signed 32-bit number, a deliver time of the schedule
topic lies below 2^42, a word is at least WORD_MARK. So no unit is ever read in the wrong form,
whatever a topic's attribute says by then, and the log alone is enough to build the queue again.

Invariant: whatever carries a wanted tag passes the test (never a false negative); what passes may
carry another (bench: `python -m bench --only filter`). Absent on purpose: where words are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from engine.foundation.limits import STORE_MEMO_ENTRIES_MAX

TAGS_SEPARATOR: Final = "||"
TAG_BITS: Final = 6
"""Bits a tag sets. Of messages with one other tag one in 60 million passes in vain, with three one
in 6,000, with eight one in 38; fewer bits are worse for few tags, more bits for many.
"""

WORD_BITS: Final = 62
WORD_MARK: Final = 1 << WORD_BITS
"""Set in every word."""

_INT_MIN: Final = -(1 << 31)
_INT_MAX: Final = (1 << 31) - 1


def split_tags(tags: str | None) -> list[str]:
    """The single tags of a TAGS property or of a subscription: trimmed, none empty, each once."""
    parts = (tags or "").split(TAGS_SEPARATOR)
    return list(dict.fromkeys(tag for part in parts if (tag := part.strip())))


@lru_cache(STORE_MEMO_ENTRIES_MAX)
def tag_mask(tag: str) -> int:
    """The bits of one tag: TAG_BITS different ones, drawn by its hash."""
    drawn = int.from_bytes(blake2b(tag.encode("utf-8", "replace"), digest_size=16).digest(), "big")
    positions = list(range(WORD_BITS))
    mask = 0
    for _ in range(TAG_BITS):
        drawn, at = divmod(drawn, len(positions))
        mask |= 1 << positions.pop(at)
    return mask


def tags_word(tags: str | None) -> int:
    """The word of a message with these TAGS."""
    word = WORD_MARK
    for tag in split_tags(tags):
        word |= tag_mask(tag)
    return word


def tag_test(tags: Iterable[str], codes: Iterable[int]) -> Callable[[int], bool]:
    """A test of what a consume queue holds: does the message perhaps carry one of `tags`?

    `codes` are their hashes. Hot: asked for each unit a filtered pull looks at.
    """
    hashes = frozenset(codes)
    masks = [tag_mask(tag) for tag in tags]

    def test(code: int) -> bool:
        if code in hashes:
            return True
        if code >= WORD_MARK:
            for mask in masks:  # noqa: SIM110 - a generator costs more than all the rest here
                if code & mask == mask:
                    return True
            return False
        if _INT_MIN <= code <= _INT_MAX:
            return False
        # A deliver time: RocketMQ compares its lower 32 bits.
        return ((code - _INT_MIN) & 0xFFFFFFFF) + _INT_MIN in hashes

    return test
