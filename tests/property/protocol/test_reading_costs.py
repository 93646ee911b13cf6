"""What reading costs grows as the bytes do, whatever the bytes: eight times as many take eight
times as long, give or take what a busy machine does, and never 64 times.

Rows: Limits, Wire.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import pytest

from engine.foundation.errors import ConfigError, ProtocolError, RequestRefused
from engine.foundation.java_properties import parse
from engine.foundation.limits import (
    FILTER_EXPRESSION_CHARS_MAX,
    LOOSE_BODY_BYTES_MAX,
    LOOSE_KEYS_MAX,
    MEMBER_ANSWER_QUEUES_MAX,
)
from engine.protocol.bodies import ConsumerRunningInfo, HeartbeatData, SubscriptionData
from engine.protocol.fastjson import loads
from engine.protocol.frames import FrameDecoder
from engine.protocol.properties import decode_properties
from engine.protocol.sql92 import compile_selector
from engine.protocol.tag_bits import split_tags

GROWTH = 8
TIMES_MAX = 3 * GROWTH
"""Three times linear; what is quadratic takes GROWTH * GROWTH."""

LOOSE = [
    "{0:1},", '{{"a":1}:1},', "{", "[", "}", ",", ", ", '"', '"a",', '"\\', '"\\u00e9",', "1,",
    "1:1,", "{},", '{"a":1},', '{"a":', '{"a":1,', '{{"a":1,', '{{"a":1}', "1234567890123456789,",
    "{ ", " ", "-", "1", "1.", "1e", "\x00", "é", "tru", '{"a":"', "{{}:", "{1:", '{"a" ', ",1 ",
    ",{", ',{"":1',
]  # fmt: skip
"""Pieces; a document of many of one kind leads a reader into whatever it repeats."""


def cpu_s(work: Callable[[], object]) -> float:
    """The least of three tries, refused or not."""
    least = float("inf")
    for _ in range(3):
        begun = time.thread_time()
        with contextlib.suppress(ProtocolError, RequestRefused, ConfigError):
            work()
        least = min(least, time.thread_time() - begun)
    return least


def check_linear(work: Callable[[int], Callable[[], object]], *, small: int) -> None:
    """`work(n)` does something with n bytes; from `small` on it must be linear."""
    short, long = cpu_s(work(small)), cpu_s(work(small * GROWTH))
    assert long <= TIMES_MAX * max(short, 0.000_2), (short, long)


@pytest.mark.parametrize("piece", LOOSE)
@pytest.mark.parametrize("head", ["[{1:1},", '{"a":1,'])
def test_a_loose_document_costs_as_much_as_it_is_long(head: str, piece: str) -> None:
    check_linear(
        lambda size: lambda: loads(head + piece * (size // len(piece)) + "}"), small=8 * 1024
    )


@pytest.mark.parametrize("piece", LOOSE)
def test_the_longest_loose_body_costs_50_ms_at_most(piece: str) -> None:
    body = (
        '{"clientID":"c","a":[' + piece * (LOOSE_BODY_BYTES_MAX // len(piece.encode()))
    ).encode()
    cost_s = cpu_s(lambda: HeartbeatData.decode(body[:LOOSE_BODY_BYTES_MAX]))
    assert cost_s < 0.1, "twice what it may, because other work shares the machine"


@pytest.mark.parametrize("piece", ["a=b\n", "\\u0041", "a", "\\", "=", "\\\n", "#", " "])
def test_settings_cost_as_much_as_they_are_long(piece: str) -> None:
    check_linear(lambda size: lambda: parse(piece * (size // len(piece))), small=4 * 1024)


@pytest.mark.parametrize("piece", ["a||", "|", "||", " ", "a", "a ||b"])
def test_tags_cost_as_much_as_they_are_long(piece: str) -> None:
    check_linear(lambda size: lambda: split_tags(piece * (size // len(piece))), small=8 * 1024)


@pytest.mark.parametrize("piece", ["a\x01b\x02", "\x01", "\x02", "a\x01", "a", "\x01\x02"])
def test_properties_cost_as_much_as_they_are_long(piece: str) -> None:
    check_linear(
        lambda size: lambda: decode_properties(piece * (size // len(piece))), small=4 * 1024
    )


@pytest.mark.parametrize(
    "piece",
    ["a>1 AND ", "a OR ", "NOT ", "(", "-", "'", "''", "a IN ('x') AND ", "a+", "1", " ", "a.", '"',
     "a BETWEEN 1 AND 2 AND ", "a IS NOT NULL AND ", "a CONTAINS 'x' AND ", "/*", "--", "1e", "0x"],
)  # fmt: skip
def test_selectors_cost_as_much_as_they_are_long(piece: str) -> None:
    small = FILTER_EXPRESSION_CHARS_MAX // GROWTH
    check_linear(
        lambda size: (
            lambda: compile_selector((piece * (size // len(piece) + 1))[: size - 4] + " a=1")
        ),
        small=small,
    )


@pytest.mark.parametrize(
    "piece",
    ['"a%d":"b",', '"a%d":1,', '"a%d":1e5,', '"a%d":{"b":[1,2]},', '"a%d":"\\u0041",', '{"a%d":'],
)
def test_headers_cost_as_much_as_they_are_long(piece: str) -> None:
    def decoding(size: int) -> Callable[[], object]:
        fields = "".join(piece % number for number in range(size // len(piece)))
        header = f'{{"code":1,"extFields":{{{fields}"z":1}}}}'.encode()
        frame = (len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
        return lambda: FrameDecoder().feed(frame)

    check_linear(decoding, small=16 * 1024)


def test_a_number_of_very_many_digits_costs_next_to_nothing() -> None:
    for digits in ("1" * 250_000, "1" * 250_000 + "e5", "0." + "1" * 250_000, "1e" + "1" * 250_000):
        header = f'{{"code":1,"extFields":{{"a":{digits}}}}}'.encode()[:260_000]
        frame = (len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
        assert cpu_s(lambda frame=frame: FrameDecoder().feed(frame)) < 0.05  # type: ignore[misc]
        assert cpu_s(lambda digits=digits: loads(digits)) < 0.05  # type: ignore[misc]


def test_of_what_is_not_strict_json_less_is_read() -> None:
    loose = '{"clientID":"c","x":{1:"%s"}}'
    longest = loose % ("a" * (LOOSE_BODY_BYTES_MAX - len(loose) + 2))
    assert HeartbeatData.decode(longest.encode()).client_id == "c"
    with pytest.raises(ProtocolError, match=f"at most {LOOSE_BODY_BYTES_MAX}"):
        HeartbeatData.decode((longest + " ").encode())
    strict = '{"clientID":"c","x":"%s"}' % ("a" * LOOSE_BODY_BYTES_MAX)
    assert HeartbeatData.decode(strict.encode()).client_id == "c"


def test_keys_that_strict_json_lacks_are_counted() -> None:
    table = "{" + ",".join(f"{number}:1" for number in range(LOOSE_KEYS_MAX)) + "}"
    assert len(loads(table)) == LOOSE_KEYS_MAX
    with pytest.raises(ProtocolError, match=str(LOOSE_KEYS_MAX)):
        loads(f"[{table},{{1:1}}]")


def test_a_member_reports_so_many_queues_at_most() -> None:
    def answer(count: int) -> bytes:
        queues = (
            f'{{"brokerName":"b","queueId":{number},"topic":"t"}}:{{"commitOffset":{number}}}'
            for number in range(count)
        )
        return ('{"properties":{},"mqTable":{' + ",".join(queues) + "}}").encode()

    info = ConsumerRunningInfo.decode(answer(MEMBER_ANSWER_QUEUES_MAX))
    assert len(info.mq_table) == MEMBER_ANSWER_QUEUES_MAX
    with pytest.raises(ProtocolError, match=str(MEMBER_ANSWER_QUEUES_MAX)):
        ConsumerRunningInfo.decode(answer(MEMBER_ANSWER_QUEUES_MAX + 1))


def test_a_very_long_expression_of_a_pull_is_refused() -> None:
    with pytest.raises(RequestRefused, match="at most"):
        SubscriptionData.build("t", "a||" * 100_000)
