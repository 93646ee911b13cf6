"""Computes how much property space to reserve for a message's later copies.

Place in the walk: a message that was accepted is stored again when it waits in a delay level, fails
at a consumer, dies, is re-driven, or ends its transaction. Each copy says more than the one before,
and no record holds more than PROPERTIES_BYTES_MAX:

    a delay level      REAL_TOPIC, REAL_QID
    a timer            the same, TIMER_OUT_MS, TIMER_DUE_MS, TIMER_ORIGIN; when it is delivered
                       TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS, TIMER_MARK
    a send-back        RETRY_TOPIC, ORIGIN_MESSAGE_ID, WAIT, DELAY
    a consumer's copy  the same, RECONSUME_TIME, MAX_RECONSUME_TIMES; a Java consumer's also has
                       what its pull noted: MIN_OFFSET, MAX_OFFSET, CONSUME_START_TIME
    a dead letter      DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID
    a re-drive         REDRIVEN_FROM, UNIQ_KEY, DECIDED_BY, DECIDED_WHY
    a transaction      TRAN_PREPARED_QUEUE_OFFSET, TRANSACTION_CHECK_TIMES
    any send           CLUSTER, MSG_REGION, TRACE_ON, which a reply lacks until it is sent again

Invariant: a copy replaces a property of these names and never repeats it, with a value of at most
the bytes that ADDED gives. So a message whose properties leave `room_needed` free fits a record
after any number of such steps, in any order. Pure. Absent on purpose: refusing, storing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from engine.foundation.limits import (
    COPY_PROPERTIES_BYTES,
    DECISION_WHO_BYTES_MAX,
    DECISION_WHY_BYTES_MAX,
    MESSAGE_ID_CHARS_MAX,
    PROPERTIES_BYTES_MAX,
    RETRY_TOPIC_CHARS_MAX,
    TOPIC_CHARS_MAX,
)
from engine.protocol.dead_letters import (
    PROPERTY_DECIDED_BY,
    PROPERTY_DECIDED_WHY,
    PROPERTY_REDRIVEN_FROM,
)
from engine.protocol.properties import (
    PROPERTY_CLUSTER,
    PROPERTY_CONSUME_START_TIME,
    PROPERTY_DELAY,
    PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_LEFT_OUT,
    PROPERTY_MAX_OFFSET,
    PROPERTY_MAX_RECONSUME_TIMES,
    PROPERTY_MIN_OFFSET,
    PROPERTY_MSG_REGION,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RECONSUME_TIME,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_DUE_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_MARK,
    PROPERTY_TIMER_ORIGIN,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TRACE_ON,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_FIRST_OFFSET,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT,
    fitting_properties,
)

ROOMY_BYTES: Final = PROPERTIES_BYTES_MAX - COPY_PROPERTIES_BYTES
"""Properties of at most this length leave room enough, whatever they are."""

INT_BYTES, LONG_BYTES = 11, 20
"""Of the longest numbers of 32 and 64 bits, with their sign."""
OFFSET_ID_BYTES = 2 * (16 + 4 + 8)
"""Of an offset message id with an IPv6 host."""
NOTE_BYTES_MAX = 400
"""Of the note about properties that a copy has no room for."""

ADDED: Final[Mapping[str, int]] = MappingProxyType(
    {
        PROPERTY_REAL_TOPIC: RETRY_TOPIC_CHARS_MAX,
        PROPERTY_REAL_QUEUE_ID: INT_BYTES,
        PROPERTY_RETRY_TOPIC: RETRY_TOPIC_CHARS_MAX,
        PROPERTY_ORIGIN_MESSAGE_ID: MESSAGE_ID_CHARS_MAX,
        PROPERTY_WAIT: len("false"),
        PROPERTY_DELAY: INT_BYTES,
        PROPERTY_RECONSUME_TIME: INT_BYTES,
        PROPERTY_MAX_RECONSUME_TIMES: INT_BYTES,
        PROPERTY_MIN_OFFSET: LONG_BYTES,
        PROPERTY_MAX_OFFSET: LONG_BYTES,
        PROPERTY_CONSUME_START_TIME: LONG_BYTES,
        PROPERTY_DLQ_ORIGIN_TOPIC: RETRY_TOPIC_CHARS_MAX,
        PROPERTY_DLQ_ORIGIN_MESSAGE_ID: MESSAGE_ID_CHARS_MAX,
        PROPERTY_REDRIVEN_FROM: OFFSET_ID_BYTES,
        PROPERTY_UNIQ_KEY: OFFSET_ID_BYTES,
        PROPERTY_DECIDED_BY: DECISION_WHO_BYTES_MAX,
        PROPERTY_DECIDED_WHY: DECISION_WHY_BYTES_MAX,
        PROPERTY_TRANSACTION_FIRST_OFFSET: LONG_BYTES,
        PROPERTY_TRANSACTION_CHECK_TIMES: INT_BYTES,
        PROPERTY_TIMER_OUT_MS: LONG_BYTES,
        PROPERTY_TIMER_DUE_MS: LONG_BYTES,
        PROPERTY_TIMER_ORIGIN: LONG_BYTES,
        PROPERTY_TIMER_ENQUEUE_MS: LONG_BYTES,
        PROPERTY_TIMER_DEQUEUE_MS: LONG_BYTES,
        PROPERTY_TIMER_MARK: 3 * LONG_BYTES,
        PROPERTY_CLUSTER: TOPIC_CHARS_MAX,
        PROPERTY_MSG_REGION: len("DefaultRegion"),
        PROPERTY_TRACE_ON: len("true"),
    }
)
"""Name → bytes of the longest value that a copy gives it."""


def pair_bytes(name: str, value: str) -> int:
    """Bytes of one property in the string form."""
    return len(name.encode()) + len(value.encode()) + 2


def properties_bytes(properties: Mapping[str, str]) -> int:
    """Bytes of the string form."""
    return sum(pair_bytes(name, value) for name, value in properties.items())


def brokers_bytes(properties: Mapping[str, str]) -> int:
    """Bytes that the broker of a send adds at most, and those of a separator."""
    names = (PROPERTY_CLUSTER, PROPERTY_MSG_REGION, PROPERTY_TRACE_ON)
    return 1 + sum(len(name) + ADDED[name] + 2 for name in names if name not in properties)


def room_needed(properties: Mapping[str, str]) -> int:
    """Bytes by which the properties of further copies may be longer than these."""
    needed = 1  # The separator that the last property may lack.
    for name, value_bytes in ADDED.items():
        longest = len(name) + value_bytes + 2
        there = pair_bytes(name, properties[name]) if name in properties else 0
        needed += max(0, longest - there)
    return needed


def fits_with_copies(size_bytes: int, properties: Mapping[str, str]) -> bool:
    """Do all further copies of properties whose string form has `size_bytes` fit a record?"""
    return size_bytes <= ROOMY_BYTES or size_bytes + room_needed(properties) <= PROPERTIES_BYTES_MAX


def fits_a_record(size_bytes: int) -> bool:
    """Does a record hold properties whose string form has `size_bytes`, if no copy of its own?"""
    return size_bytes <= PROPERTIES_BYTES_MAX


def without_room(size_bytes: int, properties: Mapping[str, str], own: Collection[str] = ()) -> str:
    """Why `fits_with_copies` is False, as a sentence with what to do about it.

    `own` names the properties that the broker has added to those of the sender.
    """
    reserved = room_needed(properties)
    own_bytes = sum(pair_bytes(name, properties[name]) for name in own if name in properties)
    whole = size_bytes + reserved
    added = f"{own_bytes} that the broker adds, " if own_bytes else ""
    return (
        f"its properties: {size_bytes - own_bytes} bytes of the sender, {added}and {reserved} "
        f"reserved for what its retries, dead letter and re-drive add, {whole} in all; the limit "
        f"is {PROPERTIES_BYTES_MAX}: shorten them by {whole - PROPERTIES_BYTES_MAX} bytes, long "
        "values belong into the body"
    )


def noted_properties(
    properties: Mapping[str, str],
    needed: Collection[str],
    *,
    whole_in: str,
    room_bytes: int = 0,
) -> tuple[dict[str, str], dict[str, int]]:
    """The properties of a copy of a message that was accepted without room for it, by an older
    version or another broker; and the bytes of those that are left out, of which the copy has a
    note.

    `whole_in` names the message that still has them. What fits with `room_bytes` stays as it is.
    """
    if properties_bytes(properties) + room_bytes <= PROPERTIES_BYTES_MAX:
        return dict(properties), {}
    kept, names = fitting_properties(properties, needed, ROOMY_BYTES - NOTE_BYTES_MAX)
    left_out = {name: pair_bytes(name, properties[name]) for name in names}
    note = f"{left_out_in_words(left_out)}; {whole_in} has them"
    plain = note.encode("ascii", "backslashreplace").decode()
    kept[PROPERTY_LEFT_OUT] = plain[: NOTE_BYTES_MAX - len(PROPERTY_LEFT_OUT) - 2]
    return kept, left_out


def left_out_in_words(left_out: Mapping[str, int]) -> str:
    """What a copy has no room for; the names are the client's, of any length and number."""
    names = ", ".join(f"{name[:40]!r} ({left_out[name]} bytes)" for name in list(left_out)[:3])
    more = f" and {len(left_out) - 3} more" if len(left_out) > 3 else ""
    return f"no room for properties {names}{more}"


assert room_needed({}) <= COPY_PROPERTIES_BYTES, "the named limit is the sum of ADDED or more"
