"""Looks up the store times of a queue's messages and searches for offsets by time.

Place in the walk: `message_store`, for searches by time, watermarks and the age of what waits. A
queue has no times of its own: each is read from the record that a unit leads to.

Invariant: a record answers for an offset only when it names this queue and this place in it; what
is damaged or gone has no time, and the next sound message speaks for it in a search. Absent on
purpose: the choice of the queue, the wire.
"""

from __future__ import annotations

from engine.store.commit_log import CommitLog
from engine.store.consume_queue import ConsumeQueue
from engine.store.record_reading import PLACE, RECORD_BYTES_MIN, store_timestamp_of


def store_time_at(
    log: CommitLog, queue: ConsumeQueue, queue_id: int, queue_offset: int
) -> int | None:
    """Store time (ms) of the message at `queue_offset`; None when there is none (any more)."""
    unit = queue.unit(queue_offset)
    if unit is None or unit[1] < RECORD_BYTES_MIN or log.holes.at(unit[0]) is not None:
        return None
    view = log.view(unit[0], unit[1])
    if view is None or PLACE.unpack_from(view) != (unit[1], queue_id, queue_offset, unit[0]):
        return None
    return store_timestamp_of(view)


def last_store_time(log: CommitLog, queue: ConsumeQueue, queue_id: int) -> int | None:
    """Store time (ms) of the queue's newest message; None when it has none."""
    if queue.max_offset == queue.min_offset:
        return None
    if queue.last_store_time_ms is None:
        queue.last_store_time_ms = store_time_at(log, queue, queue_id, queue.max_offset - 1)
    return queue.last_store_time_ms


def offset_at_time(log: CommitLog, queue: ConsumeQueue, queue_id: int, timestamp_ms: int) -> int:
    """First queue offset stored at or after `timestamp_ms`; max_offset when all are older."""
    low, high = queue.min_offset, queue.max_offset
    while low < high:
        middle = known = (low + high) // 2
        stored_ms = store_time_at(log, queue, queue_id, known)
        while stored_ms is None and known < high:  # Damaged: the next sound one speaks for it.
            known = _behind_damage(log, queue, known)
            stored_ms = store_time_at(log, queue, queue_id, known) if known < high else None
        if stored_ms is None or stored_ms >= timestamp_ms:
            high = middle
        else:
            low = known + 1
    return low


def _behind_damage(log: CommitLog, queue: ConsumeQueue, queue_offset: int) -> int:
    """The next offset whose message may be sound: behind the hole, when its place is known."""
    unit = queue.unit(queue_offset)
    hole = log.holes.at(unit[0]) if unit is not None else None
    if hole is None:
        return queue_offset + 1
    return max(queue.first_reaching(hole.end), queue_offset + 1)
