"""Messages: as a producer makes them, as the store keeps them, as a consumer gets them (hot).

A stored record, IPv4 hosts (an IPv6 host takes 20 bytes where an IPv4 one takes 8, see sysFlag bits 4 and 5):

      0  int32 total size           36  int32 sysFlag             72  int32 reconsume times
      4  int32 magic                40  int64 born timestamp, ms  76  int64 prepared transaction offset
      8  int32 body CRC             48  8     born host           84  int32 length, body
     12  int32 queue id             56  int64 store timestamp, ms     int8 (V2: int16) length, topic
     16  int32 flag                 64  8     store host              int16 length, properties
     20  int64 queue offset
     28  int64 physical offset

Place in the walk: the store appends what `encode_record` makes, a pull answer carries it unchanged, the consumer
decodes it. Invariant: `decode_record(encode_record(x)) == x`, byte for byte RocketMQ's own (spec: wire, section 3).
Absent on purpose: files, blanks at their ends, and offsets' meaning.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import mul
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple

import lz4.frame  # type: ignore[import-untyped]
import zstandard

from engine.foundation.errors import CorruptRecord, LocalProtocolError, RemoteProtocolError
from engine.foundation.limits import BATCH_MESSAGES_MAX, FRAME_BYTES_MAX, PROPERTIES_BYTES_MAX
from engine.protocol.message_ids import join_host, offset_message_id, split_host
from engine.protocol.names import COMPRESSION_BITS, SysFlag

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
TOPIC_CHARS_V1_MAX: Final = 127

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"

PROPERTY_KEYS: Final = "KEYS"
PROPERTY_TAGS: Final = "TAGS"
PROPERTY_WAIT: Final = "WAIT"
PROPERTY_DELAY: Final = "DELAY"
PROPERTY_RETRY_TOPIC: Final = "RETRY_TOPIC"
PROPERTY_REAL_TOPIC: Final = "REAL_TOPIC"
PROPERTY_REAL_QUEUE_ID: Final = "REAL_QID"
PROPERTY_TRANSACTION_PREPARED: Final = "TRAN_MSG"
PROPERTY_PRODUCER_GROUP: Final = "PGROUP"
PROPERTY_MIN_OFFSET: Final = "MIN_OFFSET"
PROPERTY_MAX_OFFSET: Final = "MAX_OFFSET"
PROPERTY_ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
PROPERTY_RECONSUME_TIME: Final = "RECONSUME_TIME"
PROPERTY_MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
PROPERTY_UNIQ_KEY: Final = "UNIQ_KEY"
PROPERTY_CONSUME_START_TIME: Final = "CONSUME_START_TIME"
PROPERTY_CLUSTER: Final = "CLUSTER"
PROPERTY_MSG_REGION: Final = "MSG_REGION"
PROPERTY_TRACE_ON: Final = "TRACE_ON"
PROPERTY_INNER_NUM: Final = "INNER_NUM"
PROPERTY_DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
PROPERTY_DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
PROPERTY_SHARDING_KEY: Final = "__SHARDINGKEY"
PROPERTY_INSTANCE_ID: Final = "INSTANCE_ID"
PROPERTY_TRANSACTION_ID: Final = "__transactionId__"

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic on one broker."""

    topic: str
    broker_name: str
    queue_id: int


@dataclass(slots=True)
class Message:
    """A message as a producer makes it."""

    topic: str
    body: bytes
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0

    @property
    def tags(self) -> str | None:
        """Its tag; None when it has none."""
        return self.properties.get(PROPERTY_TAGS)

    @tags.setter
    def tags(self, tags: str) -> None:
        self.properties[PROPERTY_TAGS] = tags

    @property
    def keys(self) -> str | None:
        """Its keys, separated by one space; None when it has none."""
        return self.properties.get(PROPERTY_KEYS)

    @keys.setter
    def keys(self, keys: str) -> None:
        self.properties[PROPERTY_KEYS] = keys

    @property
    def delay_level(self) -> int:
        """Delay level asked for; 0 is none."""
        text = self.properties.get(PROPERTY_DELAY, "0")
        return int(text) if text.lstrip("-").isdigit() else 0

    @delay_level.setter
    def delay_level(self, level: int) -> None:
        self.properties[PROPERTY_DELAY] = str(level)

    @property
    def wait_store_ok(self) -> bool:
        """Should the answer wait until the message is as durable as the broker promises?"""
        return self.properties.get(PROPERTY_WAIT, "true") != "false"

    @property
    def uniq_key(self) -> str | None:
        """The client's id of the message."""
        return self.properties.get(PROPERTY_UNIQ_KEY)


