"""Hostile and broken frames: only RemoteProtocolError comes out, and lengths are not believed."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from engine.foundation.errors import LocalProtocolError, RemoteProtocolError
from engine.foundation.limits import FRAME_BYTES_MAX, HEADER_BYTES_MAX, HEADER_FIELDS_MAX
from engine.protocol.command import RemotingCommand, SerializeType
from engine.protocol.frames import FrameDecoder, encode_frame

GOOD = encode_frame(RemotingCommand(34, {"a": "b"}, b"body", opaque=3))


def frame(header: bytes, *, kind: int = 0, body: bytes = b"") -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def json_frame(**header: Any) -> bytes:
    return frame(json.dumps({"code": 1} | header).encode())


def binary_frame(rest: bytes) -> bytes:
    return frame(struct.pack(">hbhii", 10, 0, 493, 1, 0) + rest, kind=1)


def field(name: bytes, value: bytes) -> bytes:
    return struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value


def feed_byte_by_byte(decoder: FrameDecoder, data: bytes) -> None:
    for at in range(len(data)):
        decoder.feed(data[at : at + 1])


MALFORMED = {
    "negative length": struct.pack(">iI", -1, 0),
    "zero length": struct.pack(">iI", 0, 0),
    "too short for a header length": struct.pack(">iI", 3, 0),
    "over 16 MiB": struct.pack(">iI", FRAME_BYTES_MAX + 1, 0),
    "largest length": struct.pack(">iI", 2**31 - 1, 0),
    "header longer than its frame": struct.pack(">iI", 10, 7) + b"123456",
    "unknown header type": frame(b"{}", kind=2),
    "no JSON": frame(b"hello"),
    "empty header": frame(b""),
    "JSON that is no object": frame(b"[1]"),
    "no code": frame(b'{"flag":0}'),
    "code is a word": frame(b'{"code":"ten"}'),
    "code of 40 bits": json_frame(code=2**39),
    "opaque of 40 bits": json_frame(opaque=2**39),
    "field value is not a number": frame(b'{"code":1,"extFields":{"queueId":NaN}}'),
    "field value breaks off": frame(b'{"code":1,"extFields":{"queueId":1.}}'),
    "field name is no text": frame(b'{"code":1,"extFields":{5:6}}'),
    "fields are a list": json_frame(extFields=["a"]),
    "too many fields": json_frame(extFields={str(n): "" for n in range(HEADER_FIELDS_MAX + 1)}),
    "JSON is not UTF-8": frame(b'{"code":1,"remark":"\xff\xfe"}'),
    "half a surrogate pair": frame(b'{"code":1,"remark":"\\ud800"}'),
    "100,000 levels": frame(b'{"code":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "2,000 levels in a field": json_frame(extFields={"k": 1}).replace(
        b'"k": 1', b'"k": ' + b"[" * 2000
    ),
    "header over its limit": frame(b'{"code":1,"remark":"' + b"r" * HEADER_BYTES_MAX + b'"}'),
    "integer of a million digits": frame(
        b'{"code":1,"extFields":{"n":' + b"9" * 1_000_000 + b"}}"
    ),
    "a million fields": frame(
        b'{"code":1,"extFields":{' + b",".join(b'"%d":""' % n for n in range(1_000_000)) + b"}}"
    ),
    "binary header cut off": frame(b"\x00\x0a\x00", kind=1),
    "binary remark beyond its header": binary_frame(struct.pack(">i", 100)),
    "binary remark of negative length": binary_frame(struct.pack(">ii", -1, 0)),
    "binary fields beyond their header": binary_frame(struct.pack(">ii", 0, 100)),
    "binary fields of negative length": binary_frame(struct.pack(">ii", 0, -1)),
    "binary field name beyond its header": binary_frame(struct.pack(">iih", 0, 2, 500)),
    "binary field value beyond its header": binary_frame(
        struct.pack(">ii", 0, 7) + struct.pack(">h", 1) + b"a" + struct.pack(">i", 9)
    ),
    "binary field is not UTF-8": binary_frame(
        struct.pack(">ii", 0, len(field(b"\xff", b"v"))) + field(b"\xff", b"v")
    ),
    "binary with too many fields": binary_frame(
        struct.pack(">ii", 0, len(many := b"".join(
            field(str(n).encode(), b"v") for n in range(HEADER_FIELDS_MAX + 2)
        ))) + many
    ),
}  # fmt: skip


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_it_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        FrameDecoder().feed(data)


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_it_is_refused_behind_good_frames_and_byte_by_byte(data: bytes) -> None:
    decoder = FrameDecoder()
    assert len(decoder.feed(GOOD)) == 1
    with pytest.raises(RemoteProtocolError):
        feed_byte_by_byte(decoder, data)


def test_a_huge_length_is_refused_before_any_of_its_bytes_are_kept() -> None:
    decoder = FrameDecoder()
    with pytest.raises(RemoteProtocolError, match=str(FRAME_BYTES_MAX)):
        decoder.feed(struct.pack(">iI", 2**31 - 1, 0) + b"x" * 1000)
    assert decoder.buffered_bytes == 0


def test_a_language_nobody_knows_is_other() -> None:
    unknown = struct.pack(">hbhii", 10, 99, 493, 1, 0) + struct.pack(">ii", 0, 0)
    [binary] = FrameDecoder().feed(frame(unknown, kind=1))
    assert binary.language == "OTHER"


def test_bodies_outlive_the_buffer_they_were_read_from() -> None:
    buffer = bytearray(GOOD)
    [command] = FrameDecoder().feed(memoryview(buffer))
    buffer[:] = b"\0" * len(buffer)
    assert bytes(command.body) == b"body"


def test_codes_beyond_16_bits_do_not_fit_the_binary_header_but_json() -> None:
    pop = RemotingCommand(200_050)
    [read] = FrameDecoder().feed(encode_frame(pop))
    assert read.code == 200_050
    pop.serialize_type = SerializeType.ROCKETMQ
    with pytest.raises(LocalProtocolError, match="200050"):
        encode_frame(pop)


def test_a_body_that_makes_the_frame_too_long_is_our_fault() -> None:
    with pytest.raises(LocalProtocolError, match=str(FRAME_BYTES_MAX)):
        encode_frame(RemotingCommand(10, body=b"x" * FRAME_BYTES_MAX))


@pytest.mark.parametrize("serialize_type", SerializeType)
def test_text_that_is_none_is_our_fault(serialize_type: SerializeType) -> None:
    command = RemotingCommand(10, {"k": "\ud800"}, serialize_type=serialize_type)
    with pytest.raises(LocalProtocolError):
        encode_frame(command)
