"""The stored form of a message: from a draft to bytes, and from bytes to what dispatch needs.

Place in the walk: `message_store.put` turns a draft into a record; `dispatch` and `recovery` read
records back, only as far as consume queue and index need it. The whole message is decoded by
clients (`engine.protocol.message`).

The layout is drawn there. Here it is packed and unpacked a second time, on purpose: in one `Struct`
from a draft whose place comes last, and without what dispatch never looks at, which is 4 times as
fast; a property test holds both forms together, byte for byte.

Invariant: `check_record` accepts exactly what a complete record at that place can be. The format
protects the body by a CRC and the lengths by each other; a flipped bit in a time or a host cannot
be seen by anybody. Absent on purpose: files, time, the book-keeping of queue offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import ip_address
from struct import Struct
from zlib import crc32

import msgspec

from engine.foundation.errors import CorruptRecord, LocalProtocolError
from engine.foundation.limits import (
    PROPERTIES_BYTES_MAX,
    RETRY_TOPIC_CHARS_MAX,
    STORE_MEMO_ENTRIES_MAX,
)
from engine.protocol.hashes import tags_code
from engine.protocol.tag_bits import tags_word

MAGIC_V1 = -626843481  # 0xDAA320A7
MAGIC_V2 = -626843477  # 0xDAA320AB: the topic's length takes two bytes
TOPIC_CHARS_V1_MAX = 127
BLANK_MAGIC = -875286124  # 0xCBD43194

TRANSACTION_MASK = 0xC
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
_WITH_QUEUE_OFFSET = (0, TRANSACTION_COMMIT)
MULTI_TAGS = 0x2
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
_UNWRITTEN = bytes(512)
"""A sector of zeros inside properties: they have no CRC, but no writer puts this there."""
_SHORT = Struct(">h")
_INT = Struct(">i")
_SIZE_AND_MAGIC = Struct(">ii")
_LONG = Struct(">q")


def _head_layout(born_host_bytes: int, store_host_bytes: int) -> Struct:
    return Struct(f">iiIiiqqiq{born_host_bytes}sq{store_host_bytes}siqi")


def _glance_layout(born_host_bytes: int, store_host_bytes: int) -> Struct:
    """The same head without what dispatch does not read."""
    return Struct(f">ii4xi4xqqi8x{born_host_bytes}xq{store_host_bytes}x4x8xi")


_HEADS = {
    flags: _head_layout(20 if flags & BORN_HOST_V6 else 8, 20 if flags & STORE_HOST_V6 else 8)
    for flags in (0, BORN_HOST_V6, STORE_HOST_V6, BORN_HOST_V6 | STORE_HOST_V6)
}
_GLANCES = {
    flags: _glance_layout(20 if flags & BORN_HOST_V6 else 8, 20 if flags & STORE_HOST_V6 else 8)
    for flags in _HEADS
}
_GLANCE = _GLANCES[0]
_HEAD_BYTES = _GLANCE.size
RECORD_BYTES_MIN = _HEAD_BYTES + 1 + 2


class MessageDraft(msgspec.Struct):
    """A message that the broker has accepted and the store is to keep. Times in ms since 1970."""

    topic: str
    queue_id: int
    body: bytes | bytearray | memoryview
    properties: str | bytes
    """In RocketMQ's string form: name \\x01 value \\x02, repeated."""
    born_timestamp_ms: int
    born_host: str
    """`ip:port` of the sender, `[ip]:port` for IPv6."""
    store_host: str
    """`ip:port` under which this broker answers for the message (part of its offset message id)."""
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


