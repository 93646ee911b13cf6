"""Server and client over a network in memory: limits, stops, and answers that no frame carries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import pytest

from engine.foundation.errors import ConnectFailed, ConnectionLost
from engine.foundation.limits import (
    CONNECTION_OUTPUT_BYTES_MAX,
    CONNECTIONS_MAX,
    FRAME_BYTES_MAX,
    HANDLER_TASKS_MAX,
)
from engine.protocol.codes import ResponseCode
from engine.protocol.command import RemotingCommand
from engine.remoting import Handler, Peer, RpcClient, RpcServer
from engine.remoting.connection import CLOSE_PATIENCE_MS
from tests.unit.remoting.memory_network import MemoryNetwork, runtime_over

ECHO, SILENT, FLOOD, BAD = 1, 2, 3, 4
ADDRESS = "memory:9876"


def echo(peer: Peer, request: RemotingCommand) -> RemotingCommand:
    return request.respond(0, None, dict(request.fields), request.body)


def silent(peer: Peer, request: RemotingCommand) -> None:
    peer.attachment = request


def huge(peer: Peer, request: RemotingCommand) -> RemotingCommand:
    return request.respond(0, body=bytes(FRAME_BYTES_MAX))


async def huge_later(peer: Peer, request: RemotingCommand) -> RemotingCommand:
    await asyncio.sleep(0)
    return huge(peer, request)


def flood(peer: Peer, request: RemotingCommand) -> None:
    part = bytes(FRAME_BYTES_MAX // 2)
    for _ in range(CONNECTION_OUTPUT_BYTES_MAX // len(part) + 1):
        peer.send(RemotingCommand(9, body=part))


def no_text(peer: Peer, request: RemotingCommand) -> RemotingCommand:
    return request.respond(0, fields={"half": "\ud800"})


HANDLERS: Mapping[int, Handler] = {ECHO: echo, SILENT: silent, FLOOD: flood}


async def ask(client: RpcClient, code: int) -> RemotingCommand:
    return await client.invoke(ADDRESS, RemotingCommand.request(code), timeout_ms=60_000)


async def test_a_connection_beyond_the_limit_is_closed_and_the_others_are_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runtime = runtime_over(MemoryNetwork())
    server = RpcServer(runtime, HANDLERS, connections_max=2)
    await server.start("memory", 9876)
    clients = [RpcClient(runtime) for _ in range(3)]
    first, second, third = clients
    assert (await ask(first, ECHO)).code == ResponseCode.SUCCESS
    assert (await ask(second, ECHO)).code == ResponseCode.SUCCESS
    with pytest.raises(ConnectionLost):
        await ask(third, ECHO)
    assert (await ask(first, ECHO)).code == ResponseCode.SUCCESS
    assert len(server.peers()) == 2
    await second.close()
    assert (await ask(third, ECHO)).code == ResponseCode.SUCCESS, "there is room again"
    await server.stop()
    for client in clients:
        await client.close()
    refused = [r for r in caplog.records if "2 are open already" in r.getMessage()]
    assert [record.levelno for record in refused] == [logging.WARNING]


def test_the_limit_is_the_named_one_unless_a_test_says_otherwise() -> None:
    server = RpcServer(runtime_over(MemoryNetwork()), {})
    assert server._connections_max == CONNECTIONS_MAX


@pytest.mark.parametrize("handler", [huge, huge_later, no_text])
async def test_an_answer_that_no_frame_carries_is_said_to_be_none(handler: Handler) -> None:
    runtime = runtime_over(MemoryNetwork())
    server = RpcServer(runtime, {ECHO: echo, BAD: handler})
    await server.start("memory", 9876)
    client = RpcClient(runtime)
    answer = await ask(client, BAD)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark
    assert (await ask(client, ECHO)).code == ResponseCode.SUCCESS, "the connection lives on"
    await client.close()
    await server.stop()


def wrong(peer: Peer, request: RemotingCommand) -> RemotingCommand:
    raise AssertionError("offset 3 is behind 5")


async def wrong_later(peer: Peer, request: RemotingCommand) -> RemotingCommand:
    await asyncio.sleep(0)
    return wrong(peer, request)


@pytest.mark.parametrize("handler", [wrong, wrong_later])
async def test_a_broken_invariant_ends_the_party_and_nothing_is_answered_from_then_on(
    handler: Handler,
) -> None:
    noted: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: noted.append(str(context["exception"])))
    runtime = runtime_over(MemoryNetwork())
    server = RpcServer(runtime, {ECHO: echo, BAD: handler})
    await server.start("memory", 9876)
    client = RpcClient(runtime)
    asked = asyncio.create_task(ask(client, BAD))
    with pytest.raises(AssertionError, match="offset 3 is behind 5"):
        await server.failed()
    echoed = asyncio.create_task(ask(client, ECHO))
    for _ in range(10):
        await asyncio.sleep(0)
    await server.stop()
    for task in (asked, echoed):
        with pytest.raises(ConnectionLost):
            await task
    assert noted == ["offset 3 is behind 5"], "who watches the loop hears it once"
    await client.close()


async def test_requests_beyond_those_that_may_wait_are_asked_to_come_back() -> None:
    may_end = asyncio.Event()

    async def patient(peer: Peer, request: RemotingCommand) -> RemotingCommand:
        await may_end.wait()
        return request.respond(0)

    runtime = runtime_over(MemoryNetwork())
    server = RpcServer(runtime, {ECHO: echo, SILENT: patient})
    await server.start("memory", 9876)
    client = RpcClient(runtime)
    waiting = [asyncio.create_task(ask(client, SILENT)) for _ in range(HANDLER_TASKS_MAX)]
    await asyncio.sleep(0)
    assert (await ask(client, SILENT)).code == ResponseCode.SYSTEM_BUSY
    may_end.set()
    answers = await asyncio.gather(*waiting)
    assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
    assert (await ask(client, ECHO)).code == ResponseCode.SUCCESS, "there is room again"
    await client.close()
    await server.stop()


async def test_one_request_cannot_pile_up_answers_without_end() -> None:
    network = MemoryNetwork()
    server = RpcServer(runtime_over(network), HANDLERS)
    await server.start("memory", 9876)
    greedy, modest = RpcClient(runtime_over(network)), RpcClient(runtime_over(network))
    with pytest.raises(ConnectionLost):
        await ask(greedy, FLOOD)
    assert (await ask(modest, ECHO)).code == ResponseCode.SUCCESS
    await greedy.close()
    await modest.close()
    await server.stop()


async def test_closing_a_client_ends_calls_that_wait_for_a_connection_without_cancelling_them() -> (
    None
):
    network = MemoryNetwork()
    network.answers_calls = False
    client = RpcClient(runtime_over(network))
    waiting = [asyncio.create_task(ask(client, ECHO)) for _ in range(2)]
    await asyncio.sleep(0)
    await client.close()
    for call in waiting:
        with pytest.raises(ConnectFailed, match="closed"):
            await call
    with pytest.raises(ConnectFailed, match="closed"):
        await ask(client, ECHO)


async def test_a_cancelled_caller_leaves_the_attempt_to_the_others() -> None:
    network = MemoryNetwork()
    server = RpcServer(runtime_over(network), HANDLERS)
    await server.start("memory", 9876)
    client = RpcClient(runtime_over(network))
    leaving, staying = (asyncio.create_task(ask(client, ECHO)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    assert (await staying).code == ResponseCode.SUCCESS
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert len(network.server_ends) == 1
    await client.close()
    await server.stop()


async def test_a_peer_that_reads_nothing_cannot_keep_a_party_from_stopping() -> None:
    network = MemoryNetwork()
    server = RpcServer(runtime_over(network), HANDLERS)
    await server.start("memory", 9876)
    client = RpcClient(runtime_over(network))
    assert (await ask(client, ECHO)).code == ResponseCode.SUCCESS
    network.server_ends[0].deaf = True
    waiting = asyncio.create_task(ask(client, SILENT))
    await asyncio.sleep(0)
    async with asyncio.timeout(CLOSE_PATIENCE_MS / 1000 + 5):
        await client.close()
    with pytest.raises(ConnectionLost):
        await waiting
    await server.stop()


async def test_a_closed_connection_whose_peer_takes_nothing_is_cut_at_the_next_look() -> None:
    network = MemoryNetwork()
    lost: list[Peer] = []
    server = RpcServer(runtime_over(network), HANDLERS, on_lost=lost.append, idle_check_ms=10)
    await server.start("memory", 9876)
    client = RpcClient(runtime_over(network))
    await ask(client, ECHO)
    [peer] = server.peers()
    network.server_ends[0].other.deaf = True
    peer.send(RemotingCommand(9, body=b"never read"))
    await asyncio.sleep(0)
    peer.close("the test says so")
    async with asyncio.timeout(5):
        while not lost:  # noqa: ASYNC110 - what is waited for has no event to set.
            await asyncio.sleep(0.005)
    assert server.peers() == []
    network.server_ends[0].other.deaf = False
    await client.close()
    await server.stop()


async def test_what_is_observed_of_a_stop_is_reported_before_it_returns_and_nothing_after() -> None:
    observed: list[str] = []
    network = MemoryNetwork()
    server = RpcServer(
        runtime_over(network),
        HANDLERS,
        before_answers=lambda: observed.append("reported"),
        on_lost=lambda peer: observed.append("lost"),
    )
    await server.start("memory", 9876)
    client = RpcClient(runtime_over(network))
    await ask(client, ECHO)
    await server.stop()
    assert observed[-2:] == ["lost", "reported"]
    at_the_end = len(observed)
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(observed) == at_the_end
    await client.close()


async def test_half_a_frame_that_nothing_follows_is_logged_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="engine.remoting")
    network = MemoryNetwork()
    server = RpcServer(runtime_over(network), HANDLERS)
    await server.start("memory", 9876)
    client = RpcClient(runtime_over(network))
    await ask(client, ECHO)
    network.server_ends[0].other.write(b"\x00\x00\x01\x00\x00")
    for _ in range(5):
        await asyncio.sleep(0)
    network.server_ends[0].other.abort()
    for _ in range(5):
        await asyncio.sleep(0)
    assert server.peers() == []
    await client.close()
    await server.stop()
    [line] = [record.getMessage() for record in caplog.records]
    assert "ended inside a frame: its first 5 bytes are dropped" in line


async def test_a_malformed_frame_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="engine.remoting")
    network = MemoryNetwork()
    server = RpcServer(runtime_over(network), HANDLERS)
    await server.start("memory", 9876)
    client = RpcClient(runtime_over(network))
    await ask(client, ECHO)
    network.server_ends[0].other.write(b"GET / HTTP/1.1\r\n\r\n")
    for _ in range(5):
        await asyncio.sleep(0)
    assert server.peers() == []
    await client.close()
    await server.stop()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert "no frame of ours" in lines[0]
