"""Order locks: which client of a group may consume a queue in order, as leases.

Place in the walk: an orderly consumer asks for its queues before it adds them and each 20 s
(LOCK_BATCH_MQ); the broker answers with those it granted.

Invariant: at any time at most one client of a group holds the unexpired lease of a queue. A client
that is gone loses its queues when the lease runs out, so a lease is longer than the time after
which a client itself distrusts its lock. Absent on purpose: waiting; a refused client asks again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.foundation.limits import QUEUE_LOCK_LEASE_MS
from engine.protocol.message import MessageQueue


@dataclass(slots=True)
class Lease:
    """Who holds a queue, and since when without asking again."""

    client_id: str
    renewed_ms: int


class QueueLocks:
    """The leases of all groups of one broker."""

    def __init__(self, lease_ms: int = QUEUE_LOCK_LEASE_MS) -> None:
        self._lease_ms = lease_ms
        self._leases: dict[str, dict[MessageQueue, Lease]] = {}

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], *, now_ms: int
    ) -> list[MessageQueue]:
        """Grant or renew what is free, expired or the client's own; return what it holds now."""
        leases = self._leases.setdefault(group, {})
        granted = []
        for queue in queues:
            lease = leases.get(queue)
            if lease is None or lease.client_id == client_id or self._expired(lease, now_ms):
                leases[queue] = Lease(client_id, now_ms)
                granted.append(queue)
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give back the client's own leases; those of others stay."""
        leases = self._leases.get(group)
        if leases is None:
            return
        for queue in queues:
            lease = leases.get(queue)
            if lease is not None and lease.client_id == client_id:
                del leases[queue]
        if not leases:
            del self._leases[group]

    def holder(self, group: str, queue: MessageQueue, *, now_ms: int) -> str | None:
        """The client that holds the unexpired lease; None when the queue is free."""
        lease = self._leases.get(group, {}).get(queue)
        return None if lease is None or self._expired(lease, now_ms) else lease.client_id

    def is_held(self, group: str, *, now_ms: int) -> bool:
        """Does any client of the group hold an unexpired lease?"""
        leases = self._leases.get(group, {})
        return any(not self._expired(lease, now_ms) for lease in leases.values())

    def drop_expired(self, now_ms: int) -> None:
        """Forget leases that ran out, so that the table holds only what somebody holds."""
        for group in list(self._leases):
            leases = self._leases[group]
            for queue in [key for key, lease in leases.items() if self._expired(lease, now_ms)]:
                del leases[queue]
            if not leases:
                del self._leases[group]

    def _expired(self, lease: Lease, now_ms: int) -> bool:
        return now_ms - lease.renewed_ms > self._lease_ms
