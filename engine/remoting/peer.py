"""The remote end of a connection, as seen by request handlers.

Place in the walk: what a handler is given beside the request. Absent on purpose: how it is done
(connection).
"""

from __future__ import annotations

from typing import Protocol

from engine.protocol.command import RemotingCommand


class Peer(Protocol):
    """The other end of a connection, as handlers see it."""

    attachment: object | None
    """Whatever the party keeps about this peer."""

    @property
    def address(self) -> str:
        """The other end as ip:port."""
        ...

    @property
    def closed(self) -> bool:
        """Has the connection ended?"""
        ...

    def answer(self, request: RemotingCommand, response: RemotingCommand) -> None:
        """Queue the response to `request` for the end of this turn; one-way requests get none."""
        ...

    def keep(self, request: RemotingCommand) -> None:
        """Its handler still waits: count what it says, until it is answered or let go."""
        ...

    def let_go(self, request: RemotingCommand) -> None:
        """Its handler waits on, but needs nothing any more of what the request says: its fields and
        its body are dropped, and hold up nobody who sends more.
        """
        ...

    def send(self, command: RemotingCommand) -> None:
        """Push a one-way command."""
        ...

    async def invoke(self, command: RemotingCommand, *, timeout_ms: int) -> RemotingCommand:
        """Ask the other end. Raises RequestTimedOut, ConnectionLost or LocalProtocolError."""
        ...

    def close(self, reason: str) -> None:
        """End the connection."""
        ...
