"""Order locks: leases that let only one client per group consume a queue in order.

Place in the walk: an orderly consumer asks for its queues before it adds them and each 20 s
(LOCK_BATCH_MQ); the broker answers with those it granted.

A lease is one of a term: what an earlier leader granted is void here, for it is known nowhere else;
and whoever holds it trusts it for a while yet, so a new leader grants nothing before that is over.

Invariant: at any time at most one client of a group holds the unexpired lease of a queue. A client
that is gone loses its queues when the lease runs out, so a lease is longer than the time after
which a client itself distrusts its lock. There are at most `count_max` leases: of queues beyond it
none is granted. Who held a queue and does not hold it now is remembered, the latest `former_max`.
Absent on purpose: waiting; a refused client asks again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from engine.broker.groups.readers import QueueKey
from engine.foundation.chunked_work import dropped_in_steps
from engine.foundation.limits import FORMER_HOLDERS_MAX, QUEUE_LOCK_LEASE_MS, QUEUE_LOCKS_MAX
from engine.protocol.message import MessageQueue


@dataclass(slots=True)
class Lease:
    """The holder of a queue, and since when it has not renewed the lease."""

    client_id: str
    renewed_ms: int
    term: int


@dataclass(slots=True, eq=False)
class QueueLocks:
    """The leases of all groups of one broker."""

    lease_ms: int = QUEUE_LOCK_LEASE_MS
    count_max: int = QUEUE_LOCKS_MAX
    former_max: int = FORMER_HOLDERS_MAX
    _term: int = field(default=0, init=False)
    _closed_until_ms: int | None = field(default=None, init=False)
    """When leases of an earlier term have run out, wherever they were granted; None: there was
    none.
    """
    _leases: dict[str, dict[MessageQueue, Lease]] = field(default_factory=dict, init=False)
    _by_renewal: OrderedDict[tuple[str, MessageQueue], None] = field(
        default_factory=OrderedDict, init=False
    )
    """Every lease, the one renewed longest ago first."""
    _former: OrderedDict[tuple[str, MessageQueue, str], None] = field(
        default_factory=OrderedDict, init=False
    )
    """(group, queue, client id) of who held a lease, the one that lost it longest ago first."""
    _moved: dict[QueueKey, None] = field(default_factory=dict, init=False)
    """Queues that got or lost their holder since `take_moved`."""

    def __len__(self) -> int:
        """How many leases there are, those that ran out and are not dropped yet among them."""
        return len(self._by_renewal)

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], *, now_ms: int
    ) -> list[MessageQueue]:
        """Grant or renew what is free, expired or the client's own; return what it holds now."""
        if self._closed_until_ms is not None and now_ms <= self._closed_until_ms:
            return []
        leases = self._leases.get(group, {})
        granted = []
        for queue in queues:
            lease = leases.get(queue)
            if lease is None and len(self._by_renewal) >= self.count_max:
                continue
            if lease is None or lease.client_id == client_id or self._expired(lease, now_ms):
                if lease is None or lease.client_id != client_id:
                    self._moved[group, queue.topic, queue.queue_id] = None
                    if lease is not None:
                        self._note_former(group, queue, lease.client_id)
                self._former.pop((group, queue, client_id), None)
                leases[queue] = Lease(client_id, now_ms, self._term)
                self._by_renewal[group, queue] = None
                self._by_renewal.move_to_end((group, queue))
                granted.append(queue)
        if leases:
            self._leases[group] = leases
        return granted

    def begin_term(self, term: int, *, now_ms: int) -> None:
        """The broker has another role or leads in another term."""
        self._term, self._closed_until_ms = term, now_ms + self.lease_ms

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give back the client's own leases; those of others stay."""
        for queue in queues:
            lease = self._leases.get(group, {}).get(queue)
            if lease is not None and lease.client_id == client_id:
                self._drop(group, queue)

    def forget_topic(self, topic: str) -> Iterator[None]:
        """The topic was deleted: who held its queues, or did once, holds nothing of the next life;
        done in steps.
        """
        yield from dropped_in_steps(
            self._by_renewal, lambda lease: lease[1].topic == topic, self._drop_if_there
        )
        yield from dropped_in_steps(self._former, lambda former: former[1].topic == topic)

    def take_moved(self) -> dict[QueueKey, None]:
        """Queues that got or lost their holder since the last call."""
        moved, self._moved = self._moved, {}
        return moved

    def holder(self, group: str, queue: MessageQueue, *, now_ms: int) -> str | None:
        """The client that holds the unexpired lease; None when the queue is free."""
        lease = self._leases.get(group, {}).get(queue)
        return None if lease is None or self._expired(lease, now_ms) else lease.client_id

    def holder_of(self, key: QueueKey, broker_name: str, *, now_ms: int) -> str | None:
        """As `holder`, of a queue of this broker."""
        group, topic, queue_id = key
        return self.holder(group, MessageQueue(topic, broker_name, queue_id), now_ms=now_ms)

    def may_have(self, group: str) -> bool:
        """Has the group leases, expired or not? Few have."""
        return group in self._leases

    def was_held_by(self, group: str, queue: MessageQueue, client_id: str) -> bool:
        """Did the client hold the queue's lease, and lose it or give it back since?"""
        return (group, queue, client_id) in self._former

    def is_held(self, group: str, *, now_ms: int) -> bool:
        """Does any client of the group hold an unexpired lease?"""
        leases = self._leases.get(group, {})
        return any(not self._expired(lease, now_ms) for lease in leases.values())

    def drop_expired(self, now_ms: int) -> Iterator[None]:
        """Forget leases that ran out, so that the table holds only what somebody holds; one after
        the other.
        """
        while self._by_renewal:
            group, queue = next(iter(self._by_renewal))
            if not self._expired(self._leases[group][queue], now_ms):
                return
            self._drop(group, queue)
            yield

    def _drop_if_there(self, lease: tuple[str, MessageQueue]) -> None:
        if lease in self._by_renewal:  # Else it ran out between two steps.
            self._drop(*lease)

    def _drop(self, group: str, queue: MessageQueue) -> None:
        leases = self._leases[group]
        self._note_former(group, queue, leases[queue].client_id)
        del leases[queue], self._by_renewal[group, queue]
        self._moved[group, queue.topic, queue.queue_id] = None
        if not leases:
            del self._leases[group]

    def _note_former(self, group: str, queue: MessageQueue, client_id: str) -> None:
        self._former[group, queue, client_id] = None
        self._former.move_to_end((group, queue, client_id))
        if len(self._former) > self.former_max:
            self._former.popitem(last=False)

    def _expired(self, lease: Lease, now_ms: int) -> bool:
        return lease.term != self._term or now_ms - lease.renewed_ms > self.lease_ms
