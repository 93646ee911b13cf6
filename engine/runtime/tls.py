"""TLS support: settings for clients and servers, and a listener that performs handshakes.

Place in the walk: behind the network door, beside the plain port. Contexts know TLS 1.2 and later
only, and no renegotiation. In the permissive mode the first byte of a connection is looked at, not
taken: 0x16 begins a handshake, anything else is served unencrypted.

Invariant: a client always checks the server's certificate and its name; there is no setting to
leave that out. A server that asks for its clients' certificates lets nobody in without one. A party
gets a connection only when its handshake is done; handshakes under way are bounded in number and in
time.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final

from engine.foundation.errors import ConfigError
from engine.foundation.limits import HANDSHAKES_MAX
from engine.foundation.units import KIB, SECOND_MS
from engine.runtime.memory import give_back_memory


class TlsMode(Enum):
    """What a server does with a connection that does not begin with a TLS handshake."""

    STRICT = "strict"
    """Closes it."""
    PERMISSIVE = "permissive"
    """Serves it unencrypted: RocketMQ's default, meant for the time of a change-over."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """How a listening port is encrypted. Paths of PEM files."""

    certificate: str
    """The server's certificate, its chain behind it."""
    key: str
    """The private key of it."""
    client_authorities: str | None = None
    """The authority that signs clients' certificates; None: clients show none."""
    mode: TlsMode = TlsMode.STRICT

    @property
    def is_mutual(self) -> bool:
        """Has whoever connects to show a certificate?"""
        return self.client_authorities is not None and self.mode is TlsMode.STRICT


@dataclass(frozen=True, slots=True)
class ClientTls:
    """How a connection that we make is encrypted. Paths of PEM files."""

    authorities: str | None = None
    """The authority that signs servers' certificates; None: whatever this machine trusts."""
    certificate: str | None = None
    """Our own certificate, for servers that ask for one; with `key` or not at all."""
    key: str | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("tls", self.certificate or self.key, "certificate and key together")


def server_context(tls: ServerTls) -> ssl.SSLContext:
    """Raises ConfigError for a file that is missing or not what it should be."""
    context = _context(ssl.Purpose.CLIENT_AUTH, tls.client_authorities)
    _load_chain(context, tls.certificate, tls.key)
    if tls.client_authorities is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@lru_cache(maxsize=16)
def client_context(tls: ClientTls) -> ssl.SSLContext:
    """As `server_context`; kept, because a client reconnects often."""
    context = _context(ssl.Purpose.SERVER_AUTH, tls.authorities)
    if tls.certificate is not None and tls.key is not None:
        _load_chain(context, tls.certificate, tls.key)
    return context


