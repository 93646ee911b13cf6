"""Records what clients of a group did, and checks it against what the group holds in the end.

A sender has a key and a queue of its own; a group of consumers has a name. A message is sent until
it is acknowledged, and only then the next one: so the first copies lie in the order of their
numbers, and no message has more copies than it was sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
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
    acknowledged: list[tuple[float, int]] = field(default_factory=list)
    """Moments, with the keys of their senders."""
    consumed: dict[str, Counter[bytes]] = field(default_factory=dict)
    """Group → how often it was given each message."""
    ids: dict[bytes, str] = field(default_factory=dict)
    """Body → the id that its producer gave it, by whoever named one first."""
    seen: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """What consumers were given: queue, offset → body."""
    contradictions: list[str] = field(default_factory=list)
    """Places with different messages, and messages with different ids."""

    def begin(self, key: int) -> Put:
        """The next message of a sender."""
        puts = self.puts.setdefault(key, [])
        put = Put(f"{key}:{len(puts)}:".encode().ljust(40 + len(puts) * 37 % 900, b"."))
        puts.append(put)
        return put

    def try_next(self, key: int) -> Put:
        """A sender sends its last message again, or the next one when that is acknowledged."""
        puts = self.puts.get(key)
        put = puts[-1] if puts and puts[-1].queue_offset < 0 else self.begin(key)
        put.tries += 1
        return put

    def acknowledge(self, key: int, queue_offset: int, message_id: str, now_s: float) -> None:
        """A broker said that a sender's last message is stored there."""
        put = self.puts[key][-1]
        put.queue_offset, put.acknowledged_s = queue_offset, now_s
        self.acknowledged.append((now_s, key))
        self._identify(put.body, message_id)

    def consume(
        self, group: str, queue_id: int, queue_offset: int, message_id: str, body: bytes
    ) -> None:
        """A consumer was given a message."""
        self.consumed.setdefault(group, Counter())[body] += 1
        before = self.seen.setdefault((queue_id, queue_offset), body)
        if before != body:
            self.contradictions.append(f"at {queue_offset}: {before[:20]!r}, then {body[:20]!r}")
        self._identify(body, message_id)

    def _identify(self, body: bytes, message_id: str) -> None:
        before = self.ids.setdefault(body, message_id)
        if before != message_id:
            self.contradictions.append(f"{body[:20]!r} is {before}, then {message_id}")

    def undelivered(self) -> Iterator[tuple[str, Put]]:
        """Group, and what was acknowledged and it was not given."""
        for group, consumed in self.consumed.items():
            for puts in self.puts.values():
                for put in puts:
                    if put.queue_offset >= 0 and not consumed[put.body]:
                        yield group, put

    def longest_gap_s(self, keys: Container[int], begin_s: float, end_s: float) -> float:
        """The longest time within that span in which none of these senders was answered."""
        found = (one for one, key in self.acknowledged if key in keys and begin_s < one < end_s)
        return max(after - before for before, after in pairwise([begin_s, *found, end_s]))

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
        return sum(count - 1 for one in self.consumed.values() for count in one.values())


def faults_of(record: Record, stored: Mapping[int, Sequence[bytes]]) -> list[str]:
    """What the group did that it may not; `stored`: its queues in the end."""
    found = [
        f"acknowledged and lost: {_name(put)} at {put.queue_offset}" for put in record.lost(stored)
    ]
    found += [f"delivered differently: {one}" for one in record.contradictions]
    found += [
        f"delivered and not there: {body[:20]!r} at {queue_offset} of queue {queue_id}"
        for (queue_id, queue_offset), body in record.seen.items()
        if list(stored[queue_id][queue_offset : queue_offset + 1]) != [body]
    ]
    found += copies_too_many(record, stored)
    for key, puts in record.puts.items():
        own = {put.body: number for number, put in enumerate(puts)}
        first = [own[body] for body in dict.fromkeys(stored[key]) if body in own]
        if first != list(range(len(first))):
            found.append(f"key {key} is out of order, or has a gap: {first[:50]}")
    found += [
        f"acknowledged and not delivered to {group}: {_name(put)}"
        for group, put in record.undelivered()
    ]
    return found


def copies_too_many(record: Record, stored: Mapping[int, Sequence[bytes]]) -> list[str]:
    """What not even brokers may do that lose messages."""
    found = []
    for key, puts in record.puts.items():
        copies = Counter(stored[key])
        found += [
            f"{_name(put)} is there {copies[put.body]} times and was sent {put.tries} times"
            for put in puts
            if copies[put.body] > put.tries
        ]
        own = {put.body for put in puts}
        found += [f"nobody sent {body[:20]!r}" for body in copies if body not in own]
    return found


def _name(put: Put) -> str:
    return put.body.rstrip(b".").decode()
