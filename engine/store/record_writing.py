"""Builds stored records from message drafts (hot path).

Place in the walk: `message_store.put` makes records of drafts; `record_reading` reads
what is made here. Whatever moves a stored message makes a draft of it again and puts that: its
delay is over, its consumer failed on it, its transaction was asked about or has ended.

Invariant: what a draft's record gives dispatch is what would be read from its bytes, which a
property test says. A draft made again has the body, flags, birth, hosts and tries of its message; a
change to one of them is named where it is made. Absent on purpose: files, time, the book-keeping of
queue offsets, what makes a copy part of a transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple
from zlib import crc32

import msgspec

from engine.foundation.errors import CorruptRecord, LocalProtocolError
from engine.foundation.limits import NAMES_REMEMBERED_MAX, PROPERTIES_BYTES_MAX
from engine.protocol.message import MessageExt
from engine.protocol.message_ids import join_host
from engine.protocol.properties import encode_properties
from engine.store.record_reading import (
    BORN_HOST_V6,
    HEADS,
    MAGIC_V1,
    MAGIC_V2,
    SCHEDULE_TOPIC,
    STORE_HOST_V6,
    TOPIC_CHARS_V1_MAX,
    UNWRITTEN,
    DispatchRequest,
    has_queue_offset,
    unit_code,
    whole_parts_of,
)

_SHORT = Struct(">h")
_INT = Struct(">i")
_SYS_FLAG = Struct(">36xi")
_LONG = Struct(">q")
_PLACE = Struct(">qq")
"""Queue offset and physical offset, PLACE_AT in a record."""
PLACE_AT = 20
BORN_HOST_AT = 48
"""The time of storing stands behind the sender's host, which begins here."""


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


def redraft(
    message: MessageExt, topic: str, queue_id: int, properties: Mapping[str, str]
) -> MessageDraft:
    """The draft of a further record of `message`."""
    return MessageDraft(
        topic=topic,
        queue_id=queue_id,
        body=message.body,
        properties=encode_properties(properties),
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
        store_host=message.store_host,
        flag=message.flag,
        sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times,
    )


def draft_of(record: memoryview) -> MessageDraft:
    """The draft of a further record, under the same topic and queue, of one whose bytes are still
    in its log: without reading its properties, and without copying its body. Hot.

    Raises CorruptRecord when its lengths do not add up; nothing else is checked.
    """
    try:
        (sys_flag,) = _SYS_FLAG.unpack_from(record)
        head = HEADS[sys_flag & (BORN_HOST_V6 | STORE_HOST_V6)]
        (
            _,
            _,
            _,
            queue_id,
            flag,
            _,
            place,
            _,
            born_ms,
            born,
            _,
            stored,
            times,
            prepared,
            _,
        ) = head.unpack_from(record)
    except struct_error as error:
        raise CorruptRecord(f"{len(record)} bytes are no record") from error
    body_at, body_end, topic_at, topic_end, _ = whole_parts_of(record, place)
    return MessageDraft(
        topic=bytes(record[topic_at:topic_end]).decode("utf-8", "replace"),
        queue_id=queue_id,
        body=record[body_at:body_end],
        properties=bytes(record[topic_end + 2 :]),
        born_timestamp_ms=born_ms,
        born_host=_decode_host(born),
        store_host=_decode_host(stored),
        flag=flag,
        sys_flag=sys_flag,
        reconsume_times=times,
        prepared_transaction_offset=prepared,
    )


def draft_again(record: memoryview, checked: DispatchRequest) -> MessageDraft:
    """As `draft_of`, of a record that `check_record` has found sound. Hot."""
    head = HEADS[checked.sys_flag & (BORN_HOST_V6 | STORE_HOST_V6)]
    _, _, _, queue_id, flag, _, _, sys_flag, born_ms, born, _, stored, times, prepared, length = (
        head.unpack_from(record)
    )
    return MessageDraft(
        checked.topic,
        queue_id,
        record[head.size : head.size + length],
        checked.properties,
        born_ms,
        _decode_host(born),
        _decode_host(stored),
        flag,
        sys_flag,
        times,
        prepared,
    )


