"""Where the commit log goes on behind damage: at the next sound record that is itself a message.

Place in the walk: `log_walk` asks for the end of each hole. A message's body may hold the bytes of
a sound record, by a client that has guessed where they would lie; when the message around it is
damaged, nothing in these bytes shows what they are. So others are asked, in this order:

    consume queues       the unit of a record shows that it is a message; the unit of the message
                         around it, that it is none
    the damaged record   its size and the lengths in it, when they agree or lead to a record
    what comes behind    records up to the end of the file or of what was synced, up to a message
                         that a queue knows, or as far as where a damaged record may begin; and the
                         next record of its queue has the next offset

Invariant: what lies inside a message that a queue knows is never taken for a record; a sound record
that a queue knows always is. Absent on purpose: certainty where no queue knows. A client that
foresees the damage can arrange bytes that lead on.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from engine.foundation.errors import CorruptRecord
from engine.foundation.limits import FRAME_BYTES_MAX
from engine.store.commit_log import NO_DELAYS, CommitLog
from engine.store.consume_queue import unit_end
from engine.store.queue_table import QueueTable
from engine.store.record import (
    RECORD_BYTES_MIN,
    DispatchRequest,
    check_record,
    has_queue_offset,
    parts_of,
)
from engine.store.sound_records import MAGICS, record_at, sound_places

FAR = 1 << 63
_SIZE = Struct(">i")
_OWN_OFFSET_AT, _OWN_OFFSET_END = 28, 36


class Stretch(NamedTuple):
    """A part [begin, end) of the log as the queues know it: one message, or none of them."""

    begin: int
    end: int
    is_message: bool


class BehindDamage:
    """Answers for one walk over one log, from its beginning to its end."""

    def __init__(self, log: CommitLog, queues: QueueTable) -> None:
        self._log = log
        self._queues = queues
        self._last = Stretch(0, 0, is_message=False)

    def find(self, damaged_at: int, limit: int) -> int:
        """Offset of the first record behind the damage that is a message of its own; `limit`, which
        is at most the end of the file, without any.
        """
        start = self._log.files.start_at(damaged_at)
        view = self._log.file_view(start)
        begin = self._end_of_damaged(view, start, damaged_at, limit)
        for place in sound_places(view, start, begin, limit):
            if place < begin:
                continue
            if self._is_known(place):
                return place
            stretch = self._stretch_at(place)
            if stretch.is_message and stretch.begin == place:
                return place
            if stretch.is_message:
                if self._goes_on_at(stretch.end, limit):
                    begin = stretch.end
            elif self._leads_on(place, limit):
                return place
        return limit

    # ---- what consume queues know -----------------------------------------------------------

    def _is_known(self, place: int) -> bool:
        """Does the queue that the record names have its unit?"""
        request = record_at(self._log, place)
        return request is not None and self._queues.has_unit_of(request)

    def _stretch_at(self, place: int) -> Stretch:
        """The message that queues know around `place`, else how far they know of none."""
        if self._last.begin <= place < self._last.end:
            return self._last
        file_end = self._log.files.start_at(place) + self._log.file_size_bytes
        found = Stretch(place, FAR, is_message=False)
        for queue in self._queues.all():
            unit = queue.unit(queue.first_reaching(place))
            if unit is None:
                continue
            begin, end = unit[0], unit_end(unit)
            if begin > place:
                if not found.is_message:
                    found = found._replace(end=min(found.end, begin))
            elif end <= file_end and (not found.is_message or begin > found.begin):
                found = Stretch(begin, end, is_message=True)
        self._last = found
        return found

    # ---- what the damaged record says -------------------------------------------------------

    def _end_of_damaged(self, view: memoryview, start: int, damaged_at: int, limit: int) -> int:
        """Where to look for the next record: behind the damaged one, if its end can be known."""
        claims = [damaged_at + size for size in claimed_sizes(view, damaged_at - start)]
        claims = [end for end in claims if end <= limit]
        if len(claims) == 2 and claims[0] == claims[1]:
            return claims[0]  # Without a look into every queue, of which there may be thousands.
        stretch = self._stretch_at(damaged_at)
        if stretch.is_message and self._goes_on_at(stretch.end, limit):
            return stretch.end
        # Of two that lead on the nearer may lead into the body, where a client has written.
        return max([end for end in claims if self._goes_on_at(end, limit)], default=damaged_at + 1)

    def _goes_on_at(self, place: int, limit: int) -> bool:
        """Does a sound record or the closing blank begin there, or what may be read end?"""
        start = self._log.files.start_at(place)
        if place >= limit:
            return place == limit
        stretch = self._stretch_at(place)
        if stretch.is_message:
            return stretch.begin == place
        try:
            check_record(self._log.file_view(start), place - start, place, NO_DELAYS)
        except CorruptRecord:
            return False
        return True

    # ---- what comes behind ------------------------------------------------------------------

    def _leads_on(self, place: int, limit: int) -> bool:
        """Is the record followed as a message is? What a client writes ends with its message, which
        is no longer than a frame.
        """
        start = self._log.files.start_at(place)
        view = self._log.file_view(start)
        first = record_at(self._log, place)
        assert first is not None, "a sound record that cannot be read"
        position, is_next_of_queue = place + first.size_bytes, False
        while position < min(limit, place + FRAME_BYTES_MAX):
            stretch = self._stretch_at(position)
            if stretch.is_message:
                return stretch.begin == position
            try:
                request = check_record(view, position - start, position, NO_DELAYS)
            except CorruptRecord:
                return may_begin_a_record(view, start, position)
            if request is None:
                return True
            if not is_next_of_queue and _same_queue(first, request):
                is_next_of_queue = True
                if request.queue_offset not in (0, first.queue_offset + 1):
                    return False
            position += request.size_bytes
        return True


def _same_queue(first: DispatchRequest, other: DispatchRequest) -> bool:
    return (
        (first.topic, first.queue_id) == (other.topic, other.queue_id)
        and has_queue_offset(first.sys_flag)
        and has_queue_offset(other.sys_flag)
    )


def claimed_sizes(view: memoryview, position: int) -> list[int]:
    """How long a damaged record says that it is: its size, and the sum of the lengths in it, as far
    as they can be.
    """
    room = len(view) - position
    if room < RECORD_BYTES_MIN:
        return []
    sizes = [_SIZE.unpack_from(view, position)[0], _size_by_lengths(view, position)]
    return [size for size in sizes if RECORD_BYTES_MIN <= size <= room]


def _size_by_lengths(view: memoryview, position: int) -> int:
    """0 when a length leads beyond the file."""
    try:
        return parts_of(view[position:], position)[-1]
    except CorruptRecord:
        return 0


def may_begin_a_record(view: memoryview, file_start: int, place: int) -> bool:
    """Does what is there look like a damaged record rather than like the inside of a body: its
    magic or its own offset stands there (or zeros in their place), or its lengths agree?
    """
    head = bytes(view[place - file_start : place - file_start + _OWN_OFFSET_END])
    if len(head) < _OWN_OFFSET_END:
        return True
    own_offset = int.from_bytes(head[_OWN_OFFSET_AT:], "big")
    sizes = claimed_sizes(view, place - file_start)
    agree = len(sizes) == 2 and sizes[0] == sizes[1]
    return head[4:8] in (*MAGICS, bytes(4)) or own_offset in (place, 0) or agree
