"""What many connections, slow readers and large requests hold together is bounded, and whoever is
over a limit waits or goes; nobody else does.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from engine.foundation import limits
from engine.protocol.command import RemotingCommand
from engine.protocol.frames import FrameDecoder, encode_frame
from engine.remoting import Handler, Peer, RpcClient, RpcServer
from engine.remoting.load import Load
from engine.runtime import system_runtime

ECHO, BULK, KEPT, SLOW = 1, 2, 3, 4
MIB = 1 << 20
DEADLINE_S = 20


class Party:
    """A running server whose handler of KEPT answers when the test says so."""

    def __init__(self, **settings: Any) -> None:
        self.kept: list[tuple[Peer, RemotingCommand]] = []
        self.bulk_asked = 0
        self.lost: list[Peer] = []
        handlers: dict[int, Handler] = {
            ECHO: self.echo,
            BULK: self.bulk,
            KEPT: self.keep,
            SLOW: self.wait,
        }
        self.slow_count = 0
        self.slow_may_end = asyncio.Event()
        self.server = RpcServer(system_runtime(), handlers, on_lost=self.lost.append, **settings)
        self.port = 0

    def echo(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        return request.respond(0)

    def bulk(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        self.bulk_asked += 1
        return request.respond(0, body=bytes(MIB))

    def keep(self, peer: Peer, request: RemotingCommand) -> None:
        self.kept.append((peer, request))

    async def wait(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        self.slow_count += 1
        await self.slow_may_end.wait()
        return request.respond(0)

    def answer_kept(self, body_bytes: int = 0) -> None:
        kept, self.kept = self.kept, []
        for peer, request in kept:
            peer.answer(request, request.respond(0, body=bytes(body_bytes)))

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port))

    async def is_alive(self) -> None:
        client = RpcClient(system_runtime())
        answer = await client.invoke(
            f"127.0.0.1:{self.port}", RemotingCommand.request(ECHO), timeout_ms=DEADLINE_S * 1000
        )
        assert answer.code == 0
        await client.close()


@asynccontextmanager
async def party(**settings: Any) -> AsyncIterator[Party]:
    running = Party(**settings)
    running.port = await running.server.start("127.0.0.1", 0)
    try:
        yield running
    finally:
        await running.server.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event to set.
            await asyncio.sleep(0.005)


async def until_still(amount: Callable[[], int]) -> int:
    """`amount` once it has not changed for half a second, in which whatever can go on goes on."""
    loop = asyncio.get_running_loop()
    seen, since_s = amount(), loop.time()
    async with asyncio.timeout(DEADLINE_S):
        while loop.time() - since_s < 0.5:
            await asyncio.sleep(0.02)
            if amount() != seen:
                seen, since_s = amount(), loop.time()
    return seen


def request(code: int, body_bytes: int = 0, *, opaque: int = 0) -> bytes:
    return encode_frame(RemotingCommand(code, body=bytes(body_bytes), opaque=opaque))


HELD_BYTES_MAX = limits.CONNECTION_OUTPUT_PAUSE_BYTES + limits.TURN_OUTPUT_BYTES_MAX + 2 * MIB
"""Of one slow reader: up to the pause, one turn beyond it, and what goes over the limits."""


async def take_answers(slow: socket.socket, count: int) -> list[RemotingCommand]:
    decoder, answers = FrameDecoder(), list[RemotingCommand]()
    async with asyncio.timeout(DEADLINE_S):
        while len(answers) < count:
            received = await asyncio.get_running_loop().sock_recv(slow, MIB)
            assert received, "it was cut off"
            answers += decoder.feed(received)
    return answers


async def test_a_slow_reader_is_not_read_until_it_has_taken_its_answers() -> None:
    async with party() as served:
        slow = served.connect()
        slow.setblocking(False)
        asked = 60
        for number in range(asked):  # With pauses, so that each is a read of its own.
            await asyncio.get_running_loop().sock_sendall(slow, request(BULK, opaque=number))
            await asyncio.sleep(0.005)
        held = await until_still(lambda: served.server.load.output_bytes)
        assert limits.CONNECTION_OUTPUT_PAUSE_BYTES < held <= HELD_BYTES_MAX
        await served.is_alive()
        answers = await take_answers(slow, asked)
        assert [answer.opaque for answer in answers] == list(range(asked))
        assert served.server.load.output_bytes == 0
        slow.close()


async def test_of_many_requests_in_one_read_the_rest_waits_until_the_answers_are_taken() -> None:
    async with party() as served:
        loop = asyncio.get_running_loop()
        slow = served.connect()
        slow.setblocking(False)
        asked = 60
        for again in range(2):  # What waited once is forgotten.
            first = again * asked
            together = b"".join(request(BULK, opaque=first + each) for each in range(asked))
            await loop.sock_sendall(slow, together)
            held = await until_still(lambda: served.server.load.output_bytes)
            assert limits.CONNECTION_OUTPUT_PAUSE_BYTES < held <= HELD_BYTES_MAX
            assert served.bulk_asked < first + asked
            await served.is_alive()
            answers = await take_answers(slow, asked)
            assert [answer.opaque for answer in answers] == list(range(first, first + asked))
            assert served.server.load.output_bytes == 0
        slow.close()


async def test_what_comes_before_a_malformed_frame_is_answered_though_it_had_to_wait() -> None:
    async with party() as served:
        slow = served.connect()
        slow.setblocking(False)
        asked = 60
        together = b"".join(request(BULK, opaque=each) for each in range(asked))
        await asyncio.get_running_loop().sock_sendall(slow, together + b"no frame")
        await until_still(lambda: served.server.load.output_bytes)
        assert not served.lost
        answers = await take_answers(slow, asked)
        assert [answer.opaque for answer in answers] == list(range(asked))
        await until(lambda: bool(served.lost))
        slow.close()


async def test_a_reader_that_never_reads_is_closed_like_a_silent_one() -> None:
    async with party(idle_ms_max=300, idle_check_ms=50) as served:
        deaf = served.connect()
        deaf.sendall(request(BULK) * 30)
        await until(lambda: len(served.lost) == 1)
        assert served.server.load.output_bytes == 0
        deaf.close()


async def test_a_reader_for_which_too_many_late_answers_pile_up_is_cut_off() -> None:
    async with party() as served:
        deaf = served.connect()
        count = limits.CONNECTION_OUTPUT_BYTES_MAX // MIB + 40
        deaf.sendall(request(KEPT) * count)  # Its answers are not known when it is read.
        await until(lambda: len(served.kept) == count)
        served.answer_kept(MIB)
        await until(lambda: len(served.lost) == 1)
        assert served.server.load.output_bytes == 0
        await served.is_alive()
        deaf.close()


async def test_all_slow_readers_together_have_a_limit() -> None:
    async with party(load=Load(output_bytes_max=20 * MIB)) as served:
        deaf = [served.connect() for _ in range(8)]
        for each in deaf:
            each.sendall(request(BULK) * 7)
        await until(lambda: bool(served.lost))
        assert len(served.lost) < len(deaf), "only those over the limit go"
        assert served.server.load.output_bytes <= 20 * MIB
        await served.is_alive()
        for each in deaf:
            each.close()


async def test_requests_under_way_stop_the_reading_of_their_connection() -> None:
    async with party() as served:
        loop = asyncio.get_running_loop()
        eager = served.connect()
        eager.setblocking(False)
        each, count = 4 * MIB, 24
        sending = asyncio.create_task(loop.sock_sendall(eager, request(KEPT, each) * count))
        fits = limits.CONNECTION_REQUEST_BYTES_MAX // each + 1
        await until(lambda: len(served.kept) >= fits)
        await served.is_alive()
        assert await until_still(lambda: len(served.kept)) == fits, "no more is read"
        assert not sending.done()
        answered = 0
        while answered < count:
            await until(lambda: bool(served.kept))
            answered += len(served.kept)
            served.answer_kept()
        await sending
        assert served.server.load.request_bytes == 0
        eager.close()


async def test_a_one_way_request_counts_while_its_handler_waits() -> None:
    async with party() as served:
        loop = asyncio.get_running_loop()
        eager = served.connect()
        eager.setblocking(False)
        each, count = 4 * MIB, 24
        command = RemotingCommand(SLOW, body=bytes(each))
        command.mark_oneway()
        sending = asyncio.create_task(loop.sock_sendall(eager, encode_frame(command) * count))
        fits = limits.CONNECTION_REQUEST_BYTES_MAX // each + 1
        await until(lambda: served.slow_count >= fits)
        assert await until_still(lambda: served.slow_count) == fits, "no more is read"
        served.slow_may_end.set()
        await sending
        await until(lambda: served.slow_count == count)
        await until(lambda: served.server.load.request_bytes == 0)
        eager.close()


async def test_the_header_of_a_request_under_way_counts_as_its_body_does() -> None:
    async with party() as served:
        asker = served.connect()
        padding = {"padding": "x" * 100_000}
        asker.sendall(encode_frame(RemotingCommand(KEPT, dict(padding))))
        await until(lambda: len(served.kept) == 1)
        await until(lambda: served.server.load.request_bytes >= 100_000)
        served.answer_kept()
        assert served.server.load.request_bytes == 0
        asker.close()


async def test_requests_under_way_of_all_together_make_everybody_wait_who_sends_more() -> None:
    async with party(load=Load(request_bytes_max=8 * MIB)) as served:
        loop = asyncio.get_running_loop()
        first, other = served.connect(), served.connect()
        for each in (first, other):
            each.setblocking(False)
        await loop.sock_sendall(first, request(KEPT, 10 * MIB))
        await until(lambda: len(served.kept) == 1)
        await loop.sock_sendall(other, request(KEPT, MIB))
        await served.is_alive()
        assert len(served.kept) == 1, "the rest of the second waits in its socket"
        served.answer_kept()
        await until(lambda: len(served.kept) == 1)
        served.answer_kept()
        assert served.server.load.request_bytes == 0
        first.close()
        other.close()


async def test_of_too_many_unfinished_frames_the_oldest_goes() -> None:
    half = struct.pack(">iI", 8 * MIB, 100) + bytes(MIB)
    async with party(load=Load(unfinished_bytes_max=2 * MIB)) as served:
        stalled = served.connect()
        await asyncio.get_running_loop().run_in_executor(None, stalled.sendall, half)
        await until(lambda: served.server.load.unfinished_bytes == len(half))
        old = served.server.peers()[0].address
        younger = served.connect()
        await asyncio.get_running_loop().run_in_executor(None, younger.sendall, half)
        await until(lambda: len(served.lost) == 1)
        assert served.lost[0].address == old
        assert served.server.load.unfinished_bytes <= 2 * MIB
        await served.is_alive()
        stalled.close()
        younger.close()
        await until(lambda: len(served.lost) == 3)
        assert served.server.load.unfinished_bytes == 0


async def test_half_a_frame_is_no_sign_of_life() -> None:
    async with party(idle_ms_max=300, idle_check_ms=50) as served:
        dripping = served.connect()
        dripping.sendall(struct.pack(">iI", 100_000, 90_000))
        async with asyncio.timeout(DEADLINE_S):
            while not served.lost:
                try:
                    dripping.send(b"{")
                except OSError:
                    break
                await asyncio.sleep(0.02)
        await until(lambda: len(served.lost) == 1)
        dripping.close()


async def test_one_address_cannot_take_all_connections() -> None:
    async with party(connections_per_address_max=3) as served:
        kept = [served.connect() for _ in range(3)]
        await until(lambda: len(served.server.peers()) == 3)
        fourth = served.connect()
        await until(lambda: len(served.lost) == 1)
        kept.pop().close()
        await until(lambda: len(served.lost) == 2)
        await served.is_alive()
        for each in (*kept, fourth):
            each.close()
