"""Row D5: the outbox as a job, and the business, the executor and the centre killed with kill -9:
each order is sent, those of a customer in their order, and copies carry one key and one id.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from demo.ports import free_port_block
from engine.protocol.message import MessageExt
from pipelines.database.clock import machine_ms
from pipelines.database.database import Database
from pipelines.scheduler.executor.serving import TOKEN_VARIABLE
from pipelines.scheduler.store import groups, jobs, results
from pipelines.scheduler.store.audit import Change
from tests.amounts import kills
from tests.integration.alerting.stores import sqlite_address
from tests.integration.client.cluster_users import Seen, consuming, eventually
from tests.integration.client.stories import make_topic
from tests.integration.scheduler.parties import CONTEXT, PATIENCE_S, TOKEN
from tests.integration.scheduler.processes import COMMAND, ROOT, centre_process
from tests.integration.scheduler.stores import settings
from tests.interop.our_engine import OurEngine, our_engine

pytestmark = [pytest.mark.timeout(3_600), pytest.mark.slow]

EXAMPLES = ROOT / "docs" / "examples"
TOPIC, APP = "orders", "shop"
SETTLED_S = 300
ORDERS_A_LIFE = 60
"""Of the business, if nobody kills it before."""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[OurEngine]:
    with our_engine(tmp_path / "engine") as running:
        yield running


@dataclass
class Scene:
    """A shop's database, and the processes about it, which are begun again where they were."""

    folder: Path
    name_server: str
    centre_port: int
    executor_port: int
    centre: AsyncExitStack = field(default_factory=AsyncExitStack)
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    @property
    def shop(self) -> Path:
        return self.folder / "shop.db"

    async def begin(self, name: str) -> None:
        match name:
            case "centre":
                self.centre = AsyncExitStack()
                at = centre_process(
                    sqlite_address(self.folder), port=self.centre_port, log=self.folder / "log"
                )
                process, _ = await self.centre.enter_async_context(at)
            case "executor":
                process = await self._begun(
                    *(COMMAND, "executor", "--app", APP, "--module", "outbox_job"),
                    *("--admin", f"http://127.0.0.1:{self.centre_port}{CONTEXT}"),
                    *("--home", self.folder / "x", "--port", self.executor_port),
                )
                assert process.stdout is not None
                async with asyncio.timeout(PATIENCE_S):
                    assert (await process.stdout.readline()).startswith(b"ready")
            case _:
                script = EXAMPLES / "outbox_job.py"
                process = await self._begun(sys.executable, script, self.shop, ORDERS_A_LIFE)
        self.processes[name] = process

    async def _begun(self, *command: object) -> asyncio.subprocess.Process:
        environment = {
            "PYTHONPATH": f"{EXAMPLES}:{ROOT}",
            "OUTBOX_NAME_SERVER": self.name_server,
            "OUTBOX_DATABASE": str(self.shop),
            TOKEN_VARIABLE: TOKEN,
        }
        with (self.folder / "log").open("ab") as log_file:
            return await asyncio.create_subprocess_exec(
                *map(str, command), stdout=asyncio.subprocess.PIPE, stderr=log_file, cwd=ROOT,
                env=os.environ | environment,
            )  # fmt: skip

    async def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if name == "centre":
            await self.centre.aclose()

    def ask(self, statement: str) -> list[tuple[int, ...]]:
        with closing(sqlite3.connect(self.shop, timeout=30)) as connection:
            return list(connection.execute(statement))


@asynccontextmanager
async def a_scene(folder: Path, engine: OurEngine) -> AsyncIterator[Scene]:
    port = free_port_block(2)
    scene = Scene(folder, engine.name_server, port, port + 1)
    try:
        for name in ("centre", "executor", "business"):
            await scene.begin(name)
        yield scene
    finally:
        for name in list(scene.processes):
            await scene.kill(name)


def with_a_job(address: str) -> tuple[Database, int]:
    database = Database.at(address)
    now = Change("ann", machine_ms())
    wanted = settings(
        title="send the outbox", handler="send-outbox", schedule_kind="FIX_RATE",
        schedule_text="1", blocking="DISCARD_LATER", route="FAILOVER",
    )  # fmt: skip
    job_id = jobs.add_job(database, groups.add_group(database, APP, now), wanted, now)
    jobs.start_job(database, job_id, Change("ann", machine_ms()))
    return database, job_id


@kills(6, in_full=40)
async def test_each_order_is_sent_whoever_of_all_processes_is_killed(
    kills: int, engine: OurEngine, tmp_path: Path
) -> None:
    chance = random.Random(kills)
    await make_topic(engine, TOPIC, queues=2)
    database, job_id = with_a_job(sqlite_address(tmp_path))
    async with a_scene(tmp_path, engine) as scene:
        for turn in range(kills):
            victim = ("business", "executor", "centre")[turn % 3]
            await asyncio.sleep(chance.uniform(0.3, 2.0))  # Its moment is any.
            await scene.kill(victim)
            await scene.begin(victim)
        await scene.processes["business"].wait()

        def all_sent() -> bool:
            return not scene.ask("SELECT 1 FROM outbox_messages WHERE state <> 'SENT' LIMIT 1")

        async with asyncio.timeout(SETTLED_S):
            while not await asyncio.to_thread(all_sent):  # noqa: ASYNC110 - rows wake nobody
                await asyncio.sleep(0.5)
        orders = {number for (number,) in scene.ask("SELECT number FROM orders")}
        [(claims,)] = scene.ask("SELECT sum(claims) FROM outbox_messages")
        messages = await read_back(engine, len(orders))
        runs = len(results.runs_of(database, job_id))
    database.close()
    judge(messages, orders, claims)
    print(  # noqa: T201
        f"\n{kills} kills, {len(orders)} orders, {len(messages)} messages, {runs} runs or more"
    )


async def read_back(engine: OurEngine, count: int) -> list[MessageExt]:
    """What the topic holds, as soon as that many different ones of it were read."""
    seen = Seen()
    async with consuming(engine.name_server, "reads-orders", {TOPIC: seen}):
        await eventually(lambda: len(set(seen.bodies)) >= count, f"{count} messages")
    return sorted(seen.messages, key=lambda message: (message.queue_id, message.queue_offset))


def judge(messages: list[MessageExt], orders: set[int], claims: int) -> None:
    arrived = [json.loads(message.body) for message in messages]
    assert {one["order"] for one in arrived} == orders, "none lost or invented"
    assert len(orders) <= len(arrived) <= claims
    ids: dict[int, set[str | None]] = {}
    for message, one in zip(messages, arrived, strict=True):
        assert message.keys == one["customer"]
        ids.setdefault(one["order"], set()).add(message.uniq_key)
    assert all(len(copies) == 1 for copies in ids.values()), "copies carry one id"
    for customer in {one["customer"] for one in arrived}:
        in_order = [one["order"] for one in arrived if one["customer"] == customer]
        assert in_order == sorted(in_order), "copies stand beside each other"
