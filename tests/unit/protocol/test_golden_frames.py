"""Frames made by RocketMQ's own code, and messages captured on its wire: we read and write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.protocol.codes import RequestCode
from engine.protocol.command import RemotingCommand, SerializeType
from engine.protocol.frames import FrameDecoder, encode_frame, encode_parts
from engine.protocol.message_record import decode_records

CASES = Path(__file__).parents[2] / "cases"
FRAMES: list[dict[str, Any]] = json.loads((CASES / "remoting_frames.json").read_text("utf-8"))[
    "frames"
]
EXCHANGES: list[dict[str, Any]] = json.loads((CASES / "wire_samples.json").read_text("utf-8"))[
    "exchanges"
]


def decoded(data: bytes) -> RemotingCommand:
    [command] = FrameDecoder().feed(data)
    return command


@pytest.mark.parametrize("case", FRAMES, ids=lambda c: f"{c['serializeType']}-{c['code']}")
def test_a_frame_of_rocketmq_reads_as_it_was_meant(case: dict[str, Any]) -> None:
    command = decoded(bytes.fromhex(case["frameHex"]))
    assert (command.code, command.opaque, command.flag) == (
        *(case["code"], case["opaque"], case["flag"]),
    )
    assert (command.language, command.version) == (case["language"], case["version"])
    assert command.remark == case["remark"]
    assert command.fields == (case["extFields"] or {})
    assert bytes(command.body).hex() == (case["bodyHex"] or "")
    assert command.serialize_type is SerializeType[case["serializeType"]]


@pytest.mark.parametrize("case", FRAMES, ids=lambda c: f"{c['serializeType']}-{c['code']}")
def test_a_frame_of_ours_says_the_same_as_rocketmqs(case: dict[str, Any]) -> None:
    theirs = decoded(bytes.fromhex(case["frameHex"]))
    ours = encode_frame(theirs)
    assert decoded(ours) == theirs
    head, body = encode_parts(theirs)
    assert head + bytes(body) == ours


def test_binary_frames_have_rocketmqs_length() -> None:
    for case in FRAMES:
        if case["serializeType"] == "ROCKETMQ":
            theirs = bytes.fromhex(case["frameHex"])
            assert len(encode_frame(decoded(theirs))) == len(theirs)


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda e: e["name"])
def test_what_was_captured_survives_both_header_types(exchange: dict[str, Any]) -> None:
    assert RequestCode(exchange["requestCode"]).name == exchange["name"]
    for message in exchange["messages"]:
        body = bytes.fromhex(message.get("bodyHex", "")) or message.get("body", "").encode()
        for serialize_type in SerializeType:
            command = RemotingCommand(
                message["code"], message["fields"] or {}, body, message["remark"], 7
            )
            command.serialize_type = serialize_type
            fields = {
                name: value
                for name, value in command.fields.items()
                if value or serialize_type is SerializeType.JSON  # There an empty text is null.
            }
            got = decoded(encode_frame(command))
            assert (got.fields, bytes(got.body), got.remark) == (fields, body, message["remark"])


def test_pulled_bodies_that_were_captured_are_records() -> None:
    answers = [
        message
        for exchange in EXCHANGES
        if exchange["requestCode"] in (RequestCode.PULL_MESSAGE, RequestCode.QUERY_MESSAGE)
        for message in exchange["messages"]
        if message.get("bodyHex")
    ]
    assert answers
    for answer in answers:
        records = decode_records(bytes.fromhex(answer["bodyHex"]))
        assert records
        assert all(record.topic == "TopicCap" for record in records)
        assert sum(r.store_size_bytes for r in records) == len(answer["bodyHex"]) // 2


def test_a_response_has_its_requests_type_and_opaque() -> None:
    for serialize_type in SerializeType:
        request = RemotingCommand(11, opaque=42, serialize_type=serialize_type)
        response = decoded(encode_frame(request.respond(0, "FOUND", {"minOffset": "0"}, b"x")))
        assert response.is_response
        assert not response.is_oneway
        assert (response.opaque, response.serialize_type) == (42, serialize_type)
