"""A network inside one process: what one end writes, the other reads, cut wherever the test wants.

Invariant: bytes arrive in order, and only when the loop gets its turn. A deaf end reads nothing, so
what is written to it piles up and a close waits for it, as with TCP.
"""

from __future__ import annotations

import asyncio
from typing import Any

from engine.foundation.errors import ConnectFailed
from engine.runtime import Runtime, SystemClock, SystemDisk, SystemEntropy
from engine.runtime.network import ProtocolFactory


class MemoryTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, name: str, peer_name: str, chunk_bytes: int) -> None:
        super().__init__({"sockname": (name, 1), "peername": (peer_name, 2)})
        self.protocol: Any = None
        self.other: MemoryTransport
        self.deaf = False
        self._chunk_bytes = chunk_bytes
        self._unread = bytearray()
        self._closing = self._ended = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing:
            self._unread += data
            asyncio.get_running_loop().call_soon(self._carry)

    def get_write_buffer_size(self) -> int:
        return len(self._unread)

    def close(self) -> None:
        self._closing = True
        asyncio.get_running_loop().call_soon(self._carry)

    def abort(self) -> None:
        self._closing = True
        self._unread.clear()
        asyncio.get_running_loop().call_soon(self._carry)

    def _carry(self) -> None:
        while self._unread and not self.other.deaf and not self.other._ended:
            chunk = bytes(self._unread[: self._chunk_bytes])
            del self._unread[: len(chunk)]
            if not self.other._closing:
                self.other.protocol.get_buffer(len(chunk))[: len(chunk)] = chunk
                self.other.protocol.buffer_updated(len(chunk))
        if self._closing and not self._unread and not self._ended:
            self._ended = True
            self.protocol.connection_lost(None)
            self.other.abort()


class MemoryListener:
    """An open port; the number is the one asked for."""

    def __init__(self, network: MemoryNetwork, port: int) -> None:
        self._network = network
        self.port = port

    async def close(self) -> None:
        del self._network.listening[self.port]


class MemoryNetwork:
    """Ports of one process. `server_ends` are the accepted ends, in order."""

    def __init__(self, *, chunk_bytes: int = 1 << 16) -> None:
        self.listening: dict[int, ProtocolFactory] = {}
        self.server_ends: list[MemoryTransport] = []
        self.answers_calls = True
        self._chunk_bytes = chunk_bytes

    async def listen(
        self, host: str, port: int, factory: ProtocolFactory, *, tls: object = None
    ) -> MemoryListener:
        self.listening[port] = factory
        return MemoryListener(self, port)

    async def connect(
        self,
        host: str,
        port: int,
        factory: ProtocolFactory,
        *,
        timeout_ms: int,
        tls: object = None,
    ) -> asyncio.BaseProtocol:
        if not self.answers_calls:
            await asyncio.get_running_loop().create_future()
        if port not in self.listening:
            raise ConnectFailed(f"no connection to {host}:{port}: nobody listens")
        near = MemoryTransport("client", "server", self._chunk_bytes)
        far = MemoryTransport("server", "client", self._chunk_bytes)
        near.other, far.other = far, near
        near.protocol, far.protocol = factory(), self.listening[port]()
        self.server_ends.append(far)
        far.protocol.connection_made(far)
        near.protocol.connection_made(near)
        return near.protocol  # type: ignore[no-any-return]

    def local_ip(self) -> str:
        return "127.0.0.1"


def runtime_over(network: MemoryNetwork) -> Runtime:
    """The machine's own doors, but for the network."""
    return Runtime(SystemClock(), network, SystemDisk(), SystemEntropy())
