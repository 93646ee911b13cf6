"""How many listener calls are under way, and the wait for their end when a consumer stops.

Invariant: after `stop` nothing new may begin; whoever begins asks `stopping` first. Absent on
purpose: cancelling. A listener that outlasts the wait is ended with its task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

_log = logging.getLogger(__name__)


class BusyListeners:
    """The count of one consume service."""

    def __init__(self) -> None:
        self._count = 0
        self._all_idle = asyncio.Event()
        self._all_idle.set()
        self.stopping = False
        """Was `stop` called?"""

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """A listener is at work inside."""
        self._count += 1
        self._all_idle.clear()
        try:
            yield
        finally:
            self._count -= 1
            if self._count == 0:
                self._all_idle.set()

    async def stop(self, wait_ms: int) -> bool:
        """Let nothing new begin and wait for listeners at work; False when some did not end in
        time.
        """
        self.stopping = True
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._all_idle.wait()
        except TimeoutError:
            _log.warning("%d listeners still at work after %d ms", self._count, wait_ms)
            return False
        return True
