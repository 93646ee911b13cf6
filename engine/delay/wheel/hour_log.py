"""Delay log for the timers due in a single hour, linked by the second at which they are due.

Place in the walk: the wheel appends an entry for each timer that becomes visible in the commit log;
when its second comes near, the entries of that second are read.

    3600 heads of 16 B   last entry of the second (int64), how many it has (int64); zeros: none
    entries of 40 B      log offset (8), size (4), local index (4), global index (4), global index
                         of the one before in its second or -1 (4), due ms (8), kind (4), CRC (4)

Integers are big-endian. The local index counts the entries of a second, the global one those of an
hour. Entries stand in the order of the commit log. An entry is added, and a second is read, without
a look at any other entry of the hour.

Invariant: entries are a function of the commit log; a head names an entry that is there, once the
log has been opened. Absent on purpose: messages (they stay in the commit log), what was delivered.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from engine.foundation.errors import CorruptRecord
from engine.foundation.units import HOUR_MS, SECOND_MS
from engine.runtime import Disk
from engine.runtime.disk import File

SECONDS: Final = 3600
_HEADS: Final = Struct(f">{2 * SECONDS}q")
_HEAD: Final = Struct(">qq")
_ENTRY: Final = Struct(">qiiiiqi")
_CRC: Final = Struct(">I")
ENTRY_BYTES: Final = _ENTRY.size + _CRC.size
HEADS_BYTES: Final = _HEADS.size
CHECKED_AT_ONCE: Final = 4096

WAITS: Final = 1
"""The message waits for this time."""
CANCELS: Final = 2
"""Timers before it that are due in this second and have its key are void."""
REPLACES: Final = 3
"""One timer that is due in this second is void: another one, due at another time, has its place."""
AGAIN: Final = 4
"""The message waits; it was put again, and has the place of its earlier record."""


class Entry(NamedTuple):
    """A record of the commit log that means something for a second."""

    due_ms: int
    log_offset: int
    size_bytes: int
    kind: int


class HourLog:
    """One open delay log."""

    def __init__(self, disk: Disk, path: str, hour: int, seal: int) -> None:
        """`hour`: which since 1970; `seal`: a number of the store that the log belongs to."""
        self.hour = hour
        self._seal = seal
        self._file = disk.open(path, create=True)
        size_bytes = self._file.size_bytes()
        if size_bytes < HEADS_BYTES:
            self._file.truncate(HEADS_BYTES)
            size_bytes = HEADS_BYTES
        self.count = (size_bytes - HEADS_BYTES) // ENTRY_BYTES
        self._heads_read: array[int] | None = None

    @property
    def _heads(self) -> array[int]:
        """Two numbers a second: its last entry, and how many it has."""
        if self._heads_read is None:
            heads = array("q", _HEADS.unpack(self._file.pread(HEADS_BYTES, 0)))
            self._heads_read = heads
            # What a power cut took of the entries it may have left of the heads.
            if any(last >= self.count for last in heads[::2]):
                self._link_again(heads)
        return self._heads_read

    def close(self) -> None:
        """Give the descriptor back."""
        self._file.close()

    def seconds(self) -> list[int]:
        """Those that have entries, since 1970, in order."""
        first = self.hour * SECONDS
        return [first + number for number in range(SECONDS) if self._heads[2 * number + 1]]

    def count_between(self, first: int, end: int) -> int:
        """How many entries the seconds of [first, end) have, those of other hours left out."""
        begin = self.hour * SECONDS
        low, high = (min(max(second - begin, 0), SECONDS) for second in (first, end))
        return sum(self._heads[2 * low + 1 : 2 * high : 2])

    def append(self, entries: Iterable[Entry]) -> list[int]:
        """Add entries of this hour; return the seconds that had none."""
        parts: list[bytes] = []
        firsts, changed = [], set()
        heads, begin = self._heads, self.count
        for entry in entries:
            second = entry.due_ms // SECOND_MS
            number = 2 * (second % SECONDS)
            local = heads[number + 1]
            before = heads[number] if local else -1
            if not local:
                firsts.append(second)
            packed = _ENTRY.pack(
                entry.log_offset,
                entry.size_bytes,
                local,
                self.count,
                before,
                entry.due_ms,
                entry.kind,
            )
            parts += (packed, _CRC.pack(crc32(packed, self._seal)))
            heads[number], heads[number + 1] = self.count, local + 1
            changed.add(number)
            self.count += 1
        self._file.pwrite(b"".join(parts), HEADS_BYTES + begin * ENTRY_BYTES)
        for number in changed:
            self._file.pwrite(_HEAD.pack(*heads[number : number + 2]), number * 8)
        return firsts

    def of_second(self, second: int) -> list[Entry]:
        """The entries of a second, in the order of the commit log.

        Raises CorruptRecord where the chain is broken.
        """
        number = 2 * (second % SECONDS)
        at, local, found = self._heads[number], self._heads[number + 1], []
        while local:
            local -= 1
            entry, its_local, before = self._read(at)
            if its_local != local or entry.due_ms // SECOND_MS != second:
                raise CorruptRecord(f"{self._file.path}: entry {at} is no {local} of its second")
            found.append(entry)
            at = before
        found.reverse()
        return found

    def last_offset(self) -> int:
        """Where the record of the last entry lies in the commit log; -1 without any."""
        return self._read(self.count - 1)[0].log_offset if self.count else -1

    def check(self) -> Callable[[], str | None]:
        """What looks, beside the loop, at all that is there now, and returns what is wrong."""
        file, count, heads = self._file, self.count, self._heads[:]
        return lambda: _fault_of(file, count, heads, self._seal)

    def cut(self, log_offset: int) -> None:
        """Drop what lies at `log_offset` of the commit log or behind it, and what a power cut left
        half written there. A damaged entry that is met counts as one of these.
        """
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            entry = self._sound(middle)
            # One that was torn was not synced: it lies behind.
            if entry is None or entry.log_offset >= log_offset:
                high = middle
            else:
                low = middle + 1
        if low < self.count or self._file.size_bytes() > HEADS_BYTES + low * ENTRY_BYTES:
            self.count = low
            self._file.truncate(HEADS_BYTES + low * ENTRY_BYTES)
            self._heads_read = None

    def _link_again(self, heads: array[int]) -> None:
        """Make the heads anew from the entries."""
        heads[:] = array("q", bytes(HEADS_BYTES))
        for at in range(self.count):
            number = 2 * (self._read(at)[0].due_ms // SECOND_MS % SECONDS)
            heads[number] = at
            heads[number + 1] += 1
        self._file.pwrite(_HEADS.pack(*heads), 0)

    def _sound(self, at: int) -> Entry | None:
        try:
            return self._read(at)[0]
        except CorruptRecord:
            return None

    def _read(self, at: int) -> tuple[Entry, int, int]:
        """An entry, its local index, and the global index of the one before in its second."""
        found = self._file.pread(ENTRY_BYTES, HEADS_BYTES + at * ENTRY_BYTES)
        packed = found[: _ENTRY.size]
        if len(found) < ENTRY_BYTES or not _is_sound(found, self._seal):
            raise CorruptRecord(f"{self._file.path}: entry {at} of {self.count} is damaged")
        offset, size_bytes, local, its_index, before, due_ms, kind = _ENTRY.unpack(packed)
        if its_index != at or due_ms // HOUR_MS != self.hour:
            raise CorruptRecord(f"{self._file.path}: entry {at} is another hour's, or another one")
        return Entry(due_ms, offset, size_bytes, kind), local, before


def _is_sound(entry: bytes | memoryview, seal: int) -> bool:
    """Does an entry with its checksum stand as it was written, in this store?"""
    (crc,) = _CRC.unpack_from(entry, _ENTRY.size)
    return bool(crc == crc32(entry[: _ENTRY.size], seal))


def _fault_of(file: File, count: int, heads: array[int], seal: int) -> str | None:
    """What is wrong with the first `count` entries, or with the heads that lead to them."""
    found = array("q", bytes(HEADS_BYTES))
    for begin in range(0, count, CHECKED_AT_ONCE):
        some = memoryview(
            file.pread(CHECKED_AT_ONCE * ENTRY_BYTES, HEADS_BYTES + begin * ENTRY_BYTES)
        )
        for at in range(begin, min(begin + CHECKED_AT_ONCE, count)):
            entry = some[(at - begin) * ENTRY_BYTES : (at - begin + 1) * ENTRY_BYTES]
            if len(entry) < ENTRY_BYTES or not _is_sound(entry, seal):
                return f"{file.path}: entry {at} of {count} is damaged"
            number = 2 * (_ENTRY.unpack_from(entry)[5] // SECOND_MS % SECONDS)
            found[number], found[number + 1] = at, found[number + 1] + 1
    return None if found == heads else f"{file.path}: heads do not lead to the entries"