@dataclass(slots=True)
class MessageExt:
    """A message with everything the store knows of it. Times in ms since 1970, hosts as `ip:port`."""

    topic: str
    body: bytes
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    queue_id: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: str = "127.0.0.1:0"
    store_timestamp_ms: int = 0
    store_host: str = "127.0.0.1:0"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body_crc: int = 0
    store_size_bytes: int = 0

    @property
    def tags(self) -> str | None:
        """Its tag; None when it has none."""
        return self.properties.get(PROPERTY_TAGS)

    @property
    def keys(self) -> str | None:
        """Its keys, separated by one space; None when it has none."""
        return self.properties.get(PROPERTY_KEYS)

    @property
    def uniq_key(self) -> str | None:
        """The client's id of the message; None when the producer set none."""
        return self.properties.get(PROPERTY_UNIQ_KEY)

    @property
    def offset_message_id(self) -> str:
        """The broker's id of this stored copy."""
        return offset_message_id(self.store_host, self.physical_offset)

    @property
    def message_id(self) -> str:
        """What clients call the message id: UNIQ_KEY, else the broker's id."""
        return self.uniq_key or self.offset_message_id


def encode_properties(properties: Mapping[str, str]) -> str:
    """Properties as one string. Raises LocalProtocolError when a separator stands inside a name or value."""
    parts: list[str] = []
    for name, value in properties.items():
        if NAME_VALUE_SEPARATOR in name + value or PROPERTY_SEPARATOR in name + value:
            raise LocalProtocolError(f"property {name!r}: characters 1 and 2 separate properties")
        parts += (name, NAME_VALUE_SEPARATOR, value, PROPERTY_SEPARATOR)
    return "".join(parts)


def decode_properties(text: str) -> dict[str, str]:
    """The reverse; pairs shorter than three characters or without name or value are dropped, as RocketMQ does."""
    properties: dict[str, str] = {}
    for pair in text.split(PROPERTY_SEPARATOR):
        if len(pair) >= 3:
            name, separator, value = pair.partition(NAME_VALUE_SEPARATOR)
            if separator and name and value:
                properties[name] = value
    return properties


_POWERS_OF_31: Final = tuple(31**power % (1 << 32) for power in range(1023, -1, -1))


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, a signed 32-bit number. Hot: every index key."""
    units: Sequence[int] = text.encode("ascii") if text.isascii() else _utf16_units(text)
    if 0 < len(units) <= len(_POWERS_OF_31):
        # One sum of products: half the time of a multiply and an add per unit.
        value: int = sum(map(mul, units, _POWERS_OF_31[-len(units) :])) & 0xFFFFFFFF
    else:
        value = 0
        for unit in units:
            value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _utf16_units(text: str) -> Sequence[int]:
    encoded = text.encode("utf-16-be", "surrogatepass")
    units: Sequence[int] = Struct(f">{len(encoded) // 2}H").unpack(encoded)
    return units


def tags_code(tags: str | None) -> int:
    """The number a consume queue keeps for a tag; 0 for none."""
    return java_hash(tags) if tags else 0


def index_key_hash(key: str) -> int:
    """Hash of `topic#key` in the index; never negative."""
    value = abs(java_hash(key))
    return 0 if value == 1 << 31 else value


def body_crc(body: Buffer) -> int:
    """CRC-32 of a body without its highest bit."""
    return zlib.crc32(body) & 0x7FFFFFFF


# int32 size | magic | crc | queue id | flag | int64 queue offset | physical offset | int32 sysFlag | int64 born
_HEAD = Struct(">iiiiiqqiq")
_HOST_V4 = Struct(">4si")
_HOST_V6 = Struct(">16si")
_TIME = Struct(">q")
_RETRIES = Struct(">iq")  # int32 reconsume times | int64 prepared transaction offset
_INT32 = Struct(">i")
_INT16 = Struct(">h")
HEAD_BYTES: Final = _HEAD.size


def encode_record(message: MessageExt, *, properties: str | bytes | None = None) -> bytearray:
    """The stored form. `properties` in RocketMQ's string form is taken as it is, instead of `message.properties`.

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
    except (StructError, UnicodeDecodeError, IndexError, ValueError) as error:
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


