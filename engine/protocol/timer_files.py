"""Encodes and decodes RocketMQ's timer wheel, log and checkpoint files without I/O.

Place in the walk: `tidemark admin timer export` writes them and `import` reads them; the check
point also answers GET_TIMER_CHECK_POINT.

    timerwheel  slots of 32 B: second (8), first and last unit (8, 8), units (4), magic (4)
    timerlog/   units of 52 B: size (4), unit before in the slot or -1 (8), magic (4), written at ms
                (8), ms from then to the slot (4), log offset (8), size (4), hash of the topic (4),
                zeros (8); no unit crosses the end of a file: a blank tail says how long it is
    timercheck  seven int64: delivered up to ms, end of the timer log, next offset of the topic of
                timers, the master's, state version, time and counter of the data version

A slot fires when its second is over: TIMER_OUT_MS + 1000.

Invariant: units are chained by slot, the newest first. Absent on purpose: which timers wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple, Self

from engine.foundation.errors import CorruptRecord
from engine.foundation.units import DAY_MS, SECOND_MS

PRECISION_MS: Final = SECOND_MS
SLOTS: Final = 2 * 7 * DAY_MS // PRECISION_MS
"""The wheel of a broker has a slot for each second of two weeks."""
LOG_FILE_BYTES: Final = 100 * 1024 * 1024
ROLL_MS: Final = 2 * DAY_MS
"""A timer that is further away is carried on with a copy when so much has passed."""

WAITS: Final = 1
ROLLS: Final = 2
"""Bit of a unit's magic: a copy of the timer is put when its slot fires."""
DELETES: Final = 4

_SLOT: Final = Struct(">qqqii")
_UNIT: Final = Struct(">iqiqiqiiq")
_BLANK: Final = Struct(">iqi")
_BLANK_MAGIC: Final = 0xCBD43194 - (1 << 32)
_CHECK_POINT: Final = Struct(">7q")
CHECK_POINT_BYTES: Final = 4096
SLOT_BYTES: Final = _SLOT.size
UNIT_BYTES: Final = _UNIT.size


