"""Encodes and decodes the frames that make up the spool's file format.

Bytes in, values out.

Place in the walk: `spool` writes frames, `segments` finds them again at boot and in the shipper.

One frame, little-endian:

     0          4          8                    8 + length
    +----------+----------+--------------------+
    |  length  |  CRC-32  |  payload (msgpack) |
    +----------+----------+--------------------+
       u32        u32        `length` bytes: a Life or a Turn as an array

Invariant: a frame is read back whole or not at all; whatever follows the first frame that is not
whole is not read. A frame of length 0 does not exist, so that a run of zero bytes, whose CRC-32 is
0 as well, is never taken for one.

Absent on purpose: files. msgpack over pickle or JSON: it cannot run code and keeps 64-bit numbers
and bytes apart.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec

from engine.foundation.errors import CorruptRecord
from engine.foundation.limits import SPOOL_FRAME_BYTES_MAX
from engine.telemetry.tables import TABLES

_NEWER: Final = "A newer version wrote it: ship it with that one"
_HEAD: Final = struct.Struct("<II")

Values = tuple[Any, ...]
"""A row's own values, in the order of its table's `own_names`; times are µs since 1970."""

Row = tuple[int, int, Values]
"""(number of the table in TABLES, event_time µs, own values). Its seq is the frame's first_seq plus
its position."""

Mark = tuple[str, str, int, int, str | None, int]
"""(group, topic, queue_id, pulled offset, client_id, broker_epoch): how far a group has pulled a
queue, and in which life."""


Offset = tuple[str, str, int, int]
"""(group, topic, queue_id, consume offset) as its last stored report said."""


Tail = tuple[str, int, int, int, str | None, str, str | None]
"""(topic, queue_id, queue offset, physical offset, message id, group, client_id): the newest
message of a queue that was pulled before it was synced."""


class Life(msgspec.Struct, array_like=True, tag=1, frozen=True):
    """A segment begins, or a broker's next life in it: who speaks from here on, and every mark,
    reported offset and tail known by then.

    No row has a seq between `follows_seq`, the newest one when the life began, and `life_seq`, its
    own first one; None in what earlier versions wrote, whose lives passed nothing over.
    """

    cluster: str
    broker: str
    broker_id: int | str
    broker_epoch: int
    first_seq: int
    as_of: int
    marks: Sequence[Mark]
    offsets: Sequence[Offset] = []
    tails: Sequence[Tail] = []
    life_seq: int | None = None
    follows_seq: int | None = None

    @property
    def before_seq(self) -> int:
        """Seq of the row before this frame; 0 when there is none."""
        if self.follows_seq is not None and self.first_seq == self.life_seq:
            return self.follows_seq
        return self.first_seq - 1

    def unused_in(self, from_seq: int, to_seq: int) -> int:
        """How many seqs in [from_seq, to_seq) were passed over when this life began."""
        if self.life_seq is None or self.follows_seq is None:
            return 0
        return max(0, min(to_seq, self.life_seq) - max(from_seq, self.follows_seq + 1))


class Turn(msgspec.Struct, array_like=True, tag=2, frozen=True):
    """What one turn of the event loop had to report; if that is nothing, it is a heartbeat.

    `as_of`: every fact up to that time (µs since 1970, the broker's clock) is in this frame or
    before it.
    """

    first_seq: int
    as_of: int
    rows: Sequence[Row]
    marks: Sequence[Mark]
    tails: Sequence[Tail] = []

    @property
    def is_heartbeat(self) -> bool:
        """Does it say nothing but the time?"""
        return not self.rows and not self.marks and not self.tails

    @property
    def next_seq(self) -> int:
        """The seq after its last row."""
        return self.first_seq + len(self.rows)


Frame = Life | Turn


class _EncodedLife(msgspec.Struct, array_like=True, tag=1, frozen=True):
    """A Life whose marks and offsets are bytes already."""

    cluster: str
    broker: str
    broker_id: int | str
    broker_epoch: int
    first_seq: int
    as_of: int
    marks: msgspec.Raw
    offsets: msgspec.Raw
    tails: Sequence[Tail]
    life_seq: int | None
    follows_seq: int | None


class Placed(NamedTuple):
    """A frame and the bytes [start, end) it takes."""

    frame: Frame
    start: int
    end: int


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Frame)


def encode_frame(frame: Frame) -> bytes:
    """The bytes of one frame. Raises ValueError when it is longer than SPOOL_FRAME_BYTES_MAX."""
    return _framed(_encoder.encode(frame))


def encode_life(life: Life, marks: msgspec.Raw, offsets: msgspec.Raw) -> bytes:
    """As `encode_frame`, with these arrays of marks and offsets in place of the life's own."""
    who = (life.cluster, life.broker, life.broker_id, life.broker_epoch)
    begin = (life.life_seq, life.follows_seq)
    life_read = _EncodedLife(*who, life.first_seq, life.as_of, marks, offsets, life.tails, *begin)
    return _framed(_encoder.encode(life_read))


def _framed(payload: bytes) -> bytes:
    if len(payload) > SPOOL_FRAME_BYTES_MAX:
        raise ValueError(
            f"a spool frame of {len(payload)} bytes; at most {SPOOL_FRAME_BYTES_MAX} are written"
        )
    return _HEAD.pack(len(payload), crc32(payload)) + payload


def encodable(row: tuple[Any, ...]) -> Any:
    """The row or mark with lone surrogates replaced; None when a number in it exceeds 64 bits."""
    clean = _clean(row)
    try:
        _encoder.encode(clean)
    except (OverflowError, ValueError):
        return None
    return clean


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, (tuple, list)):
        return tuple(_clean(part) for part in value)
    return value


