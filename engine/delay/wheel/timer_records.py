"""Pure functions that build and interpret the time wheel's commit-log records.

Place in the walk: a send that names a moment is parked here, in RocketMQ's topic of timers;
dispatch brings the record back, and its entries go to the wheel.

RocketMQ counts in seconds: TIMER_OUT_MS is the whole second before the due time, and its wheel
fires a second later. The due millisecond itself stands beside it, in TIMER_DUE_MS.

Invariant: a record means the same whenever it is read, on whichever node. Absent on purpose: what a
client may ask for (the handlers of sends), and the wheel.
"""

from __future__ import annotations

from typing import Final

from engine.delay.wheel.hour_log import AGAIN, CANCELS, REPLACES, WAITS, Entry
from engine.foundation.units import SECOND_MS
from engine.protocol.names import TIMER_TOPIC
from engine.protocol.properties import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DUE_MS,
    PROPERTY_TIMER_ORIGIN,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_REPLACES,
    PROPERTY_TIMER_ROLL_TIMES,
    PROPERTY_UNIQ_KEY,
    decode_properties,
    encode_properties,
    whole_number,
)
from engine.protocol.timers import out_ms_of
from engine.store import MessageDraft
from engine.store.record_reading import DispatchRequest, property_value
from engine.store.record_writing import draft_of

DUE_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999."""
_DUE: Final = f"{PROPERTY_TIMER_DUE_MS}\x01".encode()
_OUT: Final = f"{PROPERTY_TIMER_OUT_MS}\x01".encode()
_CANCELLED: Final = f"{PROPERTY_TIMER_DEL_UNIQKEY}\x01".encode()
_REPLACED: Final = f"{PROPERTY_TIMER_REPLACES}\x01".encode()
_ORIGIN: Final = f"{PROPERTY_TIMER_ORIGIN}\x01".encode()
_ROLLED: Final = f"{PROPERTY_TIMER_ROLL_TIMES}\x01".encode()
_REAL_TOPIC: Final = f"{PROPERTY_REAL_TOPIC}\x01".encode()
_UNIQ_KEY: Final = f"{PROPERTY_UNIQ_KEY}\x01".encode()


def parked(draft: MessageDraft, due_ms: int) -> MessageDraft:
    """Turn a draft into one that waits until `due_ms`; its own place is stored with it."""
    text = draft.properties.decode() if isinstance(draft.properties, bytes) else draft.properties
    properties = decode_properties(text)
    if PROPERTY_REAL_TOPIC not in properties:
        properties[PROPERTY_REAL_TOPIC] = draft.topic
        properties[PROPERTY_REAL_QUEUE_ID] = str(draft.queue_id)
    properties[PROPERTY_TIMER_OUT_MS] = str(out_ms_of(due_ms))
    properties[PROPERTY_TIMER_DUE_MS] = str(due_ms)
    draft.properties = encode_properties(properties)
    draft.topic, draft.queue_id = TIMER_TOPIC, 0
    return draft


def put_again(record: memoryview, log_offset: int) -> MessageDraft:
    """The draft of a timer, or of what cancels one, that lies in a file that is to go."""
    draft = draft_of(record)
    assert isinstance(draft.properties, bytes)
    if not property_value(draft.properties, _ORIGIN):
        origin = encode_properties({PROPERTY_TIMER_ORIGIN: str(log_offset)}).encode()
        draft.properties += b"" if draft.properties.endswith(b"\x02") else b"\x02"
        draft.properties += origin
    return draft


def origin_of(properties: bytes, log_offset: int) -> int:
    """Where the timer lay first that lies at `log_offset` now."""
    return whole_number(property_value(properties, _ORIGIN), log_offset)


def due_ms_of(properties: bytes) -> int:
    """When a parked record is due; one that does not say so is, now."""
    due_ms = whole_number(property_value(properties, _DUE), 0)
    out_ms = whole_number(property_value(properties, _OUT), -SECOND_MS)
    return min(due_ms or out_ms + SECOND_MS, DUE_MS_MAX)


def entries_of(request: DispatchRequest) -> tuple[Entry, ...]:
    """What a record of the topic of timers adds to the wheel; the first is the one that waits."""
    stored, offset, size_bytes = request.properties, request.physical_offset, request.size_bytes
    due_ms = due_ms_of(stored)
    if property_value(stored, _CANCELLED):
        # The one that cancels knows the whole second before: its timer is due in it, or at its end.
        out_ms = out_ms_of(due_ms)
        return tuple(
            Entry(at_ms, offset, size_bytes, CANCELS) for at_ms in (out_ms, out_ms + SECOND_MS)
        )
    waits = Entry(due_ms, offset, size_bytes, AGAIN if property_value(stored, _ORIGIN) else WAITS)
    timer = replaced_in(stored)
    if timer is None:
        is_rolled = property_value(stored, _ROLLED) and keys_of(stored)
        return (waits, Entry(due_ms, offset, size_bytes, CANCELS)) if is_rolled else (waits,)
    return waits, Entry(timer[0], offset, size_bytes, REPLACES)


def replaced_in(properties: bytes) -> tuple[int, int] | None:
    """Due time and log offset of the timer whose place a record takes; None: of none."""
    parts = [whole_number(part, -1) for part in property_value(properties, _REPLACED).split(b",")]
    if len(parts) != 2 or min(parts) < 0:
        return None
    return min(parts[0], DUE_MS_MAX), parts[1]


def cancelled_in(properties: bytes) -> bytes:
    """The key that a cancelling record names."""
    return property_value(properties, _CANCELLED)


def voided_in(properties: bytes) -> bytes:
    """The key of the timers before it that a record makes void: it cancels them, or is the copy
    with which RocketMQ carries a timer that is days away on ("rolls" it).
    """
    return cancelled_in(properties) or next(iter(keys_of(properties)), b"")


def keys_of(properties: bytes) -> tuple[bytes, ...]:
    """Under which keys a timer can be cancelled: RocketMQ's from 5.3.3 on, and the one before."""
    key = property_value(properties, _UNIQ_KEY)
    if not key:
        return ()
    return property_value(properties, _REAL_TOPIC) + b"+" + key, key
