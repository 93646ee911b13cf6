"""Implements XXL-Job's ten routing strategies, which choose executors for a run.

Place in the walk: a trigger whose time has come, before it is sent. Each strategy gives addresses
in the order in which they are tried: most name one; fail-over and busy-over name all, and the
sender takes the first that answers its beat or is idle. Sharding broadcast sends to all: address i
runs shard i of n. Invariant: equal counters, addresses and entropy give the same route; what must
be remembered of a job comes in as `Counters` and goes out changed.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final

VIRTUAL_NODES: Final = 100
"""Places on the ring of each address, as in XXL-Job: jobs would move if there were others."""

COUNT_MAX: Final = 1_000_000
DAY_MS: Final = 86_400_000
"""Counters begin anew after a day, so that who has joined is not preferred for ever."""

RINGS_MAX: Final = 64
"""Rings that are kept made, one a group of executors: to make one takes 0.1 ms an address."""

_FIRST_COUNT_MAX: Final = 100
"""Jobs begin at different executors: a counter begins somewhere below it."""


class RouteStrategy(StrEnum):
    """XXL-Job's names."""

    FIRST = "FIRST"
    LAST = "LAST"
    ROUND = "ROUND"
    RANDOM = "RANDOM"
    CONSISTENT_HASH = "CONSISTENT_HASH"
    LEAST_FREQUENTLY_USED = "LEAST_FREQUENTLY_USED"
    LEAST_RECENTLY_USED = "LEAST_RECENTLY_USED"
    FAILOVER = "FAILOVER"
    BUSYOVER = "BUSYOVER"
    SHARDING_BROADCAST = "SHARDING_BROADCAST"


@dataclass(frozen=True, slots=True)
class Counters:
    """What a way remembers of one job."""

    begun_ms: int = 0
    turns: int | None = None
    """Of ROUND: how often a turn was taken; None before the first."""
    uses: Mapping[str, int] = field(default_factory=dict)
    """Of LEAST_FREQUENTLY_USED: how often; of LEAST_RECENTLY_USED: the turn of the last use."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a trigger goes."""

    addresses: tuple[str, ...]
    """In the order in which they are tried; none when the group has none."""
    counters: Counters
    is_broadcast: bool = False


def route(
    strategy: RouteStrategy,
    addresses: Sequence[str],
    *,
    job_id: int,
    counters: Counters,
    now_ms: int,
    entropy: int,
) -> Route:
    """Where a trigger goes, of the addresses that are registered, in their order.

    `entropy` is a number drawn anew for each trigger, of 0 to 2^32-1 at least.
    """
    known = tuple(dict.fromkeys(addresses))
    if not known:
        return Route((), counters)
    if now_ms - counters.begun_ms >= DAY_MS or now_ms < counters.begun_ms:
        counters = Counters(begun_ms=now_ms)
    match strategy:
        case RouteStrategy.FIRST:
            return Route(known[:1], counters)
        case RouteStrategy.LAST:
            return Route(known[-1:], counters)
        case RouteStrategy.ROUND:
            return _round(known, counters, entropy)
        case RouteStrategy.RANDOM:
            return Route((known[entropy % len(known)],), counters)
        case RouteStrategy.CONSISTENT_HASH:
            return Route((_on_the_ring(known, job_id),), counters)
        case RouteStrategy.LEAST_FREQUENTLY_USED:
            return _least_used(known, counters, entropy)
        case RouteStrategy.LEAST_RECENTLY_USED:
            return _longest_unused(known, counters)
        case RouteStrategy.FAILOVER | RouteStrategy.BUSYOVER:
            return Route(known, counters)
        case RouteStrategy.SHARDING_BROADCAST:
            return Route(known, counters, is_broadcast=True)


def _round(addresses: tuple[str, ...], counters: Counters, entropy: int) -> Route:
    """One after the other. The first turn begins somewhere: else all jobs begin at one executor."""
    if counters.turns is None or counters.turns >= COUNT_MAX:
        turns = entropy % _FIRST_COUNT_MAX
    else:
        turns = counters.turns + 1
    return Route((addresses[turns % len(addresses)],), replace(counters, turns=turns))


def _least_used(addresses: tuple[str, ...], counters: Counters, entropy: int) -> Route:
    """The address that this job used least. One that is new begins at a number below how many there
    are, which the entropy chooses; one that is gone is forgotten.
    """
    uses: dict[str, int] = {}
    for place, address in enumerate(addresses):
        begun = counters.uses.get(address)
        is_new = begun is None or begun > COUNT_MAX
        uses[address] = (entropy + place) % len(addresses) if is_new else begun or 0
    chosen = min(addresses, key=lambda address: uses[address])
    uses[chosen] += 1
    return Route((chosen,), replace(counters, uses=uses))


def _longest_unused(addresses: tuple[str, ...], counters: Counters) -> Route:
    """The address that this job has not used for longest; of new ones the first."""
    last = {address: counters.uses.get(address, 0) for address in addresses}
    chosen = min(addresses, key=lambda address: last[address])
    uses = last | {chosen: max(last.values()) + 1}
    return Route((chosen,), replace(counters, uses=uses))


def _on_the_ring(addresses: tuple[str, ...], job_id: int) -> str:
    """A job stays with its executor while others join and leave."""
    ring = _ring(addresses)
    at = bisect_left(ring, (_place(str(job_id)), ""))
    return ring[at % len(ring)][1]


@lru_cache(maxsize=RINGS_MAX)
def _ring(addresses: tuple[str, ...]) -> list[tuple[int, str]]:
    places = {
        _place(f"SHARD-{address}-NODE-{node}"): address
        for address in addresses
        for node in range(VIRTUAL_NODES)
    }
    return sorted(places.items())


def _place(text: str) -> int:
    """The first four bytes of the MD5, the lowest first."""
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "little")
