"""Records where consume queues begin and end so that recovery can detect lost entries.

Place in the walk: `flush` notes it each time the log has gone on to another file or let one go,
before the checkpoint vouches for what is noted; `recovery` holds the queues against it after an
unclean stop.

Such a start reads the log only from the newest file on that the checkpoint does not vouch for. A
queue whose messages are all older is nowhere in it: when its newest entries are gone, or its whole
folder is, nobody would miss them, and their queue offsets were given a second time.

    consumequeueEnds   | mark of ours | dispatched | flushed | log begins |
                       | print of the log's first file | of its newest | entries | CRC-32 |
    for each queue     | length of topic | topic | queue id | first | next | end |

Invariant: every entry noted was on stable storage before the note, and so was the log up to
`flushed`; each message before `dispatched` has its entry before the `next` of its queue. So an old
note is as true as a new one: it says less. Absent on purpose: entries amid a queue (`queue_scrub`).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from engine.foundation.errors import CorruptRecord
from engine.runtime.disk import Disk
from engine.runtime.durable import replace_durably
from engine.store.commit_log import CommitLog
from engine.store.queue_table import QueueKey, QueueTable

FILE_NAME = "consumequeueEnds"
QUEUES_PER_STEP = 1000
"""Noted in one step of the loop: some milliseconds."""
PRINT_BYTES = 64
"""Of a record: when and whence it came."""
_MARK = b"ends:001"
_HEAD = Struct(">8sqqqIIII")
_CRC_AT = _HEAD.size - 4
_TOPIC_LENGTH = Struct(">H")
_ENTRY = Struct(">iqqq")


class NotedEnd(NamedTuple):
    """Of one queue."""

    first_offset: int
    """Queue offset with which its oldest file began."""
    max_offset: int
    """Queue offset behind the newest entry on stable storage."""
    end_physical: int
    """Where that entry's message ends."""


@dataclass(slots=True)
class EndsNote:
    """One note. Without any, it says nothing about nothing."""

    dispatched_offset: int = 0
    """Each message before this physical offset has its entry before the end of its queue."""
    flushed_offset: int = 0
    """The log before this physical offset was on stable storage."""
    log_begin: int = 0
    """Where the log began."""
    prints: tuple[int, int] = (0, 0)
    """Of the log's first file and of the one in which what was dispatched ends: they
    distinguish it from logs of other stores.
    """
    ends: dict[QueueKey, NotedEnd] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The file's whole content."""
        entries = b"".join([_encoded(key, end) for key, end in self.ends.items()])
        fields = (
            *(self.dispatched_offset, self.flushed_offset, self.log_begin),
            *self.prints,
            len(self.ends),
        )
        open_head = _HEAD.pack(_MARK, *fields, 0)
        crc = crc32(entries, crc32(open_head[:_CRC_AT]))
        return _HEAD.pack(_MARK, *fields, crc) + entries


def _encoded(key: QueueKey, end: NotedEnd) -> bytes:
    topic = key[0].encode()
    return _TOPIC_LENGTH.pack(len(topic)) + topic + _ENTRY.pack(key[1], *end)


def decode_note(data: bytes) -> EndsNote:
    """Read a note. Raises CorruptRecord when it is not as it was written."""
    if len(data) < _HEAD.size:
        raise CorruptRecord(f"{len(data)} bytes are no note of queues' ends")
    mark, dispatched, flushed, log_begin, *prints, count, crc = _HEAD.unpack_from(data)
    if mark != _MARK or crc != crc32(data[_HEAD.size :], crc32(data[:_CRC_AT])):
        raise CorruptRecord("it is not as it was written")
    try:
        ends = dict(_entries(data, count))
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptRecord(f"it is not as it was written: {error}") from error
    return EndsNote(dispatched, flushed, log_begin, (prints[0], prints[1]), ends)


def _entries(data: bytes, count: int) -> Iterator[tuple[QueueKey, NotedEnd]]:
    position = _HEAD.size
    for _ in range(count):
        (length,) = _TOPIC_LENGTH.unpack_from(data, position)
        position += _TOPIC_LENGTH.size
        topic = data[position : position + length].decode()
        queue_id, *end = _ENTRY.unpack_from(data, position + length)
        position += length + _ENTRY.size
        yield (topic, queue_id), NotedEnd(*end)


