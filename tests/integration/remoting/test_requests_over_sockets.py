"""Server and client over real sockets: turns, faults, limits, both directions."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import pytest

from engine.foundation.errors import (
    ConnectFailed,
    ConnectionLost,
    RequestRefused,
    RequestTimedOut,
    StorageError,
)
from engine.protocol.codes import ResponseCode
from engine.protocol.command import RemotingCommand, SerializeType
from engine.protocol.frames import FrameDecoder, encode_frame
from engine.remoting import Handler, Peer, RpcClient, RpcServer
from engine.runtime import system_runtime

ECHO, REFUSE, FAIL, BREAK, SLOW, SILENT, BULK = 1, 2, 3, 4, 5, 6, 7
DEADLINE_S = 10


def echo(peer: Peer, request: RemotingCommand) -> RemotingCommand:
    return request.respond(0, None, dict(request.fields), request.body)


def refuse(peer: Peer, request: RemotingCommand) -> RemotingCommand:
    raise RequestRefused(ResponseCode.NO_PERMISSION, "not you")


def fail(peer: Peer, request: RemotingCommand) -> RemotingCommand:
    raise StorageError("the disk says no")


def break_down(peer: Peer, request: RemotingCommand) -> RemotingCommand:
    raise KeyError("a bug")


async def slow(peer: Peer, request: RemotingCommand) -> RemotingCommand:
    await asyncio.sleep(0)
    return request.respond(0, "slowly")


def silent(peer: Peer, request: RemotingCommand) -> None:
    peer.attachment = request


def bulk(peer: Peer, request: RemotingCommand) -> RemotingCommand:
    return request.respond(0, body=bytes(1 << 20))


HANDLERS: Mapping[int, Handler] = {
    ECHO: echo, REFUSE: refuse, FAIL: fail, BREAK: break_down,
    SLOW: slow, SILENT: silent, BULK: bulk,
}  # fmt: skip


class Served:
    """A running server, and what it reported."""

    def __init__(self) -> None:
        self.turns = 0
        self.lost: list[Peer] = []
        self.malformed: list[str] = []
        self.server: RpcServer
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def count_turn(self) -> None:
        self.turns += 1


@asynccontextmanager
async def serving(**settings: int) -> AsyncIterator[Served]:
    served = Served()
    served.server = RpcServer(
        system_runtime(),
        HANDLERS,
        before_answers=served.count_turn,
        on_lost=served.lost.append,
        on_protocol_error=lambda peer, error: served.malformed.append(str(error)),
        **settings,
    )
    served.port = await served.server.start("127.0.0.1", 0)
    try:
        yield served
    finally:
        await served.server.stop()


@asynccontextmanager
async def calling(handlers: Mapping[int, Handler] | None = None) -> AsyncIterator[RpcClient]:
    client = RpcClient(system_runtime(), handlers)
    try:
        yield client
    finally:
        await client.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event to set.
            await asyncio.sleep(0.005)


async def ask(client: RpcClient, served: Served, code: int) -> RemotingCommand:
    return await client.invoke(
        served.address, RemotingCommand.request(code), timeout_ms=DEADLINE_S * 1000
    )


async def test_a_thousand_requests_in_one_write_are_answered_in_order_in_few_turns() -> None:
    async with serving() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        requests = [RemotingCommand(ECHO, {"n": str(n)}, opaque=n) for n in range(1000)]
        writer.write(b"".join(map(encode_frame, requests)))
        decoder, answers = FrameDecoder(), list[RemotingCommand]()
        async with asyncio.timeout(DEADLINE_S):
            while len(answers) < 1000:
                answers += decoder.feed(await reader.read(1 << 16))
        assert [answer.opaque for answer in answers] == list(range(1000))
        assert all(answer.is_response for answer in answers)
        assert 1 <= served.turns <= 10  # One each read, not one each request.
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("serialize_type", SerializeType)
async def test_answers_come_in_the_requests_header_type(serialize_type: SerializeType) -> None:
    async with serving() as served, calling() as client:
        request = RemotingCommand.request(ECHO, {"a": "b"}, b"body")
        request.serialize_type = serialize_type
        answer = await client.invoke(served.address, request, timeout_ms=5000)
        assert answer.serialize_type is serialize_type
        assert (answer.fields, bytes(answer.body)) == ({"a": "b"}, b"body")


@pytest.mark.parametrize(
    ("code", "answer_code", "remark"),
    [
        (REFUSE, ResponseCode.NO_PERMISSION, "not you"),
        (FAIL, ResponseCode.SYSTEM_ERROR, "the disk says no"),
        (BREAK, ResponseCode.SYSTEM_ERROR, "KeyError: 'a bug'"),
        (SLOW, ResponseCode.SUCCESS, "slowly"),
        (99, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, " request type 99 not supported"),
    ],
)
async def test_whatever_a_handler_does_there_is_an_answer(
    code: int, answer_code: ResponseCode, remark: str
) -> None:
    async with serving() as served, calling() as client:
        answer = await ask(client, served, code)
        assert (answer.code, answer.remark) == (answer_code, remark)
        assert (await ask(client, served, ECHO)).code == ResponseCode.SUCCESS


GARBAGE = pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", struct.pack(">iI", 2**31 - 1, 0), struct.pack(">iI", -5, 0)],
)


@GARBAGE
async def test_what_came_whole_before_a_malformed_frame_is_answered(garbage: bytes) -> None:
    async with serving() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        whole = [encode_frame(RemotingCommand(ECHO, opaque=number)) for number in (7, 8)]
        writer.write(b"".join(whole) + garbage)
        async with asyncio.timeout(DEADLINE_S):
            answers = FrameDecoder().feed(await reader.read())
        assert [answer.opaque for answer in answers] == [7, 8]
        assert len(served.malformed) == 1
        writer.close()
        await writer.wait_closed()


@GARBAGE
async def test_a_malformed_frame_ends_its_own_connection_only(garbage: bytes) -> None:
    async with serving() as served, calling() as client:
        assert (await ask(client, served, ECHO)).code == ResponseCode.SUCCESS
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(garbage)
        async with asyncio.timeout(DEADLINE_S):
            assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        assert len(served.malformed) == 1
        assert (await ask(client, served, ECHO)).code == ResponseCode.SUCCESS
        assert len(served.server.peers()) == 1


async def test_no_answer_in_time_is_a_timeout_and_the_connection_lives_on() -> None:
    async with serving() as served, calling() as client:
        with pytest.raises(RequestTimedOut, match="code 6"):
            await client.invoke(served.address, RemotingCommand.request(SILENT), timeout_ms=50)
        [peer] = served.server.peers()
        late = peer.attachment
        assert isinstance(late, RemotingCommand)
        peer.answer(late, late.respond(0, "too late"))  # Nobody waits for it any more.
        assert (await ask(client, served, ECHO)).remark is None


async def test_a_lost_connection_fails_who_waits_and_the_next_call_connects_anew() -> None:
    async with serving() as served, calling() as client:
        waiting = asyncio.create_task(ask(client, served, SILENT))
        await until(lambda: bool(served.server.peers() and served.server.peers()[0].attachment))
        served.server.peers()[0].close("the test says so")
        with pytest.raises(ConnectionLost, match=rf"^connection to {served.address} ended$"):
            await waiting
        await until(lambda: len(served.lost) == 1)
        assert (await ask(client, served, ECHO)).code == ResponseCode.SUCCESS


async def test_nobody_listening_is_connect_failed() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    async with calling() as client:
        with pytest.raises(ConnectFailed, match=address):
            await client.invoke(address, RemotingCommand.request(ECHO), timeout_ms=1000)


async def test_many_first_calls_share_one_connection() -> None:
    async with serving() as served, calling() as client:
        answers = await asyncio.gather(*(ask(client, served, ECHO) for _ in range(50)))
        assert len(answers) == 50
        assert len(served.server.peers()) == 1


async def test_the_server_pushes_and_asks_its_clients() -> None:
    heard: list[RemotingCommand] = []

    def hear(peer: Peer, request: RemotingCommand) -> None:
        heard.append(request)

    async with serving() as served, calling({40: hear, 307: echo}) as client:
        await ask(client, served, ECHO)
        [peer] = served.server.peers()
        peer.send(RemotingCommand.request(40, {"consumerGroup": "g"}))
        await until(lambda: bool(heard))
        assert heard[0].is_oneway
        assert heard[0].fields == {"consumerGroup": "g"}
        asked = RemotingCommand.request(307, {"clientId": "c"})
        answer = await peer.invoke(asked, timeout_ms=5000)
        assert answer.fields == {"clientId": "c"}


async def test_a_oneway_request_gets_no_answer() -> None:
    async with serving() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        oneway = RemotingCommand(ECHO, opaque=1)
        oneway.mark_oneway()
        writer.write(encode_frame(oneway) + encode_frame(RemotingCommand(ECHO, opaque=2)))
        async with asyncio.timeout(DEADLINE_S):
            answers = FrameDecoder().feed(await reader.read(1 << 16))
        assert [answer.opaque for answer in answers] == [2]
        writer.close()
        await writer.wait_closed()


async def test_an_idle_connection_is_closed() -> None:
    async with serving(idle_ms_max=50, idle_check_ms=20) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        async with asyncio.timeout(DEADLINE_S):
            assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        await until(lambda: len(served.lost) == 1)


async def test_closing_a_client_fails_its_calls_and_leaves_no_task() -> None:
    async with serving() as served:
        client = RpcClient(system_runtime())
        waiting = asyncio.create_task(ask(client, served, SILENT))
        await until(lambda: bool(served.server.peers() and served.server.peers()[0].attachment))
        await client.close()
        with pytest.raises(ConnectionLost):
            await waiting
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_connections_that_come_and_go_leave_nothing_to_the_collector() -> None:
    async def connect(served: Served) -> None:
        with socket.socket() as end:
            end.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(end, ("127.0.0.1", served.port))
            await loop.sock_sendall(end, encode_frame(RemotingCommand(ECHO, {}, opaque=1)))
            assert await loop.sock_recv(end, 1000)

    async with serving() as served:
        await connect(served)
        await until(lambda: len(served.lost) == 1)
        served.lost.clear()
        gc.collect()
        gc.disable()
        try:
            for _ in range(100):
                await connect(served)
            await until(lambda: len(served.lost) == 100)
            served.lost.clear()
            assert gc.collect() < 100, "not one object for each of them"
        finally:
            gc.enable()
