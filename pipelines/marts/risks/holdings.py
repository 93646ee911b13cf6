"""What a client had finished of a queue, offset by offset, as its last sample tells.

Place in the walk: client_windows → how much of a departure's range comes again for certain.

A sample names the consume offset that the client would report (`client_committed`), the ranges that
it holds and has not finished, and how many offsets it has finished from the consume offset on.
Finished is what lies between the ranges, and as many offsets behind them as are left of the count.
Invariant: what is called finished was finished at the sample; what was committed since is not
counted again. Absent on purpose: guesses. Without ranges the least number is told, without an
offset none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

Range = tuple[int, int]
"""Offsets [from, to)."""


def finished_within(sample: Mapping[str, Any], begin: int, end: int) -> int | None:
    """How many offsets of [begin, end) the client had finished; null when it is not told."""
    count: int | None = sample["finished_count"]
    base: int | None = sample["client_committed"]
    if count is None or base is None:
        return None
    if sample["held_ranges"] is None:
        committed_since = max(0, begin - base)
        return min(max(0, count - committed_since), max(0, end - begin))
    finished = _finished(sample, base, count)
    inside = sum(_overlap(one, (begin, end)) for one in finished)
    committed_since = sum(_overlap(one, (base, begin)) for one in finished)
    # A tag filter leaves holes that nobody finished.
    return min(inside, max(0, count - committed_since))


def finished_ranges(sample: Mapping[str, Any], begin: int, end: int) -> tuple[Range, ...] | None:
    """Which offsets of [begin, end) the client had finished; null when it is not told, or when a
    tag filter may have left holes among them.
    """
    count = finished_within(sample, begin, end)
    if count is None or sample["held_ranges"] is None:
        return None
    finished = _finished(sample, sample["client_committed"], sample["finished_count"])
    inside = within(finished, begin, end)
    return inside if size(inside) == count else None


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
    told = sum(high - low for low, high in held)
    if told < sample["held_count"]:  # More ranges than a sample names: what lies behind is unknown.
        return between
    left = count - sum(high - low for low, high in between)
    behind = bounds[-1][1]
    return [*between, (behind, behind + left)] if left > 0 else between


def _overlap(one: Range, other: Range) -> int:
    return max(0, min(one[1], other[1]) - max(one[0], other[0]))
