"""Encodes and decodes the message traces that clients write to RMQ_SYS_TRACE_TOPIC.

    one trace   field \x01 field … \x02, the first field names its kind
    one record  traces of several messages one after the other; its KEYS are their ids and keys

Place in the walk: beside it. Clients with tracing on write traces after the fact, in batches; tools
and the topic page read them by message id.

Invariant: what is written is what RocketMQ's own clients write, byte for byte; what is read is
theirs and ours, also the shorter forms of older clients. A value that is missing is the word `null`
on the wire and None here. Absent on purpose: queues, batches and time. Source: RocketMQ 5.5.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum

from engine.foundation.errors import RemoteProtocolError

FIELD_END = "\x01"
TRACE_END = "\x02"
_NULL = "null"
_NUMBER = re.compile(r"[+-]?[0-9]{1,40}")


class TracedKind(IntEnum):
    """Kind of a message, by RocketMQ's numbers."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAYED = 3
    ORDERED = 4


class ConsumeEnd(IntEnum):
    """How a listener's call ended, by RocketMQ's numbers."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNED_NULL = 3
    FAILED = 4


class TransactionState(Enum):
    """What a transaction's producer decided."""

    COMMIT_MESSAGE = "COMMIT_MESSAGE"
    ROLLBACK_MESSAGE = "ROLLBACK_MESSAGE"
    UNKNOW = "UNKNOW"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentTrace:
    """Pub: a message was sent."""

    time_ms: int
    """When the send began."""
    region: str | None
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str
    """host:port of the broker that was asked."""
    body_bytes: int
    cost_ms: int
    kind: TracedKind
    offset_message_id: str | None
    success: bool
    """Was the answer SEND_OK?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumingTrace:
    """SubBefore: a listener was given a message."""

    time_ms: int
    region: str | None
    group: str
    request_id: str
    """Joins it with the trace of the same call's end."""
    message_id: str
    retry_times: int
    keys: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumedTrace:
    """SubAfter: the listener's call ended."""

    request_id: str
    message_id: str
    cost_ms: int
    success: bool
    keys: str | None
    end: ConsumeEnd
    time_ms: int | None
    """None from older clients."""
    group: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionTrace:
    """EndTransaction: a transaction's producer decided."""

    time_ms: int
    region: str | None
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str
    kind: TracedKind
    transaction_id: str | None
    state: TransactionState
    from_check: bool
    """Did the broker ask for it?"""


Trace = SentTrace | ConsumingTrace | ConsumedTrace | EndTransactionTrace


def encode_trace(trace: Trace) -> str:
    """One trace with its end."""
    fields: Sequence[object]
    match trace:
        case SentTrace():
            fields = (
                *("Pub", trace.time_ms, trace.region, trace.group, trace.topic, trace.message_id),
                *(trace.tags, trace.keys, trace.store_host, trace.body_bytes, trace.cost_ms),
                *(int(trace.kind), trace.offset_message_id, trace.success),
            )
        case ConsumingTrace():
            fields = (
                *("SubBefore", trace.time_ms, trace.region, trace.group, trace.request_id),
                *(trace.message_id, trace.retry_times, trace.keys),
            )
        case ConsumedTrace():
            fields = (
                *("SubAfter", trace.request_id, trace.message_id, trace.cost_ms, trace.success),
                *(trace.keys, int(trace.end), trace.time_ms, trace.group),
            )
        case EndTransactionTrace():
            fields = (
                *("EndTransaction", trace.time_ms, trace.region, trace.group, trace.topic),
                *(trace.message_id, trace.tags, trace.keys, trace.store_host, int(trace.kind)),
                *(trace.transaction_id, trace.state.value, trace.from_check),
            )
    return FIELD_END.join(_text(field) for field in fields) + TRACE_END


def trace_keys(trace: Trace) -> list[str]:
    """What its record can be found by: the message's id, then each of its keys."""
    return [trace.message_id, *(trace.keys or "").split()]


def decode_traces(text: str) -> list[Trace]:
    """All traces of a record; kinds that are not known here are left out.

    Raises RemoteProtocolError for one whose fields are too few or no numbers.
    """
    found: list[Trace] = []
    for line in text.split(TRACE_END):
        fields = line.split(FIELD_END)
        reader = _READERS.get(fields[0])
        if reader is None:
            continue
        try:
            found.append(reader(fields))
        except (IndexError, ValueError) as error:
            raise RemoteProtocolError(f"no trace: {line[:200]!r} ({error})") from error
    return found


def _sent(fields: list[str]) -> SentTrace:
    # Before 4.3 there was no offset message id, so the success stood in its place.
    has_id = len(fields) > 13
    return SentTrace(
        time_ms=_long(fields[1]),
        region=_value(fields[2]),
        group=fields[3],
        topic=fields[4],
        message_id=fields[5],
        tags=_value(fields[6]),
        keys=_value(fields[7]),
        store_host=fields[8],
        body_bytes=_int(fields[9]),
        cost_ms=_long(fields[10]),
        kind=TracedKind(_int(fields[11])),
        offset_message_id=_value(fields[12]) if has_id else None,
        success=fields[13 if has_id else 12] == "true",
    )


def _consuming(fields: list[str]) -> ConsumingTrace:
    return ConsumingTrace(
        time_ms=_long(fields[1]),
        region=_value(fields[2]),
        group=fields[3],
        request_id=fields[4],
        message_id=fields[5],
        retry_times=_int(fields[6]),
        keys=_value(fields[7]),
    )


def _consumed(fields: list[str]) -> ConsumedTrace:
    at = dict(enumerate(fields))
    return ConsumedTrace(
        request_id=fields[1],
        message_id=fields[2],
        cost_ms=_long(fields[3]),
        success=fields[4] == "true",
        keys=_value(fields[5]),
        end=ConsumeEnd(_int(at.get(6) or "0")),
        time_ms=_long(at[7]) if 7 in at else None,
        group=at.get(8),
    )


def _end_transaction(fields: list[str]) -> EndTransactionTrace:
    return EndTransactionTrace(
        time_ms=_long(fields[1]),
        region=_value(fields[2]),
        group=fields[3],
        topic=fields[4],
        message_id=fields[5],
        tags=_value(fields[6]),
        keys=_value(fields[7]),
        store_host=fields[8],
        kind=TracedKind(_int(fields[9])),
        transaction_id=_value(fields[10]),
        state=TransactionState(fields[11]),
        from_check=fields[12] == "true",
    )


_READERS: dict[str, Callable[[list[str]], Trace]] = {
    "Pub": _sent,
    "SubBefore": _consuming,
    "SubAfter": _consumed,
    "EndTransaction": _end_transaction,
}


def _int(text: str) -> int:
    """As Java's Integer.parseInt: anybody may write traces, and others count with what is read."""
    return _number(text, 31)


def _long(text: str) -> int:
    """As Java's Long.parseLong."""
    return _number(text, 63)


def _number(text: str, bits: int) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"{text[:40]!r} is no number")
    number = int(text)
    if not -(1 << bits) <= number < 1 << bits:
        raise ValueError(f"{text[:40]!r} has more than {bits + 1} bits")
    return number


def _text(field: object) -> str:
    """As Java's StringBuilder writes it; but what would end the field is a blank, so that strange
    keys of one message spoil no trace of another in the same record.
    """
    if field is None:
        return _NULL
    if isinstance(field, bool):
        return "true" if field else "false"
    return str(field).replace(FIELD_END, " ").replace(TRACE_END, " ")


def _value(text: str) -> str | None:
    return None if text in (_NULL, "") else text
