"""A listener that hangs is named: the row of its frozen window says where it stands."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.client.consuming.listeners import (
    ConsumeConcurrentlyStatus,
    ConsumeContext,
    ConsumeOrderlyStatus,
    ConsumeStatus,
)
from engine.foundation.limits import STACK_QUESTIONS_AT_ONCE, STACK_TOLD_BYTES_MAX
from engine.protocol.command import RemotingCommand
from engine.protocol.message import MessageExt
from engine.remoting import Peer
from tests.integration.broker.cluster import (
    GROUP,
    TOPIC,
    RawClient,
    broker_config,
    cluster,
    eventually,
)
from tests.integration.broker.spooled import picked, spooled
from tests.integration.client.cluster_users import consumer_config, consuming

SETTINGS = {"window_sample_interval_ms": 100, "full_sample_interval_ms": 100_000}


class Freezer:
    """Hangs at the first message of a queue until it is let go."""

    def __init__(self, answer: ConsumeStatus) -> None:
        self.answer = answer
        self.thawed = threading.Event()
        self.loop_thawed = asyncio.Event()

    def thaw(self) -> None:
        self.thawed.set()
        self.loop_thawed.set()

    def wait_for_the_bank_on_a_thread(self) -> None:
        self.thawed.wait(60)

    async def wait_for_the_bank(self) -> None:
        await self.loop_thawed.wait()

    async def on_a_thread(
        self, _messages: Sequence[MessageExt], _context: ConsumeContext
    ) -> ConsumeStatus:
        await asyncio.to_thread(self.wait_for_the_bank_on_a_thread)
        return self.answer

    async def on_the_loop(
        self, _messages: Sequence[MessageExt], _context: ConsumeContext
    ) -> ConsumeStatus:
        await self.wait_for_the_bank()
        return self.answer


def windows(folder: Path) -> list[dict[str, Any]]:
    rows = spooled(folder / "store", "client_windows")
    return [row for row in rows if row["topic"] == TOPIC]


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("place", ["on_the_loop", "on_a_thread"])
async def test_the_row_of_a_frozen_window_names_the_function_that_holds_its_head(
    tmp_path: Path, place: str, *, orderly: bool
) -> None:
    freezer = Freezer(
        ConsumeOrderlyStatus.SUCCESS if orderly else ConsumeConcurrentlyStatus.CONSUME_SUCCESS
    )
    function = {
        "on_the_loop": "wait_for_the_bank",
        "on_a_thread": "wait_for_the_bank_on_a_thread",
    }[place]
    async with cluster(broker_config(tmp_path, **SETTINGS)) as running:
        await running.client().send()
        name_server = running.name_server_address
        listener = {"on_the_loop": freezer.on_the_loop, "on_a_thread": freezer.on_a_thread}[place]
        async with consuming(
            *(name_server, GROUP, {TOPIC: listener}), config=consumer_config(orderly=orderly)
        ):

            async def is_named() -> bool:
                return any(row["stack"] for row in windows(tmp_path))

            await eventually(is_named, "the stack is reported")
            rows_before = len(windows(tmp_path))
            await asyncio.sleep(1)
            assert len(windows(tmp_path)) == rows_before, "what stands is reported once"
            freezer.thaw()

            async def is_thawed() -> bool:
                return windows(tmp_path)[-1]["held_count"] == 0

            await eventually(is_thawed, "the message is consumed")
    (named,) = [row for row in windows(tmp_path) if row["stack"]]
    stack = named["stack"].splitlines()
    assert stack[-1].endswith(" wait") or stack[-1].endswith(f" {function}"), named["stack"]
    assert any(line.endswith(f" {function}") for line in stack), named["stack"]
    assert picked(named, "held_count", "first_held", "dropped") == (1, 0, False)
    assert windows(tmp_path)[-1]["stack"] is None


async def test_a_client_in_java_is_asked_once_and_the_threads_at_work_are_reported(
    tmp_path: Path,
) -> None:
    name = "ConsumeMessageThread_orders_1"
    busy = f"{name}  TID: 61 STATE: WAITING\n{name}  shop.Orders.consume(Orders.java:12)\n"
    idle = "ConsumeMessageThread_orders_2  TID: 62 STATE: WAITING\n  x.ThreadPoolExecutor.getTask\n"
    async with cluster(broker_config(tmp_path, **SETTINGS)) as running:
        client = running.client("java")
        for queue_id in (0, 1):
            await client.send(queue_id=queue_id)
        client.running_info = {
            f'{{"brokerName":"broker-a","queueId":{queue_id},"topic":"{TOPIC}"}}': {
                "commitOffset": 0, "cachedMsgMinOffset": 0, "cachedMsgMaxOffset": 0,
                "cachedMsgCount": count, "cachedMsgSizeInMiB": 0, "droped": False,
                "locked": False, "lastPullTimestamp": 5, "lastConsumeTimestamp": 0,
            }
            for queue_id, count in ((0, 1), (1, 0))
        }  # fmt: skip
        client.jstack = f"{busy}\n{idle}\n"
        await client.heartbeat()
        await client.pull(1, queue_id=1)

        async def is_reported() -> bool:
            return any(row["stack"] for row in windows(tmp_path))

        await eventually(is_reported, "the stacks are reported")
        asked = client.asked_count

        async def asked_more() -> bool:
            return client.asked_count > asked + 5

        await eventually(asked_more, "it is asked what it holds as before")
        assert client.stacks_asked_count == 1
    stacks = {row["queue_id"]: row["stack"] for row in windows(tmp_path)}
    assert stacks == {0: busy.strip(), 1: None}


async def test_a_head_that_moves_asks_for_no_stack(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path, **SETTINGS)) as running:
        client = running.client("java")
        await client.send()
        place = f'{{"brokerName":"broker-a","queueId":0,"topic":"{TOPIC}"}}'
        await client.heartbeat()
        for offset in range(15):
            client.running_info = {
                place: {"cachedMsgMinOffset": offset, "cachedMsgMaxOffset": 20, "cachedMsgCount": 1}
            }
            asked = client.asked_count

            async def was_asked(asked: int = asked) -> bool:
                return client.asked_count > asked

            await eventually(was_asked, "its window is looked at")
        assert client.stacks_asked_count == 0
    assert len(windows(tmp_path)) >= 10


async def test_a_stack_without_end_is_cut(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path, **SETTINGS)) as running:
        client = running.client("java")
        await client.send()
        place = f'{{"brokerName":"broker-a","queueId":0,"topic":"{TOPIC}"}}'
        client.running_info = {place: {"cachedMsgCount": 1}}
        client.jstack = "ConsumeMessageThread_1 TID: 1\n" + "x" * (2 * STACK_TOLD_BYTES_MAX)
        await client.heartbeat()

        async def is_reported() -> bool:
            return any(row["stack"] for row in windows(tmp_path))

        await eventually(is_reported, "the stack is reported")
    (stack,) = [row["stack"] for row in windows(tmp_path) if row["stack"]]
    assert len(stack.encode()) <= STACK_TOLD_BYTES_MAX


async def test_a_client_in_two_groups_is_asked_once_in_its_interval(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path, **SETTINGS)) as running:
        client = running.client("java")
        await client.send()
        place = f'{{"brokerName":"broker-a","queueId":0,"topic":"{TOPIC}"}}'
        client.running_info = {place: {"cachedMsgCount": 1}}
        client.jstack = "ConsumeMessageThread_1 TID: 1"
        for group in (GROUP, "other"):
            await client.heartbeat(group)

        async def asked_often() -> bool:
            return client.asked_count >= 30

        await eventually(asked_often, "both groups' windows are looked at")
        assert client.stacks_asked_count == 1


class Dumps:
    """The stacks that clients are asked for at a time; none answers until it may."""

    def __init__(self) -> None:
        self.under_way: set[str] = set()
        self.most_under_way = 0
        self.may_end = asyncio.Event()


class Reluctant(RawClient):
    """Tells what it holds, and takes its time when it is asked for stacks."""

    def __init__(self, address: str, client_id: str, dumps: Dumps) -> None:
        super().__init__(address, client_id)
        self._dumps = dumps

    async def _send_running_info(  # type: ignore[override]
        self, peer: Peer, request: RemotingCommand
    ) -> RemotingCommand:
        if request.fields.get("jstackEnable") == "true":
            dumps = self._dumps
            dumps.under_way.add(self.client_id)
            dumps.most_under_way = max(dumps.most_under_way, len(dumps.under_way))
            await dumps.may_end.wait()
            dumps.under_way.discard(self.client_id)
        return super()._send_running_info(peer, request)


async def test_of_many_frozen_clients_so_many_are_asked_at_a_time_and_all_in_the_end(
    tmp_path: Path,
) -> None:
    dumps = Dumps()
    patient = {"window_ask_timeout_ms": 120_000}  # However slow the machine, no dump is given up.
    async with cluster(broker_config(tmp_path, **SETTINGS, **patient)) as running:
        await running.client().send()
        place = f'{{"brokerName":"broker-a","queueId":0,"topic":"{TOPIC}"}}'
        clients = [
            Reluctant(running.broker.address, f"java{number}", dumps)
            for number in range(2 * STACK_QUESTIONS_AT_ONCE)
        ]
        running.clients += clients
        for client in clients:
            client.running_info = {place: {"cachedMsgCount": 1}}
            client.jstack = f"ConsumeMessageThread_1 of {client.client_id}"
            await client.heartbeat()

        async def as_many_as_may_be_are_asked() -> bool:
            return len(dumps.under_way) >= STACK_QUESTIONS_AT_ONCE

        await eventually(as_many_as_may_be_are_asked, "half of them are asked", within_s=60)
        others = [client for client in clients if client.client_id not in dumps.under_way]
        before = {client.client_id: client.asked_count for client in others}

        async def others_are_looked_at() -> bool:
            return all(client.asked_count >= before[client.client_id] + 5 for client in others)

        await eventually(others_are_looked_at, "the others stand as long", within_s=60)
        assert len(dumps.under_way) == STACK_QUESTIONS_AT_ONCE
        dumps.may_end.set()

        async def all_reported() -> bool:
            return {row["client_id"] for row in windows(tmp_path) if row["stack"]} == {
                client.client_id for client in clients
            }

        await eventually(all_reported, "the stacks of all are reported", within_s=60)
    assert dumps.most_under_way == STACK_QUESTIONS_AT_ONCE
