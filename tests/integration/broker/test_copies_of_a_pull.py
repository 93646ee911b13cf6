"""Row C6: the bodies of a large pull are copied at most once on their way to the socket.

What the broker allocates while it answers is what it copies: views of the mapping and slices of
them weigh nothing. Messages of other queues lie between those of this one, so that the answer is
made of many pieces.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import tracemalloc
from pathlib import Path

import pytest

from engine.foundation.units import KIB
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.frames import FrameDecoder, encode_frame
from engine.protocol.message_record import decode_records
from tests.integration.broker.cluster import GROUP, TOPIC, broker_config, cluster, eventually

COUNT, BODY_BYTES = 31, 8 * KIB
ANSWER_BYTES = COUNT * BODY_BYTES
OVERHEAD_BYTES = 48 * KIB
"""Headers, fields, objects."""


def pull_request() -> bytes:
    fields = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": 0,
        "queueOffset": 0,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }
    texts = {name: str(value) for name, value in fields.items()}
    return encode_frame(RemotingCommand.request(RequestCode.PULL_MESSAGE, texts))


async def read_answer(reader: socket.socket) -> bytes:
    """One frame, whole."""
    loop = asyncio.get_running_loop()
    data = await loop.sock_recv(reader, 64 * KIB)
    while len(data) < 4 + struct.unpack_from(">i", data)[0]:
        data += await loop.sock_recv(reader, 64 * KIB)
    return data


async def copies_of_one_pull(reader: socket.socket) -> int:
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    reader.send(pull_request())
    await eventually(lambda: readable(reader), "the answer comes")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    (answer,) = FrameDecoder().feed(memoryview(await read_answer(reader)))
    bodies = [message.body.rstrip(b"\0") for message in decode_records(answer.body)]
    assert bodies == [b"%d" % number for number in range(COUNT)]
    return peak - before


async def readable(reader: socket.socket) -> bool:
    try:
        return bool(reader.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False


@pytest.mark.parametrize("interleaved", [True, False], ids=["many pieces", "one run"])
@pytest.mark.parametrize("slow", [True, False], ids=["slow reader", "quick reader"])
async def test_a_quarter_of_a_mebibyte_is_copied_at_most_once(
    tmp_path: Path, slow: bool, interleaved: bool
) -> None:
    config = broker_config(tmp_path, telemetry=False)
    async with cluster(config) as running:
        client = running.client()
        for number in range(COUNT):
            body = b"%d" % number + bytes(BODY_BYTES - 200)
            assert (await client.send(body)).code == ResponseCode.SUCCESS
            if interleaved:
                await client.send(b"in between", queue_id=1)
        host, _, port = running.broker.address.partition(":")
        reader = socket.socket()
        if slow:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
        reader.setblocking(False)
        await asyncio.get_running_loop().sock_connect(reader, (host, int(port)))
        copied_bytes = 0
        for _ in range(3):  # The first one also fills memos.
            copied_bytes = await copies_of_one_pull(reader)
        reader.close()
    allowed_bytes = ANSWER_BYTES if slow else 0
    assert copied_bytes <= allowed_bytes + OVERHEAD_BYTES, f"{copied_bytes / ANSWER_BYTES:.2f} ×"