class NotedEnds:
    """The note of one store, as it was found and as it is written again."""

    def __init__(
        self,
        disk: Disk,
        root: str,
        *,
        log: CommitLog,
        queues: QueueTable,
        dispatched: Callable[[], int],
    ) -> None:
        """`dispatched`: up to where the log has been dispatched."""
        self._disk = disk
        self._root = root
        self._log = log
        self._queues = queues
        self.dispatched = dispatched
        self.path = f"{root}/{FILE_NAME}"
        self.newest = EndsNote()
        """What is in the file, but for its entries once the store is open."""
        self._is_of_the_last_life = False

    def load(self) -> str | None:
        """Read the last life's note; what is wrong with it, in words. No file is no fault."""
        if not self._disk.exists(self.path):
            return None
        self._is_of_the_last_life = True
        try:
            found = decode_note(self._disk.read(self.path))
        except CorruptRecord as error:
            return f"{self.path} is damaged: {error}"
        prints = self._prints(found.log_begin, found.dispatched_offset)
        if not any(here == noted for here, noted in zip(prints, found.prints, strict=True)):
            return f"{self.path} does not fit the commit log"
        self.newest = found
        return None

    def is_due(self, dispatched_offset: int) -> bool:
        """Has the log gone on to another file since the note, let one go, or been recovered?"""
        start_at, newest = self._log.files.start_at, self.newest
        return (
            self._is_of_the_last_life
            or start_at(dispatched_offset) != start_at(newest.dispatched_offset)
            or self._log.min_offset != newest.log_begin
        )

    async def write(self, dispatched_offset: int, flushed_offset: int) -> None:
        """Note what is on stable storage of the queues, where every message before
        `dispatched_offset` has its entry, and durably so. Raises DiskFull, StorageError.
        """
        log_begin = self._log.min_offset
        first, newest = self._prints(log_begin, dispatched_offset)
        note = EndsNote(dispatched_offset, flushed_offset, log_begin, (first or 0, newest or 0))
        for number, key in enumerate(self._queues.keys(), 1):
            queue = self._queues.find(*key)
            if queue is not None and queue.synced_offset:  # Else it was deleted, or is new.
                end = NotedEnd(queue.first_in_files, queue.synced_offset, queue.synced_physical)
                note.ends[key] = end
            if not number % QUEUES_PER_STEP:
                await asyncio.sleep(0)
        await self._disk.off_loop(lambda: replace_durably(self._disk, self.path, note.encode()))
        note.ends = {}  # The next note makes them anew.
        self.newest, self._is_of_the_last_life = note, False

    def _prints(self, log_begin: int, dispatched_offset: int) -> list[int | None]:
        """Sums of the first bytes of two files of the log; None for one that is not there."""
        files = self._log.files
        starts = [files.start_at(place) for place in (log_begin, max(0, dispatched_offset - 1))]
        return [
            crc32(files.open_file(start).view[:PRINT_BYTES]) if files.has(start) else None
            for start in starts
        ]


def kept_end(note: EndsNote, key: QueueKey, deleted: Mapping[str, int]) -> NotedEnd | None:
    """What was noted of a queue; None when it was not, or its topic was deleted since."""
    noted = note.ends.get(key)
    if noted is None or noted.end_physical <= deleted.get(key[0], 0):
        return None
    return noted


def kept_ends(note: EndsNote, deleted: Mapping[str, int]) -> Iterator[tuple[QueueKey, NotedEnd]]:
    """What was noted of queues whose topics were not deleted since."""
    for key in note.ends:
        noted = kept_end(note, key, deleted)
        if noted is not None:
            yield key, noted


def lacking_queues(
    note: EndsNote, queues: QueueTable, deleted: Mapping[str, int], *, log_begin: int | None
) -> list[str]:
    """The queues that hold less than was noted, in words; those of topics that were deleted since
    are to be gone, and so are beginnings when the log has let go of files: `log_begin` is where it
    says that it begins.
    """
    found = []
    for key, noted in kept_ends(note, deleted):
        queue = queues.find(*key)
        begin, end = (queue.first_in_files, queue.max_offset) if queue is not None else (0, 0)
        if end < noted.max_offset:
            found.append(f"{key[0]}/{key[1]} ends at {end} instead of {noted.max_offset}")
        elif log_begin == note.log_begin and begin > noted.first_offset:
            found.append(f"{key[0]}/{key[1]} begins at {begin} instead of {noted.first_offset}")
    return found
