"""Reads the record fields that dispatch needs, and checks that records are complete.

Place in the walk: `record_writing` makes records of drafts; `dispatch` and `recovery` read them
back, only as far as consume queue and index need it. The whole message is decoded by clients, in
`engine.protocol.message_record`, where the layout is drawn. Here and in `record_writing` it is
packed and unpacked a second time, on purpose: in one `Struct` from a draft whose place comes last,
and without what dispatch never looks at, which is 4 times as fast; a property test holds both forms
together, byte for byte.

Invariant: `check_record` accepts exactly what a complete record at that place can be. The format
protects the body by a CRC and the lengths by each other; a flipped bit in a time or a host cannot
be seen by anybody. Absent on purpose: files, time, the book-keeping of queue offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from zlib import crc32

import msgspec

from engine.foundation.errors import CorruptRecord
from engine.foundation.limits import (
    FRAME_BYTES_MAX,
    NAMES_REMEMBERED_MAX,
    RETRY_TOPIC_CHARS_MAX,
    STORE_MEMO_ENTRIES_MAX,
)
from engine.foundation.units import KIB
from engine.protocol.hashes import tags_code
from engine.protocol.properties import whole_number
from engine.protocol.tag_bits import tags_word
from engine.store.range_sums import RangeSums

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
UNWRITTEN = bytes(512)
"""A sector of zeros inside properties: they have no CRC, but no writer puts this there."""
_SHORT = Struct(">h")
_INT = Struct(">i")
_SIZE_AND_MAGIC = Struct(">ii")
_LONG = Struct(">q")
_CRC_AND_PLACE = Struct(">8xi16xq")
_LEAN = Struct(">iii24xi44xi")
_NAMING = Struct(">ii28xi44xi")
PLACE = Struct(">i8xi4xqq")
"""Size, queue id, queue offset and physical offset of a record: is it the one that its unit means?
"""


def _head_layout(born_host_bytes: int, store_host_bytes: int) -> Struct:
    return Struct(f">iiIiiqqiq{born_host_bytes}sq{store_host_bytes}siqi")


def _glance_layout(born_host_bytes: int, store_host_bytes: int) -> Struct:
    """The same head without what dispatch does not read."""
    return Struct(f">ii4xi4xqqi8x{born_host_bytes}xq{store_host_bytes}x4x8xi")


HEADS = {
    flags: _head_layout(20 if flags & BORN_HOST_V6 else 8, 20 if flags & STORE_HOST_V6 else 8)
    for flags in (0, BORN_HOST_V6, STORE_HOST_V6, BORN_HOST_V6 | STORE_HOST_V6)
}
_GLANCES = {
    flags: _glance_layout(20 if flags & BORN_HOST_V6 else 8, 20 if flags & STORE_HOST_V6 else 8)
    for flags in HEADS
}
_GLANCE = _GLANCES[0]
_HEAD_BYTES = _GLANCE.size
_PLAIN = Struct(">iiii4xqqi8x8xq8x4x8xi")
RECORD_BYTES_MIN = _HEAD_BYTES + 1 + 2
RECORD_BYTES_MAX = FRAME_BYTES_MAX + 64 * KIB
"""A longer record was never put: its message came in a frame."""


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
    """Does a message with these flags take a queue offset? Not a prepared or rolled-back one."""
    return sys_flag & TRANSACTION_MASK in _WITH_QUEUE_OFFSET


# ---- reading -------------------------------------------------------------------------------


@lru_cache(NAMES_REMEMBERED_MAX)
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
    """Value of a property in the string form, as `decode_properties` reads it: the last one counts,
    and an empty one is none. `name` ends with \\x01. Hot.
    """
    at = properties.rfind(name)
    while at >= 0:
        if at == 0 or properties[at - 1] == 2:
            begin = at + len(name)
            end = properties.find(b"\x02", begin)
            value = properties[begin:] if end < 0 else properties[begin:end]
            if value:
                return value
        at = properties.rfind(name, 0, at + len(name) - 1)
    return b""


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
    code = unit_code(
        topic, sys_flag, properties, stored_ms=stored_ms, delay_levels_ms=delay_levels_ms
    )
    return DispatchRequest(
        topic, queue_id, queue_offset, physical_offset, size, code, stored_ms, sys_flag, properties
    )


def unit_code(
    topic: str, sys_flag: int, properties: bytes, *, stored_ms: int, delay_levels_ms: Sequence[int]
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
    level = whole_number(property_value(properties, b"DELAY\x01"), 0)
    if level == 0:
        return code
    return stored_ms + delay_levels_ms[min(level, len(delay_levels_ms)) - 1]


def is_no_code_of(request: DispatchRequest, code: int) -> bool:
    """Can a unit of the record not have this code? A delayed message has the time when it is due,
    by the delay levels of its day: other levels make another time, a flipped bit one that differs
    in a bit.
    """
    if code == request.tags_code:
        return False
    if request.topic != SCHEDULE_TOPIC:
        return True
    differing = ((code ^ request.tags_code) & 0xFFFFFFFFFFFFFFFF).bit_count()
    return differing == 1 or code < request.store_timestamp_ms


def check_record(
    view: memoryview,
    position: int,
    physical_offset: int,
    delay_levels_ms: Sequence[int],
    *,
    sums: RangeSums | None = None,
) -> DispatchRequest | None:
    """Read a record of which nothing is known; None for the blank that closes a file. `sums` of
    `view`: for who looks at many places that may lie in one another.

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
    crc, claimed_offset = _CRC_AND_PLACE.unpack_from(view, position)
    if claimed_offset != physical_offset:
        raise CorruptRecord(f"the record at {physical_offset} says it lies at {claimed_offset}")
    if sums is not None or not is_whole(view, position):
        record = view[position : position + size]
        body_at, body_end, _, _, _ = whole_parts_of(record, physical_offset)
        if sums is None:
            found = crc32(record[body_at:body_end])
        else:
            found = sums.of(position + body_at, position + body_end)
        if found & 0x7FFFFFFF != crc:
            raise CorruptRecord(f"the body at {physical_offset} does not match its CRC")
    try:
        request = glance(view, position, delay_levels_ms)
    except UnicodeDecodeError as error:
        raise CorruptRecord(f"the topic at {physical_offset} is not text") from error
    assert request is not None, "a blank with the magic of a record"
    if not is_plain_topic(request.topic) or request.queue_id < 0:
        raise CorruptRecord(f"no queue is called {request.topic!r} {request.queue_id}")
    if request.properties.endswith(b"\0") or UNWRITTEN in request.properties:
        raise CorruptRecord(f"the properties at {physical_offset} were not written to their end")
    try:
        request.properties.decode()
    except UnicodeDecodeError as error:
        raise CorruptRecord(f"the properties at {physical_offset} are not text") from error
    return request


