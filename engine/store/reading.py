"""Serves pulls by following consume-queue units to records in the commit log.

Place in the walk: `message_store.get`, under `handlers/pull`. Statuses and the next offset to ask
for are RocketMQ's.

One answer takes units of one consume-queue file only, looks through at most
`max_filter_message_bytes` of units, and joins neighbours in the log into one view, so that an
unfiltered run of one queue leaves in few slices.

Invariant: an answer holds at least one record if any matched, whatever the byte limit says; a unit
whose record is gone, lies in a hole or is not the one that it names is stepped over, never
answered. What this life of the process has put needs no check; what an earlier one has left gets
it. Absent on purpose: waiting, subscriptions, the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from engine.foundation.errors import CorruptRecord
from engine.foundation.units import KIB
from engine.store.commit_log import NO_DELAYS, CommitLog
from engine.store.config import StoreConfig
from engine.store.consume_queue import FILLER_SIZE, UNIT_BYTES, ConsumeQueue, Unit
from engine.store.holes import Hole
from engine.store.queue_table import QueueKey
from engine.store.record_reading import (
    PLACE,
    RECORD_BYTES_MIN,
    check_record,
    is_of_topic,
    is_whole,
    properties_of,
)
from engine.store.sound_records import is_sound, last_sound_end, next_sound

GATHERED_BYTES_MIN = 64 * KIB
"""Answers of several runs that are longer leave uncopied, run by run."""


class GetStatus(Enum):
    """How a get ended, in RocketMQ's words."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


@dataclass(slots=True)
class GetResult:
    """What a get found. `records` are slices of whole records; they stay readable while held."""

    status: GetStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    records: list[memoryview] = field(default_factory=list)
    count: int = 0
    size_bytes: int = 0
    suggest_pulling_from_slave: bool = False
    """Is the reader so far behind that what it reads is likely not in memory?"""
    behind_bytes: int | None = None
    """How far behind the end of the log its first message lies: from `resident_bytes` on the answer
    is smaller. None: there is none.
    """

    def body(self) -> bytes | memoryview:
        """The records one after the other: the one view there is, or a copy of several."""
        return self.records[0] if len(self.records) == 1 else b"".join(self.records)

    def body_and_pieces(self) -> tuple[bytes | memoryview, Sequence[memoryview]]:
        """The records for the wire: joined while that is cheaper, else the views as they are.

        `bench.read_paths`: below 64 KiB one copy beats a system call over many slices.
        """
        if len(self.records) > 1 and self.size_bytes > GATHERED_BYTES_MIN:
            return self.records[0], self.records[1:]
        return self.body(), ()


@dataclass(slots=True)
class GetLimits:
    """How much one answer may hold."""

    max_count: int
    max_bytes: int
    wanted: Callable[[int], bool] | None
    """Tag test on a unit's tags_code; None takes all."""
    matches: Callable[[bytes], bool] | None = None
    """Test on the property string of a record whose unit passed; None takes all."""
    max_tests: int | None = None
    """Messages that are tested at most; None: as the configuration has it."""


def read_queue(
    log: CommitLog,
    queue: ConsumeQueue,
    queue_offset: int,
    *,
    key: QueueKey,
    limits: GetLimits,
    config: StoreConfig,
) -> GetResult:
    """The records of `queue`, which is called `key`, from `queue_offset` on, within `limits`."""
    refused = _outside(queue, queue_offset)
    if refused is not None:
        return refused
    scan_units = limits.max_count
    if limits.wanted is not None or limits.matches is not None:
        scan_units = max(config.max_filter_message_bytes // UNIT_BYTES, limits.max_count)
        if limits.max_tests is not None:
            scan_units = max(1, min(scan_units, limits.max_tests))
    units = queue.units(queue_offset, scan_units)
    if not units:
        next_begin = min(queue.next_file_offset(queue_offset), queue.max_offset)
        return GetResult(
            GetStatus.OFFSET_FOUND_NULL, next_begin, queue.min_offset, queue.max_offset
        )
    behind_bytes = log.end_offset - units[0][0]
    in_disk = behind_bytes > config.resident_bytes
    count_max = (
        config.max_transfer_count_in_disk if in_disk else config.max_transfer_count_in_memory
    )
    bytes_max = (
        config.max_transfer_bytes_in_disk if in_disk else config.max_transfer_bytes_in_memory
    )
    capped = GetLimits(
        min(limits.max_count, count_max),
        min(limits.max_bytes, bytes_max),
        limits.wanted,
        limits.matches,
    )
    seen: Iterable[Unit] = units
    if queue_offset < queue.loaded_to:
        seen = _checked(log, units, queue_offset, key=key, wanted=limits.wanted)
    result = _collect(log, seen, queue_offset, capped)
    result.min_offset = queue.min_offset
    result.max_offset = queue.max_offset
    result.behind_bytes = behind_bytes
    last_seen = units[result.next_begin_offset - queue_offset - 1]
    behind_bytes = log.end_offset - last_seen[0]
    if not result.count and (hole := log.holes.at(last_seen[0])) is not None:
        # At one stride over a hole that may hold a million messages.
        next_begin = min(queue.first_reaching(hole.end), queue.max_offset)
        result.next_begin_offset = max(result.next_begin_offset, next_begin)
    result.suggest_pulling_from_slave = behind_bytes > config.resident_bytes
    return result


def _outside(queue: ConsumeQueue, queue_offset: int) -> GetResult | None:
    minimum, maximum = queue.min_offset, queue.max_offset
    if maximum == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, minimum, maximum)
    if queue_offset < minimum:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, minimum, minimum, maximum)
    if queue_offset == maximum:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, maximum, minimum, maximum)
    if queue_offset > maximum:
        return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, maximum, minimum, maximum)
    return None


