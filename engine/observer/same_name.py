"""Checks that a cluster to be watched is the one a lake knows under its name.

Place in the walk: `tidemark observe`, before it watches. Two clusters that are both called
DefaultCluster would be one in every mart.

Invariant: clusters that cannot be distinguished are not refused. Pure; absent on purpose: the lake.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Protocol


class KnownObserver(Protocol):
    """An emitter of a lake that watches a cluster of that name."""

    @property
    def emitter(self) -> str:
        """Who."""
        ...

    @property
    def broker(self) -> str:
        """What it watches."""
        ...

    @property
    def address(self) -> str:
        """Where that was asked last."""
        ...

    @property
    def name_servers(self) -> str:
        """Those that reported it, host:port;host:port."""
        ...


def stranger(
    known: Sequence[KnownObserver], name_servers: str, masters: Mapping[str, str]
) -> KnownObserver | None:
    """One of those that watch another cluster of that name; None when all is one. `masters`:
    addresses by broker name.

    It is one when a broker is where it was, or when a name server names both: but for loopback
    addresses, which each machine has.
    """
    own, addresses = _far(name_servers), set(masters.values())
    for one in known:
        if one.address in addresses or own & _far(one.name_servers):
            return None
    return known[0] if known else None


def _far(name_servers: str) -> set[str]:
    return {one for one in name_servers.split(";") if one and not _is_loopback(one)}


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
