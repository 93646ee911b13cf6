"""Frames that are no frames, thrown at a broker: their connection ends with one log line, everybody
else is served, and no memory is taken for lengths that were only claimed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
import tracemalloc
from pathlib import Path

import pytest

from engine.foundation.errors import RemoteProtocolError
from engine.foundation.limits import FRAME_BYTES_MAX, HEADER_BYTES_MAX, STRANGER_HEADER_BYTES_MAX
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.frames import FrameDecoder, encode_frame
from tests.integration.broker.cluster import bodies, broker_config, cluster
from tests.integration.broker.guarded import ACCESS, ROOT, SHOP, Caller

MIB = 1 << 20
DEADLINE_S = 30


def frame(header: bytes, *, kind: int = 0, body: bytes = b"") -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def fields(value: bytes) -> bytes:
    return frame(b'{"code":105,"opaque":1,"extFields":' + value + b"}")


ENDS_THE_CONNECTION = {
    "length 0": struct.pack(">iI", 0, 0),
    "length 1": struct.pack(">iI", 1, 0),
    "negative length": struct.pack(">iI", -1, 0),
    "the most negative length": struct.pack(">iI", -(2**31), 0),
    "length 2^31 - 1": struct.pack(">iI", 2**31 - 1, 16),
    "one byte over 16 MiB": struct.pack(">iI", FRAME_BYTES_MAX + 1, 16),
    "header longer than its frame": struct.pack(">iI", 10, 100) + b"123456",
    "header of 16 MiB": struct.pack(">iI", FRAME_BYTES_MAX, FRAME_BYTES_MAX - 4),
    "a million fields": fields(b"{" + b",".join(b'"%d":""' % n for n in range(10**6)) + b"}"),
    "fields up to the header's limit": fields(
        b"{" + b",".join(b'"%d":1' % n for n in range(20_000)) + b"}"
    ),
    "10,000 levels": fields(b"[" * 10_000 + b"]" * 10_000),
    "10,000 levels in one field": fields(b'{"k":' + b"[" * 10_000 + b"]" * 10_000 + b"}"),
    "100,000 levels beside the fields": frame(
        b'{"code":105,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    ),
    "integer of a million digits": fields(b'{"n":' + b"9" * MIB + b"}"),
    "code of 200,000 digits": frame(b'{"code":' + b"9" * 200_000 + b"}"),
    "not a number": fields(b'{"n":NaN}'),
    "infinity": fields(b'{"n":Infinity}'),
    "no UTF-8": fields(b'{"topic":"\xff\xfe"}'),
    "UTF-8 of half a pair": fields(b'{"topic":"\xed\xa0\x80"}'),
    "half a pair escaped": fields(b'{"topic":"\\ud800"}'),
    "unknown header type": frame(b"{}", kind=7),
    "binary header cut off": frame(b"\x00", kind=1),
    "another protocol": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a TLS handshake": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),
}
IS_ANSWERED = {
    "integer of 200,000 digits": fields(b'{"topic":' + b"9" * 200_000 + b"}"),
    "the same name twice": fields(b'{"topic":"a","topic":"b"}'),
    "numbers and truth values": fields(b'{"topic":1,"n":true,"x":1e400,"o":{"a":[]}}'),
    "a body of nonsense": frame(b'{"code":34,"opaque":1}', body=b"[" * 100_000),
    "a body of no UTF-8": frame(b'{"code":34,"opaque":1}', body=b"\xff" * 1000),
    "a body with half a pair": frame(b'{"code":34,"opaque":1}', body=b'{"clientID":"\\ud800"}'),
    "a body with an endless number": frame(
        b'{"code":34,"opaque":1}', body=b'{"clientID":' + b"9" * MIB + b"}"
    ),
    "a code that nobody serves": frame(b'{"code":2147483647,"opaque":1}'),
    "a negative code": frame(b'{"code":-2147483648,"opaque":1}'),
}


async def throw(address: str, data: bytes) -> bytes:
    """What comes back until the other end closes, or the first answer."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    received = b""
    try:
        async with asyncio.timeout(DEADLINE_S):
            writer.write(data)
            received = await reader.read(4096)
    except ConnectionError:
        pass  # Closed while we were still sending: that is what is wanted.
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    return received