def decode_records(body: Buffer) -> list[MessageExt]:
    """All records of a pull answer. Raises CorruptRecord for bytes that are none."""
    messages: list[MessageExt] = []
    position, end = 0, len(body)
    while position < end:
        message = decode_record(body, position)
        messages.append(message)
        position += message.store_size_bytes
    return messages


# int32 size | magic, unused | crc, unused | flag | body length
_BATCH_HEAD = Struct(">iiiii")


def encode_batch(messages: Sequence[Message]) -> bytes:
    """Body of SEND_BATCH_MESSAGE: the messages one after the other."""
    parts: list[bytes] = []
    for message in messages:
        properties = encode_properties(message.properties).encode()
        size = _BATCH_HEAD.size + len(message.body) + 2 + len(properties)
        parts += (
            _BATCH_HEAD.pack(size, 0, 0, message.flag, len(message.body)),
            message.body,
            _INT16.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


class BatchEntry(NamedTuple):
    """One message of a batch; topic and queue are the batch's."""

    flag: int
    body: bytes
    properties_text: str
    """In the string form, as it is to be stored."""


def decode_batch(body: Buffer) -> list[BatchEntry]:
    """The reverse: flag, body and property string of each message.

    Raises RemoteProtocolError for bytes that are no batch.
    """
    messages: list[BatchEntry] = []
    position, end = 0, len(body)
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
            if position + size > end or len(messages) >= BATCH_MESSAGES_MAX:
                raise RemoteProtocolError(f"batch: cut off, or over {BATCH_MESSAGES_MAX} messages")
            properties = bytes(body[stop + 2 : position + size]).decode()
            messages.append(BatchEntry(flag, bytes(body[start:stop]), properties))
            position += size
    except (StructError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"batch: {error}") from error
    return messages


def compress(body: bytes, *, level: int) -> tuple[bytes, int]:
    """The body by zlib, and the sysFlag bits that say so."""
    return zlib.compress(body, level), int(SysFlag.COMPRESSED | SysFlag.ZLIB)


def decompress(body: bytes, sys_flag: int) -> bytes:
    """The body as the producer made it.

    Raises CorruptRecord when it cannot be inflated, is cut off, or inflates beyond FRAME_BYTES_MAX.
    """
    if not sys_flag & SysFlag.COMPRESSED:
        return body
    kind = sys_flag & COMPRESSION_BITS
    engine: Any
    try:
        if kind == SysFlag.ZSTD:
            with zstandard.ZstdDecompressor().stream_reader(body) as reader:
                plain = reader.read(FRAME_BYTES_MAX + 1)
                whole = len(plain) <= FRAME_BYTES_MAX
        else:
            is_lz4 = kind == SysFlag.LZ4
            engine = lz4.frame.LZ4FrameDecompressor() if is_lz4 else zlib.decompressobj()
            plain = engine.decompress(body, FRAME_BYTES_MAX + 1)
            whole = engine.eof and len(plain) <= FRAME_BYTES_MAX
    except (zlib.error, RuntimeError, EOFError, zstandard.ZstdError) as error:
        raise CorruptRecord(f"compressed body: {error}") from error
    if not whole:
        raise CorruptRecord(
            f"a compressed body of {len(body)} bytes is cut off, or inflates beyond {FRAME_BYTES_MAX}"
        )
    return bytes(plain)
