"""Splits work on long tables into steps so that the event loop is never held for long.

Place in the walk: beside it. Code that has to notify ten thousand members, or emit the marks of as
many queues, hands over a generator that yields after each LOOP_STEP_ENTRIES_MAX entries or so. What
has a single step is done at once, so small things happen when they are asked for.

Invariant: works are done one after the other in the order in which they were added, each step on
its own pass of the loop, and none is left out: `finish` does what is left when the broker stops.
Absent on purpose: time. A step is bounded by what it looks at, not by a clock, so that the same
seed is the same run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator

from engine.foundation.limits import LOOP_STEP_ENTRIES_MAX


class BoundedWork:
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
