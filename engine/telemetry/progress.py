"""Group progress that the spool preserves across restarts.

It is how far each group has pulled each queue, the offset it has reported last, and the newest
message of a queue that was pulled before it was synced.

Place in the walk: the first frame of every segment holds all of it, the rows and marks of the
frames behind it move it; a boot reads the newest segment and knows both. To encode a hundred
thousand entries at a roll would hold the event loop for 0.1 s, so `NextLife` encodes some each turn
before; what moves meanwhile comes behind the rest, and the last entry of a key counts.

Invariant: an offset is what the last stored report said that is in the spool; one whose report was
lost is unknown, never an older one. Absent on purpose: the broker's own table of offsets, which is
persisted at other times and may be changed by hand; a `NextLife` whose progress forgets offsets.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from engine.foundation.limits import HANDED_TAILS_MAX, LIFE_ENTRIES_PER_TURN, PULLED_MARKS_MAX
from engine.foundation.observing import HandedTail
from engine.telemetry.frames import Life, Mark, Offset, Row, Tail, encode_life
from engine.telemetry.tables import BY_NAME, TABLES

FORGOTTEN_AT_ONCE: Final = PULLED_MARKS_MAX // 64
"""Of those that moved least recently, when there is one too many."""

MarkKey = tuple[str, str, int]
"""(group, topic, queue_id)"""

_REPORTS: Final = TABLES.index(BY_NAME["consume_offsets"])
_OFFSET: Final = BY_NAME["consume_offsets"].own_names.index("offset")
_ACCEPTED: Final = BY_NAME["consume_offsets"].own_names.index("accepted")

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class PulledMark:
    """How far a group had pulled a queue: next offset not pulled, who pulled last, and in which
    life of the broker."""

    offset: int
    client_id: str | None
    broker_epoch: int


@dataclass(slots=True)
class Progress:
    """Marks and reported offsets of all groups, those that moved last at the end."""

    marks: dict[MarkKey, Mark] = field(default_factory=dict)
    offsets: dict[MarkKey, Offset] = field(default_factory=dict)
    tails: dict[tuple[str, int], Tail] = field(default_factory=dict)

    @classmethod
    def of(cls, life: Life) -> Progress:
        """As a segment begins."""
        progress = cls()
        progress.take_marks(life.marks)
        progress.take_offsets(life.offsets)
        progress.take_tails(life.tails)
        return progress

    def take_marks(self, marks: Iterable[Mark]) -> None:
        """These groups have pulled further."""
        for mark in marks:
            _move(self.marks, mark[:3], mark)

    def take_rows(self, rows: Iterable[Row]) -> None:
        """These rows are in the spool."""
        self.take_offsets(reported_in(rows))

    def take_offsets(self, offsets: Iterable[Offset]) -> None:
        """These offsets were reported."""
        for offset in offsets:
            _move(self.offsets, offset[:3], offset)

    def take_tails(self, tails: Iterable[Tail]) -> None:
        """These messages were pulled before they were synced."""
        for tail in tails:
            self.tails.pop(tail[:2], None)
            self.tails[tail[:2]] = tail
        for oldest in list(islice(self.tails, max(0, len(self.tails) - HANDED_TAILS_MAX))):
            del self.tails[oldest]

    def handed_tails(self) -> list[HandedTail]:
        """The tails as they were reported."""
        return [HandedTail(*tail) for tail in self.tails.values()]

    def pulled_marks(self) -> dict[MarkKey, PulledMark]:
        """The marks without their keys in them."""
        return {key: PulledMark(*mark[3:]) for key, mark in self.marks.items()}

    def forget(self) -> None:
        """Another node reports on the broker: what is known here will be out of date."""
        self.marks.clear()
        self.offsets.clear()
        self.tails.clear()

    def reported_offsets(self) -> dict[MarkKey, int]:
        """The offsets without their keys in them."""
        return {key: offset[3] for key, offset in self.offsets.items()}


def reported_in(rows: Iterable[Row]) -> Iterator[Offset]:
    """What the stored reports among these rows say."""
    for number, _, values in rows:
        if number == _REPORTS and values[_ACCEPTED]:
            yield values[0], values[1], values[2], values[_OFFSET]


def _move(kept: dict[MarkKey, Value], key: MarkKey, value: Value) -> None:
    kept.pop(key, None)  # Re-inserted at the end: the dict keeps the order of moving.
    kept[key] = value
    if len(kept) > PULLED_MARKS_MAX:
        # Many at once: a dict looks for its first entry behind all that were taken from it, 1 ms
        # each time. An OrderedDict does not, but to list its entries holds the loop for 30 ms.
        for oldest in list(islice(kept, FORGOTTEN_AT_ONCE)):
            del kept[oldest]


_ARRAY: Final = struct.Struct(">BI")
_ARRAY_32: Final = 0xDD
"""msgpack's mark of an array whose length takes four bytes."""

_encoder: Final = msgspec.msgpack.Encoder()


class NextLife:
    """Marks and offsets on their way into one frame."""

    def __init__(self, progress: Progress, per_turn: int = LIFE_ENTRIES_PER_TURN) -> None:
        self._per_turn = per_turn
        self._marks = _Entries(progress.marks.values())
        self._offsets = _Entries(progress.offsets.values())
        self._noted_count = 0
        """Entries noted since the last step."""

    def note(self, rows: Sequence[Row], marks: Sequence[Mark]) -> None:
        """These were written into the present segment."""
        before = self._waiting_count
        self._marks.waiting.extend(marks)
        self._offsets.waiting.extend(reported_in(rows))
        self._noted_count += self._waiting_count - before

    def step(self) -> None:
        """Encode `per_turn` entries, and as many as were noted since the last step: the
        end comes nearer, whatever the turns between bring.
        """
        room, self._noted_count = self._per_turn + self._noted_count, 0
        self._offsets.encode(room - self._marks.encode(room))

    @property
    def is_ready(self) -> bool:
        """Is so little left that one step encodes it?"""
        return self._waiting_count <= self._per_turn

    @property
    def _waiting_count(self) -> int:
        return len(self._marks.waiting) + len(self._offsets.waiting)

    def encoded(self, life: Life) -> bytes:
        """The frame of `life`, whose own marks and offsets do not count. Raises ValueError when it
        is longer than SPOOL_FRAME_BYTES_MAX.
        """
        return encode_life(life, self._marks.array(), self._offsets.array())


class _Entries:
    """Entries of one kind: those that wait, and the bytes of those before them."""

    __slots__ = ("_count", "_pieces", "waiting")

    def __init__(self, entries: Iterable[Mark] | Iterable[Offset]) -> None:
        self.waiting: deque[tuple[Any, ...]] = deque(entries)
        self._pieces: list[bytes] = []
        self._count = 0

    def encode(self, count_max: int) -> int:
        """Encode so many of those that wait; how many there were."""
        waiting = self.waiting
        some = [waiting.popleft() for _ in range(min(count_max, len(waiting)))]
        if some:
            self._pieces.append(b"".join(map(_encoder.encode, some)))
            self._count += len(some)
        return len(some)

    def array(self) -> msgspec.Raw:
        """All of them as one msgpack array."""
        self.encode(len(self.waiting))
        return msgspec.Raw(b"".join((_ARRAY.pack(_ARRAY_32, self._count), *self._pieces)))
