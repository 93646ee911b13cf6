"""Encodes the first frame of the next segment a part at a time, before the roll.

Place in the walk: between `progress` and the spool's roll. All marks and reported offsets are a
hundred thousand entries and more; to encode them when the segment is full holds the event loop for
0.1 s. So each turn that finds it full encodes some, and what moves meanwhile comes behind the rest:
the last entry of a key counts.

Invariant: what `encoded` returns is read back as the progress that `note` was given. Absent on
purpose: files, and when to begin; a progress that forgets its offsets needs another `NextLife`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from engine.foundation.limits import LIFE_ENTRIES_PER_TURN
from engine.telemetry.frames import Life, Mark, Offset, Row, encode_life
from engine.telemetry.progress import Progress, reported_in

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