class CheckPoint(NamedTuple):
    """How far RocketMQ's timers are."""

    delivered_ms: int
    """Every slot before this time has fired."""
    log_end: int
    next_offset: int
    """Of the topic of timers."""
    master_next_offset: int
    state_version: int = 0
    timestamp_ms: int = 0
    counter: int = 0

    def to_bytes(self) -> bytes:
        """As an answer has it; a file has zeros behind it."""
        return _CHECK_POINT.pack(*self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Raises CorruptRecord for bytes that are none."""
        if len(data) < _CHECK_POINT.size:
            raise CorruptRecord(f"a check point of timers has {len(data)} bytes, too few")
        return cls._make(_CHECK_POINT.unpack_from(data))


class Slot(NamedTuple):
    """What is due in one second."""

    second: int
    first: int
    last: int
    """Where the newest unit lies."""
    timers: int
    magic: int = 0

    def to_bytes(self) -> bytes:
        """As the wheel has it."""
        return _SLOT.pack(*self)


class Unit(NamedTuple):
    """One timer in the log."""

    before: int
    """Where the one before in its slot lies; -1: there is none."""
    magic: int
    written_ms: int
    delay_ms: int
    log_offset: int
    size_bytes: int
    topic_hash: int

    @property
    def slot_ms(self) -> int:
        """The time of its slot; it fires a second later."""
        return self.written_ms + self.delay_ms


class TimerFiles:
    """Timers as RocketMQ's wheel and log have them."""

    def __init__(self, *, slots: int = SLOTS, file_bytes: int = LOG_FILE_BYTES) -> None:
        self._slot_count = slots
        self._file_bytes = file_bytes
        self._slots: dict[int, Slot] = {}
        self._log: dict[int, bytearray] = {}
        self.log_end = 0

    def add(self, unit: Unit, *, is_linked: bool = True) -> int:
        """Append a unit to its slot and return where it lies. One that is not linked is in no slot:
        it only says how far the topic of timers was read.
        """
        second = unit.slot_ms // PRECISION_MS
        number = second % self._slot_count
        found = self._slots.get(number)
        slot = found if found is not None and found.second == second else None
        at = self.append(unit._replace(before=-1 if slot is None else slot.last))
        if is_linked:
            first, timers = (at, 0) if slot is None else (slot.first, slot.timers)
            self.put(Slot(second, first, at, timers + 1))
        return at

    def append(self, unit: Unit) -> int:
        """Append a unit as it is, linked or not, and return where it lies."""
        position = self.log_end % self._file_bytes
        if UNIT_BYTES + _BLANK.size > self._file_bytes - position:
            self._log[self.log_end - position] += _BLANK.pack(
                self._file_bytes - position, 0, _BLANK_MAGIC
            )
            self.log_end += self._file_bytes - position
            position = 0
        data = _UNIT.pack(
            UNIT_BYTES,
            unit.before,
            unit.magic,
            unit.written_ms,
            unit.delay_ms,
            unit.log_offset,
            unit.size_bytes,
            unit.topic_hash,
            0,
        )
        at = self.log_end
        self._log.setdefault(at - position, bytearray()).extend(data)
        self.log_end += UNIT_BYTES
        return at

    def put(self, slot: Slot) -> None:
        """Set what a second has."""
        self._slots[slot.second % self._slot_count] = slot

    def wheel(self) -> Iterator[tuple[int, bytes]]:
        """Slots that have something, and where each stands in the file of `wheel_bytes`."""
        for number, slot in sorted(self._slots.items()):
            yield number * SLOT_BYTES, slot.to_bytes()

    @property
    def wheel_bytes(self) -> int:
        """Length of the wheel's file."""
        return self._slot_count * SLOT_BYTES

    def log(self) -> Iterator[tuple[str, bytes]]:
        """Name and written part of each file of the log, each of which is `LOG_FILE_BYTES` long."""
        for begin, data in sorted(self._log.items()):
            yield f"{begin:020d}", bytes(data)


def slots_in(wheel: bytes) -> list[Slot]:
    """Those of a wheel that have something. Raises CorruptRecord for a file of another form."""
    if len(wheel) % SLOT_BYTES:
        raise CorruptRecord(f"a timer wheel of {len(wheel)} bytes is none: slots have {SLOT_BYTES}")
    found = map(Slot._make, _SLOT.iter_unpack(wheel))
    return [slot for slot in found if slot.second > 0 and slot.last >= 0]


def units_of(slot: Slot, log: Mapping[int, bytes], file_bytes: int) -> list[Unit]:
    """The units of a slot, oldest first, from the log's files by their first offset.

    Raises CorruptRecord where the chain is broken.
    """
    found: list[Unit] = []
    at = slot.last
    while at >= 0:
        begin = at - at % file_bytes
        data = log.get(begin, b"")
        if at - begin + UNIT_BYTES > len(data):
            raise CorruptRecord(f"the timer log has no unit at {at}, to which a slot leads")
        size, *fields, _ = _UNIT.unpack_from(data, at - begin)
        unit = Unit._make(fields)
        if size != UNIT_BYTES or unit.before >= at:
            raise CorruptRecord(f"the timer log is damaged at {at}")
        if unit.slot_ms // PRECISION_MS != slot.second:
            break  # A chain of an earlier turn of the wheel.
        found.append(unit)
        at = unit.before
    found.reverse()
    return found


def waiting_in(
    slots: Sequence[Slot], log: Mapping[int, bytes], check: CheckPoint, file_bytes: int
) -> list[Unit]:
    """Units of all slots that have not fired, by time."""
    waiting = [slot for slot in slots if slot.second * PRECISION_MS >= check.delivered_ms]
    return [
        unit
        for slot in sorted(waiting, key=lambda one: one.second)
        for unit in units_of(slot, log, file_bytes)
    ]


def java_hash(text: str) -> int:
    """`String.hashCode` of a text."""
    data, number = text.encode("utf-16-be"), 0
    for at in range(0, len(data), 2):
        number = 31 * number + int.from_bytes(data[at : at + 2]) & 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number