@lru_cache(NAMES_REMEMBERED_MAX)
def _decode_host(packed: bytes) -> str:
    """`ip:port` of a host as the record has it."""
    return join_host(packed[:-4], _INT.unpack(packed[-4:])[0])


def _encode_host(host: str) -> bytes:
    """`ip:port` as the record has it: 8 bytes, or 20 for IPv6. Raises LocalProtocolError."""
    address, _, port = host.rpartition(":")
    try:
        return ip_address(address.strip("[]")).packed + _INT.pack(int(port))
    except ValueError as error:
        raise LocalProtocolError(f"host {host!r} is not ip:port") from error


class _Form(NamedTuple):
    """What the records of one sender have in common."""

    head: Struct
    born_host: bytes
    store_host: bytes
    sys_flag: int
    takes_queue_offset: bool


@lru_cache(NAMES_REMEMBERED_MAX)
def _form_for(sys_flag: int, born_host: str, store_host: str) -> _Form:
    """Raises LocalProtocolError for a host that is no address."""
    born, stored = _encode_host(born_host), _encode_host(store_host)
    hosts = (BORN_HOST_V6 if len(born) > 8 else 0) | (STORE_HOST_V6 if len(stored) > 8 else 0)
    sys_flag = sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6) | hosts
    return _Form(HEADS[hosts], born, stored, sys_flag, has_queue_offset(sys_flag))


@lru_cache(NAMES_REMEMBERED_MAX)
def _topic_part(topic: str) -> tuple[int, bytes]:
    """The magic number, and the name with its length before it."""
    encoded = topic.encode()
    if len(topic) > TOPIC_CHARS_V1_MAX:
        return MAGIC_V2, _SHORT.pack(len(encoded)) + encoded
    return MAGIC_V1, bytes((len(encoded),)) + encoded


class DraftRecord:
    """A draft in encoded pieces: its length is known before its place is."""

    __slots__ = (
        "_form",
        "_magic",
        "_properties",
        "_topic",
        "draft",
        "size_bytes",
        "takes_queue_offset",
    )

    def __init__(self, draft: MessageDraft) -> None:
        properties = draft.properties
        encoded = properties.encode() if isinstance(properties, str) else properties
        if encoded.endswith(b"\0"):
            encoded += b"\x02"  # The separator may be there; a zero at the end may not.
        if UNWRITTEN in encoded:
            raise LocalProtocolError("properties with 512 zero bytes in a row look like lost ones")
        if len(encoded) > PROPERTIES_BYTES_MAX:
            raise LocalProtocolError(
                f"{len(encoded)} bytes of properties do not fit a record "
                f"(at most {PROPERTIES_BYTES_MAX})"
            )
        self.draft, self._properties = draft, encoded
        self._form = form = _form_for(draft.sys_flag, draft.born_host, draft.store_host)
        self._magic, self._topic = _topic_part(draft.topic)
        self.takes_queue_offset = form.takes_queue_offset
        self.size_bytes = (
            form.head.size + len(draft.body) + len(self._topic) + _SHORT.size + len(encoded)
        )

    @property
    def stored_at(self) -> int:
        """Where the time of storing stands in the record."""
        return BORN_HOST_AT + len(self._form.born_host)

    def encode(self, queue_offset: int, physical_offset: int, store_timestamp_ms: int) -> bytes:
        """The record's bytes at its place. Hot."""
        draft, properties = self.draft, self._properties
        body = draft.body
        head, born_host, store_host, sys_flag, _ = self._form
        packed = head.pack(
            self.size_bytes,
            self._magic,
            crc32(body) & 0x7FFFFFFF,
            draft.queue_id,
            draft.flag,
            queue_offset,
            physical_offset,
            sys_flag,
            draft.born_timestamp_ms,
            born_host,
            store_timestamp_ms,
            store_host,
            draft.reconsume_times,
            draft.prepared_transaction_offset,
            len(body),
        )
        return b"".join((packed, body, self._topic, _SHORT.pack(len(properties)), properties))

    def request(
        self,
        queue_offset: int,
        physical_offset: int,
        store_timestamp_ms: int,
        delay_levels_ms: Sequence[int],
    ) -> DispatchRequest:
        """What `glance` would read at its place. Hot."""
        draft, properties = self.draft, self._properties
        topic, sys_flag = draft.topic, self._form.sys_flag
        return DispatchRequest(
            topic,
            draft.queue_id,
            queue_offset,
            physical_offset,
            self.size_bytes,
            unit_code(
                topic,
                sys_flag,
                properties,
                stored_ms=store_timestamp_ms,
                delay_levels_ms=delay_levels_ms,
            ),
            store_timestamp_ms,
            sys_flag,
            properties,
        )


