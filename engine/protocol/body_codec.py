"""Converts JSON bodies to and from declared structures and enumerations.

Place in the walk: between a frame's body and the handler or client that understands it. Java
clients write the names of enumerations; clients built on the C++ library write numbers, which
RocketMQ's JSON library reads as places.

Invariant: reading takes strict JSON by one typed decoder, and anything else through `fastjson`;
both give the same value, and only RemoteProtocolError comes out. Absent on purpose: which bodies
there are (bodies_client, bodies_broker), numbers of enumerations on the way out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar

import msgspec

from engine.foundation.errors import LocalProtocolError, RemoteProtocolError
from engine.foundation.limits import LOOSE_BODY_BYTES_MAX, LOOSE_BODY_KEYS_MAX
from engine.foundation.units import Buffer
from engine.protocol import fastjson
from engine.protocol.command import LANGUAGES
from engine.protocol.header_fields import Int64
from engine.protocol.message import MessageQueue

Value = TypeVar("Value")


class Part(msgspec.Struct, rename="camel"):
    """Something inside a body, or a body."""

    def to_json(self) -> dict[str, Any]:
        """As plain values, under the names on the wire."""
        built: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return built

    @classmethod
    def from_json(cls, document: object) -> Self:
        """From plain values; unknown names are passed over. Raises RemoteProtocolError."""
        return convert(document, cls)


class Body(Part):
    """A body that is JSON as everybody knows it, when it is ours."""

    loose_bytes_max: ClassVar[Int64] = LOOSE_BODY_BYTES_MAX
    """A longer one that is not strict JSON is refused."""

    def encode(self) -> bytes:
        """As bytes. Raises LocalProtocolError when a text is none."""
        try:
            return msgspec.json.encode(self)
        except UnicodeEncodeError as error:
            raise LocalProtocolError(f"{type(self).__name__}: {error}") from error

    @classmethod
    def decode(cls, body: Buffer) -> Self:
        """From bytes. Raises RemoteProtocolError naming the field that is wrong."""
        try:
            return msgspec.json.decode(body, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            # Not strict: fastjson's, or wrong. The way there is longer, so the body is shorter.
            if len(body) > cls.loose_bytes_max:
                raise RemoteProtocolError(
                    f"{cls.__name__} of {len(body)} bytes that is not strict JSON ({error}): "
                    f"at most {cls.loose_bytes_max} are read"
                ) from error
            return convert(fastjson.loads(body, keys_max=LOOSE_BODY_KEYS_MAX), cls)


def convert(document: object, kind: type[Value]) -> Value:
    """Plain values as a declared structure. Raises RemoteProtocolError naming the field."""
    try:
        return msgspec.convert(document, kind, strict=False, str_keys=True)
    except (msgspec.ValidationError, RecursionError) as error:
        raise RemoteProtocolError(f"{getattr(kind, '__name__', kind)}: {error}") from error


def table_of(document: object, name: str) -> dict[Any, Any]:
    """The table `name` of a document; empty when it is missing. Raises RemoteProtocolError."""
    if not isinstance(document, dict):
        raise RemoteProtocolError(f"{type(document).__name__}, not an object with {name}")
    table = document.get(name)
    if table is None:
        return {}
    if not isinstance(table, dict):
        raise RemoteProtocolError(f"{name} is a {type(table).__name__}, not a table")
    return table


class WireQueue(Part):
    """A MessageQueue as JSON has it."""

    broker_name: str
    queue_id: Int64
    topic: str

    @classmethod
    def of(cls, queue: MessageQueue) -> Self:
        """To JSON."""
        return cls(queue.broker_name, queue.queue_id, queue.topic)

    def queue(self) -> MessageQueue:
        """From JSON."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


def queue_key(queue: MessageQueue) -> fastjson.ObjectKey:
    """A queue as the key of a table."""
    return (
        ("brokerName", queue.broker_name),
        ("queueId", queue.queue_id),
        ("topic", queue.topic),
    )


def by_queue(table: Mapping[Any, object], kind: type[Value]) -> dict[MessageQueue, Value]:
    """A table with queues as keys, its values as `kind`. Raises RemoteProtocolError."""
    queues: dict[MessageQueue, Value] = {}
    for key, value in table.items():
        if not isinstance(key, tuple):
            raise RemoteProtocolError(f"the key {key!r} is no queue")
        queues[WireQueue.from_json(dict(key)).queue()] = convert(value, kind)
    return queues


def encode_object_keyed(name: str, table: Mapping[MessageQueue, object], **others: object) -> bytes:
    """`{"<name>":{{queue}:value, ...}}` and other members, as fastjson writes it."""
    return fastjson.dumps({**others, name: _keyed(table)})


def encode_entries_object_keyed(table: Mapping[MessageQueue, object]) -> bytes:
    """`{queue}:value, ...`: some entries of such a table, without its braces."""
    return fastjson.dumps(_keyed(table))[1:-1]


def _keyed(table: Mapping[MessageQueue, object]) -> dict[Any, object]:
    return {
        queue_key(queue): value.to_json() if isinstance(value, Part) else value
        for queue, value in table.items()
    }


def encode_document(document: Mapping[str, object]) -> bytes:
    """A document of plain values that has no structure of its own here."""
    return fastjson.dumps(document)


def decode_offset_table(body: Buffer) -> dict[MessageQueue, int]:
    """Queue offsets by queue (codes 220, 222; offsets.json). Raises RemoteProtocolError."""
    return by_queue(table_of(fastjson.loads(body), "offsetTable"), int)


def decode_local_offsets(data: Buffer) -> dict[MessageQueue, int]:
    """A broadcast consumer's offsets.json (row A2). Raises RemoteProtocolError."""
    return decode_offset_table(data)


def encode_local_offsets(offsets: Mapping[MessageQueue, int]) -> bytes:
    """A broadcast consumer's offsets.json."""
    return encode_object_keyed("offsetTable", offsets)


if TYPE_CHECKING:
    EnumName = str
else:
    EnumName = str | Int64
    """A name once the structure is made; on the wire a number as well."""

CONSUME_TYPES: Final = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS: Final = ("BROADCASTING", "CLUSTERING", "LITE_SELECTIVE")
CONSUME_FROM_WHERE: Final = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
TOPIC_FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")
CONSUME_RESULTS: Final = (
    *("CR_SUCCESS", "CR_LATER", "CR_ROLLBACK", "CR_COMMIT", "CR_THROW_EXCEPTION"),
    "CR_RETURN_NULL",
)
REQUEST_MODES: Final = ("PULL", "POP")


def enum_name(value: str | int | None, names: Sequence[str], field: str) -> str:
    """The name in `names` that was given, or that has the place given.

    Raises ValueError, which decoders turn into RemoteProtocolError.
    """
    if isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    if isinstance(value, str) and value in names:
        return value
    raise ValueError(
        f"{field} {str(value)[:40]!r} is none of {', '.join(names)}, nor a place in that order"
    )


def language_name(value: str | int) -> str:
    """As `enum_name`; peers of a later release may have a language that is not known here."""
    if isinstance(value, int):
        return LANGUAGES[value] if 0 <= value < len(LANGUAGES) else "OTHER"
    return value