class DispatchRequest(msgspec.Struct):
    """What consume queue, index and waiting readers need to know of a record."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size_bytes: int
    tags_code: int
    """Hash of its tag; with MULTI_TAGS a word of bits; when delayed, the time to deliver."""
    store_timestamp_ms: int
    sys_flag: int
    properties: bytes


def has_queue_offset(sys_flag: int) -> bool:
    """Does a message with these flags take the next offset of its queue?

    Prepared and rolled-back messages of a transaction are in the log only.
    """
    return sys_flag & TRANSACTION_MASK in _WITH_QUEUE_OFFSET


# ---- writing -------------------------------------------------------------------------------


@lru_cache(STORE_MEMO_ENTRIES_MAX)
def encode_host(host: str) -> bytes:
    """`ip:port` as the record has it: 8 bytes, or 20 for IPv6. Raises LocalProtocolError."""
    address, _, port = host.rpartition(":")
    try:
        return ip_address(address.strip("[]")).packed + _INT.pack(int(port))
    except ValueError as error:
        raise LocalProtocolError(f"host {host!r} is not ip:port") from error


@lru_cache(STORE_MEMO_ENTRIES_MAX)
def _topic_part(topic: str) -> tuple[int, bytes]:
    encoded = topic.encode()
    if len(topic) > TOPIC_CHARS_V1_MAX:
        return MAGIC_V2, _SHORT.pack(len(encoded)) + encoded
    return MAGIC_V1, bytes((len(encoded),)) + encoded


class DraftRecord:
    """A draft in encoded pieces: its length is known before its place is."""

    __slots__ = (
        "_born_host",
        "_head",
        "_magic",
        "_properties",
        "_store_host",
        "_sys_flag",
        "_topic",
        "draft",
        "size_bytes",
        "takes_queue_offset",
    )

    def __init__(self, draft: MessageDraft) -> None:
        properties = draft.properties
        self._properties = properties.encode() if isinstance(properties, str) else properties
        if self._properties.endswith(b"\0"):
            self._properties += b"\x02"  # The separator may be there; a zero at the end may not.
        if _UNWRITTEN in self._properties:
            raise LocalProtocolError("properties with 512 zero bytes in a row look like lost ones")
        if len(self._properties) > PROPERTIES_BYTES_MAX:
            raise LocalProtocolError(
                f"{len(self._properties)} bytes of properties do not fit a record "
                f"(at most {PROPERTIES_BYTES_MAX})"
            )
        self.draft = draft
        self._magic, self._topic = _topic_part(draft.topic)
        self._born_host = encode_host(draft.born_host)
        self._store_host = encode_host(draft.store_host)
        hosts = (BORN_HOST_V6 if len(self._born_host) > 8 else 0) | (
            STORE_HOST_V6 if len(self._store_host) > 8 else 0
        )
        self.takes_queue_offset = has_queue_offset(draft.sys_flag)
        self._sys_flag = draft.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6) | hosts
        self._head = _HEADS[hosts]
        self.size_bytes = (
            self._head.size + len(draft.body) + len(self._topic) + 2 + len(self._properties)
        )

    def encode(self, queue_offset: int, physical_offset: int, store_timestamp_ms: int) -> bytes:
        """The record's bytes at its place. Hot."""
        draft = self.draft
        body = draft.body
        head = self._head.pack(
            self.size_bytes,
            self._magic,
            crc32(body) & 0x7FFFFFFF,
            draft.queue_id,
            draft.flag,
            queue_offset,
            physical_offset,
            self._sys_flag,
            draft.born_timestamp_ms,
            self._born_host,
            store_timestamp_ms,
            self._store_host,
            draft.reconsume_times,
            draft.prepared_transaction_offset,
            len(body),
        )
        properties = self._properties
        return b"".join((head, body, self._topic, _SHORT.pack(len(properties)), properties))

    def request(
        self,
        queue_offset: int,
        physical_offset: int,
        store_timestamp_ms: int,
        delay_levels_ms: Sequence[int],
    ) -> DispatchRequest:
        """What `glance` would read at its place. Hot."""
        draft, properties = self.draft, self._properties
        topic, sys_flag = draft.topic, self._sys_flag
        return DispatchRequest(
            topic,
            draft.queue_id,
            queue_offset,
            physical_offset,
            self.size_bytes,
            _unit_code(topic, sys_flag, properties, store_timestamp_ms, delay_levels_ms),
            store_timestamp_ms,
            sys_flag,
            properties,
        )


# ---- reading -------------------------------------------------------------------------------


@lru_cache(STORE_MEMO_ENTRIES_MAX)
def _decode_topic(encoded: bytes) -> str:
    return encoded.decode()


@lru_cache(STORE_MEMO_ENTRIES_MAX)
def _tags_code_of(encoded: bytes) -> int:
    return tags_code(encoded.decode("utf-8", "replace"))


