"""Row C9: kill -9 of a SYNC_MASTER under load, its slave promoted by command, the killed one back
as a slave: nothing acknowledged is lost, producers go on by themselves, the logs become the same.

The suite plays a few rounds; TIDEMARK_KILL_ROUNDS asks for more.
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.admin import admin_at
from engine.client import Producer
from engine.foundation.errors import TidemarkError
from engine.protocol.message import MessageQueue
from tests.integration.broker.cluster import TOPIC, RawClient, eventually, messages
from tests.integration.broker.processes import Started, party
from tests.integration.broker.test_kill_loop import QUEUES, SMALL
from tests.integration.broker.test_kills_of_master_and_slave import log_bytes
from tests.integration.client.cluster_users import producing, text
from tests.integration.telemetry.killable_engine import free_port
from tests.seeds import one_seed
from tests.simulation.history import (
    History,
    check_nothing_acknowledged_is_lost,
    check_order_per_queue,
)
from tidemark import app

ROUNDS = int(os.environ.get("TIDEMARK_KILL_ROUNDS", "2"))
SEED = one_seed()
BROKER = "broker-a"


class Node:
    """A broker on the same ports and store in every life."""

    def __init__(self, folder: Path, name: str, namesrv: str, *settings: str) -> None:
        self.store, self._log = folder / name, folder / f"{name}.txt"
        self._port, self._namesrv = free_port(), namesrv
        own = (*settings, f"haListenPort={free_port()}", "slaveTimeout=1500")
        self._options = [word for setting in own for word in ("--set", setting)]
        self.address = f"127.0.0.1:{self._port}"
        self.running: Started | None = None
        self._stack = ExitStack()

    def start(self) -> None:
        self.running = self._stack.enter_context(
            party(
                self._log,
                *("broker", "--store", str(self.store), "--lake", "none"),
                *("--namesrv", self._namesrv, "--port", str(self._port), *self._options, *SMALL),
            )
        )

    def kill(self) -> None:
        assert self.running is not None
        self.running.kill()

    def close(self) -> None:
        self._stack.close()


def replica(namesrv: str, *words: str) -> str:
    """What `tidemark admin replica ...` prints."""
    answer = CliRunner().invoke(app, ["admin", "replica", *words], env={"NAMESRV_ADDR": namesrv})
    assert answer.exit_code == 0, answer.output
    return answer.stdout


async def send_for_ever(producer: Producer, history: History, queue_id: int) -> None:
    """Numbered messages to one queue; one whose outcome is unknown is never sent again."""
    number, queue = 0, MessageQueue(TOPIC, BROKER, queue_id)
    while True:
        body = f"{queue_id}:{number}:".ljust(number * 37 % 1500 + 12, ".")
        number += 1
        history.sent.append(body.encode())
        try:
            sent = await producer.send(text(TOPIC, body), queue=queue)
        except TidemarkError:
            await asyncio.sleep(0.05)
            continue
        if sent.status.name == "SEND_OK":
            history.ack(TOPIC, queue_id, sent.queue_offset, body.encode())


async def stored_at(address: str) -> dict[tuple[str, int, int], bytes]:
    client, stored = RawClient(address), dict[tuple[str, int, int], bytes]()
    for queue_id in range(QUEUES):
        offset = 0
        while (answer := await client.pull(offset, queue_id=queue_id)).code == 0:
            for message in messages(answer):
                stored[TOPIC, queue_id, message.queue_offset] = message.body
                offset = message.queue_offset + 1
    await client.rpc.close()
    return stored


async def comes_back(namesrv: str, node: Node) -> str:
    """It follows; what had to be cut for that."""
    said = list[str]()

    async def follows() -> bool:
        async with admin_at(namesrv) as admin:
            state = await admin.replicas.state(node.address)
        if state.following == "DIVERGED" and not said:
            said.append(await asyncio.to_thread(replica, namesrv, "rebuild", BROKER, node.address))
            await asyncio.to_thread(replica, namesrv, "rebuild", BROKER, node.address, "--yes")
        return state.following == "FOLLOWING"

    await eventually(follows, f"{node.address} follows", within_s=40)
    return "".join(said)


@pytest.mark.timeout(90 + 30 * ROUNDS)
async def test_a_promotion_after_kill_9_loses_nothing_acknowledged(tmp_path: Path) -> None:
    chance, history, sending = random.Random(SEED), History(), list[asyncio.Task[None]]()
    with ExitStack() as stack:
        log = tmp_path / "namesrv.txt"
        namesrv = stack.enter_context(party(log, "namesrv", "--port", "0")).address
        leader = Node(tmp_path, "a", namesrv, "brokerRole=SYNC_MASTER")
        other = Node(tmp_path, "b", namesrv, "brokerRole=SLAVE", "brokerId=1")
        for node in (leader, other):
            stack.callback(node.close)
            await asyncio.to_thread(node.start)
        client = RawClient(leader.address)

        async def is_made() -> bool:
            return (await client.send(b"the first", queue_id=QUEUES - 1)).code == 0

        await eventually(is_made, "both have the first message", within_s=40)
        await client.rpc.close()
        async with producing(namesrv, "producers") as producer:
            sending += [
                asyncio.create_task(send_for_ever(producer, history, one)) for one in range(QUEUES)
            ]
            for _ in range(ROUNDS):
                await more_acknowledged(history)
                await asyncio.sleep(chance.uniform(0.0, 0.6))
                leader.kill()
                said = await asyncio.to_thread(replica, namesrv, "promote", BROKER)
                assert "nothing that was acknowledged is lost" in said, said
                await asyncio.to_thread(replica, namesrv, "promote", BROKER, "--yes")
                leader, other = other, leader
                await asyncio.to_thread(other.start)
                await comes_back(namesrv, other)
            await more_acknowledged(history)
            for task in sending:
                task.cancel()
            for outcome in await asyncio.gather(*sending, return_exceptions=True):
                assert isinstance(outcome, asyncio.CancelledError), outcome

        async def same_logs() -> bool:
            return log_bytes(leader.store) == log_bytes(other.store)

        await eventually(same_logs, "the logs are the same", within_s=40)
        stored = await stored_at(leader.address)
        check_nothing_acknowledged_is_lost(history, stored)
        check_order_per_queue(history, stored)


async def more_acknowledged(history: History) -> None:
    before = len(history.acked)

    async def are_more() -> bool:
        return len(history.acked) > before + 20

    await eventually(are_more, "sends are acknowledged", within_s=40)