def find_frames(data: bytes | memoryview, position: int = 0) -> tuple[list[tuple[int, int]], int]:
    """Where every whole frame from `position` on begins and ends, and where the first byte after
    them is.

    Bytes that are not a whole frame end the search: a torn tail, or a write under way.
    """
    view = memoryview(data)
    spans: list[tuple[int, int]] = []
    size_bytes = len(view)
    while position + _HEAD.size <= size_bytes:
        length, checksum = _HEAD.unpack_from(view, position)
        end = position + _HEAD.size + length
        if length == 0 or length > SPOOL_FRAME_BYTES_MAX or end > size_bytes:
            break
        if crc32(view[position + _HEAD.size : end]) != checksum:
            break
        spans.append((position, end))
        position = end
    return spans, position


def decode_frame(data: bytes | memoryview, start: int, end: int) -> Frame:
    """The frame at [start, end), as `find_frames` found it.

    Raises CorruptRecord when its checksum holds but its content is impossible: it was written so,
    and reading on would invent facts.
    """
    return _decode(memoryview(data)[start + _HEAD.size : end], start)


def decode_frames(data: bytes | memoryview, position: int = 0) -> tuple[list[Placed], int]:
    """`find_frames` and `decode_frame` in one: every whole frame, and where the first byte after
    them is."""
    spans, end = find_frames(data, position)
    view = memoryview(data)
    return [
        Placed(_decode(view[start + _HEAD.size : stop], start), start, stop)
        for start, stop in spans
    ], end


def _decode(payload: memoryview, position: int) -> Frame:
    try:
        frame: Frame = _decoder.decode(payload)
    except msgspec.DecodeError as error:
        raise CorruptRecord(
            f"spool frame at byte {position}: checksum holds, content does not: {error}"
        ) from error
    if isinstance(frame, Turn):
        for table_number, _, values in frame.rows:
            if not 0 <= table_number < len(TABLES):
                raise CorruptRecord(
                    f"spool frame at byte {position}: table number {table_number}; "
                    f"known are 0 to {len(TABLES) - 1}. {_NEWER}"
                )
            if len(values) > len(TABLES[table_number].own):
                raise CorruptRecord(
                    f"spool frame at byte {position}: {len(values)} values for "
                    f"{TABLES[table_number].name}, too many. {_NEWER}"
                )
    return frame
