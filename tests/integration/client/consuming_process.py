"""A consumer as a process of its own, to be killed: it prints what it takes, one JSON line each.

Argument: a JSON object with `namesrv`, `group`, `topic`, and what else `Orders` names.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from engine.client import ConsumeConcurrentlyStatus, ConsumeContext, MessageModel, PushConsumer
from engine.protocol.message import MessageExt
from engine.runtime import system_runtime
from tests.integration.client.cluster_users import (
    LATER,
    SUCCESS,
    client_config,
    consumer_config,
    eventually,
)

ROOT = Path(__file__).parents[3]
NEVER_MS = 600_000


@dataclass
class Orders:
    """What the consumer does."""

    namesrv: str
    group: str
    topic: str
    instance: str = "DEFAULT"
    """Part of the client id; members share the queues in the order of their ids."""
    stuck_on: str | None = None
    """A message that never leaves the listener."""
    later_once: bool = False
    """Answer RECONSUME_LATER to each message the first time, though its work is done."""
    broadcast_folder: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    """ConsumerConfig's; by default it reports nothing by itself but at hand-over and stop."""


def print_line(what: dict[str, Any]) -> None:
    """One line for the test."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


async def consume(orders: Orders) -> None:
    """Until SIGTERM, then stop cleanly."""

    async def listen(
        messages: Sequence[MessageExt], context: ConsumeContext
    ) -> ConsumeConcurrentlyStatus:
        (message,) = messages
        body = bytes(message.body).decode()
        if body == orders.stuck_on:
            await asyncio.Event().wait()
        taken = {
            "body": body,
            "queue_id": message.queue_id,
            "offset": message.queue_offset,
            "tries": message.reconsume_times,
            "id": message.message_id,
            "at_retry": message.properties.get("RETRY_TOPIC") is not None,
        }
        print_line(taken)
        context.delay_level_when_next_consume = 1
        return LATER if orders.later_once and message.reconsume_times == 0 else SUCCESS

    settings: dict[str, Any] = {
        "rebalance_ms": 500,
        "first_pull_delay_ms": 50,
        "persist_first_ms": NEVER_MS,
        "persist_ms": NEVER_MS,
        "piggyback_commit": False,
        "stop_wait_ms": 100,
    }
    if orders.broadcast_folder is not None:
        settings["message_model"] = MessageModel.BROADCASTING
        settings["local_offset_directory"] = orders.broadcast_folder
    consumer = PushConsumer(
        system_runtime(),
        client_config(orders.namesrv, heartbeat_ms=1000, instance_name=orders.instance),
        orders.group,
        consumer=consumer_config(**(settings | orders.settings)),
    )
    consumer.subscribe(orders.topic, "*", listen)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await consumer.start()
    print_line({"client_id": consumer.client_id})
    await stop.wait()
    await consumer.stop()


class ConsumerProcess:
    """Such a process, seen from the test."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.client_id = ""
        self.taken: list[dict[str, Any]] = []
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, orders: Orders) -> Self:
        """A running consumer that has taken up its queues, or will soon."""
        process = await asyncio.create_subprocess_exec(
            *("setpriv", "--pdeathsig", "KILL"),  # A killed test run leaves no consumer behind.
            *(sys.executable, "-m", __name__, json.dumps(vars(orders))),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        consumer = cls(process)
        await eventually(lambda: consumer.client_id, "the consumer has started")
        return consumer

    async def took(self, count: int) -> list[dict[str, Any]]:
        """What it took, once there are `count`."""
        await eventually(lambda: len(self.taken) >= count, f"{count} messages taken")
        return self.taken

    async def kill(self) -> None:
        """SIGKILL: it reports nothing and takes no leave; nothing when it has ended."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading

    async def leave(self) -> None:
        """SIGTERM: it stops cleanly."""
        self._process.terminate()
        async with asyncio.timeout(30):
            assert await self._process.wait() == 0
        await self._reading

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            line_read = json.loads(line)
            if "client_id" in line_read:
                self.client_id = line_read["client_id"]
            else:
                self.taken.append(line_read)


if __name__ == "__main__":
    asyncio.run(consume(Orders(**json.loads(sys.argv[1]))))
