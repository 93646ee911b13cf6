"""TLS settings of connections: certificates, and how strictly they are checked.

Place in the walk: below the network door. Values here say what is wanted; the contexts made of them
know TLS 1.2 and later only, and no renegotiation.

Invariant: a client always checks the server's certificate and its name; there is no setting to
leave that out. A server that asks for its clients' certificates lets nobody in without one.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from engine.foundation.errors import ConfigError


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
