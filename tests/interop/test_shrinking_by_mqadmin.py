"""Row C1: `mqadmin updateTopic` removes no queue with messages unless this is intended.

Our broker says what would be stranded, and removes it when the attribute says that it is meant.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from engine.admin import Admin
from engine.client import ClientConfig
from engine.runtime import system_runtime
from tests.integration.broker.cluster import RawClient
from tests.interop.java_clients import JavaChecks
from tests.interop.mqadmin import said_by_mqadmin
from tests.interop.our_engine import OurEngine

TOPIC = "shrunkByMqadmin"


async def fill(engine: OurEngine) -> None:
    """Messages in queue 2 that a group has not consumed."""
    client = RawClient(engine.broker)
    for _ in range(3):
        assert (await client.send(topic=TOPIC, queue_id=2)).code == 0
    await client.commit(1, topic=TOPIC, group="lateGroup", queue_id=2)
    await client.close()


async def queues(engine: OurEngine) -> tuple[int, int]:
    """(read, write) queues of the topic."""
    config = ClientConfig(namesrv_addresses=(engine.name_server,))
    async with Admin(system_runtime(), config) as admin:
        found = (await admin.topics.configs(TOPIC))["broker-a"]
        return found.read_queue_nums, found.write_queue_nums


def update_topic(
    checks: JavaChecks, engine: OurEngine, folder: Path, count: int, *more: str
) -> str:
    """What `mqadmin updateTopic` prints."""
    words = ("updateTopic", "-n", engine.name_server, "-b", engine.broker, "-t", TOPIC)
    return said_by_mqadmin(checks, folder, *words, "-r", str(count), "-w", str(count), *more)


def test_a_topic_is_shrunk_over_messages_only_when_that_is_meant(
    engine_process: OurEngine, java_checks: JavaChecks, tmp_path: Path
) -> None:
    made = update_topic(java_checks, engine_process, tmp_path, 4)
    assert f"create topic to {engine_process.broker} success" in made, made
    asyncio.run(fill(engine_process))
    refused = update_topic(java_checks, engine_process, tmp_path, 2)
    assert "success" not in refused
    assert "2 messages of queue 2 that group lateGroup has not consumed" in refused, refused
    assert "+queue.shrink=forced" in refused, "and how to go about it"
    assert asyncio.run(queues(engine_process)) == (4, 4)
    forced = update_topic(java_checks, engine_process, tmp_path, 2, "-a", "+queue.shrink=forced")
    assert f"create topic to {engine_process.broker} success" in forced, forced
    assert asyncio.run(queues(engine_process)) == (2, 2)
