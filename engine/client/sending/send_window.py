"""Back-pressure for asynchronous sends: bounds those under way by count and by bytes.

Invariant: neither count passes its limit; waiting senders are served in order of arrival, so small
messages cannot overtake a large one for ever. A message larger than the whole window goes when it
is alone. Absent on purpose: sending, and what to do when nobody wants to wait.
"""

from __future__ import annotations

import asyncio
from collections import deque


class SendWindow:
    """Room of one producer."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.count = 0
        """Sends under way."""
        self.held_bytes = 0
        """Body bytes of sends under way."""

    def try_enter(self, size_bytes: int) -> bool:
        """Take room for one send, unless there is none or others wait for it."""
        if self._waiting or not self._has_room(size_bytes):
            return False
        self._take(size_bytes)
        return True

    async def enter(self, size_bytes: int) -> None:
        """Take room for one send as soon as there is some; cancelling the wait takes none."""
        if self.try_enter(size_bytes):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(size_bytes)  # It was our turn, and nobody takes it.
            else:
                self._waiting = deque(entry for entry in self._waiting if entry[1] is not turn)
                self._admit()
            raise

    def leave(self, size_bytes: int) -> None:
        """Give room back; whoever waited longest takes it."""
        self.count -= 1
        self.held_bytes -= size_bytes
        assert self.count >= 0, "more sends ended than began"
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._has_room(self._waiting[0][0]):
            size_bytes, turn = self._waiting.popleft()
            if not turn.done():
                self._take(size_bytes)
                turn.set_result(None)

    def _has_room(self, size_bytes: int) -> bool:
        if self.count == 0:
            return True
        return self.count < self._count_max and self.held_bytes + size_bytes <= self._bytes_max

    def _take(self, size_bytes: int) -> None:
        self.count += 1
        self.held_bytes += size_bytes
