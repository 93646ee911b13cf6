"""Encodes and decodes whole message records, as stored and as pulled (hot path).

An IPv6 host takes 20 bytes where an IPv4 one takes 8, see sysFlag bits 4 and 5:

      0  int32 total size            48  8     born host
      4  int32 magic                 56  int64 store timestamp, ms
      8  int32 body CRC              64  8     store host
     12  int32 queue id              72  int32 reconsume times
     16  int32 flag                  76  int64 prepared transaction offset
     20  int64 queue offset          84  int32 length, body
     28  int64 physical offset           int8 (V2: int16) length, topic
     36  int32 sysFlag                   int16 length, properties
     40  int64 born timestamp, ms

Place in the walk: a pull answer carries records as the store wrote them; the consumer decodes them
here. Invariant: `decode_record(encode_record(x)) == x`, byte for byte RocketMQ's own. Absent on
purpose: files, blanks at their ends, offsets' meaning, and inflating a
compressed body (`compression`).
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import Final

from engine.foundation.errors import CorruptRecord, LocalProtocolError
from engine.foundation.limits import PROPERTIES_BYTES_MAX
from engine.foundation.units import Buffer
from engine.protocol.hashes import body_crc
from engine.protocol.message import MessageExt
from engine.protocol.message_ids import join_host, split_host
from engine.protocol.names import SysFlag
from engine.protocol.properties import decode_properties, encode_properties

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
TOPIC_CHARS_V1_MAX: Final = 127

_HEAD = Struct(">iiiiiqqiq")  # The first nine fields above, up to the born timestamp.
_HOST_V4 = Struct(">4si")
_HOST_V6 = Struct(">16si")
_TIME = Struct(">q")
_RETRIES = Struct(">iq")  # int32 reconsume times | int64 prepared transaction offset
_INT32 = Struct(">i")
_INT16 = Struct(">h")
HEAD_BYTES: Final = _HEAD.size


def encode_record(message: MessageExt, *, properties: str | bytes | None = None) -> bytearray:
    """The stored form; `properties`, already one string, stand in for the message's own.

    Raises LocalProtocolError for a topic or properties longer than their length fields.
    """
    topic = message.topic.encode()
    if properties is None:
        properties = encode_properties(message.properties)
    tail = properties.encode() if isinstance(properties, str) else properties
    long_topic = len(message.topic) > TOPIC_CHARS_V1_MAX
    if len(tail) > PROPERTIES_BYTES_MAX or len(topic) > (0x7FFF if long_topic else 0xFF):
        raise LocalProtocolError(
            f"topic of {len(topic)} and properties of {len(tail)} bytes: at most 255 and "
            f"{PROPERTIES_BYTES_MAX} are allowed"
        )
    born_host, born_bit = _packed_host(message.born_host, SysFlag.BORN_HOST_V6)
    store_host, store_bit = _packed_host(message.store_host, SysFlag.STORE_HOST_V6)
    v6_bits = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
    sys_flag = message.sys_flag & ~int(v6_bits) | born_bit | store_bit
    body = message.body
    length = _INT16.pack(len(topic)) if long_topic else bytes((len(topic),))
    record = bytearray(HEAD_BYTES)
    record += born_host
    record += _TIME.pack(message.store_timestamp_ms)
    record += store_host
    record += _RETRIES.pack(message.reconsume_times, message.prepared_transaction_offset)
    record += _INT32.pack(len(body))
    record += body
    record += length
    record += topic
    record += _INT16.pack(len(tail))
    record += tail
    _HEAD.pack_into(
        record,
        0,
        len(record),
        MAGIC_V2 if long_topic else MAGIC_V1,
        body_crc(body),
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.physical_offset,
        sys_flag,
        message.born_timestamp_ms,
    )
    return record


def _packed_host(host: str, v6_bit: int) -> tuple[bytes, int]:
    packed, port = split_host(host)
    if len(packed) == 4:
        return _HOST_V4.pack(packed, port), 0
    return _HOST_V6.pack(packed, port), int(v6_bit)


def decode_record(
    buffer: Buffer, position: int = 0, *, check_crc: bool = True, read_body: bool = True
) -> MessageExt:
    """The record at `position`. Raises CorruptRecord when it is none or damaged.

    The body stays compressed when it was stored so: see `decompress`.
    """
    try:
        return _decode_record(buffer, position, check_crc, read_body)
    except (struct_error, UnicodeDecodeError, IndexError, ValueError) as error:
        raise CorruptRecord(f"record at byte {position}: {error}") from error


def _decode_record(buffer: Buffer, position: int, check_crc: bool, read_body: bool) -> MessageExt:
    (size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_ms) = (
        _HEAD.unpack_from(buffer, position)
    )
    end = position + size
    if magic not in (MAGIC_V1, MAGIC_V2) or size <= HEAD_BYTES or end > len(buffer):
        raise CorruptRecord(
            f"record at byte {position}: size {size}, magic {magic & 0xFFFFFFFF:08x}"
        )
    at = position + HEAD_BYTES
    born_host, at = _host(buffer, at, sys_flag & SysFlag.BORN_HOST_V6)
    (store_ms,) = _TIME.unpack_from(buffer, at)
    store_host, at = _host(buffer, at + 8, sys_flag & SysFlag.STORE_HOST_V6)
    reconsume_times, prepared_offset = _RETRIES.unpack_from(buffer, at)
    (body_length,) = _INT32.unpack_from(buffer, at + 12)
    body_end = at + 16 + body_length
    if body_length < 0 or body_end >= end:
        raise CorruptRecord(
            f"record at byte {position}: a body of {body_length} bytes does not fit"
        )
    body = bytes(buffer[at + 16 : body_end]) if read_body or check_crc else b""
    if check_crc and body_length and body_crc(body) != crc:
        raise CorruptRecord(f"record at byte {position}: the body's CRC is not {crc}")
    if magic == MAGIC_V1:
        topic_length, at = buffer[body_end], body_end + 1
    else:
        topic_length, at = _INT16.unpack_from(buffer, body_end)[0], body_end + 2
    properties_at = at + topic_length
    (properties_length,) = _INT16.unpack_from(buffer, properties_at)
    if properties_length < 0 or properties_at + 2 + properties_length > end:
        raise CorruptRecord(f"record at byte {position}: properties do not fit")
    text = bytes(buffer[properties_at + 2 : properties_at + 2 + properties_length]).decode()
    return MessageExt(
        bytes(buffer[at:properties_at]).decode(),
        body if read_body else b"",
        decode_properties(text),
        flag,
        queue_id,
        queue_offset,
        physical_offset,
        sys_flag,
        born_ms,
        born_host,
        store_ms,
        store_host,
        reconsume_times,
        prepared_offset,
        crc,
        size,
    )


def _host(buffer: Buffer, position: int, is_v6: int) -> tuple[str, int]:
    layout = _HOST_V6 if is_v6 else _HOST_V4
    packed, port = layout.unpack_from(buffer, position)
    return join_host(packed, port), position + layout.size


def queue_offsets(body: Buffer) -> list[int]:
    """The queue offset of each record of a pull answer, read from our own log."""
    offsets: list[int] = []
    position = 0
    while position < len(body):
        size_bytes, *_, queue_offset, _, _, _ = _HEAD.unpack_from(body, position)
        offsets.append(queue_offset)
        position += size_bytes
    return offsets


def decode_records(body: Buffer) -> list[MessageExt]:
    """All records of a pull answer. Raises CorruptRecord for bytes that are none."""
    messages: list[MessageExt] = []
    position, end = 0, len(body)
    while position < end:
        message = decode_record(body, position)
        messages.append(message)
        position += message.store_size_bytes
    return messages
