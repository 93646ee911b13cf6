"""Row C3: Apache RocketMQ 5.5 reads our sealed tables of `config/`, and we read its own.

The tables are topics, groups and offsets. What it writes in their place has no seal, and is no
damage to us.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.admin import Admin
from engine.client import ClientConfig
from engine.protocol.message import MessageQueue
from engine.runtime import system_runtime
from engine.store.table_file import seal_of
from tests.integration.broker.cluster import RawClient, eventually
from tests.interop.our_engine import our_engine
from tests.interop.real_rocketmq import real_rocketmq

SHAPE = {"mappedFileSizeCommitLog": "1048576", "mappedFileSizeConsumeQueue": "2000"}
OUR_SHAPE = [word for key, value in SHAPE.items() for word in ("--set", f"{key}={value}")]
TABLES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")
TOPIC, GROUP = "sealedTopic", "sealedGroup"


def admin_of(name_server: str) -> Admin:
    return Admin(system_runtime(), ClientConfig(namesrv_addresses=(name_server,)))


async def fill(name_server: str, broker: str) -> None:
    """A topic, a group, messages and an offset, none of them as they come by themselves."""
    client = RawClient(broker)
    async with admin_of(name_server) as admin:
        await admin.topics.create(broker, TOPIC, read_queues=3, write_queues=3)
        await admin.groups.put(broker, {"groupName": GROUP, "retryMaxTimes": 7})
    for number in range(5):
        await client.send(b"%d" % number, topic=TOPIC, queue_id=2)
    await client.send(b"late", topic=TOPIC, queue_id=1, DELAY="1")
    await client.commit(4, topic=TOPIC, group=GROUP, queue_id=2)
    await client.close()


async def check(name_server: str, broker: str, broker_name: str) -> None:
    """All of it is known."""
    async with admin_of(name_server) as admin:

        async def routed() -> bool:
            return await admin.topics.route(TOPIC) is not None

        await eventually(routed, "the name server knows the topic", within_s=60)
        config = (await admin.topics.configs(TOPIC))[broker_name]
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (3, 3, 6)
        assert (await admin.groups.configs_at(broker))[GROUP]["retryMaxTimes"] == 7
        queue = MessageQueue(TOPIC, broker_name, 2)
        assert await admin.offsets.consume_offset(GROUP, queue) == 4
        assert await admin.offsets.max_offset(queue) == 5

        async def late_came() -> bool:
            return await admin.offsets.max_offset(MessageQueue(TOPIC, broker_name, 1)) == 1

        await eventually(late_came, "the delayed message, once", within_s=30)


def seals(store: Path) -> dict[str, bool]:
    """Table → has it a seal?"""
    found = {name: seal_of((store / "config" / name).read_bytes()) for name in TABLES}
    assert all(seal.fits for seal in found.values() if seal is not None)
    return {name: seal is not None for name, seal in found.items()}


@pytest.mark.timeout(240)
async def test_rocketmq_reads_our_sealed_tables_and_we_read_those_it_leaves(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with our_engine(tmp_path, *OUR_SHAPE) as ours:
        await fill(ours.name_server, ours.broker)
        await check(ours.name_server, ours.broker, "broker-a")
    assert seals(store) == dict.fromkeys(TABLES, True)
    with real_rocketmq(tmp_path, SHAPE, clean_stop=True) as rocketmq:
        await check(rocketmq.name_server, rocketmq.broker, "broker-a")
    assert seals(store)["consumerOffset.json"] is False, "RocketMQ wrote its own"
    with our_engine(tmp_path, *OUR_SHAPE, "--strict-store") as again:
        await check(again.name_server, again.broker, "broker-a")
    said = (tmp_path / "engine.log").read_text()
    assert "damaged" not in said.lower(), said
    assert seals(store)["consumerOffset.json"] is True, "and we ours"
