"""A remoting command: a request or response with header fields and a body.

Invariant: a response echoes the opaque and the serialize type of its request. Absent on purpose:
bytes (frames does them) and the meaning of codes and fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

import msgspec

from engine.foundation.printable import printable
from engine.foundation.units import Buffer

VERSION: Final = 513
"""MQVersion ordinal we speak: 5.5.0."""

FLAG_RESPONSE: Final = 1
FLAG_ONE_WAY: Final = 2

LANGUAGES: Final = (
    *("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO"),
    *("PHP", "OMS", "RUST", "NODE_JS"),
)
"""Languages of clients; the place in the tuple is the number in a binary header."""


class SerializeType(IntEnum):
    """Form of a frame's header."""

    JSON = 0
    ROCKETMQ = 1


class RemotingCommand(msgspec.Struct):
    """A request or a response."""

    code: int
    fields: dict[str, str] = msgspec.field(default_factory=dict)
    body: Buffer = b""
    remark: str | None = None
    opaque: int = 0
    flag: int = 0
    language: str = "PYTHON"
    version: int = VERSION
    serialize_type: SerializeType = SerializeType.JSON
    pieces: Sequence[Buffer] = ()
    """More of the body, behind `body`: a large answer is sent as it lies in memory, not joined."""
    kept_bytes: int = 0
    """Of a request whose handler still waits: what its connection counts for it."""

    @staticmethod
    def request(
        code: int, fields: Mapping[str, str] | None = None, body: Buffer = b""
    ) -> RemotingCommand:
        """A request; the client gives it its opaque."""
        return RemotingCommand(int(code), dict(fields or {}), body)

    def respond(
        self,
        code: int,
        remark: str | None = None,
        fields: dict[str, str] | None = None,
        body: Buffer = b"",
    ) -> RemotingCommand:
        """The response to this request. Its remark is one line: it may quote the request, and
        ends in logs and on terminals.
        """
        return RemotingCommand(
            int(code),
            fields if fields is not None else {},
            body,
            remark if remark is None else printable(remark),
            self.opaque,
            FLAG_RESPONSE,
            "PYTHON",
            VERSION,
            self.serialize_type,
        )

    @property
    def is_response(self) -> bool:
        """Does it answer a request?"""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Is no answer wanted?"""
        return bool(self.flag & FLAG_ONE_WAY)

    def mark_oneway(self) -> None:
        """Ask for no answer."""
        self.flag |= FLAG_ONE_WAY