Parts = tuple[int, int, int, int, int]
"""Where body and topic of a record begin and end, in this order, then where its properties end. The
lengths of topic and properties lie before them.
"""


def parts_of(record: memoryview, physical_offset: int) -> Parts:
    """Where the parts lie in the record that `record` begins with, as its lengths say.

    There must be RECORD_BYTES_MIN bytes. Raises CorruptRecord, naming `physical_offset`, when the
    lengths cannot be right: one is negative, or leads out of these bytes.
    """
    size = len(record)
    sys_flag = _INT.unpack_from(record, 36)[0]
    body_at = HEADS[sys_flag & (BORN_HOST_V6 | STORE_HOST_V6)].size
    if size < body_at + 3:
        raise CorruptRecord(f"size {size} at {physical_offset} is too short")
    body_length = _INT.unpack_from(record, body_at - 4)[0]
    body_end = body_at + body_length
    topic_at = body_end + (2 if _INT.unpack_from(record, 4)[0] == MAGIC_V2 else 1)
    if body_length < 0 or topic_at + 2 > size:
        raise CorruptRecord(f"body length {body_length} at {physical_offset} does not fit {size}")
    topic_length = (
        record[body_end] if topic_at == body_end + 1 else _SHORT.unpack_from(record, body_end)[0]
    )
    topic_end = topic_at + topic_length
    if topic_length <= 0 or topic_end + 2 > size:
        raise CorruptRecord(f"topic length {topic_length} at {physical_offset} does not fit {size}")
    end = topic_end + 2 + _SHORT.unpack_from(record, topic_end)[0]
    return body_at, body_end, topic_at, topic_end, end


def whole_parts_of(record: memoryview, physical_offset: int) -> Parts:
    """As `parts_of`, of a record that fills `record` exactly. Raises CorruptRecord."""
    parts = parts_of(record, physical_offset)
    if parts[-1] != len(record):
        raise CorruptRecord(
            f"lengths of the record at {physical_offset} add up to {parts[-1]}, not {len(record)}"
        )
    return parts