@lru_cache(STORE_MEMO_ENTRIES_MAX)
def _tags_word_of(encoded: bytes) -> int:
    return tags_word(encoded.decode("utf-8", "replace"))


@lru_cache(STORE_MEMO_ENTRIES_MAX)
def is_plain_topic(topic: str) -> bool:
    """Can the topic name a folder of ours? Letters, digits and _ % | - only, so no path tricks."""
    letters = topic.replace("%", "").replace("|", "").replace("-", "").replace("_", "")
    return 1 <= len(topic) <= RETRY_TOPIC_CHARS_MAX and (
        not letters or (letters.isascii() and letters.isalnum())
    )


def property_value(properties: bytes, name: bytes) -> bytes:
    """Value of a property in the string form; empty when it has none. `name` ends with \\x01."""
    at = properties.find(name)
    while at > 0 and properties[at - 1] != 2:
        at = properties.find(name, at + 1)
    if at < 0:
        return b""
    begin = at + len(name)
    end = properties.find(b"\x02", begin)
    return properties[begin:] if end < 0 else properties[begin:end]


def glance(
    view: memoryview, position: int, delay_levels_ms: Sequence[int]
) -> DispatchRequest | None:
    """Read a record that is known to be whole, as far as dispatch needs it; None for a blank. Hot.

    There must be RECORD_BYTES_MIN bytes at `position`.
    """
    fields = _GLANCE.unpack_from(view, position)
    body_at = position + _HEAD_BYTES
    if fields[1] == BLANK_MAGIC:
        return None
    if fields[5] & (BORN_HOST_V6 | STORE_HOST_V6):
        layout = _GLANCES[fields[5] & (BORN_HOST_V6 | STORE_HOST_V6)]
        fields = layout.unpack_from(view, position)
        body_at = position + layout.size
    size, magic, queue_id, queue_offset, physical_offset, sys_flag, stored_ms, body_length = fields
    topic_at = body_at + body_length
    if magic == MAGIC_V1:
        topic_end = topic_at + 1 + view[topic_at]
        topic = _decode_topic(bytes(view[topic_at + 1 : topic_end]))
    else:
        topic_end = topic_at + 2 + _SHORT.unpack_from(view, topic_at)[0]
        topic = _decode_topic(bytes(view[topic_at + 2 : topic_end]))
    properties = bytes(view[topic_end + 2 : position + size])
    code = _unit_code(topic, sys_flag, properties, stored_ms, delay_levels_ms)
    return DispatchRequest(
        topic, queue_id, queue_offset, physical_offset, size, code, stored_ms, sys_flag, properties
    )


def _unit_code(
    topic: str, sys_flag: int, properties: bytes, stored_ms: int, delay_levels_ms: Sequence[int]
) -> int:
    """`DispatchRequest.tags_code` of a message."""
    code = 0
    if sys_flag & MULTI_TAGS:
        code = _tags_word_of(property_value(properties, b"TAGS\x01"))
    elif b"TAGS\x01" in properties:
        code = _tags_code_of(property_value(properties, b"TAGS\x01"))
    if topic == SCHEDULE_TOPIC:
        return _deliver_time(properties, code, stored_ms, delay_levels_ms)
    return code


def _deliver_time(
    properties: bytes, code: int, stored_ms: int, delay_levels_ms: Sequence[int]
) -> int:
    """A delayed message carries the time to deliver it where others have their tag's hash."""
    level = property_value(properties, b"DELAY\x01")
    if not level.isdigit() or int(level) == 0:
        return code
    return stored_ms + delay_levels_ms[min(int(level), len(delay_levels_ms)) - 1]


