"""Finds the end of a consume queue behind a damaged unit, after an unclean stop.

Place in the walk: `recovery`, before the queues' ends are believed. The end is where units cease to
follow each other. What a power cut has left unwritten is zeros there, and the log knows it: it is
as new. A unit with a flipped bit ends the queue as well, and what lies behind it may be as old as
the queue: nobody would read so far back, the messages were hidden, and their queue offsets given a
second time.

Invariant: a unit is put right only when the record that it then leads to says that it lies there.
Absent on purpose: units amid the queue (`queue_scrub`).
"""

from __future__ import annotations

from engine.store.commit_log import CommitLog
from engine.store.consume_queue import FILLER_SIZE, ConsumeQueue, Unit
from engine.store.queue_table import QueueKey
from engine.store.record import DispatchRequest
from engine.store.sound_records import message_at

OFFSET_BITS = 64
UNITS_MENDED_MAX = 16
"""In one queue; with more of them it is built again."""


class QueueEnd:
    """The end of one queue, as it was loaded."""

    def __init__(self, log: CommitLog, key: QueueKey, queue: ConsumeQueue, deleted_to: int) -> None:
        """`deleted_to`: what the log holds before it for the topic was deleted."""
        self._log = log
        self._key = key
        self._queue = queue
        self._deleted_to = deleted_to
        self.mended = 0
        """Units that were put right."""

    def find(self) -> bool:
        """Put right what hides the queue's end; False when units that follow show that one of them
        cannot be.
        """
        queue = self._queue
        while self.mended < UNITS_MENDED_MAX:
            newest, behind = queue.max_offset - 1, queue.unit_in_file(queue.max_offset)
            unit = queue.unit(newest)
            if unit is not None and self._put_right(newest, unit):
                continue
            if behind is not None and self._put_right(newest + 1, behind):
                continue
            # Zeros were never written, whatever of a later page has come to the disk.
            return behind is None or not any(self._is_own(newest + ahead) for ahead in (1, 2))
        return False

    def _put_right(self, queue_offset: int, unit: Unit) -> bool:
        """Was the unit wrong, and is it what it was, now?"""
        if unit[1] == FILLER_SIZE:
            return False
        named = unit[0] % (1 << OFFSET_BITS)
        for place in (named, *(named ^ 1 << bit for bit in range(OFFSET_BITS))):
            found = self._record_of(queue_offset, place)
            if found is None:
                continue
            if (place, found.size_bytes) == unit[:2]:
                return False
            self._queue.put_right(queue_offset, (place, found.size_bytes, unit[2]))
            self.mended += 1
            return True
        return False

    def _is_own(self, queue_offset: int) -> bool:
        unit = self._queue.unit_in_file(queue_offset)
        return unit is not None and self._record_of(queue_offset, unit[0]) is not None

    def _record_of(self, queue_offset: int, place: int) -> DispatchRequest | None:
        """The sound record there, if it says that it is the queue's message at the offset."""
        if not self._deleted_to <= place < self._log.end_offset:
            return None
        return message_at(self._log, place, self._key, queue_offset)
