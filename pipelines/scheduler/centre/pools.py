"""Fast and slow pools of calls: a job with slow executors does not hold up the others.

Invariant: a pool has `size` calls at most under way; claims beyond it wait in order, QUEUE_MAX at
most. One that finds the queue full is dropped: its claim ends and the run is claimed again, so
that nothing is lost but time (XXL-Job loses the trigger). Whether a job is slow is asked when its
turn comes too: many of its runs may have come before it was known.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from pipelines.scheduler.store.passes import Claim

FAST_CALLS_MAX: Final = 300
SLOW_CALLS_MAX: Final = 200
QUEUE_MAX: Final = 20_000
SLOW_CALL_MS: Final = 500
SLOW_CALLS_A_MINUTE: Final = 10
"""XXL-Job's figures: a job with more slow calls within a minute goes to the slow pool for it."""

_log = logging.getLogger(__name__)


class Pool:
    """Claims that wait to be sent, and how many calls are under way."""

    def __init__(self, name: str, size: int, *, queue_max: int = QUEUE_MAX) -> None:
        self._name = name
        self._free = size
        self._queue_max = queue_max
        self._queue: deque[Claim] = deque()
        self._moved = asyncio.Event()

    @classmethod
    def fast(cls) -> Pool:
        """For jobs whose executors answer at once."""
        return cls("fast", FAST_CALLS_MAX)

    @classmethod
    def slow(cls) -> Pool:
        """For the others."""
        return cls("slow", SLOW_CALLS_MAX)

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, claim: Claim) -> None:
        """Have it wait for its turn."""
        if len(self._queue) >= self._queue_max:
            _log.warning("the %s pool is full: run %d is claimed anew", self._name, claim.log_id)
            return
        self._queue.append(claim)
        self._moved.set()

    async def take(self, count_max: int) -> list[Claim]:
        """The next claims, one at least, each with a place to give back when its call ends."""
        while not (self._queue and self._free > 0):
            self._moved.clear()
            await self._moved.wait()
        count = min(count_max, self._free, len(self._queue))
        self._free -= count
        return [self._queue.popleft() for _ in range(count)]

    def give_back(self, count: int) -> None:
        """How many places are free again; below 0 when a broadcast became several calls."""
        self._free += count
        self._moved.set()


class Slowness:
    """How many slow calls each job had in this minute."""

    def __init__(self) -> None:
        self._minute = 0
        self._slow_calls: dict[int, int] = {}

    def note(self, job_id: int, took_ms: int, now_ms: int) -> None:
        """A call ended."""
        self._turn(now_ms)
        if took_ms > SLOW_CALL_MS:
            self._slow_calls[job_id] = self._slow_calls.get(job_id, 0) + 1

    def is_slow(self, job_id: int, now_ms: int) -> bool:
        """Does the job belong to the slow pool?"""
        self._turn(now_ms)
        return self._slow_calls.get(job_id, 0) > SLOW_CALLS_A_MINUTE

    def _turn(self, now_ms: int) -> None:
        if now_ms // 60_000 != self._minute:
            self._minute = now_ms // 60_000
            self._slow_calls.clear()
