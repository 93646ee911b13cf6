"""Limits garbage-collection pauses and returns unused memory to the operating system.

Place in the walk: beside it. The collector stops everything while it looks at every object: with
100,000 pulls held that is a second, again and again as the tables grow. So each look is at what is
new since the last one, and what has survived it is never looked at again while the process is large
(`collect_what_is_new`). Objects go by their count all the same, when nobody refers to them; only
circles of them would stay, and what is served leaves none behind but TLS connections do, and those
that came and went by the thousand (`give_back_memory`: they held 100 MiB, since the C library keeps
what was freed between things that live on).

Invariant: a look takes some ten milliseconds, however much there is; one at everything is for small
processes, and for when a crowd has gone. Absent on purpose: when that is. The code that saw the
crowd go calls.
"""

from __future__ import annotations

import asyncio
import gc
import sys

NEW_OBJECTS_LOOK = 3000
"""New objects between two looks: some 10 ms on a busy machine, with nothing in its caches. It comes
on top of whatever the step does in which it falls. A table that grows is out of sight before it is
large, else each look would go through all its entries.
"""

LOOK_EACH_S = 0.025
"""While little is new, a look takes some microseconds."""

NEVER = 1 << 30

SMALL_OBJECTS_MAX = 50_000
"""A process of so many objects can be looked at as a whole, in some 30 ms; an idle broker has
35,000.
"""

SMALL_BLOCKS_MAX = 600_000
"""A process of more blocks of memory has more objects than that. To count its blocks takes
microseconds; to count the objects out of sight is to go through them, 100 ms of two million.
"""

WHOLE_LOOK_EACH = 2400
"""Looks of `look_often` between two at everything, in a small process: a minute."""


def collect_what_is_new() -> None:
    """From now on let this process's collector look at each object's survival once, while the
    process is large: by itself, and in `look_often`.
    """
    gc.set_threshold(NEW_OBJECTS_LOOK, NEVER, NEVER)
    gc.callbacks.append(_survivors)
    _survivors.look_at_everything()


async def look_often() -> None:
    """Look at what is new some times a second, until cancelled: a step of its own, and short.

    The collector by itself looks when so many more objects were made than went. While a large table
    is replaced as many go as are made, so that it does not look at all, and then at 50,000.
    """
    looks = 0
    while True:
        await asyncio.sleep(LOOK_EACH_S)
        looks += 1
        if looks % WHOLE_LOOK_EACH == 0 and _is_small():
            _survivors.look_at_everything()
        else:
            gc.collect(0)


class _Survivors:
    """Hears of each look, and puts what survived out of sight."""

    def __init__(self) -> None:
        self._at_everything = False

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """See `gc.callbacks`."""
        if phase == "stop" and (info["generation"] == 2 or not self._at_everything):
            gc.freeze()

    def look_at_everything(self) -> None:
        """Have everything in sight, for one look. In any thread."""
        self._at_everything = True  # A look at what is new may come between.
        gc.unfreeze()
        gc.collect()
        self._at_everything = False


_survivors = _Survivors()


def _is_small() -> bool:
    return (
        sys.getallocatedblocks() <= SMALL_BLOCKS_MAX and gc.get_freeze_count() <= SMALL_OBJECTS_MAX
    )


def give_back_memory() -> None:
    """Look at everything, then ask the C library to return what is free, where it knows how. Holds
    the process for 50 ms, and for a second while there is as much as 100,000 pulls held.
    """
    import ctypes  # noqa: PLC0415 - 5 ms of each start, for what most processes never need

    _survivors.look_at_everything()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
