"""Requests that nobody waits for: each ends by a callback, whatever becomes of it, without a task.

Row B3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from inspect import CORO_CLOSED, getcoroutinestate
from typing import Any, Self

import pytest

from engine.foundation.errors import (
    ConnectFailed,
    ConnectionLost,
    LocalProtocolError,
    RequestTimedOut,
)
from engine.foundation.limits import PENDING_REQUESTS_MAX
from engine.protocol.command import RemotingCommand
from engine.remoting import Handler, Peer, RpcClient, RpcServer
from engine.remoting.signing import Credentials
from tests.unit.remoting.memory_network import MemoryNetwork, runtime_over

ECHO, SILENT, PUSH = 1, 2, 3
ADDRESS = "memory:9876"


def echo(peer: Peer, request: RemotingCommand) -> RemotingCommand:
    return request.respond(0, None, dict(request.fields), request.body)


def silent(peer: Peer, request: RemotingCommand) -> None:
    peer.attachment = request


HANDLERS: dict[int, Handler] = {ECHO: echo, SILENT: silent}


class Parties:
    """A client and its server, over a network in memory."""

    def __init__(self, **settings: object) -> None:
        self.network = MemoryNetwork()
        self.server = RpcServer(runtime_over(self.network), HANDLERS)
        self.client = RpcClient(runtime_over(self.network), **settings)  # type: ignore[arg-type]

    async def __aenter__(self) -> Self:
        await self.server.start("memory", 9876)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()
        await self.server.stop()

    def begin(self, code: int, timeout_ms: int = 5000) -> asyncio.Future[RemotingCommand]:
        request = RemotingCommand.request(code, {"code": str(code)})
        return self.client.begin(ADDRESS, request, timeout_ms=timeout_ms)


async def test_a_thousand_requests_are_under_way_without_a_task_for_each() -> None:
    async with Parties() as parties:
        heard: list[asyncio.Future[RemotingCommand]] = []
        for _ in range(1000):  # The first of them make the connection.
            parties.begin(ECHO).add_done_callback(heard.append)
        most = 0
        async with asyncio.timeout(10):
            while len(heard) < 1000:
                most = max(most, len(asyncio.all_tasks()))
                await asyncio.sleep(0)
        assert {answered.result().fields["code"] for answered in heard} == {str(ECHO)}
        assert len(parties.network.server_ends) == 1
        assert most <= 5


async def test_a_request_without_an_answer_times_out_and_leaves_nothing_behind() -> None:
    async with Parties() as parties:
        await parties.begin(ECHO)
        late, later = parties.begin(SILENT, 20), parties.begin(SILENT, 40)
        with pytest.raises(RequestTimedOut, match=r"request code 2 to .* within 40 ms"):
            await later
        with pytest.raises(RequestTimedOut, match="within 20 ms"):
            late.result()
        [connection] = parties.client._connections.values()
        assert not connection._pending._waiting


async def test_an_answered_request_keeps_no_timer() -> None:
    async with Parties() as parties:
        for _ in range(1000):
            await parties.begin(ECHO, 60_000)
        await asyncio.sleep(0)
        timers = [t for t in asyncio.get_running_loop()._scheduled if not t.cancelled()]  # type: ignore[attr-defined]
        assert len(timers) < 10


async def test_a_lost_connection_ends_every_request_under_way() -> None:
    async with Parties() as parties:
        await parties.begin(ECHO)
        held = [parties.begin(SILENT) for _ in range(3)]
        await asyncio.sleep(0)
        parties.network.server_ends[0].abort()
        for answered in held:
            with pytest.raises(ConnectionLost):
                await answered
        assert (await parties.begin(ECHO)).code == 0, "a new connection is made"


async def test_a_server_that_is_not_there_is_an_error_of_the_request() -> None:
    parties = Parties()
    held = [parties.begin(ECHO) for _ in range(3)]
    for answered in held:
        with pytest.raises(ConnectFailed, match="nobody listens"):
            await answered
    await parties.client.close()
    with pytest.raises(ConnectFailed, match="this client is closed"):
        await parties.begin(ECHO)


async def test_closing_a_client_ends_requests_that_wait_for_a_connection() -> None:
    parties = Parties()
    parties.network.answers_calls = False
    waiting = [parties.begin(ECHO) for _ in range(2)]
    await asyncio.sleep(0)
    await parties.client.close()
    for answered in waiting:
        with pytest.raises(ConnectFailed, match="this client is closed"):
            await answered


async def test_an_answer_that_was_given_up_is_dropped() -> None:
    async with Parties() as parties:
        before_there_is_a_connection = parties.begin(ECHO)
        before_there_is_a_connection.cancel()
        await parties.begin(ECHO)
        for code in (ECHO, SILENT):
            parties.begin(code).cancel()
        await parties.begin(ECHO)
        [connection] = parties.client._connections.values()
        assert not connection._pending._waiting


async def test_a_request_beyond_those_that_may_be_under_way_is_refused() -> None:
    async with Parties() as parties:
        await parties.begin(ECHO)
        [connection] = parties.client._connections.values()
        pending = connection._pending
        for _ in range(PENDING_REQUESTS_MAX):
            pending.expect(RemotingCommand(SILENT))
        with pytest.raises(LocalProtocolError, match=f"at most {PENDING_REQUESTS_MAX}"):
            await parties.begin(ECHO)
        for opaque in list(pending._waiting):
            pending.forget(opaque)
        assert (await parties.begin(ECHO)).code == 0


async def test_a_request_that_no_frame_carries_is_an_error_of_its_own() -> None:
    async with Parties() as parties:
        await parties.begin(ECHO)
        bad = RemotingCommand.request(ECHO, {"half": "\ud800"})
        with pytest.raises(LocalProtocolError):
            await parties.client.begin(ADDRESS, bad, timeout_ms=5000)
        [connection] = parties.client._connections.values()
        assert not connection._pending._waiting


async def test_with_credentials_requests_under_way_are_signed() -> None:
    async with Parties(credentials=Credentials("tide", "tide-secret")) as parties:
        for _ in range(2):  # Before there is a connection, and over it.
            assert (await parties.begin(ECHO)).fields["AccessKey"] == "tide"


async def test_a_request_that_came_just_before_the_end_leaves_nothing_unawaited() -> None:
    """Its handler's task is cancelled before its first step."""
    begun: list[str] = []
    taken: list[Coroutine[Any, Any, None]] = []
    closing: list[asyncio.Task[None]] = []

    async def work() -> None:
        begun.append("work")

    def close_and_work(peer: Peer, request: RemotingCommand) -> Coroutine[Any, Any, None]:
        closing.append(asyncio.create_task(parties.client.close()))
        taken.append(work())
        return taken[0]

    async with Parties(handlers={PUSH: close_and_work}) as parties:
        await parties.begin(ECHO)
        (server_end,) = parties.server.peers()
        with pytest.raises(ConnectionLost):
            await server_end.invoke(RemotingCommand.request(PUSH, {}), timeout_ms=5000)
        await closing[0]
    assert (begun, [getcoroutinestate(one) for one in taken]) == ([], [CORO_CLOSED])


async def test_no_handler_begins_while_the_others_are_being_ended() -> None:
    begun: list[str] = []
    has_begun = asyncio.Event()

    async def linger(peer: Peer, request: RemotingCommand) -> None:
        begun.append(request.fields["which"])
        has_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)

    def push(which: str) -> asyncio.Task[RemotingCommand]:
        request = RemotingCommand.request(PUSH, {"which": which})
        return asyncio.create_task(server_end.invoke(request, timeout_ms=5000))

    async with Parties(handlers={PUSH: linger}) as parties:
        await parties.begin(ECHO)
        (server_end,) = parties.server.peers()
        first = push("first")
        await has_begun.wait()
        closing = asyncio.create_task(parties.client.close())
        await asyncio.sleep(0)
        second = push("second")
        await closing
        for pushed in (first, second):
            with pytest.raises(ConnectionLost):
                await pushed
    assert begun == ["first"]
