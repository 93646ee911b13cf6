"""Finds sound records in the commit log or in bytes copied from another log.

Place in the walk: `log_walk`, `recovery` and `reading` look here where the log is damaged;
`message_store` for the record at an offset, and for the entries that a replica is sent: whole ones
only, so that a log never ends amid a record.

Invariant: a record is sound when size, magic, CRC, lengths and its own physical offset agree.
Absent on purpose: whether it is a message, which its bytes alone cannot say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from engine.foundation.errors import CorruptRecord
from engine.store.commit_log import BLANK, BLANK_BYTES, NO_DELAYS, CommitLog
from engine.store.queue_table import QueueKey
from engine.store.range_sums import RangeSums
from engine.store.record_reading import (
    BLANK_MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MAX,
    RECORD_BYTES_MIN,
    DispatchRequest,
    check_record,
    has_queue_offset,
    plain_record,
)

MAGICS = tuple((magic & 0xFFFFFFFF).to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))
MAGIC_AT = 4
SEARCH_CHUNK_BYTES = 1 << 20


def record_at(log: CommitLog, physical_offset: int) -> DispatchRequest | None:
    """What dispatch reads of the sound record at `physical_offset`; None when none begins there."""
    start = log.files.start_at(physical_offset)
    if not log.files.has(start):
        return None
    try:
        return check_record(
            log.file_view(start), physical_offset - start, physical_offset, NO_DELAYS
        )
    except CorruptRecord:
        return None


def message_at(
    log: CommitLog, physical_offset: int, key: tuple[str, int], queue_offset: int
) -> DispatchRequest | None:
    """The sound record at `physical_offset`, if it says that it is the message of the queue `key`
    (topic, queue id) at `queue_offset`; else None.
    """
    found = record_at(log, physical_offset)
    if found is None:
        return None
    named = (found.topic, found.queue_id, found.queue_offset)
    return found if named == (*key, queue_offset) else None


def readable_record_at(
    log: CommitLog, physical_offset: int
) -> tuple[memoryview, DispatchRequest] | None:
    """The sound record at `physical_offset`, with what dispatch reads of it; None when none begins
    there, or readers may not see it (yet).
    """
    head = log.view(physical_offset, 8)
    if head is None:
        return None
    view = log.view(physical_offset, int.from_bytes(head[:4], "big", signed=True))
    if view is None:
        return None
    try:
        found = check_record(view, 0, physical_offset, NO_DELAYS)
    except CorruptRecord:
        return None
    return None if found is None else (view, found)


def count_sound(log: CommitLog, begin: int, end: int) -> int:
    """How many sound records begin in [begin, end), whatever is between them."""
    count = 0
    for start in log.files.starts:
        view, place = log.file_view(start), max(start, begin)
        for found in sound_places(view, start, place, min(start + log.file_size_bytes, end)):
            if found >= place:
                count += 1
                place = found + size_at(view, found - start)
    return count


def next_sound(view: memoryview, file_start: int, begin: int, limit: int) -> int | None:
    """Physical offset of the first sound record that begins in [begin, limit); None without any.

    `view` is the file that begins at `file_start`.
    """
    return next(sound_places(view, file_start, begin, limit), None)


def size_at(view: memoryview, position: int) -> int:
    """How long the record at `position` says that it is."""
    return int.from_bytes(view[position : position + MAGIC_AT], "big")


def sound_places(
    view: memoryview, file_start: int, begin: int, limit: int, *, sums: RangeSums | None = None
) -> Iterator[int]:
    """Physical offset of each sound record that begins in [begin, limit), of those inside others,
    too. Looks for the magic, a chunk at a time. `sums` of the view, if the caller has some.
    """
    sums = RangeSums(view, max(0, begin - file_start)) if sums is None else sums
    chunk_start = begin - file_start
    stop = min(limit - file_start, len(view) - RECORD_BYTES_MIN)
    while chunk_start < stop:
        chunk_end = min(chunk_start + SEARCH_CHUNK_BYTES, stop)
        # A magic may begin in this chunk and end in the next.
        chunk = bytes(view[chunk_start + MAGIC_AT : chunk_end + MAGIC_AT + 3])
        for inside in sorted(_places(chunk)):
            place = file_start + chunk_start + inside
            if is_sound(view, file_start, place, sums=sums):
                yield place
        chunk_start = chunk_end


def last_sound_end(view: memoryview, file_start: int, behind: int) -> int | None:
    """End of the last sound record of the file that begins at or before `behind`; None without
    any.
    """
    chunk_end = min(behind - file_start + 1, len(view) - RECORD_BYTES_MIN)
    while chunk_end > 0:
        chunk_start = max(0, chunk_end - SEARCH_CHUNK_BYTES)
        chunk = bytes(view[chunk_start + MAGIC_AT : chunk_end + MAGIC_AT + 3])
        sums = RangeSums(view, chunk_start)
        for inside in sorted(_places(chunk), reverse=True):
            place = chunk_start + inside
            if is_sound(view, file_start, file_start + place, sums=sums):
                return file_start + place + size_at(view, place)
        chunk_end = chunk_start
    return None


def _places(chunk: bytes) -> Iterator[int]:
    for magic in MAGICS:
        at = chunk.find(magic)
        while at >= 0:
            yield at
            at = chunk.find(magic, at + 1)


def is_sound(
    view: memoryview, file_start: int, physical_offset: int, *, sums: RangeSums | None = None
) -> bool:
    """Does a sound record begin at `physical_offset`? With `sums` of the view none counts that is
    longer than what can be put.
    """
    position = physical_offset - file_start
    if sums is not None and size_at(view, position) > RECORD_BYTES_MAX:
        return False
    try:
        found = check_record(view, position, physical_offset, NO_DELAYS, sums=sums)
    except CorruptRecord:
        return False
    return found is not None


class Copied(NamedTuple):
    """Whole entries of another store's log."""

    requests: list[DispatchRequest]
    """Their records, where they were asked for."""
    next_offsets: dict[QueueKey, int]
    """Of queues that have records among them, the offset behind the last one."""
    stored_ms: int | None
    """When the last record was stored there; None: there is none."""
    size_bytes: int