class PutResult(msgspec.Struct):
    """Where a message was stored."""

    queue_offset: int
    physical_offset: int
    size_bytes: int
    store_timestamp_ms: int
    end_offset: int
    """First byte behind the record: what `when_flushed` wants."""


class Placed(msgspec.Struct):
    """Records of one write, at their places."""

    encoded: bytearray
    requests: list[DispatchRequest]
    results: list[PutResult]
    next_queue_offset: int


class BatchDraft:
    """Messages for one queue that are to lie one behind the other, encoded but for their places.

    To add a message is nearly all of the work, and can be done in many steps of the event loop; to
    place them all is a microsecond for each.
    """

    __slots__ = (
        "_delay_levels_ms",
        "_encoded",
        "_records",
        "_requests",
        "_starts",
        "_stored_at",
        "longest_bytes",
    )

    def __init__(self, delay_levels_ms: Sequence[int]) -> None:
        self.longest_bytes = 0
        """Of the longest record."""
        self._delay_levels_ms = delay_levels_ms
        self._records: list[DraftRecord] = []
        self._requests: list[DispatchRequest] = []
        self._starts: list[int] = []
        self._stored_at: list[int] = []
        self._encoded = bytearray()

    def __len__(self) -> int:
        """How many messages there are."""
        return len(self._records)

    @property
    def size_bytes(self) -> int:
        """Of all records."""
        return len(self._encoded)

    @property
    def drafts(self) -> list[MessageDraft]:
        """What was added."""
        return [record.draft for record in self._records]

    @property
    def first(self) -> MessageDraft:
        """The first message; there must be one."""
        return self._records[0].draft

    def add(self, draft: MessageDraft) -> None:
        """One more, for the same queue. Raises LocalProtocolError for what no record can hold."""
        record = DraftRecord(draft)
        assert not self._records or (draft.topic, draft.queue_id) == (
            self.first.topic,
            self.first.queue_id,
        ), "one queue a batch"
        start = len(self._encoded)
        self._starts.append(start)
        self._stored_at.append(start + record.stored_at)
        self._encoded += record.encode(0, 0, 0)
        self.longest_bytes = max(self.longest_bytes, record.size_bytes)
        self._records.append(record)
        self._requests.append(record.request(0, 0, 0, self._delay_levels_ms))

    def place(self, queue_offset: int, physical_offset: int, stored_ms: int) -> Placed:
        """The records, the first at this place. Hot."""
        encoded, results = self._encoded, []
        end = physical_offset
        each = zip(self._records, self._requests, self._starts, self._stored_at, strict=True)
        for record, request, start, stored_at in each:
            placed_at = queue_offset if record.takes_queue_offset else 0
            _PLACE.pack_into(encoded, start + PLACE_AT, placed_at, end)
            _LONG.pack_into(encoded, stored_at, stored_ms)
            request.queue_offset, request.physical_offset = placed_at, end
            request.store_timestamp_ms = stored_ms
            size_bytes = record.size_bytes
            results.append(PutResult(placed_at, end, size_bytes, stored_ms, end + size_bytes))
            end += size_bytes
            queue_offset += record.takes_queue_offset
        if self.first.topic == SCHEDULE_TOPIC:  # The time of storing decides when it is due.
            for record, request in zip(self._records, self._requests, strict=True):
                due = record.request(0, 0, stored_ms, self._delay_levels_ms)
                request.tags_code = due.tags_code
        return Placed(encoded, self._requests, results, queue_offset)
