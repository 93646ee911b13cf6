"""One end of a connection without a socket: it keeps what it is sent."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.protocol.command import RemotingCommand


@dataclass(eq=False)
class End:
    """What handlers and tables need of a peer; its identity counts, and that it is open."""

    sent: list[RemotingCommand] = field(default_factory=list)
    """Requests that the broker made, and answers that came later than their request's turn."""
    closed: bool = False
    address: str = "10.0.0.1:1"
    attachment: object = None

    def send(self, command: RemotingCommand) -> None:
        """Take a one-way request."""
        self.sent.append(command)

    def answer(self, request: RemotingCommand, response: RemotingCommand) -> None:
        """Take a late answer."""
        self.sent.append(response)

    def let_go(self, request: RemotingCommand) -> None:
        """A request is held: nothing of it is kept here anyway."""

    def close(self, reason: str) -> None:
        """The broker ends the connection."""
        self.closed = True
