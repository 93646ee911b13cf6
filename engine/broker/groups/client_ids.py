"""Client ids and the accounts that hold them.

Place in the walk: a heartbeat makes its connection known under a client id; the gate asks here
before a request that names a client id passes. What is registered under a client id (memberships,
queue locks, questions that wait for replies) is found by that id alone, so whoever could take it
would take all of that.

Invariant: while a connection is open whose account holds a client id, no other account holds it.
Absent on purpose: brokers without accounts, where nobody holds anything, as in RocketMQ; what is
registered.
"""

from __future__ import annotations

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
