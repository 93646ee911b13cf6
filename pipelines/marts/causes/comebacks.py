"""Counts how often a new member took the place of one that had left.

Place in the walk: changes of a group's members → whether they come and go over and over
(`members.rebalance_flapping`). Pure. Invariant: a group that grows and then shrinks has none,
however large it was. Absent on purpose: names, as a client that is started again has another.
"""

from __future__ import annotations

from collections.abc import Iterable


def comebacks(kinds: Iterable[str]) -> int:
    """Of changes in the order of time, those JOINED that follow another kind not taken back yet."""
    found = places = 0
    for kind in kinds:
        if kind != "JOINED":
            places += 1
        elif places:
            places -= 1
            found += 1
    return found