def copied_entries(
    data: bytes,
    offset: int,
    *,
    file_size_bytes: int,
    delay_levels_ms: Sequence[int],
    with_requests: bool,
) -> Copied:
    """The entries that lie whole in `data`, the bytes of a log from `offset` on. Without requests
    it takes a third of the time, and dispatch reads them from the log. Hot.

    Raises CorruptRecord for bytes that no log can hold there.
    """
    requests: list[DispatchRequest] = []
    next_offsets: dict[QueueKey, int] = {}
    stored_ms: int | None = None
    at = file_end = 0
    length = len(data)
    while at + BLANK_BYTES <= length:
        if at >= file_end:
            file_end = at + file_size_bytes - (offset + at) % file_size_bytes
        plain = None
        if not with_requests and at + RECORD_BYTES_MIN <= length:
            plain = plain_record(data, at, min(file_end, length), offset + at)
        if plain is None:
            size, request = _entry(
                data, at, offset + at, room=file_end - at, delay_levels_ms=delay_levels_ms
            )
            if at + size > length:
                break
            if request is None:
                at += size
                continue
            if with_requests:
                requests.append(request)
            plain = (size, *_said(request))
        size, topic, queue_id, queue_offset, sys_flag, stored_ms = plain
        at += size
        if has_queue_offset(sys_flag):
            next_offsets[topic, queue_id] = queue_offset + 1
    return Copied(requests, next_offsets, stored_ms, at)


def _entry(
    data: bytes, at: int, place: int, *, room: int, delay_levels_ms: Sequence[int]
) -> tuple[int, DispatchRequest | None]:
    """The size of an entry, which may end behind `data`, and what dispatch reads of it; None for a
    blank, and for one that does. Raises CorruptRecord.
    """
    size, magic = BLANK.unpack_from(data, at)
    if magic == BLANK_MAGIC and size == room:
        return size, None
    if not RECORD_BYTES_MIN <= size <= min(room, RECORD_BYTES_MAX):
        raise CorruptRecord(f"an entry of {size} bytes at {place}, {room} before the file ends")
    if at + size > len(data):
        return size, None
    request = check_record(memoryview(data)[at : at + size], 0, place, delay_levels_ms)
    if request is None:
        raise CorruptRecord(f"a blank of {size} bytes at {place}, where {room} are left")
    return size, request


_said = attrgetter("topic", "queue_id", "queue_offset", "sys_flag", "store_timestamp_ms")
