"""Parses remoting frames from a byte stream and builds them from commands (hot path).

    int32 length of all that follows | int32 serialize type << 24 | header length | header | body

    header, JSON:      {"code":.., "flag":.., "language":"JAVA", "opaque":.., "version":..,
                        "remark":.., "extFields":{..}, ..}
    header, ROCKETMQ:  int16 code | int8 language | int16 version | int32 opaque | int32 flag
                       | int32 length, remark
                       | int32 length, repeated (int16 length, key, int32 length, value)

Place in the walk: between the socket and every handler. Invariant: whatever bytes arrive, either a
command comes out or RemoteProtocolError is raised, and nothing is allocated for a length that was
not checked. Absent on purpose: what a command means.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from struct import error as struct_error
from typing import Any

import msgspec

from engine.foundation.errors import LocalProtocolError, RemoteProtocolError
from engine.foundation.limits import FRAME_BYTES_MAX, HEADER_BYTES_MAX, HEADER_FIELDS_MAX
from engine.protocol.command import LANGUAGES, RemotingCommand, SerializeType
from engine.protocol.fastjson import read_loose_header
from engine.protocol.header_fields import Int32

_LENGTHS = Struct(">iI")  # int32 frame length | uint32 type << 24 + header length
_BINARY_HEAD = Struct(">hbhii")  # code | language | version | opaque | flag
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_HEADER_LENGTH_MAX = 0xFFFFFF


class _JsonHeader(msgspec.Struct):
    code: Int32
    flag: Int32 = 0
    language: str | int | None = None
    opaque: Int32 = 0
    version: Int32 = 0
    remark: str | None = None
    extFields: dict[str, str | None] | None = None  # noqa: N815 - the name on the wire.


class _JsonHeaderWritten(msgspec.Struct):
    """Ours; what is not set is left out."""

    code: int
    flag: int
    language: str
    opaque: int
    serializeTypeCurrentRPC: str  # noqa: N815 - the name on the wire.
    version: int
    extFields: dict[str, str] | msgspec.UnsetType  # noqa: N815
    remark: str | msgspec.UnsetType


_decode_json = msgspec.json.Decoder(_JsonHeader).decode
_encode_json = msgspec.json.Encoder().encode


class FrameDecoder:
    """Collects bytes and gives back every complete frame. One per connection and direction.

    `header_bytes_max` may be changed between two reads: strangers get less than those we know.
    """

    __slots__ = ("_buffer", "fault", "header_bytes_max")

    def __init__(self, header_bytes_max: int = HEADER_BYTES_MAX) -> None:
        self._buffer = bytearray()
        self.header_bytes_max = header_bytes_max
        self.fault: RemoteProtocolError | None = None
        """What is wrong with the bytes behind the last command; the decoder is of no use then."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[RemotingCommand]:
        """All commands that `data` completes, in order; their bodies are copies that outlive it.

        Raises RemoteProtocolError for bytes that are no frame; when commands come before them,
        these are returned, and `fault` states the rest.
        """
        commands: list[RemotingCommand] = []
        try:
            self._feed(data, commands)
        except RemoteProtocolError as error:
            self.fault = error
            if not commands:
                raise
        return commands

    def _feed(self, data: bytes | bytearray | memoryview, commands: list[RemotingCommand]) -> None:
        buffer = self._buffer
        if buffer:
            buffer += data
            source: bytes | bytearray | memoryview = buffer
        else:
            source = data  # Nothing is waiting: decode in place, keep only what is left over.
        position, end, header_max = 0, len(source), self.header_bytes_max
        while end - position >= 8:
            length, marked = _LENGTHS.unpack_from(source, position)
            header_length = marked & _HEADER_LENGTH_MAX
            if not 4 <= length <= FRAME_BYTES_MAX or header_length > length - 4:
                raise _refused_lengths(length, f"{header_length} bytes")
            if header_length > header_max:
                raise RemoteProtocolError(
                    f"a header of {header_length} bytes: at most {header_max} are allowed"
                )
            stop = position + 4 + length
            if stop > end:
                break
            header_end = position + 8 + header_length
            header = bytes(source[position + 8 : header_end])
            command = _decode_header(marked >> 24, header)
            if header_end < stop:
                command.body = bytes(source[header_end:stop])
            commands.append(command)
            position = stop
        if 4 <= end - position < 8:  # Nothing more may come: a wrong length is refused by itself.
            (length,) = _INT32.unpack_from(source, position)
            if not 4 <= length <= FRAME_BYTES_MAX:
                raise _refused_lengths(length, "unknown length")
        if source is buffer:
            del buffer[:position]
        elif position < end:
            buffer += source[position:]


def _refused_lengths(length: int, header: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"frame of {length} bytes with a header of {header}: allowed are 4 to "
        f"{FRAME_BYTES_MAX} bytes, the header inside"
    )


def _decode_header(serialize_type: int, header: bytes) -> RemotingCommand:
    if serialize_type == SerializeType.JSON:
        return _decode_json_header(header)
    if serialize_type == SerializeType.ROCKETMQ:
        return _decode_binary_header(header)
    raise RemoteProtocolError(
        f"serialize type {serialize_type}: allowed are 0 (JSON) and 1 (ROCKETMQ)"
    )