async def test_each_ends_its_own_connection_with_one_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        assert (await client.send(b"fine")).code == ResponseCode.SUCCESS
        for name, data in ENDS_THE_CONNECTION.items():
            caplog.clear()
            assert await throw(running.broker.address, data) == b"", name
            assert bodies(await client.pull(0)) == [b"fine"], name
            warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
            assert len(warnings) == 1, (name, warnings)
            assert len(warnings[0]) < 500, "the log is not flooded by what was sent"


async def test_what_can_be_read_is_answered_and_the_connection_lives_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        for name, data in IS_ANSWERED.items():
            [answer] = FrameDecoder().feed(await throw(running.broker.address, data))
            assert answer.code != ResponseCode.SUCCESS, name
            assert len(answer.remark or "") < 4096, name
        assert (await running.client().send(b"fine")).code == ResponseCode.SUCCESS
    errors = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert not errors, "bad input is no fault of ours"


@pytest.mark.parametrize("name", [*ENDS_THE_CONNECTION, *IS_ANSWERED])
def test_no_memory_is_taken_for_what_is_only_claimed(name: str) -> None:
    data = (ENDS_THE_CONNECTION | IS_ANSWERED)[name]
    decoder = FrameDecoder()
    tracemalloc.start()
    try:
        decoder.feed(data)
    except RemoteProtocolError:
        assert name in ENDS_THE_CONNECTION
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    read = min(len(data), HEADER_BYTES_MAX + 2 * MIB)
    assert peak <= 4 * read + 4 * MIB, f"{peak} bytes for {len(data)}"


async def test_strangers_get_small_headers_until_one_request_was_genuine(tmp_path: Path) -> None:
    long = "k" * (STRANGER_HEADER_BYTES_MAX + 1)
    async with cluster(broker_config(tmp_path, access=ACCESS)) as running:
        address = running.broker.address
        request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": long})
        SHOP.sign(request)
        assert await throw(address, encode_frame(request)) == b"", "even when it is signed"
        known = Caller(address, ROOT)
        route = await known.ask(RequestCode.CHECK_CLIENT_CONFIG)
        assert route.code != ResponseCode.NO_PERMISSION
        large = await known.ask(RequestCode.GET_MAX_OFFSET, topic=long, queueId=0)
        assert large.code != ResponseCode.NO_PERMISSION, "now it is known"
        await known.close()
    async with cluster(broker_config(tmp_path / "open")) as running:
        answer = await running.client().ask(RequestCode.GET_MAX_OFFSET, topic=long, queueId=0)
        assert answer.is_response, "without accounts nobody is a stranger"


async def test_a_refused_sender_is_logged_once_a_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(broker_config(tmp_path, access=ACCESS)) as running:
        caplog.clear()
        stranger = Caller(running.broker.address, None)
        for _ in range(50):
            await stranger.ask(RequestCode.GET_MAX_OFFSET, topic="orders", queueId=0)
        await stranger.close()
    refusals = [r.getMessage() for r in caplog.records if "refused" in r.getMessage()]
    assert len(refusals) == 1, refusals


async def test_a_consumer_that_holds_ten_thousand_pulls_holds_up_nobody(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.send(b"first")
        host, port = running.broker.address.split(":")
        greedy = socket.create_connection((host, int(port)))
        greedy.setblocking(False)
        loop, count = asyncio.get_running_loop(), 10_000
        await loop.sock_sendall(greedy, held_pulls(count))
        answer = await client.send(b"second", queue_id=1)
        assert answer.code == ResponseCode.SUCCESS
        assert bodies(await client.pull(0)) == [b"first"]
        await client.send(b"third")
        decoder, answers = FrameDecoder(), 0
        async with asyncio.timeout(DEADLINE_S):
            while answers < count:
                answers += len(decoder.feed(await loop.sock_recv(greedy, MIB)))
        greedy.close()


def held_pulls(count: int) -> bytes:
    """Pulls at the end of a queue that may be held for long, as one write."""
    sent: list[bytes] = []
    for opaque in range(count):
        header = {
            "consumerGroup": f"g{opaque % 50}",
            "topic": "orders",
            "queueId": "0",
            "queueOffset": "1",
            "maxMsgNums": "1",
            "sysFlag": "6",
            "commitOffset": "0",
            "suspendTimeoutMillis": "60000",
            "subscription": "*",
            "subVersion": "1",
        }
        sent.append(encode_frame(RemotingCommand(RequestCode.PULL_MESSAGE, header, opaque=opaque)))
    return b"".join(sent)
