"""Row Metrics: how long requests took, on a clock that the test moves; no sockets."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Self

from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.remoting import Handler, Peer, RpcClient, RpcServer
from engine.remoting.latencies import (
    BOUNDS_MS,
    LONG_POLLED,
    UNKNOWN,
    Histogram,
    Latencies,
    LatencyKey,
    Result,
    regrouped,
)
from engine.runtime import SystemClock
from tests.unit.remoting.memory_network import MemoryNetwork, runtime_over

SEND, PULL, COMMIT, STRANGE = RequestCode.SEND_MESSAGE_V2, LONG_POLLED[0], 15, 77_777
ADDRESS = "memory:9876"


class MovedClock(SystemClock):
    """Its steady microseconds are the test's."""

    def __init__(self) -> None:
        super().__init__()
        self.us = 1_000_000

    def steady_us(self) -> int:
        return self.us


class Server:
    """Sends take 4.9 ms, pulls wait until `release`, commits answer nobody."""

    def __init__(self) -> None:
        self.clock, self.latencies = MovedClock(), Latencies()
        self.held: list[tuple[Peer, RemotingCommand]] = []
        self.is_held = asyncio.Event()
        handlers: Mapping[int, Handler] = {
            SEND: self._send,
            PULL: self._pull,
            COMMIT: self._commit,
            STRANGE: self._commit,
        }
        runtime = replace(runtime_over(MemoryNetwork()), clock=self.clock)
        self.server = RpcServer(runtime, handlers, latencies=self.latencies)
        self.client = RpcClient(runtime)

    def _send(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        self.clock.us += 4_900
        return request.respond(ResponseCode.SUCCESS)

    def _pull(self, peer: Peer, request: RemotingCommand) -> None:
        self.held.append((peer, request))
        self.is_held.set()

    def _commit(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        return request.respond(ResponseCode.SUCCESS)

    async def ask(self, code: int) -> RemotingCommand:
        return await self.client.invoke(ADDRESS, RemotingCommand.request(code), timeout_ms=5000)

    def release(self) -> None:
        for peer, request in self.held:
            peer.answer(request, request.respond(ResponseCode.PULL_NOT_FOUND))
        self.held.clear()

    def measured(self) -> dict[LatencyKey, tuple[int, int, int]]:
        """key → (answers, milliseconds in all, the longest)."""
        return {
            key: (sum(one.counts), one.total_ms, one.max_ms)
            for key, one in self.latencies.by_key.items()
        }

    async def __aenter__(self) -> Self:
        await self.server.start("memory", 9876)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.server.stop()
        await self.client.close()


def key(
    code: int, response: int = 0, result: Result = Result.SUCCESS, *, polled: bool = False
) -> LatencyKey:
    return LatencyKey(code, response, polled, result)


async def test_a_request_takes_from_its_arrival_until_its_answer_is_written() -> None:
    async with Server() as server:
        await server.ask(SEND)
        assert server.measured() == {key(SEND): (1, 4, 4)}, "4.9 ms are four whole ones"
        await asyncio.gather(*(server.ask(SEND) for _ in range(3)))
        assert server.measured() == {key(SEND): (4, 4 + 3 * 14, 14)}, "three of one read, 14.7 ms"


async def test_a_held_pull_is_long_polling_and_its_wait_is_nobody_elses() -> None:
    async with Server() as server:
        held = asyncio.create_task(server.ask(PULL))
        await server.is_held.wait()
        server.clock.us += 2_000_000
        await server.ask(SEND)
        assert server.measured() == {key(SEND): (1, 4, 4)}, "nothing of the pull's two seconds"
        server.release()
        await held
        polled = key(PULL, ResponseCode.PULL_NOT_FOUND, polled=True)
        assert server.measured()[polled] == (1, 2004, 2004)


async def test_what_nobody_is_answered_is_shown_as_such() -> None:
    async with Server() as server:
        await server.client.invoke_oneway(ADDRESS, RemotingCommand.request(COMMIT))
        held = asyncio.create_task(server.ask(PULL))
        await server.is_held.wait()
        server.clock.us += 7_000
        (peer,) = server.server.peers()
        peer.close("the test says so")
        server.release()
        await asyncio.gather(held, return_exceptions=True)
        failed = key(PULL, ResponseCode.PULL_NOT_FOUND, Result.WRITE_FAILED, polled=True)
        assert server.measured() == {
            key(COMMIT, 0, Result.ONE_WAY): (1, 0, 0),
            failed: (1, 7, 7),
        }


async def test_codes_that_rocketmq_has_not_are_measured_as_one() -> None:
    async with Server() as server:
        for code in (STRANGE, 70_001, 70_002):
            await server.ask(code)
        not_supported = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert server.measured() == {
            key(UNKNOWN): (1, 0, 0),
            key(UNKNOWN, not_supported): (2, 0, 0),
        }


def test_every_bound_that_is_asked_for_is_exact() -> None:
    histogram = Histogram()
    times = [0, 0, 1, 9, 10, 49, 50, 99, 100, 101, 3000, 3001, 9_999, 10_000, 123_456]
    for time_ms in times:
        histogram.add(time_ms, 1)
    for bounds in (BOUNDS_MS, (0, 9, 49, 99), (1, 10, 100, 3000)):
        edges = [-1, *bounds, 1 << 40]
        expected = [
            sum(low < time_ms <= high for time_ms in times)
            for low, high in itertools.pairwise(edges)
        ]
        assert regrouped(histogram.counts, bounds) == expected
    assert (histogram.total_ms, histogram.max_ms) == (sum(times), 123_456)


async def test_answers_of_several_kinds_in_one_turn_are_each_counted() -> None:
    async with Server() as server:
        codes = [COMMIT, SEND, COMMIT, SEND, SEND, COMMIT]
        await asyncio.gather(*(server.ask(code) for code in codes))
        assert server.measured() == {key(COMMIT): (3, 42, 14), key(SEND): (3, 42, 14)}
        await server.ask(COMMIT)
        assert server.measured()[key(COMMIT)] == (4, 42, 14)


async def test_an_opaque_that_a_peer_uses_twice_measures_nothing_wrong() -> None:
    async with Server() as server:
        tasks = [asyncio.create_task(server.ask(PULL)) for _ in range(2)]
        while len(server.held) < 2:
            server.is_held.clear()
            await server.is_held.wait()
        (_, first), (_, second) = server.held
        second.opaque = first.opaque
        server.clock.us += 1_000_000
        server.release()
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        polled = key(PULL, ResponseCode.PULL_NOT_FOUND, polled=True)
        assert server.measured() == {
            polled: (1, 1000, 1000),
            key(PULL, ResponseCode.PULL_NOT_FOUND): (0, 0, 0),
        }
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
