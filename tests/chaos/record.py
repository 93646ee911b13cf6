"""Records what clients of a group did, and checks it against what the group holds in the end.

A sender has a key and a queue of its own. It sends a message until it is acknowledged, and only
then the next one: so the first copies lie in the order of their numbers, and no message has more
copies than it was sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(slots=True)
class Put:
    """One message, however often it was sent."""

    body: bytes
    tries: int = 0
    queue_offset: int = -1
    """Where it is, by its acknowledgement; -1: it has none."""
    acknowledged_s: float = 0.0


@dataclass(slots=True)
class Record:
    """All that clients did and saw."""

    puts: dict[int, list[Put]] = field(default_factory=dict)
    """Key, which is the queue as well → its messages by number."""
    acknowledged_s: list[float] = field(default_factory=list)
    consumed: Counter[bytes] = field(default_factory=Counter)
    seen: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """What a consumer was given: queue, offset → body."""
    seen_twice: list[str] = field(default_factory=list)
    """Places at which it was given different messages."""

    def begin(self, key: int) -> Put:
        """The next message of a sender."""
        puts = self.puts.setdefault(key, [])
        put = Put(f"{key}:{len(puts)}:".encode().ljust(40 + len(puts) * 37 % 900, b"."))
        puts.append(put)
        return put

    def acknowledge(self, put: Put, queue_offset: int, now_s: float) -> None:
        """A broker said that it is stored there."""
        put.queue_offset, put.acknowledged_s = queue_offset, now_s
        self.acknowledged_s.append(now_s)

    def consume(self, queue_id: int, queue_offset: int, body: bytes) -> None:
        """A consumer was given a message."""
        self.consumed[body] += 1
        before = self.seen.setdefault((queue_id, queue_offset), body)
        if before != body:
            self.seen_twice.append(f"at {queue_offset}: {before[:20]!r}, then {body[:20]!r}")

    def longest_gap_s(self, begin_s: float, end_s: float) -> float:
        """The longest time within that span in which nothing was acknowledged."""
        times = [begin_s, *(one for one in self.acknowledged_s if begin_s < one < end_s), end_s]
        return max(after - before for before, after in pairwise(times))

    def lost(self, stored: Mapping[int, Sequence[bytes]]) -> list[Put]:
        """What was acknowledged and is not where it was said to be."""
        return [
            put
            for key, puts in self.puts.items()
            for put in puts
            if put.queue_offset >= 0
            and list(stored[key][put.queue_offset : put.queue_offset + 1]) != [put.body]
        ]

    @property
    def redelivered(self) -> int:
        """How many deliveries were not the first one of their message."""
        return sum(count - 1 for count in self.consumed.values())


def faults_of(record: Record, stored: Mapping[int, Sequence[bytes]]) -> list[str]:
    """What the group did that it may not; `stored`: its queues in the end."""
    found = [
        f"acknowledged and lost: {_name(put)} at {put.queue_offset}" for put in record.lost(stored)
    ]
    found += [f"delivered differently: {one}" for one in record.seen_twice]
    found += [
        f"delivered and not there: {body[:20]!r} at {queue_offset} of queue {queue_id}"
        for (queue_id, queue_offset), body in record.seen.items()
        if list(stored[queue_id][queue_offset : queue_offset + 1]) != [body]
    ]
    for key, puts in record.puts.items():
        copies = Counter(stored[key])
        found += [
            f"{_name(put)} is there {copies[put.body]} times and was sent {put.tries} times"
            for put in puts
            if copies[put.body] > put.tries
        ]
        own = {put.body: number for number, put in enumerate(puts)}
        found += [f"nobody sent {body[:20]!r}" for body in copies if body not in own]
        first = [own[body] for body in dict.fromkeys(stored[key]) if body in own]
        if first != list(range(len(first))):
            found.append(f"key {key} is out of order, or has a gap: {first[:50]}")
        unseen = [put for put in puts if put.queue_offset >= 0 and not record.consumed[put.body]]
        found += [f"acknowledged and not delivered: {_name(put)}" for put in unseen]
    return found


def _name(put: Put) -> str:
    return put.body.rstrip(b".").decode()