def check_record(
    view: memoryview, position: int, physical_offset: int, delay_levels_ms: Sequence[int]
) -> DispatchRequest | None:
    """Read a record of which nothing is known; None for the blank that closes a file.

    Raises CorruptRecord saying what is wrong: size, magic, place, CRC of the body, lengths that do
    not add up, a topic that cannot be one.
    """
    room = len(view) - position
    if room < _SIZE_AND_MAGIC.size:
        raise CorruptRecord(f"{room} bytes are no record")
    size, magic = _SIZE_AND_MAGIC.unpack_from(view, position)
    if magic == BLANK_MAGIC and size == room:
        return None
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise CorruptRecord(f"magic {magic & 0xFFFFFFFF:#010x} at {physical_offset}")
    if not RECORD_BYTES_MIN <= size <= room:
        raise CorruptRecord(f"size {size} at {physical_offset}, {room} bytes are left in the file")
    sys_flag = _INT.unpack_from(view, position + 36)[0]
    head = _HEADS[sys_flag & (BORN_HOST_V6 | STORE_HOST_V6)]
    if size < head.size + 3:
        raise CorruptRecord(f"size {size} at {physical_offset} is too short")
    crc, claimed_offset = _crc_and_place(view, position)
    if claimed_offset != physical_offset:
        raise CorruptRecord(f"the record at {physical_offset} says it lies at {claimed_offset}")
    body_at = position + head.size
    body_length = _INT.unpack_from(view, body_at - 4)[0]
    _check_lengths(view[position : position + size], head.size, body_length, physical_offset)
    if crc32(view[body_at : body_at + body_length]) & 0x7FFFFFFF != crc:
        raise CorruptRecord(f"the body at {physical_offset} does not match its CRC")
    try:
        request = glance(view, position, delay_levels_ms)
    except UnicodeDecodeError as error:
        raise CorruptRecord(f"the topic at {physical_offset} is not text") from error
    assert request is not None, "a blank with the magic of a record"
    if not is_plain_topic(request.topic) or request.queue_id < 0:
        raise CorruptRecord(f"no queue is called {request.topic!r} {request.queue_id}")
    if request.properties.endswith(b"\0") or _UNWRITTEN in request.properties:
        raise CorruptRecord(f"the properties at {physical_offset} were not written to their end")
    try:
        request.properties.decode()
    except UnicodeDecodeError as error:
        raise CorruptRecord(f"the properties at {physical_offset} are not text") from error
    return request


def _crc_and_place(view: memoryview, position: int) -> tuple[int, int]:
    crc: int = _INT.unpack_from(view, position + 8)[0]
    claimed_offset: int = _LONG.unpack_from(view, position + 28)[0]
    return crc, claimed_offset


def _check_lengths(
    record: memoryview, head_bytes: int, body_length: int, physical_offset: int
) -> None:
    """Body, topic and properties must fill the record exactly."""
    size = len(record)
    topic_length_bytes = 2 if _INT.unpack_from(record, 4)[0] == MAGIC_V2 else 1
    topic_at = head_bytes + body_length
    if body_length < 0 or topic_at + topic_length_bytes + 2 > size:
        raise CorruptRecord(f"body length {body_length} at {physical_offset} does not fit {size}")
    topic_length = (
        record[topic_at] if topic_length_bytes == 1 else _SHORT.unpack_from(record, topic_at)[0]
    )
    properties_at = topic_at + topic_length_bytes + topic_length
    if topic_length <= 0 or properties_at + 2 > size:
        raise CorruptRecord(f"topic length {topic_length} at {physical_offset} does not fit {size}")
    properties_length = _SHORT.unpack_from(record, properties_at)[0]
    if properties_at + 2 + properties_length != size:
        raise CorruptRecord(
            f"lengths of the record at {physical_offset} add up to "
            f"{properties_at + 2 + properties_length}, not {size}"
        )


def properties_of(record: memoryview) -> bytes:
    """Property string of a whole record."""
    head = _HEADS[_INT.unpack_from(record, 36)[0] & (BORN_HOST_V6 | STORE_HOST_V6)]
    topic_at = head.size + _INT.unpack_from(record, head.size - 4)[0]
    if _INT.unpack_from(record, 4)[0] == MAGIC_V2:
        return bytes(record[topic_at + 4 + _SHORT.unpack_from(record, topic_at)[0] :])
    return bytes(record[topic_at + 3 + record[topic_at] :])


def store_timestamp_of(record: memoryview) -> int:
    """Store time (ms) of a whole record."""
    born_v6 = _INT.unpack_from(record, 36)[0] & BORN_HOST_V6
    stored_ms: int = _LONG.unpack_from(record, 68 if born_v6 else 56)[0]
    return stored_ms
