"""RocketMQ's six strategies for allocating a topic's queues to a group's members.

Place in the walk: the rebalance step.

Every member computes the same division from the same two sorted lists, so nobody has to coordinate
it.

Invariant: for equal sorted inputs the answers of all members are disjoint, and together they are
all queues the strategy shares out (CONFIG alone answers what it was given). Results equal
RocketMQ's, queue by queue (row B5). Absent on purpose: fetching routes and members, and acting on
the answer; `rebalance` does both.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from engine.foundation.errors import ConfigError
from engine.protocol.message import MessageQueue

VIRTUAL_NODES_PER_CLIENT = 10
"""Points each client has on the consistent-hash ring (RocketMQ's default)."""


class AllocationStrategy(Protocol):
    """A way to divide the queues of one topic among the members of one group."""

    @property
    def name(self) -> str:
        """RocketMQ's name of the strategy, as shown by its tools."""
        ...

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """The queues of `client_id`; both lists are sorted. Empty when `client_id` is not a member.

        Raises ConfigError when the own id, the queues or the members are empty: that is never a
        division, and acting on it would drop every queue.
        """
        ...


@dataclass(frozen=True, slots=True)
class Averagely:
    """AVG: consecutive blocks, as equal as possible; the first members get the larger ones."""

    name: str = field(default="AVG", init=False)

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """See `AllocationStrategy.allocate`."""
        own = _own_index(client_id, queues, client_ids)
        if own is None:
            return []
        total, members = len(queues), len(client_ids)
        larger_blocks = total % members
        block = 1 if total <= members else total // members + int(own < larger_blocks)
        start = own * block if own < larger_blocks else own * block + larger_blocks
        return list(queues[start : start + block])


@dataclass(frozen=True, slots=True)
class AveragelyByCircle:
    """AVG_BY_CIRCLE: queues are dealt like cards, one after the other."""

    name: str = field(default="AVG_BY_CIRCLE", init=False)

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """See `AllocationStrategy.allocate`."""
        own = _own_index(client_id, queues, client_ids)
        return [] if own is None else list(queues[own :: len(client_ids)])


@dataclass(frozen=True, slots=True)
class ByConfig:
    """CONFIG: the list in the settings, whatever the group looks like.

    Keeping the members' lists disjoint is the user's part.
    """

    configured: tuple[MessageQueue, ...]
    name: str = field(default="CONFIG", init=False)

    def allocate(
        self,
        client_id: str,  # noqa: ARG002 - the strategy's contract
        queues: Sequence[MessageQueue],  # noqa: ARG002
        client_ids: Sequence[str],  # noqa: ARG002
    ) -> list[MessageQueue]:
        """See `AllocationStrategy.allocate`; never raises."""
        return list(self.configured)


@dataclass(frozen=True, slots=True)
class ByMachineRoom:
    """MACHINE_ROOM: only queues whose broker is named `room@name` with a room of the settings, in
    blocks, rest by circle.
    """

    rooms: frozenset[str]
    name: str = field(default="MACHINE_ROOM", init=False)

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """See `AllocationStrategy.allocate`."""
        own = _own_index(client_id, queues, client_ids)
        if own is None:
            return []
        in_rooms = [queue for queue in queues if self._is_in_rooms(queue.broker_name)]
        members = len(client_ids)
        block, rest = divmod(len(in_rooms), members)
        mine = in_rooms[own * block : (own + 1) * block]
        if rest > own:
            mine.append(in_rooms[own + block * members])
        return mine

    def _is_in_rooms(self, broker_name: str) -> bool:
        parts = broker_name.split("@")
        return len(parts) == 2 and parts[0] in self.rooms


def room_before_dash(name: str) -> str:
    """The default room of a broker name or client id: its text before the first '-'."""
    return name.split("-", 1)[0]


@dataclass(frozen=True, slots=True)
class MachineRoomNearby:
    """MACHINE_ROOM_NEARBY: a room's queues stay among its own clients; queues of rooms without
    clients go to everybody.
    """

    inner: AllocationStrategy
    room_of_broker: Callable[[str], str] = room_before_dash
    room_of_client: Callable[[str], str] = room_before_dash

    @property
    def name(self) -> str:
        """See `AllocationStrategy.name`."""
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """See `AllocationStrategy.allocate`; ConfigError also for a name that belongs to no
        room.
        """
        if _own_index(client_id, queues, client_ids) is None:
            return []
        queues_of: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_of.setdefault(_room(queue.broker_name, self.room_of_broker), []).append(queue)
        clients_of: dict[str, list[str]] = {}
        for member in client_ids:
            clients_of.setdefault(_room(member, self.room_of_client), []).append(member)

        own_room = _room(client_id, self.room_of_client)
        mine: list[MessageQueue] = []
        if own_room in queues_of:
            mine += self.inner.allocate(client_id, queues_of[own_room], clients_of[own_room])
        for room in sorted(queues_of):
            if room not in clients_of:
                mine += self.inner.allocate(client_id, queues_of[room], client_ids)
        return mine


@dataclass(frozen=True, slots=True)
class ConsistentHash:
    """CONSISTENT_HASH: a queue belongs to the next client point on a ring, so a joining member
    moves few queues.
    """

    virtual_nodes_per_client: int = VIRTUAL_NODES_PER_CLIENT
    name: str = field(default="CONSISTENT_HASH", init=False)

    def __post_init__(self) -> None:
        if self.virtual_nodes_per_client < 1:
            raise ConfigError(
                "virtual_nodes_per_client", self.virtual_nodes_per_client, "at least one point"
            )

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """See `AllocationStrategy.allocate`."""
        if _own_index(client_id, queues, client_ids) is None:
            return []
        owner_at = {
            _ring_position(f"{member}-{node}"): member
            for member in client_ids
            for node in range(self.virtual_nodes_per_client)
        }
        ring = sorted(owner_at)
        mine: list[MessageQueue] = []
        for queue in queues:
            place = bisect_left(ring, _ring_position(_queue_text(queue)))
            if owner_at[ring[place % len(ring)]] == client_id:
                mine.append(queue)
        return mine


def _own_index(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> int | None:
    """Place of `client_id` among the members; None when it is not one (its heartbeat has not
    arrived yet).
    """
    if not client_id:
        raise ConfigError("client_id", client_id, "the id of this member, not empty")
    if not queues:
        raise ConfigError("queues", list(queues), "at least one queue to divide")
    if not client_ids:
        raise ConfigError("client_ids", list(client_ids), "at least one member to divide among")
    return client_ids.index(client_id) if client_id in client_ids else None


def _room(name: str, resolve: Callable[[str], str]) -> str:
    room = resolve(name)
    if not room:
        raise ConfigError("machine room", name, "a name from which the resolver makes a room")
    return room


def _queue_text(queue: MessageQueue) -> str:
    """The text RocketMQ hashes for a queue."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )


def _ring_position(text: str) -> int:
    """First four bytes, big-endian, of the MD5 of `text`."""
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")