def _collect(
    log: CommitLog, units: Iterable[Unit], queue_offset: int, limits: GetLimits
) -> GetResult:
    """Hot: walk the units, join neighbours, stop at a limit."""
    wanted, matches = limits.wanted, limits.matches
    max_count, max_bytes = limits.max_count, limits.max_bytes
    records: list[memoryview] = []
    count = size_bytes = 0
    run_start = run_end = -1
    status = GetStatus.NO_MATCHED_MESSAGE
    next_begin = queue_offset
    file_size_bytes = log.file_size_bytes
    kept_from, kept_to = log.min_offset, log.committed_offset
    for physical_offset, size, tags_code in units:
        if count and (count >= max_count or size_bytes + size > max_bytes):
            break
        next_begin += 1
        if wanted is not None and not wanted(tags_code):
            continue
        if physical_offset < kept_from or physical_offset + size > kept_to or size <= 0:
            if not count:
                status = GetStatus.MESSAGE_WAS_REMOVING
            continue
        if matches is not None and not matches(_properties_at(log, physical_offset, size)):
            continue
        if physical_offset == run_end and physical_offset % file_size_bytes:
            run_end += size
        else:
            if run_end > run_start:
                _add(log, records, run_start, run_end)
            run_start, run_end = physical_offset, physical_offset + size
        count += 1
        size_bytes += size
    if count:
        _add(log, records, run_start, run_end)
        status = GetStatus.FOUND
    return GetResult(status, next_begin, 0, 0, records, count, size_bytes)


def _checked(
    log: CommitLog,
    units: Sequence[Unit],
    queue_offset: int,
    *,
    key: QueueKey,
    wanted: Callable[[int], bool] | None,
) -> Iterator[Unit]:
    """The units of an earlier life; one that leads to no sound record of its own has no size. Hot.

    Of its own: it names this queue and this place in it. Records behind `unchecked_to` were checked
    by recovery, and have to be the right ones only.
    """
    file_size_bytes, unchecked_to = log.file_size_bytes, log.unchecked_to
    topic, queue_id = key[0].encode(), key[1]
    holes = log.holes if len(log.holes) else None
    view, view_start = memoryview(b""), -1
    for at, unit in enumerate(units, queue_offset):
        physical_offset, size, tags_code = unit
        inside = physical_offset % file_size_bytes
        if physical_offset - inside != view_start:
            view_start = physical_offset - inside
            view = log.file_view(view_start) if log.files.has(view_start) else memoryview(b"")
        if (wanted is not None and not wanted(tags_code)) or (
            RECORD_BYTES_MIN <= size <= len(view) - inside
            and (holes is None or holes.at(physical_offset) is None)
            and _is_its_record(
                log,
                view,
                (size, queue_id, at, physical_offset),
                topic=topic,
                unchecked=physical_offset < unchecked_to,
            )
        ):
            yield unit
        else:
            in_file = RECORD_BYTES_MIN <= size <= len(view) - inside
            if not in_file and (holes is None or holes.at(physical_offset) is None):
                _note_stranger(log, physical_offset, size)
            yield physical_offset, 0, tags_code


def _is_its_record(
    log: CommitLog,
    view: memoryview,
    place: tuple[int, int, int, int],
    *,
    topic: bytes,
    unchecked: bool,
) -> bool:
    """Is there a sound record that says that it lies at this `PLACE`, and names the topic? Damage
    that is met is reported. Hot.
    """
    size, _, _, physical_offset = place
    inside = physical_offset % log.file_size_bytes
    if (
        PLACE.unpack_from(view, inside) == place
        and is_of_topic(view, inside, topic)
        and (
            not unchecked
            or is_whole(view, inside)
            or is_sound(view, physical_offset - inside, physical_offset)
        )
    ):
        return True
    if unchecked:
        _note_damage(log, view, physical_offset, size)
    return False


def _note_damage(log: CommitLog, view: memoryview, physical_offset: int, size: int) -> None:
    """Report the hole that a unit leads into; no hole when it is the unit that is wrong."""
    start = log.files.start_at(physical_offset)
    end = physical_offset + size
    try:
        check_record(view, physical_offset - start, physical_offset, NO_DELAYS)
    except CorruptRecord as error:
        sound_to = last_sound_end(view, start, physical_offset)
        if sound_to is None or sound_to <= physical_offset:
            end = next_sound(view, start, physical_offset + 1, end) or end
            log.note_damage(Hole(physical_offset, end, str(error)))
            return
    _note_stranger(log, physical_offset, size)


def _note_stranger(log: CommitLog, physical_offset: int, size: int) -> None:
    """Report a unit that leads to no record of its queue, unless it bridges lost messages."""
    if size != FILLER_SIZE:
        end = physical_offset + max(size, RECORD_BYTES_MIN)
        reason = "another record lies where a queue leads; the next start builds the queue again"
        log.note_stranger(Hole(physical_offset, end, reason))


def _properties_at(log: CommitLog, physical_offset: int, size: int) -> bytes:
    view = log.view(physical_offset, size)
    assert view is not None, f"the record at {physical_offset} is inside the log and not readable"
    return properties_of(view)


def _add(log: CommitLog, records: list[memoryview], start: int, end: int) -> None:
    view = log.view(start, end - start)
    assert view is not None, f"[{start}, {end}) is inside the log and cannot be read"
    records.append(view)
