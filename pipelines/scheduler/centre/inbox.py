"""Batches results on their way into the database: all that wait share a transaction.

A transaction costs about the same for one result as for hundreds. So whoever comes while one is
under way waits in line, and the next transaction takes the line; a storm of callbacks becomes a few
transactions, and holds up planning no longer than one of them.

Invariant: `deliver` returns once its results are stored. What a failed transaction held, executors
report again, as always. Absent on purpose: threads and the database, which are handed in.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pipelines.scheduler.store.results import Delivery, NotTheirs

RESULTS_MAX: Final = 5_000
"""In one transaction, but for what one callback has."""

Store = Callable[[Sequence[Delivery]], Awaitable[Sequence[frozenset[int]]]]
"""Stores deliveries; returns, for each, the runs that do not belong to its sender."""


@dataclass(slots=True)
class _Waiting:
    delivery: Delivery
    foreign: frozenset[int] | None = None
    """None until it is stored."""


class Inbox:
    """Results that wait for the transaction under way to end."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._line: deque[_Waiting] = deque()
        self._turn = asyncio.Lock()

    async def deliver(self, delivery: Delivery) -> None:
        """Have results stored. Raises NotTheirs when some are of others' runs, and as the store
        does.
        """
        mine = _Waiting(delivery)
        self._line.append(mine)
        try:
            async with self._turn:
                while mine.foreign is None:
                    await self._store_next()
        finally:
            if mine.foreign is None:
                self._line.remove(mine)
        if mine.foreign:
            raise NotTheirs(mine.foreign)

    async def _store_next(self) -> None:
        """Store the head of the line. When that fails, the line stays as it was: whoever asked gets
        the error, and the others try when their turns come.
        """
        taken: list[_Waiting] = []
        count = 0
        while self._line and count < RESULTS_MAX:
            taken.append(self._line.popleft())
            count += len(taken[-1].delivery.results)
        try:
            found = await self._store([one.delivery for one in taken])
        except BaseException:
            self._line.extendleft(reversed(taken))
            raise
        for one, foreign in zip(taken, found, strict=True):
            one.foreign = foreign
