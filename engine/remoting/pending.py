"""Sent requests that wait for their response, by opaque. Pure but for the futures.

Invariant: every future ends: by its response, by an error of its own, or by the one the connection
ended with. Absent on purpose: timers; the caller also says for how long a request counts
(connection).
"""

from __future__ import annotations

import asyncio

from engine.foundation.errors import LocalProtocolError
from engine.foundation.limits import PENDING_REQUESTS_MAX
from engine.protocol.command import RemotingCommand

_OPAQUE_MAX = 0x7FFFFFFF


class PendingRequests:
    """The requests under way on one connection."""

    __slots__ = ("_last_opaque", "_waiting")

    def __init__(self) -> None:
        self._last_opaque = 0
        self._waiting: dict[int, asyncio.Future[RemotingCommand]] = {}

    def next_opaque(self) -> int:
        """A number no request under way has."""
        self._last_opaque = self._last_opaque + 1 if self._last_opaque < _OPAQUE_MAX else 1
        return self._last_opaque

    def expect(self, request: RemotingCommand) -> asyncio.Future[RemotingCommand]:
        """Number `request` and return the future of its response.

        Raises LocalProtocolError when too many are under way.
        """
        if len(self._waiting) >= PENDING_REQUESTS_MAX:
            raise LocalProtocolError(
                f"{len(self._waiting)} requests wait for an answer on one connection: "
                f"at most {PENDING_REQUESTS_MAX} are allowed"
            )
        request.opaque = self.next_opaque()
        future: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        self._waiting[request.opaque] = future
        return future

    def resolve(self, response: RemotingCommand) -> None:
        """Hand a response to who waits for it; one that nobody waits for any more is dropped."""
        future = self._waiting.pop(response.opaque, None)
        if future is not None and not future.done():
            future.set_result(response)

    def fail(self, opaque: int, error: Exception) -> None:
        """No response will be taken for this one: who waits gets `error`."""
        future = self._waiting.pop(opaque, None)
        if future is not None and not future.done():
            future.set_exception(error)

    def forget(self, opaque: int) -> None:
        """Nobody waits for it any more."""
        self._waiting.pop(opaque, None)

    def fail_all(self, error: Exception) -> None:
        """The connection has ended: all who wait get `error`."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)
