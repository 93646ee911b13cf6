"""The turn's order, and the book of requests under way; no sockets."""

from __future__ import annotations

import asyncio

import pytest

from engine.foundation.errors import ConnectionLost, LocalProtocolError
from engine.foundation.limits import PENDING_REQUESTS_MAX, TURN_WRITES_MAX
from engine.foundation.units import Buffer
from engine.protocol.command import RemotingCommand
from engine.remoting.connection import PendingRequests
from engine.remoting.turn import Turn


class Outlet:
    """Remembers what it was to write; a broken one refuses."""

    def __init__(self, written: list[str], name: str, *, broken: bool = False) -> None:
        self.written, self.name, self.broken = written, name, broken

    def write_frames(self, parts: list[Buffer]) -> None:
        if self.broken:
            raise OSError("gone")
        self.written.append(f"{self.name}:{b''.join(map(bytes, parts)).decode()}")


async def test_facts_are_written_once_and_before_any_answer_of_the_turn() -> None:
    written: list[str] = []
    turn = Turn(lambda: written.append("facts"))
    first, second = Outlet(written, "first"), Outlet(written, "second")
    turn.add(first, b"a", b"b", 2)
    turn.add(second, b"c", b"", 1)
    turn.add(first, b"d", b"", 1)
    assert written == []
    await asyncio.sleep(0)
    assert written == ["facts", "first:abd", "second:c"]
    turn.add(second, b"e", b"", 1)
    await asyncio.sleep(0)
    assert written[3:] == ["facts", "second:e"]


async def test_one_broken_connection_does_not_keep_the_others_answers() -> None:
    written: list[str] = []
    turn = Turn(lambda: None)
    turn.add(Outlet(written, "broken", broken=True), b"x", b"", 1)
    turn.add(Outlet(written, "whole"), b"y", b"", 1)
    await asyncio.sleep(0)
    assert written == ["whole:y"]


async def test_a_turn_may_end_without_anybody_to_answer() -> None:
    written: list[str] = []
    Turn(lambda: written.append("facts")).open()
    await asyncio.sleep(0)
    assert written == ["facts"]


async def test_a_crowd_is_answered_in_steps_and_each_one_in_order() -> None:
    written: list[str] = []
    turn = Turn(lambda: written.append("facts"))
    crowd = [Outlet(written, str(number)) for number in range(2 * TURN_WRITES_MAX + 1)]
    for outlet in crowd:
        turn.add(outlet, b"a", b"", 1)
    await asyncio.sleep(0)
    assert len(written) == 1 + TURN_WRITES_MAX
    turn.add(crowd[-1], b"b", b"", 1)
    turn.add(crowd[0], b"b", b"", 1)
    await asyncio.sleep(0)
    assert len(written) == 2 + 2 * TURN_WRITES_MAX, (
        "the facts of the second turn, and as many again"
    )
    await asyncio.sleep(0)
    answers = [one for one in written if one != "facts"]
    assert answers == [*(f"{number}:a" for number in range(len(crowd) - 1)), answers[-2], "0:b"]
    assert answers[-2] == f"{len(crowd) - 1}:ab", "what was queued first leaves first"
    await asyncio.sleep(0)
    assert len([one for one in written if one != "facts"]) == len(crowd) + 1


async def test_a_party_that_stops_answers_the_whole_crowd_first() -> None:
    written: list[str] = []
    turn = Turn(lambda: written.append("facts"))
    for number in range(2 * TURN_WRITES_MAX):
        turn.add(Outlet(written, str(number)), b"a", b"", 1)
    turn.finish()
    assert len(written) == 1 + 2 * TURN_WRITES_MAX


async def test_who_has_much_to_get_has_it_at_once_in_a_crowd_too() -> None:
    written: list[str] = []
    turn = Turn(lambda: written.append("facts"))
    crowd = [Outlet(written, str(number)) for number in range(2 * TURN_WRITES_MAX)]
    for outlet in crowd:
        turn.add(outlet, b"a", b"", 1)
    turn.end_for(crowd[-1])
    assert len(written) == 2 + TURN_WRITES_MAX
    assert written[-1] == f"{len(crowd) - 1}:a"
    turn.finish()
    assert len([one for one in written if one != "facts"]) == 2 * TURN_WRITES_MAX, "nobody twice"


async def test_responses_find_their_requests_in_any_order() -> None:
    pending = PendingRequests()
    requests = [RemotingCommand(1) for _ in range(3)]
    futures = [pending.expect(request) for request in requests]
    for request in reversed(requests):
        pending.resolve(request.respond(request.opaque))
    assert [future.result().code for future in futures] == [r.opaque for r in requests]
    pending.resolve(requests[0].respond(0))  # A second answer is dropped.


async def test_a_lost_connection_ends_every_wait() -> None:
    pending = PendingRequests()
    futures = [pending.expect(RemotingCommand(1)) for _ in range(3)]
    futures[1].cancel()
    pending.fail_all(ConnectionLost("gone"))
    for future in (futures[0], futures[2]):
        with pytest.raises(ConnectionLost):
            future.result()


async def test_requests_under_way_are_bounded() -> None:
    pending = PendingRequests()
    for _ in range(PENDING_REQUESTS_MAX):
        pending.expect(RemotingCommand(1))
    with pytest.raises(LocalProtocolError, match=str(PENDING_REQUESTS_MAX)):
        pending.expect(RemotingCommand(1))
    pending.forget(1)
    pending.expect(RemotingCommand(1))
