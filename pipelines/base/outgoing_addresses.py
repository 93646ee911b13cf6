"""Restricts the hosts and IP addresses to which a channel may connect.

A name that is not allowed is not contacted. Its addresses are looked up once, all must be allowed,
and the connection is made to one that was checked; when the first does not answer, the next is
tried. Private and loopback addresses are for names listed as private. Invariant: pure but for
`look_up`. Link-local (credentials of clouds), multicast and unspecified addresses are never
allowed.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engine.foundation.errors import ConfigError, ConnectFailed

ADDRESSES_MAX: Final = 16
TRIED_MAX: Final = 3
"""Of a name's addresses: each has its share of the time that a try may take."""
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Hosts:
    """Names, in lower case, without a dot at the end."""

    allowed: frozenset[str]
    private: frozenset[str]
    """Those that may have private addresses; they are allowed, too."""

    def check(self, host: str) -> None:
        """Raises ConfigError for a name that is not allowed."""
        if plain_host(host) not in self.allowed | self.private:
            raise ConfigError("host", host, "one of allow_hosts or allow_private_hosts")

    def is_private(self, host: str) -> bool:
        """May this name have private addresses?"""
        return plain_host(host) in self.private

    def checked(self, host: str, addresses: Sequence[str]) -> tuple[str, ...]:
        """The addresses to connect to, the first that answers; raises ConfigError when one of them
        is not allowed."""
        self.check(host)
        assert addresses, "a name that was found has an address"
        for address in addresses:
            if not is_allowed(address, may_be_private=self.is_private(host)):
                raise ConfigError(
                    "host",
                    host,
                    f"a name without the address {address}: private ones are for names of "
                    "allow_private_hosts, link-local ones for none",
                )
        return tuple(addresses[:TRIED_MAX])


def plain_host(host: str) -> str:
    """The name as it is compared."""
    return host.lower().strip("[]").removesuffix(".")


def is_allowed(address: str, *, may_be_private: bool) -> bool:
    """May a connection be made to this address?"""
    try:
        named = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return all(_is_allowed(meant, may_be_private) for meant in _meant(named))


def _is_allowed(address: _Address, may_be_private: bool) -> bool:
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        return False
    return address.is_global or (may_be_private and (address.is_private or address.is_loopback))


def _meant(address: _Address) -> list[_Address]:
    """The address, and the one of IPv4 that it carries."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    carried = [address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        carried.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [address, *(one for one in carried if one is not None)]


def look_up(host: str, port: int) -> list[str]:
    """The addresses of a name; blocks. Raises ConnectFailed when it has none."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConnectFailed(f"the name {host} is not found ({type(error).__name__})") from error
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))[:ADDRESSES_MAX]
    if not addresses:
        raise ConnectFailed(f"the name {host} has no address")
    return addresses
