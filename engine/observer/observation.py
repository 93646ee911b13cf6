"""Observation settings: the clusters to watch, their names and the observer's name.

Place in the walk: from the command's options; `cluster_watch` asks it which clusters are meant. Two
clusters called DefaultCluster would be one in every mart, so `stranger` compares with what the lake
knows. Pure.

Invariant: clusters that cannot be distinguished are not refused. Absent on purpose: the lake.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from engine.foundation.errors import ConfigError
from engine.observer.question_turns import said_names
from engine.protocol.bodies import ClusterInfo


@dataclass(frozen=True, slots=True)
class Observation:
    """As it was asked for."""

    clusters: frozenset[str]
    """Names, as the name servers have them; none: all that they know."""
    observer: str
    home: str
    """Folder with a folder for each broker's spool."""
    period_ms: int
    called: str | None = None
    """What the lake calls the one cluster that is watched; None: as its name servers do."""
    name_servers: str = ""
    """Host:port of all of them, sorted, split by ';'."""
    proxies: tuple[str, ...] = ()
    """Host:port of proxies of the one cluster that is watched: who is connected with them."""

    def is_wanted(self, cluster: str) -> bool:
        """Is this one watched?"""
        return not self.clusters or cluster in self.clusters

    def name_in_lake(self, cluster: str) -> str:
        """What the lake calls a cluster."""
        return cluster if self.called is None else self.called

    def real_name(self, name_in_lake: str) -> str:
        """What its name servers call a cluster."""
        return name_in_lake if self.called is None else next(iter(self.clusters), name_in_lake)

    def missing_in(self, info: ClusterInfo) -> dict[str, str]:
        """Wanted clusters that are not there, with a sentence each that names those that are."""
        there = said_names(info.cluster_addr_table)
        return {
            name: f"the name servers know no cluster {name}; they know {there or 'none'}"
            for name in sorted(self.clusters - info.cluster_addr_table.keys())
        }

    def checked(self, info: ClusterInfo) -> Observation:
        """The same, once the name servers have said which clusters there are. Raises ConfigError
        when none of those that are wanted is, or when one name, or a proxy, is given to several.
        """
        missing = self.missing_in(info)
        if missing and len(missing) == len(self.clusters):
            there = said_names(info.cluster_addr_table)
            wanted = f"one that the name servers know: {there or 'they know none'}"
            raise ConfigError("cluster", said_names(missing), wanted)
        meant: Sequence[str] = sorted(self.clusters or info.cluster_addr_table)
        if self.proxies and len(meant) != 1:
            wanted = f"one of one cluster; choose that by --cluster of {said_names(meant)}"
            raise ConfigError("proxy", said_names(self.proxies), wanted)
        if self.called is None:
            return self
        if len(meant) != 1:
            wanted = f"the name of one cluster; choose one by --cluster of {said_names(meant)}"
            raise ConfigError("as", self.called, wanted)
        return replace(self, clusters=frozenset(meant))


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
