"""Encodes and decodes batch-send bodies, which hold several messages for one queue.

    int32 size | int32 magic, unused | int32 CRC, unused | int32 flag | int32 length, body
    | int16 length, properties

Place in the walk: the producer makes it, `handlers/send` takes it apart and stores each message.
Invariant: lengths are checked before anything is cut out. Absent on purpose: topic and queue, which
the header names once for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from struct import error as struct_error

import msgspec

from engine.foundation.errors import LocalProtocolError, RemoteProtocolError
from engine.foundation.limits import BATCH_MESSAGES_MAX, PROPERTIES_BYTES_MAX
from engine.foundation.units import Buffer
from engine.protocol.message import Message
from engine.protocol.properties import encode_properties

_BATCH_HEAD = Struct(">iiiii")  # size | magic, unused | CRC, unused | flag | body length
_INT16 = Struct(">h")


def encode_batch(messages: Sequence[Message]) -> bytes:
    """The messages one after the other.

    Raises LocalProtocolError when one's properties are longer than their length field can say.
    """
    parts: list[bytes] = []
    for message in messages:
        properties = encode_properties(message.properties).encode()
        if len(properties) > PROPERTIES_BYTES_MAX:
            raise LocalProtocolError(
                f"batch: properties of {len(properties)} bytes, at most {PROPERTIES_BYTES_MAX}"
            )
        size = _BATCH_HEAD.size + len(message.body) + 2 + len(properties)
        parts += (
            _BATCH_HEAD.pack(size, 0, 0, message.flag, len(message.body)),
            message.body,
            _INT16.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


class BatchEntry(msgspec.Struct):
    """One message of a batch; topic and queue are the batch's."""

    flag: int
    body: memoryview
    """A part of the batch's body."""
    properties_text: str
    """In the string form, as it is to be stored."""


def decode_batch(body: Buffer) -> list[BatchEntry]:
    """The reverse: flag, body and property string of each message.

    Raises RemoteProtocolError for bytes that are no batch.
    """
    return list(entries_of(body))


def entries_of(body: Buffer) -> Iterator[BatchEntry]:
    """As `decode_batch`, one by one: that a later one is wrong is known when it has its turn."""
    view, position, end, count = memoryview(body), 0, len(body), 0
    try:
        while position < end:
            size, _, _, flag, body_length = _BATCH_HEAD.unpack_from(body, position)
            start = position + _BATCH_HEAD.size
            stop = start + body_length
            (properties_length,) = _INT16.unpack_from(body, stop)
            if min(body_length, properties_length) < 0 or size != (
                _BATCH_HEAD.size + body_length + 2 + properties_length
            ):
                raise RemoteProtocolError(f"batch: lengths at byte {position} do not fit together")
            if position + size > end or count >= BATCH_MESSAGES_MAX:
                raise RemoteProtocolError(f"batch: cut off, or over {BATCH_MESSAGES_MAX} messages")
            properties = str(view[stop + 2 : position + size], "utf-8")
            yield BatchEntry(flag, view[start:stop], properties)
            position += size
            count += 1
    except (struct_error, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"batch: {error}") from error
