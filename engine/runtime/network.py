"""Network interface based on asyncio protocols and transports.

A connection is an `asyncio.Protocol` (or `BufferedProtocol`) given by the caller and an
`asyncio.Transport` made here, so the real loop and the simulator's virtual network drive the same
code.

Invariant: bytes arrive in order and once, or the connection is lost. Absent on purpose: frames,
requests, retries.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from typing import Protocol

from engine.foundation.errors import ConfigError, ConnectFailed
from engine.runtime.tls import ClientTls, ServerTls, client_context, open_tls_listener

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


def allow_descriptors(wanted: int) -> int:
    """Let this process open `wanted` files and sockets, or as many as allowed; how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        return allowed
    return wanted if soft == resource.RLIM_INFINITY else min(wanted, soft)


class Listener(Protocol):
    """An open listening port."""

    @property
    def port(self) -> int:
        """The port in use (the one chosen, when 0 was asked for)."""
        ...

    async def close(self) -> None:
        """Stop accepting; connections already accepted stay open."""
        ...


class Network(Protocol):
    """Connections between hosts."""

    async def listen(
        self, host: str, port: int, factory: ProtocolFactory, *, tls: ServerTls | None = None
    ) -> Listener:
        """Accept connections on host:port; each gets a protocol from `factory`.

        Raises ConfigError when the port is in use or not ours to take.
        """
        ...

    async def connect(
        self,
        host: str,
        port: int,
        factory: ProtocolFactory,
        *,
        timeout_ms: int,
        tls: ClientTls | None = None,
    ) -> asyncio.BaseProtocol:
        """Connect and return the protocol that `factory` made; it knows its transport by then.

        Raises ConnectFailed when there is no connection within `timeout_ms`.
        """
        ...

    def local_ip(self) -> str:
        """The address other hosts see this one under; loopback when there is no other."""
        ...


class _SystemListener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @property
    def port(self) -> int:
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        self._server.close()


class SystemNetwork:
    """TCP through asyncio's event loop."""

    __slots__ = ()

    async def listen(
        self, host: str, port: int, factory: ProtocolFactory, *, tls: ServerTls | None = None
    ) -> Listener:
        """See `Network.listen`."""
        if tls is not None:
            return open_tls_listener(host, port, factory, tls)
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(factory, host, port, backlog=1024)
        except OSError as error:
            raise ConfigError(
                "port", f"{host}:{port}", f"a free port of this host ({error.strerror or error})"
            ) from error
        return _SystemListener(server)

    async def connect(
        self,
        host: str,
        port: int,
        factory: ProtocolFactory,
        *,
        timeout_ms: int,
        tls: ClientTls | None = None,
    ) -> asyncio.BaseProtocol:
        """See `Network.connect`."""
        loop = asyncio.get_running_loop()
        context = None if tls is None else client_context(tls)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                _, protocol = await loop.create_connection(factory, host, port, ssl=context)
        except TimeoutError as error:
            raise ConnectFailed(f"no connection to {host}:{port} within {timeout_ms} ms") from error
        except (OSError, ValueError, OverflowError) as error:  # The latter two: no host, no port.
            raise ConnectFailed(f"no connection to {host}:{port}: {error}") from error
        return protocol

    def local_ip(self) -> str:
        """See `Network.local_ip`. Loopback: another address is a setting, never a guess."""
        return "127.0.0.1"
