"""Uses a client's last sample to determine which queue offsets it had finished.

Place in the walk: client_windows → how much of a departure's range comes again for certain. A
sample names the client's own offset (`client_committed`), the ranges it holds unfinished, and how
many offsets it has finished. Finished is what lies between the ranges, what is left of the count
behind them, and what lies between the broker's offset and the client's own; the last only of a
client that takes every message (`takes_all`).

Invariant: what is called finished was finished at the sample; what was committed since is not
counted again. Absent on purpose: guesses. Without ranges the result is the least number, without an
offset there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

Range = tuple[int, int]
"""Offsets [from, to)."""


def finished_within(sample: Mapping[str, Any], begin: int, end: int) -> int | None:
    """How many offsets of [begin, end) the client had finished; null when it is not reported."""
    count: int | None = sample["finished_count"]
    base: int | None = sample["client_committed"]
    if base is None:
        return None
    unreported = size(within([_unreported(sample, begin, base)], begin, end))
    if count is None:  # RocketMQ's clients: what they finished beyond their offset is not reported.
        return unreported or None
    if sample["held_ranges"] is None:
        committed_since = max(0, begin - base)
        return unreported + min(max(0, count - committed_since), max(0, end - max(begin, base)))
    finished = _finished(sample, base, count)
    inside = sum(_overlap(one, (begin, end)) for one in finished)
    committed_since = sum(_overlap(one, (base, begin)) for one in finished)
    # A tag filter leaves holes that nobody finished.
    return unreported + min(inside, max(0, count - committed_since))


def finished_ranges(sample: Mapping[str, Any], begin: int, end: int) -> tuple[Range, ...] | None:
    """Which offsets of [begin, end) the client had finished; null when it is not reported, or when
    a tag filter may have left holes among them.
    """
    total, base, count = (
        finished_within(sample, begin, end),
        sample["client_committed"],
        sample["finished_count"],
    )
    if total is None:
        return None
    is_beyond_known = count is not None and sample["held_ranges"] is not None
    beyond = _finished(sample, base, count) if is_beyond_known else []
    inside = united(*within([_unreported(sample, begin, base), *beyond], begin, end))
    return inside if size(inside) == total else None


def _unreported(sample: Mapping[str, Any], begin: int, base: int) -> Range:
    """Finished from `begin` on, the offset that the broker knows, and not reported: all below the
    client's own offset, but for what the broker's offset has fallen by since.
    """
    if not sample["takes_all"]:
        return begin, begin
    fell_from: int | None = sample["fell_from"]
    return (begin if fell_from is None else max(begin, fell_from)), base


def within(ranges: Iterable[Range], begin: int, end: int) -> tuple[Range, ...]:
    """What of the ranges lies in [begin, end)."""
    cut = ((max(low, begin), min(high, end)) for low, high in ranges)
    return tuple((low, high) for low, high in cut if low < high)


def united(*ranges: Range) -> tuple[Range, ...]:
    """The same offsets in order, those that touch as one range; empty ranges are left out."""
    whole: list[Range] = []
    for low, high in sorted(one for one in ranges if one[0] < one[1]):
        if whole and low <= whole[-1][1]:
            whole[-1] = (whole[-1][0], max(whole[-1][1], high))
        else:
            whole.append((low, high))
    return tuple(whole)


def size(ranges: Iterable[Range]) -> int:
    """How many offsets lie in ranges that do not meet."""
    return sum(high - low for low, high in ranges)


def _finished(sample: Mapping[str, Any], base: int, count: int) -> list[Range]:
    """The ranges between those held, and behind the last one."""
    held = sorted((one["from_offset"], one["to_offset"]) for one in sample["held_ranges"])
    bounds = [(base, base), *held]
    between = [(low[1], high[0]) for low, high in pairwise(bounds) if low[1] < high[0]]
    named = sum(high - low for low, high in held)
    if (
        named < sample["held_count"]
    ):  # More ranges than a sample names: what lies behind is unknown.
        return between
    left = count - sum(high - low for low, high in between)
    behind = bounds[-1][1]
    return [*between, (behind, behind + left)] if left > 0 else between


def _overlap(one: Range, other: Range) -> int:
    return max(0, min(one[1], other[1]) - max(one[0], other[0]))
