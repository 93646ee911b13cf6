"""Records what clients of a simulated cluster did and saw, and checks the laws against it.

The history is kept outside every node: no crash touches it. Checkers are plain functions over it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

QueueKey = tuple[str, int]
"""Topic and queue id."""


@dataclass(slots=True)
class History:
    """One run, as clients know it."""

    sent: list[bytes] = field(default_factory=list)
    acked: dict[tuple[str, int, int], bytes] = field(default_factory=dict)
    """Acknowledged messages: body by (topic, queue id, queue offset)."""
    finished: dict[tuple[str, int, int], list[str]] = field(default_factory=dict)
    """Who finished which (topic, queue id, queue offset), in the order of finishing."""
    bodies_seen: dict[bytes, int] = field(default_factory=dict)

    def ack(self, topic: str, queue_id: int, queue_offset: int, body: bytes) -> None:
        """A broker acknowledged; two acknowledged messages never share a place."""
        place = (topic, queue_id, queue_offset)
        taken = self.acked.setdefault(place, body)
        assert taken == body, f"{place} was acknowledged for {taken!r} and for {body!r}"

    def finish(self, place: tuple[str, int, int], body: bytes, client: str) -> None:
        """A listener is done with a message."""
        self.finished.setdefault(place, []).append(client)
        self.bodies_seen[body] = self.bodies_seen.get(body, 0) + 1

    def unseen(self) -> list[bytes]:
        """Acknowledged messages that no listener has finished yet."""
        return [body for body in self.acked.values() if body not in self.bodies_seen]


def check_nothing_acknowledged_is_lost(
    history: History, stored: Mapping[tuple[str, int, int], bytes]
) -> None:
    """Every acknowledged message is where the broker said it is."""
    for place, body in history.acked.items():
        assert place in stored, f"acknowledged {body!r} at {place} is lost"
        assert stored[place] == body, f"{place} holds {stored[place]!r}, acknowledged was {body!r}"


def check_order_per_queue(history: History, stored: Mapping[tuple[str, int, int], bytes]) -> None:
    """One producer's acknowledged messages lie in each queue in the order in which it sent them."""
    sent_as = {body: number for number, body in enumerate(history.sent)}
    by_queue: dict[QueueKey, list[tuple[int, int]]] = {}
    for (topic, queue_id, queue_offset), body in history.acked.items():
        by_queue.setdefault((topic, queue_id), []).append((queue_offset, sent_as[body]))
    for queue, places in by_queue.items():
        numbers = [number for _, number in sorted(places)]
        assert numbers == sorted(numbers), f"{queue} holds messages out of order: {numbers}"
    assert len(stored) >= len(history.acked)


def check_offset_passes_nothing_unfinished(
    history: History, queue: QueueKey, committed: int
) -> None:
    """A consume offset says that everything below it has been worked on."""
    for offset in range(committed):
        assert (*queue, offset) in history.finished, (
            f"offset {committed} of {queue} is committed, but nobody has finished {offset}"
        )


def check_one_owner_per_queue(
    owners: Iterable[tuple[str, Iterable[QueueKey]]], queues: Iterable[QueueKey]
) -> None:
    """After things have settled every queue is held by exactly one member."""
    held: dict[QueueKey, list[str]] = {queue: [] for queue in queues}
    for client, keys in owners:
        for key in keys:
            held.setdefault(key, []).append(client)
    wrong = {queue: clients for queue, clients in held.items() if len(clients) != 1}
    assert not wrong, f"queues without exactly one owner: {wrong}"


def check_boots_raise_only_what_had_been_lowered(rows: Iterable[dict[str, Any]]) -> None:
    """No boot finds an offset that was never reported: reports are durable before the file is."""
    highest: dict[int, int] = {}
    for row in rows:
        queue_id, offset = row["queue_id"], row["offset"]
        if row["path"] == "RESTORE":
            assert offset <= highest[queue_id], f"queue {queue_id} begins past all reports: {row}"
        highest[queue_id] = max(highest.get(queue_id, 0), offset)
