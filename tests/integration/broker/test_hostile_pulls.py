"""Pulls that claim much: what a parked one makes the broker keep and count, and what a filter
costs, is bounded; nobody else waits for it.

Row: Limits.
"""

from __future__ import annotations

import asyncio
import socket
import time
import tracemalloc
from pathlib import Path

import pytest

from engine.foundation.limits import (
    BODY_UNREAD_BYTES_MAX,
    CONNECTION_REQUEST_BYTES_MAX,
    FILTER_EXPRESSION_CHARS_MAX,
    HELD_FILTER_BYTES_MAX,
    SUBSCRIPTION_TAGS_MAX,
)
from engine.foundation.units import MIB
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.frames import FrameDecoder, encode_frame
from tests.integration.broker.cluster import (
    TOPIC,
    Cluster,
    RawClient,
    bodies,
    broker_config,
    cluster,
    eventually,
)

DEADLINE_S = 60
PADDING = "x" * 200_000
"""A header field that nobody reads."""
TAGS = "||".join(f"t{number}" for number in range(SUBSCRIPTION_TAGS_MAX))
SELECTOR = " OR ".join(["a=1"] * (FILTER_EXPRESSION_CHARS_MAX // 7))
"""As dear as one may be: each term reads a long number anew."""
DEAR = {"a": "0" * 20}


def waiting_pull(opaque: int, *, body_bytes: int = 0, queue_id: int = 0, **fields: str) -> bytes:
    """A pull at the end of a queue with one message, that may be parked for five minutes."""
    header = {
        "consumerGroup": "g",
        "topic": TOPIC,
        "queueId": str(queue_id),
        "queueOffset": "1",
        "maxMsgNums": "1",
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": "300000",
        "subscription": "*",
        "subVersion": "1",
    }
    command = RemotingCommand(
        RequestCode.PULL_MESSAGE, header | fields, bytes(body_bytes), opaque=opaque
    )
    return encode_frame(command)


class Greedy:
    """A raw connection."""

    def __init__(self, running: Cluster) -> None:
        host, port = running.broker.address.split(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setblocking(False)

    async def send(self, frames: bytes) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.get_running_loop().sock_sendall(self.socket, frames)

    async def answers(self, count: int) -> list[RemotingCommand]:
        decoder, answers = FrameDecoder(), list[RemotingCommand]()
        async with asyncio.timeout(DEADLINE_S):
            while len(answers) < count:
                received = await asyncio.get_running_loop().sock_recv(self.socket, MIB)
                assert received, "it was cut off"
                answers += decoder.feed(received)
        return answers

    def close(self) -> None:
        self.socket.close()


def load_of(running: Cluster) -> int:
    """Bytes of requests that the broker counts as under way."""
    assert running.broker._running is not None
    return running.broker._running.server.load.request_bytes


async def parked(running: Cluster, count: int) -> None:
    holds = running.broker.state.holds

    async def there() -> bool:
        return holds.count == count

    await eventually(there, f"{count} pulls are parked", within_s=DEADLINE_S)


async def test_a_parked_pull_stops_nobody_who_sends_more_nor_does_one_that_is_gone(
    tmp_path: Path,
) -> None:
    """What it said is let go: bytes of parked pulls were counted until they were answered, and for
    ever when their connection ended before.
    """
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.send(b"first")
        greedy = Greedy(running)
        count = 2 * CONNECTION_REQUEST_BYTES_MAX // BODY_UNREAD_BYTES_MAX
        for opaque in range(count):
            await greedy.send(waiting_pull(opaque, body_bytes=BODY_UNREAD_BYTES_MAX))
        await parked(running, count)
        assert load_of(running) == 0
        await client.send(b"second")
        assert len(await greedy.answers(count)) == count
        await greedy.send(waiting_pull(0, queueOffset="2", body_bytes=BODY_UNREAD_BYTES_MAX))
        await parked(running, 1)
        greedy.close()
        await parked(running, 0)
        assert load_of(running) == 0, "nothing is owed for a connection that is gone"


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        pytest.param({"padding": PADDING}, 100, id="a field that nobody reads"),
        pytest.param({"bname": PADDING}, 100, id="the name of a broker"),
        pytest.param({"subscription": TAGS}, 100, id="many tags"),
        pytest.param(
            {"subscription": SELECTOR, "expressionType": "SQL92"}, 25, id="a long selector"
        ),
    ],
)
async def test_a_parked_pull_keeps_little_of_what_it_said(
    tmp_path: Path, fields: dict[str, str], count: int
) -> None:
    settings = {"enable_property_filter": True}
    async with cluster(broker_config(tmp_path, **settings)) as running:
        client = running.client()
        await client.send(b"first")
        holds = running.broker.state.holds
        holds.filter_bytes_max = 4 * MIB
        greedy = Greedy(running)
        tracemalloc.start()
        for opaque in range(count):
            varied = dict(fields)
            if "expressionType" in fields:  # Each its own, so that none is shared.
                varied["subscription"] = f"b={opaque:05} OR {SELECTOR.partition(' OR ')[2]}"[:-14]
            await greedy.send(waiting_pull(opaque, **varied))
        assert (await client.send(b"alive", queue_id=1)).code == ResponseCode.SUCCESS
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert holds.count > 0
        assert holds.filter_bytes <= 4 * MIB < HELD_FILTER_BYTES_MAX
        assert kept < 16 * MIB
        greedy.close()
        await parked(running, 0)
        assert holds.filter_bytes == 0


async def test_a_pull_has_no_more_tags_of_its_own_than_a_heartbeat_may_have(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.send(b"first", TAGS="t0")
        assert bodies(await client.pull(0, subscription=TAGS)) == [b"first"]
        refused = await client.pull(0, subscription=TAGS + "||one-more")
        assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert f"{SUBSCRIPTION_TAGS_MAX} at most" in (refused.remark or "")


async def put_many(client: RawClient, count: int) -> None:
    """So many messages that each take long to distinguish from the wanted ones."""
    properties = "".join(f"{name}\x01{value}\x02" for name, value in DEAR.items())
    for _ in range(count):
        await client.send(b"", properties=properties)


async def test_a_dear_selector_looks_through_few_messages_at_once_and_gets_on(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path, enable_property_filter=True)) as running:
        client = running.client()
        await put_many(client, 40)
        await client.send(b"wanted", properties="a\x011\x02")
        await client.pull(
            40, subscription=SELECTOR, expressionType="SQL92"
        )  # Compiled from now on.
        offset, longest_s, rounds = 0, 0.0, 0
        while True:
            begun = time.thread_time()
            answer = await client.pull(offset, subscription=SELECTOR, expressionType="SQL92")
            longest_s = max(longest_s, time.thread_time() - begun)
            offset, rounds = int(answer.fields["nextBeginOffset"]), rounds + 1
            if answer.code != ResponseCode.PULL_RETRY_IMMEDIATELY:
                break
        assert bodies(answer) == [b"wanted"]
        assert rounds > 5, "few messages each time"
        assert longest_s < 0.05, "of the loop, client and broker together"


async def test_of_many_dear_pulls_in_one_read_each_has_its_turn_of_the_loop(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path, enable_property_filter=True)) as running:
        client = running.client()
        await put_many(client, 8)
        await client.pull(8, subscription=SELECTOR, expressionType="SQL92")  # Compiled from now on.
        greedy, passes = Greedy(running), list[float]()
        dear = {"subscription": SELECTOR, "expressionType": "SQL92", "queueOffset": "0"}
        count = 24
        together = b"".join(waiting_pull(opaque, **dear) for opaque in range(count))
        await greedy.send(together)
        asked = asyncio.ensure_future(greedy.answers(count))
        while not asked.done():
            begun = time.thread_time()
            await asyncio.sleep(0)
            passes.append(time.thread_time() - begun)
        answers = asked.result()
        assert sorted(answer.opaque for answer in answers) == list(range(count))
        assert {answer.code for answer in answers} == {ResponseCode.PULL_RETRY_IMMEDIATELY}
        assert max(passes) < 0.05, "one pull a pass, not all that were read together"
        greedy.close()


async def test_a_cheap_filter_looks_through_as_many_messages_as_ever(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path, enable_property_filter=True)) as running:
        client = running.client()
        await put_many(client, 200)
        await client.send(b"wanted", properties="a\x011\x02")
        answer = await client.pull(0, subscription="a = 1", expressionType="SQL92")
        assert bodies(answer) == [b"wanted"]
