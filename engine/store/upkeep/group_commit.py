"""Group commit: one sync that several callers wait for.

Place in the walk: `flush` makes one for those who ask while a sync is under way, and settles it
when the next one has ended. Whoever waits awaits it or leaves a call.

Invariant: it settles once: True, durable; False, not confirmed in time, or the sync failed. Absent
on purpose: what is synced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class GroupCommit(asyncio.Future[bool]):
    """Shared by all who wait for the same sync: do not cancel it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_ms: int) -> None:
        """False after `timeout_ms`, unless it is settled before."""
        super().__init__(loop=loop)
        self._calls: list[Callable[[bool], None]] = []
        self._timer = loop.call_later(timeout_ms / 1000, self.settle, False)

    def call_when_settled(self, call: Callable[[bool], None]) -> None:
        """Have `call` made with the outcome, as soon as it is known. Hot: a callback of asyncio's
        takes ten times as long.
        """
        if self.done():
            call(self.result())
        else:
            self._calls.append(call)

    def settle(self, flushed: bool) -> None:
        """This is the outcome, unless there is one already."""
        if self.done():
            return
        self._timer.cancel()
        self.set_result(flushed)
        for call in self._calls:
            try:
                call(flushed)
            except Exception as error:  # noqa: BLE001 - nobody else's answer may depend on it.
                self.get_loop().call_exception_handler(
                    {"message": "a waiter for a sync failed", "exception": error}
                )
