"""Reads the entries in bytes that were copied from another commit log. Pure.

Place in the walk: a replica's `message_store.append_at` takes over the bytes of whole entries
only, so that a log never ends amid a record: recovery would take a synced half of one for damage.

An entry is a record, or the blank that closes a file.

Invariant: every record is checked before it is stored. Absent on purpose: how bytes come here.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.foundation.errors import CorruptRecord
from engine.store.commit_log import BLANK, BLANK_BYTES
from engine.store.record import BLANK_MAGIC, RECORD_BYTES_MIN, DispatchRequest, check_record
from engine.store.sound_records import RECORD_BYTES_MAX


def whole_entries(
    data: memoryview, offset: int, *, file_size_bytes: int, delay_levels_ms: Sequence[int]
) -> tuple[list[DispatchRequest], int]:
    """The records that lie whole in `data`, the bytes of a log from `offset` on, and how many bytes
    whole entries take.

    Raises CorruptRecord for bytes that no log can hold there.
    """
    requests: list[DispatchRequest] = []
    at = 0
    while at + BLANK_BYTES <= len(data):
        place = offset + at
        room = file_size_bytes - place % file_size_bytes
        size, magic = BLANK.unpack_from(data, at)
        is_blank = magic == BLANK_MAGIC and size == room
        if not is_blank and not RECORD_BYTES_MIN <= size <= min(room, RECORD_BYTES_MAX):
            raise CorruptRecord(f"an entry of {size} bytes at {place}, {room} before the file ends")
        if at + size > len(data):
            break
        if not is_blank:
            request = check_record(data[at : at + size], 0, place, delay_levels_ms)
            if request is None:
                raise CorruptRecord(f"a blank of {size} bytes at {place}, where {room} are left")
            requests.append(request)
        at += size
    return requests, at