def _context(purpose: ssl.Purpose, authorities: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(purpose, cafile=authorities)
    except (OSError, ValueError) as error:
        wanted = f"a PEM file of certificates ({error})"
        raise ConfigError("tls", authorities, wanted) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    # Python 3.13 asks for an authority key identifier, which certificates of a house's own often
    # lack; Java's clients take those, and so does Python 3.12.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _load_chain(context: ssl.SSLContext, certificate: str, key: str) -> None:
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:
        wanted = f"PEM files of a certificate and its key, without a password ({error})"
        raise ConfigError("tls", f"{certificate}, {key}", wanted) from error


def _no_password() -> str:
    """Else OpenSSL would ask on the terminal."""
    raise ValueError("the key has a password")


HANDSHAKE_MS_MAX: Final = 10 * SECOND_MS
"""A handshake that takes longer is ended."""
ACCEPT_PAUSE_S: Final = 1.0
"""How long nobody is accepted after the machine refused one (no descriptors left)."""
READ_BYTES: Final = 32 * KIB
"""Encrypted bytes asyncio reads at once for one connection. Its own figure, 256 KiB, is taken for
each connection as long as it lives, also when it is idle.
"""
CROWD: Final = HANDSHAKES_MAX // 4
"""After so many handshakes at a time their memory is given back: about 100 KiB each."""
CAME_AND_WENT: Final = 4 * HANDSHAKES_MAX
"""As above, of handshakes one after the other: what an encrypted connection leaves behind hangs
together in circles, and a large process does not look for those by itself.
"""
_HANDSHAKE_BYTE: Final = b"\x16"

_log = logging.getLogger(__name__)


class TlsListener:
    """See `engine.runtime.network.Listener`."""

    def __init__(
        self,
        port_socket: socket.socket,
        factory: Any,
        tls: ServerTls,
        *,
        handshakes_max: int = HANDSHAKES_MAX,
        handshake_ms_max: int = HANDSHAKE_MS_MAX,
    ) -> None:
        self._handshakes_max = handshakes_max
        self._handshake_ms_max = handshake_ms_max
        self._socket = port_socket
        self._factory = factory
        self._context = server_context(tls)
        SSLProtocol.max_size = READ_BYTES  # A constant of its class; there is no other way.
        self._permissive = tls.mode is TlsMode.PERMISSIVE
        self._welcomes: dict[asyncio.Task[None], None] = {}
        self._crowd = self._came = 0
        """Most handshakes at a time, and all of them, since memory was given back."""
        self._accepting = asyncio.create_task(self._accept(), name="accept TLS connections")

    @property
    def port(self) -> int:
        """See `Listener.port`."""
        return int(self._socket.getsockname()[1])

    async def close(self) -> None:
        """See `Listener.close`; handshakes under way are ended."""
        tasks = [self._accepting, *self._welcomes]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._socket.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._socket)
            except OSError as error:
                _log.warning("no connection is accepted for %s s: %s", ACCEPT_PAUSE_S, error)
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            if len(self._welcomes) >= self._handshakes_max:
                _log.warning(
                    "a connection is closed: %d handshakes are under way", self._handshakes_max
                )
                connection.close()
                continue
            welcome = loop.create_task(self._welcome(connection), name="TLS handshake")
            self._welcomes[welcome] = None
            self._crowd = max(self._crowd, len(self._welcomes))
            welcome.add_done_callback(self._welcomed)

    def _welcomed(self, welcome: asyncio.Task[None]) -> None:
        del self._welcomes[welcome]
        self._came += 1
        if not self._welcomes and (self._crowd >= CROWD or self._came >= CAME_AND_WENT):
            self._crowd = self._came = 0
            asyncio.get_running_loop().run_in_executor(None, give_back_memory)

    async def _welcome(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        handed_over = False
        try:
            connection.setblocking(False)
            async with asyncio.timeout(self._handshake_ms_max / SECOND_MS):
                context: ssl.SSLContext | None = self._context
                if self._permissive and await _first_byte(connection) != _HANDSHAKE_BYTE:
                    context = None
                await loop.connect_accepted_socket(self._factory, connection, ssl=context)
                handed_over = True
        except TimeoutError:
            _log.warning(
                "a connection is closed: no handshake within %d ms", self._handshake_ms_max
            )
        except OSError as error:  # ssl.SSLError is one.
            _log.warning("a connection is closed: its TLS handshake failed: %s", error)
        finally:
            if not handed_over:
                connection.close()


async def _first_byte(connection: socket.socket) -> bytes:
    """The byte that will be read first; it stays to be read."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def notify() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(connection, notify)
    try:
        await readable
    finally:
        loop.remove_reader(connection)
    return connection.recv(1, socket.MSG_PEEK)


def open_tls_listener(
    host: str, port: int, factory: Any, tls: ServerTls, **limits: int
) -> TlsListener:
    """Raises ConfigError when the port is taken or a certificate is of no use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        port_socket = socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise ConfigError(
            "port", f"{host}:{port}", f"a free port of this host ({error.strerror or error})"
        ) from error
    port_socket.setblocking(False)
    try:
        return TlsListener(port_socket, factory, tls, **limits)
    except BaseException:
        port_socket.close()
        raise