def _decode_json_header(header: bytes) -> RemotingCommand:
    try:
        parsed = _decode_json(header)
    except msgspec.ValidationError:  # JSON, but not all of it is of the kind we write.
        return _decode_loose_header(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"JSON header: {error}") from error
    fields: Any = parsed.extFields
    if fields is None:
        fields = {}
    else:
        _check_count(fields)
        if None in fields.values():
            fields = {key: value for key, value in fields.items() if value is not None}
    return RemotingCommand(
        parsed.code,
        fields,
        b"",
        parsed.remark,
        parsed.opaque,
        parsed.flag,
        _language_name(parsed.language),
        parsed.version,
        SerializeType.JSON,
    )


def _decode_loose_header(header: bytes) -> RemotingCommand:
    parsed, remark, fields = read_loose_header(header)
    _check_count(fields)
    return RemotingCommand(
        _checked(parsed.code, "code"),
        fields,
        b"",
        remark,
        _checked(parsed.opaque, "opaque"),
        _checked(parsed.flag, "flag"),
        _language_name(parsed.language),
        _checked(parsed.version, "version"),
        SerializeType.JSON,
    )


def _check_count(fields: Mapping[str, str | None]) -> None:
    if len(fields) > HEADER_FIELDS_MAX:
        raise RemoteProtocolError(f"{len(fields)} header fields: at most {HEADER_FIELDS_MAX}")


def _checked(value: int, name: str) -> int:
    if not -(2**31) <= value < 2**31:
        raise RemoteProtocolError(f"header {name} {value}: a signed 32-bit number is allowed")
    return value


def _language_name(language: str | int | None) -> str:
    """The name of a language; peers of a later release may send one that we do not know."""
    if isinstance(language, int):
        return LANGUAGES[language] if 0 <= language < len(LANGUAGES) else "OTHER"
    return language if language is not None and len(language) <= 32 else "OTHER"


def _decode_binary_header(header: bytes) -> RemotingCommand:
    try:
        code, language, version, opaque, flag = _BINARY_HEAD.unpack_from(header, 0)
        remark, position = _text(header, 13, _INT32)
        (fields_length,) = _INT32.unpack_from(header, position)
        position += 4
        end = position + fields_length
        if fields_length < 0 or end > len(header):
            raise RemoteProtocolError(f"binary header: {fields_length} bytes of fields do not fit")
        fields: dict[str, str] = {}
        while position < end:
            key, position = _text(header, position, _INT16)
            value, position = _text(header, position, _INT32)
            if key is not None and value is not None:
                fields[key] = value
            if len(fields) > HEADER_FIELDS_MAX:
                raise RemoteProtocolError(f"header fields: at most {HEADER_FIELDS_MAX}")
    except (struct_error, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"binary header: {error}") from error
    return RemotingCommand(
        code,
        fields,
        b"",
        remark,
        opaque,
        flag,
        _language_name(language),
        version,
        SerializeType.ROCKETMQ,
    )


def _text(header: bytes, position: int, width: Struct) -> tuple[str | None, int]:
    """A length-prefixed UTF-8 text and the position behind it; length 0 is null."""
    (length,) = width.unpack_from(header, position)
    start = position + width.size
    if length < 0 or start + length > len(header):
        raise RemoteProtocolError(f"binary header: a text of {length} bytes does not fit")
    return (header[start : start + length].decode() if length else None), start + length


def encode_frame(command: RemotingCommand) -> bytes:
    """The command as one frame. Raises LocalProtocolError for what the format cannot carry."""
    head, body = encode_parts(command)
    return b"".join((head, body, *command.pieces))


def encode_parts(command: RemotingCommand) -> tuple[bytes, bytes | bytearray | memoryview]:
    """Length, header and body apart, so that a large body is not copied.

    The length counts the command's `pieces`, too: they go behind the body.
    """
    if command.serialize_type is SerializeType.JSON:
        header = _encode_json_header(command)
    else:
        header = _encode_binary_header(command)
    header_length, body = len(header), command.body
    length = 4 + header_length + len(body)
    if command.pieces:
        length += sum(map(len, command.pieces))
    if length > FRAME_BYTES_MAX or header_length > _HEADER_LENGTH_MAX:
        raise LocalProtocolError(
            f"a frame of {length} bytes: at most {FRAME_BYTES_MAX} are allowed"
        )
    return _LENGTHS.pack(length, command.serialize_type << 24 | header_length) + header, body


def _encode_json_header(command: RemotingCommand) -> bytes:
    header = _JsonHeaderWritten(
        command.code,
        command.flag,
        command.language,
        command.opaque,
        "JSON",
        command.version,
        command.fields or msgspec.UNSET,
        msgspec.UNSET if command.remark is None else command.remark,
    )
    try:
        return _encode_json(header)
    except (TypeError, ValueError) as error:
        raise LocalProtocolError(f"header that JSON cannot carry: {error}") from error


def _encode_binary_header(command: RemotingCommand) -> bytes:
    fields = bytearray()
    try:
        remark = (command.remark or "").encode()
        for key, value in command.fields.items():
            name, text = key.encode(), value.encode()
            fields += _INT16.pack(len(name)) + name + _INT32.pack(len(text)) + text
        language = LANGUAGES.index(command.language) if command.language in LANGUAGES else 7
        head = _BINARY_HEAD.pack(
            command.code, language, command.version, command.opaque, command.flag
        )
    except (struct_error, UnicodeEncodeError) as error:
        raise LocalProtocolError(
            f"code {command.code} and fields as a binary header: {error}; use JSON"
        ) from error
    return b"".join(
        (head, _INT32.pack(len(remark)), remark, _INT32.pack(len(fields)), bytes(fields))
    )
