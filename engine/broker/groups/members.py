"""Registered clients: their heartbeat data, client-id ownership and group memberships.

Place in the walk: heartbeats make them; the tables of consumer groups and of producer groups hold
them, and the gate asks whose a client id is before a request that names one passes. What is
registered under a client id is found by that id alone, so whoever could take it would take that.

Invariant: while a connection is open whose account holds a client id, no other account holds it.
Absent on purpose: groups; brokers without accounts, where nobody holds an id, as in RocketMQ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from engine.remoting import Peer


class ClientIds:
    """Client ids in use; at most one for each connection."""

    def __init__(self) -> None:
        self._holders: dict[str, dict[Peer, str]] = {}

    def hold(self, client_id: str, peer: Peer, account: str) -> None:
        """The account's client on this connection goes by that id, until the connection ends."""
        self._holders.setdefault(client_id, {})[peer] = account

    def release(self, client_id: str, peer: Peer) -> None:
        """The connection has ended, or goes by another id now."""
        peers = self._holders.get(client_id, {})
        if peers.pop(peer, None) is not None and not peers:
            del self._holders[client_id]

    def accounts(self, client_id: str) -> frozenset[str]:
        """Access keys of those who hold the id: one account's, or nobody's."""
        return frozenset(self._holders.get(client_id, {}).values())


HEARD_LOOKED_AT = 50
"""Members that were heard of lately cost as much to pass over as one that goes."""

TOLD_BYTES = 64
"""What a topic and its expression take beside their characters."""


@dataclass(slots=True)
class ClientChannel:
    """A client as its heartbeats describe it; kept on its connection."""

    client_id: str
    peer: Peer
    language: str
    version: int
    account: str | None = None
    """Access key of the account that signs for it; None without accounts."""
    kept_bytes: dict[str, int] = field(default_factory=dict)
    """Groups it consumes in, and the memory that what it reported of each takes."""
    producer_groups: frozenset[str] = frozenset()


def client_id_of(peer: Peer) -> str | None:
    """The client on a connection, once it has sent a heartbeat."""
    channel = peer.attachment
    return channel.client_id if isinstance(channel, ClientChannel) else None


@dataclass(slots=True)
class Member:
    """A client's membership in one group."""

    channel: ClientChannel
    last_heartbeat_ms: int
    account: str | None = None
    """The account at that heartbeat: what the member takes is counted there."""
    subscription: tuple[str, ...] | None = None
    """`topic:expression` of what it reported last, sorted; None when it has reported nothing yet.
    Empty is a subscription too: that of a member which takes every topic away from the others.
    """
    former: Peer | None = None
    """The other connection that its heartbeats came by, if it is open still."""
    is_shared: bool = False
    """Do heartbeats come by two open connections in turn? Two processes bear its client id then."""

    @property
    def client_id(self) -> str:
        """The client's id."""
        return self.channel.client_id

    def heard_again(self, heard: Member) -> bool:
        """Takes over into `heard`, its next heartbeat, by which connections it was heard; does it
        show only now that two processes bear its id? A client that connects anew leaves its old
        connection for good, so that one comes back says it.
        """
        last, now = self.channel.peer, heard.channel.peer
        if last is now:
            heard.former = self.former if self.former is None or not self.former.closed else None
            heard.is_shared = self.is_shared and heard.former is not None
            return False
        heard.former = None if last.closed else last
        heard.is_shared = heard.former is not None and (self.is_shared or self.former is now)
        return heard.is_shared and not self.is_shared

    @property
    def reported_bytes(self) -> int:
        """Memory that `subscription` takes."""
        return sum(TOLD_BYTES + len(spelled) for spelled in self.subscription or ())


def silent_members(
    tables: Iterable[tuple[str, Mapping[str, Member]]], oldest_ms: int
) -> Iterator[tuple[str, str] | None]:
    """(group, client id) of members heard before `oldest_ms`; None after each HEARD_LOOKED_AT."""
    heard_count = 0
    for group, members in tables:
        for client_id, member in list(members.items()):
            if member.last_heartbeat_ms < oldest_ms:
                yield group, client_id
                continue
            heard_count += 1
            if not heard_count % HEARD_LOOKED_AT:
                yield None
