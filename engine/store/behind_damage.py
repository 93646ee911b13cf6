"""Finds the next sound message record after damage in the commit log.

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
from engine.store.queue_table import QueueKey, QueueTable
from engine.store.range_sums import RangeSums
from engine.store.record_reading import (
    RECORD_BYTES_MIN,
    DispatchRequest,
    check_record,
    glance,
    has_queue_offset,
    parts_of,
)
from engine.store.sound_records import MAGICS, sound_places

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
        self._sums: tuple[int, RangeSums] | None = None
        """Of the file that was looked at last."""
        self._followed: dict[int, bool] = {}
        """Places that were passed on the way behind another one: do they lead on?"""
        self.looked_at = 0
        """How many places behind others were looked at."""

    def find(self, damaged_at: int, limit: int) -> int:
        """Offset of the first record behind the damage that is a message of its own; `limit`, which
        is at most the end of the file, without any.
        """
        start = self._log.files.start_at(damaged_at)
        view = self._log.file_view(start)
        if self._sums is None or self._sums[0] != start:
            self._sums = start, RangeSums(view, damaged_at - start)
        begin = self._end_of_damaged(view, start, damaged_at, limit)
        self._followed.clear()
        for place in sound_places(view, start, begin, limit, sums=self._sums[1]):
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
        """Does the queue that the sound record names have its unit?"""
        return self._queues.has_unit_of(self._record_at(place))

    def _record_at(self, place: int) -> DispatchRequest:
        start = self._log.files.start_at(place)
        request = glance(self._log.file_view(start), place - start, NO_DELAYS)
        assert request is not None, "a sound record that cannot be read"
        return request

    def _check(self, place: int) -> DispatchRequest | None:
        """As `check_record`; raises CorruptRecord."""
        start = self._log.files.start_at(place)
        sums = self._sums[1] if self._sums is not None and self._sums[0] == start else None
        return check_record(self._log.file_view(start), place - start, place, NO_DELAYS, sums=sums)

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
        if place >= limit:
            return place == limit
        stretch = self._stretch_at(place)
        if stretch.is_message:
            return stretch.begin == place
        try:
            self._check(place)
        except CorruptRecord:
            return False
        return True

    # ---- what comes behind ------------------------------------------------------------------

    def _leads_on(self, place: int, limit: int) -> bool:
        """Is the sound record followed as a message is? What a client writes ends with its message,
        which is no longer than a frame.
        """
        known = self._followed.get(place)
        if known is None:
            self._follow(place, limit)
            known = self._followed[place]
        return known

    def _follow(self, place: int, limit: int) -> None:
        """Go from record to record, and note of each whether it leads on: whoever begins further on
        comes to the same end.
        """
        passed = [self._record_at(place)]
        position = place + passed[0].size_bytes
        leads_on, is_cut = True, False
        while position < limit:
            if position >= place + FRAME_BYTES_MAX:
                is_cut = True
                break
            self.looked_at += 1
            found = self._next(position)
            if isinstance(found, bool):
                leads_on = found
                break
            passed.append(found)
            position += found.size_bytes
        following: dict[QueueKey, int] = {}
        for request in reversed(passed):
            fits = True
            if has_queue_offset(request.sys_flag):
                key = (request.topic, request.queue_id)
                fits = following.get(key, 0) in (0, request.queue_offset + 1)
                following[key] = request.queue_offset
            # Those further on would have been followed further than to the length of a frame.
            if not is_cut or request is passed[0]:
                self._followed[request.physical_offset] = fits and leads_on

    def _next(self, position: int) -> DispatchRequest | bool:
        """The record at `position`; or what the end of records there says: do they lead on?"""
        stretch = self._stretch_at(position)
        if stretch.is_message:
            return stretch.begin == position
        try:
            request = self._check(position)
        except CorruptRecord:
            start = self._log.files.start_at(position)
            return may_begin_a_record(self._log.file_view(start), start, position)
        return True if request is None else request


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