def is_whole(view: memoryview, position: int) -> bool:
    """Do magic, lengths and CRC of a record agree, whose size is known to fit? A tenth of what
    `check_record` looks at; False as well where that one has to decide. Hot.
    """
    size, magic, crc, sys_flag, body_length = _LEAN.unpack_from(view, position)
    properties_at = position + _HEAD_BYTES + body_length
    end = position + size
    if (
        magic != MAGIC_V1
        or sys_flag & (BORN_HOST_V6 | STORE_HOST_V6)
        or not 0 <= body_length < size - _HEAD_BYTES
    ):
        return False
    properties_at += 1 + view[properties_at]
    if properties_at + 2 > end:
        return False
    if properties_at + 2 + _SHORT.unpack_from(view, properties_at)[0] != end:
        return False
    body_at = position + _HEAD_BYTES
    return crc32(view[body_at : body_at + body_length]) & 0x7FFFFFFF == int(crc)


PlainRecord = tuple[int, str, int, int, int, int]
"""Size, topic, queue id, queue offset, flags, and when the message was stored (ms)."""


def plain_record(data: bytes, position: int, end: int, physical_offset: int) -> PlainRecord | None:
    """A record that ends by `end` and of which nothing else is known, when `check_record` would
    find it sound; None where that one has to decide: it is damaged, or of another kind than most.

    There must be RECORD_BYTES_MIN bytes at `position`. Hot.
    """
    fields = _PLAIN.unpack_from(data, position)
    size, magic, crc, queue_id, queue_offset, place, sys_flag, stored_ms, body_length = fields
    body_at = position + _HEAD_BYTES
    if (
        magic != MAGIC_V1
        or place != physical_offset
        or sys_flag & (BORN_HOST_V6 | STORE_HOST_V6)
        or queue_id < 0
        or not 0 <= body_length < size - _HEAD_BYTES
        or position + size > end
        or size > RECORD_BYTES_MAX
    ):
        return None
    topic_at = body_at + body_length
    rest = data[topic_at : position + size]
    properties_at, rest_bytes = 3 + rest[0], len(rest)
    if properties_at > rest_bytes:
        return None
    properties = rest[properties_at:]
    topic = _plain_topic(rest[1 : properties_at - 2])
    if (
        topic is None
        or rest[properties_at - 2] << 8 | rest[properties_at - 1] != len(properties)
        or not properties.isascii()
        or (properties and not properties[-1])
        or (rest_bytes >= len(UNWRITTEN) and UNWRITTEN in properties)
        or crc32(data[body_at:topic_at]) & 0x7FFFFFFF != crc
    ):
        return None
    return size, topic, queue_id, queue_offset, sys_flag, stored_ms


@lru_cache(NAMES_REMEMBERED_MAX)
def _plain_topic(encoded: bytes) -> str | None:
    topic = encoded.decode("utf-8", "replace")
    return topic if is_plain_topic(topic) else None


def is_of_topic(view: memoryview, position: int, topic: bytes) -> bool:
    """Does a record whose size is known to fit name this topic? False as well where its lengths
    lead astray. Hot.
    """
    size, magic, sys_flag, body_length = _NAMING.unpack_from(view, position)
    topic_at = position + _HEAD_BYTES
    if sys_flag & (BORN_HOST_V6 | STORE_HOST_V6):
        head_bytes = HEADS[sys_flag & (BORN_HOST_V6 | STORE_HOST_V6)].size
        if size < head_bytes:
            return False
        topic_at = position + head_bytes
        body_length = _INT.unpack_from(view, topic_at - 4)[0]
    if not 0 <= body_length < size:
        return False
    topic_at += body_length
    if topic_at + 2 > len(view):
        return False
    length = view[topic_at]
    if magic == MAGIC_V2:
        topic_at += 1
        length = length << 8 | view[topic_at]
    begin = topic_at + 1
    return bool(length == len(topic) and view[begin : begin + length] == topic)


def properties_of(record: memoryview) -> bytes:
    """Property string of a whole record; empty where its lengths lead astray."""
    try:
        _, _, _, topic_end, _ = parts_of(record, 0)
    except CorruptRecord:
        return b""
    return bytes(record[topic_end + 2 :])


def store_timestamp_of(record: memoryview) -> int:
    """Store time (ms) of a whole record."""
    born_v6 = _INT.unpack_from(record, 36)[0] & BORN_HOST_V6
    stored_ms: int = _LONG.unpack_from(record, 68 if born_v6 else 56)[0]
    return stored_ms


def keys_at_most(request: DispatchRequest) -> int:
    """What it costs to dispatch a record, whose KEYS may be the 16,000 that its properties hold."""
    return 1 + request.properties.count(b" ")
