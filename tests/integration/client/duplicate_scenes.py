"""One topic and one group in which something goes wrong: what was consumed, as the consumers
know it, and what was reported, as the spool has it.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.admin import Admin
from engine.client.sending.queue_choice import select_by_index
from engine.protocol.message_ids import parse_offset_message_id
from engine.runtime import system_runtime
from tests.integration.broker.spooled import spooled
from tests.integration.client.cluster_users import client_config, eventually, producing, text
from tests.integration.client.consuming_process import ConsumerProcess, Orders
from tests.integration.telemetry.killable_engine import KillableEngine

COUNT = 8
"""Messages a scene begins with, all in queue 0 of two."""


@dataclass
class Scene:
    """One topic and one group on a running engine."""

    name: str
    namesrv: str
    broker: str
    store: Path
    folder: Path
    engine: KillableEngine | None = None
    consumers: list[ConsumerProcess] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    """Physical offset of each message sent last under its number."""

    async def begin(self, count: int = COUNT) -> None:
        """The topic with its first messages."""
        async with Admin(system_runtime(), client_config(self.namesrv)) as admin:
            await admin.topics.create(self.broker, self.name, read_queues=2, write_queues=2)

            async def known() -> bool:
                return await admin.topics.route(self.name) is not None

            await eventually(known, f"a route of {self.name}")
        await self.send(*range(count))

    async def send(self, *numbers: int) -> None:
        async with producing(self.namesrv, "p") as producer:
            for number in numbers:
                message = text(self.name, f"{number}")
                sent = await producer.send(message, selector=select_by_index, argument=0)
                _, self.places[number] = parse_offset_message_id(sent.offset_message_id or "")

    async def consumer(self, **orders: Any) -> ConsumerProcess:
        consumer = await ConsumerProcess.start(
            Orders(self.namesrv, f"{self.name}-group", self.name, **orders)
        )
        self.consumers.append(consumer)
        return consumer

    async def end(self) -> None:
        for consumer in self.consumers:
            await consumer.kill()

    def rows(self, table: str) -> list[dict[str, Any]]:
        """What the broker reported about the group."""
        return [row for row in spooled(self.store, table) if row["group"] == f"{self.name}-group"]

    def twice(self) -> Counter[int]:
        """Offsets that were consumed more than once, as the consumers know it, retries apart."""
        taken = Counter(
            one["offset"] for each in self.consumers for one in each.taken if not one["at_retry"]
        )
        return Counter({offset: n - 1 for offset, n in taken.items() if n > 1})

    def reported_again(self) -> Counter[int]:
        """Offsets that the broker says it delivered again."""
        reported: Counter[int] = Counter()
        for row in self.rows("redeliveries"):
            reported.update(range(row["from_offset"], row["to_offset"]))
        return reported

    def assert_redelivered(self, *expected: int) -> list[dict[str, Any]]:
        """Exactly these were consumed twice, and each of them is reported as delivered again."""
        assert sorted(self.twice()) == list(expected)
        assert not self.twice() - self.reported_again(), "a duplicate that no row covers"
        return self.rows("redeliveries")


Story = Callable[[Scene], Awaitable[None]]


# A broker's next life.


async def stopped_with_offset(scene: Scene, *, at: int = COUNT) -> Path:
    """The engine stopped cleanly after the group consumed `at` messages; its offsets file."""
    assert scene.engine is not None
    consumer = await scene.consumer()
    await consumer.took(at)
    await consumer.leave()
    await scene.engine.end(signal.SIGTERM)
    path = scene.store / "config" / "consumerOffset.json"
    assert offset_in(path, scene) == at
    return path


def key_of(scene: Scene) -> str:
    return f"{scene.name}@{scene.name}-group"


def offset_in(path: Path, scene: Scene) -> int:
    return int(json.loads(path.read_text())["offsetTable"][key_of(scene)]["0"])


def change_offset(path: Path, scene: Scene, offset: int) -> None:
    document = json.loads(path.read_text())
    document["offsetTable"][key_of(scene)]["0"] = offset
    path.write_text(json.dumps(document))


async def next_life(scene: Scene) -> list[str]:
    """Start again; what the boot says about damaged files."""
    assert scene.engine is not None
    await scene.engine.start()
    boots = lambda: [r for r in spooled(scene.store, "lifecycle") if r["kind"] == "BOOT"]  # noqa: E731
    await eventually(lambda: len(boots()) == 2, "the second boot is reported")
    lifecycle = spooled(scene.store, "lifecycle")
    return [row["detail"] for row in lifecycle if row["kind"] == "DAMAGED_FILE"]
