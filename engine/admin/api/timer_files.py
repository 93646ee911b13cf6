"""Writes pending timers to RocketMQ timer files, and reads them from RocketMQ stores.

Place in the walk: `tidemark admin timer export | import`. What is written belongs to the store that
the list is of: RocketMQ, started on it with these files, delivers what waits and nothing that was
delivered. What is read waits in a store that RocketMQ has left.

Invariant: no file that is there is overwritten; a store is read and not changed. Absent on purpose:
the bytes (`protocol/timer_files`), asking brokers (`timers`).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from engine.admin.api.timers import TimerList
from engine.foundation.errors import ConfigError, CorruptRecord
from engine.foundation.units import SECOND_MS
from engine.protocol.message import MessageExt
from engine.protocol.message_record import decode_record
from engine.protocol.names import TIMER_TOPIC
from engine.protocol.timer_files import (
    CHECK_POINT_BYTES,
    LOG_FILE_BYTES,
    PRECISION_MS,
    ROLL_MS,
    ROLLS,
    WAITS,
    CheckPoint,
    TimerFiles,
    Unit,
    java_hash,
    slots_in,
    waiting_in,
)
from engine.protocol.timers import DeliveredTimers, PendingTimers
from engine.runtime import Disk

WHEEL, LOG, CHECK_POINT = "timerwheel", "timerlog", "config/timercheck"
READ_BEFORE_MS: Final = 10 * SECOND_MS
"""The unit that only says how far the topic was read has a slot so long before the others."""
_QUEUE_UNIT: Final = Struct(">qiq")


def units_for(found: TimerList, now_ms: int) -> TimerFiles:
    """Timers as RocketMQ's wheel and log have them at this time."""
    files, written_ms = TimerFiles(), now_ms - now_ms % PRECISION_MS
    for timer in found.timers:
        delay_ms, magic = max(timer.out_ms - written_ms, 0), WAITS
        if delay_ms >= ROLL_MS:
            is_near = delay_ms - ROLL_MS < ROLL_MS // 3
            delay_ms, magic = (ROLL_MS // 2 if is_near else ROLL_MS), WAITS | ROLLS
        topic = java_hash(timer.topic)
        unit = Unit(-1, magic, written_ms, delay_ms, timer.log_offset, timer.size_bytes, topic)
        files.add(unit)
    if found.last is not None:  # RocketMQ reads its topic on behind the last unit's record.
        place = (found.last.physical_offset, found.last.store_size_bytes)
        files.add(Unit(-1, WAITS, written_ms, -READ_BEFORE_MS, *place, 0), is_linked=False)
    return files


def write_files(disk: Disk, folder: str, found: TimerList, now_ms: int) -> list[str]:
    """Write wheel, log and check point into a folder; their paths.

    Raises ConfigError where one of them is there.
    """
    wheel, check_point = f"{folder}/{WHEEL}", f"{folder}/{CHECK_POINT}"
    for path in (wheel, f"{folder}/{LOG}", check_point):
        if disk.exists(path):
            raise ConfigError("folder", folder, f"one without {path}: nothing is overwritten")
    files = units_for(found, now_ms)
    next_offset = 0 if found.last is None else found.last.queue_offset + 1
    written_ms = now_ms - now_ms % PRECISION_MS
    check = CheckPoint(written_ms, files.log_end, next_offset, next_offset)
    parts = {
        wheel: (files.wheel_bytes, list(files.wheel())),
        check_point: (CHECK_POINT_BYTES, [(0, check.to_bytes())]),
    }
    for name, data in files.log():
        parts[f"{folder}/{LOG}/{name}"] = (LOG_FILE_BYTES, [(0, data)])
    for part in (LOG, CHECK_POINT.partition("/")[0]):
        disk.make_directories(f"{folder}/{part}")
    for path, (size_bytes, pieces) in parts.items():
        file = disk.open(path, create=True)
        try:
            file.truncate(size_bytes)
            for position, data in pieces:
                file.pwrite(data, position)
            file.sync()
        finally:
            file.close()
    return list(parts)


class LeftStore:
    """A store that RocketMQ has left, with its timers."""

    def __init__(self, disk: Disk, folder: str) -> None:
        """Raises ConfigError for a folder without them, CorruptRecord for damaged ones."""
        self._disk = disk
        self._folder = folder
        for name in (WHEEL, CHECK_POINT, "commitlog"):
            if not disk.exists(f"{folder}/{name}") and not disk.names(f"{folder}/{name}"):
                raise ConfigError("store", folder, f"RocketMQ's, with its {name}")
        self._log_bytes = max(self._sizes("commitlog").values(), default=0)
        self._check = CheckPoint.from_bytes(disk.read(f"{folder}/{CHECK_POINT}"))

    def waiting(self) -> list[MessageExt]:
        """Records of what waits, by time: what the wheel has, and what RocketMQ had not read yet.

        Raises CorruptRecord for damaged files.
        """
        records = {place[0]: self._record(*place) for place in self._places()}
        found = PendingTimers()
        for _, record in sorted(records.items()):
            found.add(record)
        return [records[timer.log_offset] for timer in found.waiting(DeliveredTimers(0))]

    def _places(self) -> Iterator[tuple[int, int]]:
        """Where the records of timers lie that may wait: log offset and size."""
        sizes = self._sizes(LOG)
        log = {begin: self._read(LOG, begin, 0, size) for begin, size in sizes.items()}
        wheel = self._disk.read(f"{self._folder}/{WHEEL}")
        file_bytes = max(sizes.values(), default=LOG_FILE_BYTES)
        for unit in waiting_in(slots_in(wheel), log, self._check, file_bytes):
            yield unit.log_offset, unit.size_bytes
        queue = f"consumequeue/{TIMER_TOPIC}/0"
        for begin, size in sorted(self._sizes(queue).items()):
            first = max(0, self._check.next_offset * _QUEUE_UNIT.size - begin)
            for at in range(first, size - _QUEUE_UNIT.size + 1, _QUEUE_UNIT.size):
                unit_bytes = self._read(queue, begin, at, _QUEUE_UNIT.size)
                offset, size_bytes, _ = _QUEUE_UNIT.unpack(unit_bytes)
                if not size_bytes:
                    return
                yield offset, size_bytes

    def _record(self, offset: int, size_bytes: int) -> MessageExt:
        begin = offset - offset % self._log_bytes
        data = self._read("commitlog", begin, offset - begin, size_bytes)
        record = decode_record(data)
        if record.topic != TIMER_TOPIC or record.physical_offset != offset:
            raise CorruptRecord(f"what lies at {offset} of the commit log is no timer")
        return record

    def _read(self, folder: str, begin: int, position: int, length: int) -> bytes:
        file = self._disk.open(f"{self._folder}/{folder}/{begin:020d}")
        try:
            return file.pread(length, position)
        finally:
            file.close()

    def _sizes(self, folder: str) -> dict[int, int]:
        """Length of each file that is named by its first offset."""
        sizes: dict[int, int] = {}
        for name in self._disk.names(f"{self._folder}/{folder}"):
            if len(name) == 20 and name.isdecimal():
                file = self._disk.open(f"{self._folder}/{folder}/{name}")
                sizes[int(name)] = file.size_bytes()
                file.close()
        return sizes
