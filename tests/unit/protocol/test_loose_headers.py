"""Headers with numbers and truth values where the protocol has text, read as RocketMQ 5.5 does.

The expected texts were printed by RocketMQ's own RemotingCommand.decode for the same bytes.
"""

from __future__ import annotations

import struct

import pytest

from engine.protocol.command import RemotingCommand
from engine.protocol.frames import FrameDecoder

RECORDED = {
    "1": "1",
    "-7": "-7",
    "-0": "0",
    "1.5": "1.5",
    "0.10": "0.10",
    "12345678901234567890123": "12345678901234567890123",
    "1e5": "100000.0",
    "1.50e2": "150.0",
    "1.25E-2": "0.0125",
    "1e-3": "0.001",
    "1e-5": "1.0E-5",
    "1e7": "1.0E7",
    "-3e9": "-3.0E9",
    "123456789e3": "1.23456789E11",
    "1.5e300": "1.5E300",
    "1E400": "Infinity",
    "true": "true",
    "false": "false",
    '"x"': "x",
    "{}": "{}",
    "[]": "[]",
    '{"b":1, "a":[1,2]}': '{"b":1,"a":[1,2]}',
    '[1, "x"]': '[1,"x"]',
}


def read(header: str) -> RemotingCommand:
    """The one command of a frame with this header."""
    data = header.encode()
    [command] = FrameDecoder().feed(struct.pack(">iI", 4 + len(data), len(data)) + data)
    return command


@pytest.mark.parametrize(("sent", "text"), RECORDED.items(), ids=RECORDED)
def test_a_field_becomes_the_text_that_rocketmq_makes_of_it(sent: str, text: str) -> None:
    command = read(f'{{"code":310,"opaque":7,"extFields":{{"k":{sent},"plain":"text"}}}}')
    assert command.fields == {"k": text, "plain": "text"}
    assert (command.code, command.opaque) == (310, 7)


def test_a_field_that_is_null_is_left_out() -> None:
    assert read('{"code":1,"extFields":{"k":null,"n":1}}').fields == {"n": "1"}


def test_of_equal_names_the_last_one_counts() -> None:
    assert read('{"code":1,"extFields":{"k":"v","k":"w"}}').fields == {"k": "w"}
    assert read('{"code":1,"extFields":{"k":1,"k":2}}').fields == {"k": "2"}


def test_the_header_s_own_numbers_may_be_text() -> None:
    command = read('{"code":"310","flag":"2","opaque":"9","version":"513","remark":5}')
    assert (command.code, command.flag, command.opaque, command.version) == (310, 2, 9, 513)
    assert command.remark == "5"
