"""Splits work on large tables into short steps so that the event loop stays responsive.

Place in the walk: beside it. Code that has to notify ten thousand members, or emit the marks of as
many queues, hands over a generator that yields after each LOOP_STEP_ENTRIES_MAX entries or so. To
sort a hundred thousand names in no order takes 60 ms; to merge runs that are sorted, 15 ms.

Invariant: works are done one after the other in the order in which they were added, each step on
its own pass of the loop; `finish` does what is left at a stop. Absent on purpose: time. A step is
bounded by what it looks at, so that the same seed is the same run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, MutableMapping
from typing import Any, Final, TypeVar

from engine.foundation.limits import LOOP_STEP_ENTRIES_MAX

Key = TypeVar("Key")

SORTED_PER_STEP: Final = 4096
"""Names sorted in one step (some 2 ms)."""

LOOKED_AT_PER_STEP: Final = 2048
"""Entries of which one step looks whether they go (less than 1 ms)."""

LOOKS_PER_DROP: Final = 8
"""What one that goes counts for."""


def sorted_in_steps(names: Iterable[str]) -> Generator[None, None, list[str]]:
    """The names as they are now, sorted; few of them at once."""
    waiting = list(names)
    if len(waiting) <= SORTED_PER_STEP:
        return sorted(waiting)
    runs: list[str] = []
    for begin in range(0, len(waiting), SORTED_PER_STEP):
        runs += sorted(waiting[begin : begin + SORTED_PER_STEP])
        yield
    runs.sort()  # Finds the runs, and only merges them.
    yield
    return runs


def dropped_in_steps(
    table: MutableMapping[Key, Any],
    goes: Callable[[Key], bool],
    drop: Callable[[Key], object] | None = None,
) -> Iterator[None]:
    """Take out of the table what goes, of all that is in it at the first step; `drop` does it where
    more goes with an entry.
    """
    looked_at = 0
    for key in list(table):
        looked_at += 1
        if goes(key):
            looked_at += LOOKS_PER_DROP
            if drop is None:
                table.pop(key, None)
            else:
                drop(key)
        if looked_at >= LOOKED_AT_PER_STEP:
            looked_at = 0
            yield


class ChunkedWork:
    """The works of one broker."""

    def __init__(self) -> None:
        self._waiting: deque[Iterator[None]] = deque()
        self._added = asyncio.Event()

    def __len__(self) -> int:
        """Works that are not done yet."""
        return len(self._waiting)

    def add(self, steps: Iterator[None]) -> None:
        """Do the first step now, unless others are before it, and the rest soon."""
        if not self._waiting and _ends(steps):
            return
        self._waiting.append(steps)
        self._added.set()

    async def run(self) -> None:
        """Do the works, until cancelled."""
        while True:
            await self._added.wait()
            self._added.clear()
            await self.finish()

    async def finish(self) -> None:
        """Do all works that are there."""
        while self._waiting:
            if _ends(self._waiting[0]):
                self._waiting.popleft()
            await asyncio.sleep(0)


async def in_steps(steps: Iterable[None]) -> None:
    """Do one work, with the loop's other work between its steps."""
    for _ in steps:
        await asyncio.sleep(0)


def stepped(entries: Iterable[object], per_step: int = LOOP_STEP_ENTRIES_MAX) -> Iterator[None]:
    """Steps of `per_step` entries each."""
    for number, _ in enumerate(entries, 1):
        if not number % per_step:
            yield


def counted(entries: Iterable[int], per_step: int) -> Iterator[None]:
    """Steps of at least `per_step` entries each; so many at a time as `entries` reports."""
    done = 0
    for count in entries:
        done += count
        if done >= per_step:
            done = 0
            yield


def _ends(steps: Iterator[None]) -> bool:
    """Do one step; was it the last?"""
    for _ in steps:
        return False
    return True
