"""Consumers read from a slave when they are far behind, or the master is gone, and go on by
themselves when it comes back; a slave that is promoted serves them as their master.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engine.broker.broker import Broker
from engine.client import ConsumeContext
from engine.client.consuming.listeners import ListenerAnswer
from engine.protocol.codes import ResponseCode
from engine.protocol.message import MessageExt
from tests.integration.broker.cluster import TOPIC
from tests.integration.broker.master_and_slaves import Replicated, replicated
from tests.integration.broker.test_promotion import promote
from tests.integration.client.cluster_users import (
    Seen,
    consumer_config,
    consuming,
    eventually,
    producing,
    text,
)

GROUP = "readers"


async def send(stage: Replicated, first: int, count: int) -> None:
    async with producing(stage.master.name_server_address, "producers") as producer:
        for number in range(first, first + count):
            await producer.send(text(TOPIC, str(number)))


def committed(broker: Broker) -> int:
    offsets = broker.state.offsets
    return sum(offsets.committed(GROUP, TOPIC, one) or 0 for one in range(4))


async def test_who_is_far_behind_reads_from_the_slave(tmp_path: Path) -> None:
    async with replicated(tmp_path, slave_read_enable=True) as stage:
        client = stage.master.client()
        for number in range(30):
            answer = await client.send(b"%d" % number * 300)
            assert answer.code == ResponseCode.SUCCESS
        await stage.caught_up()
        assert stage.slave is not None
        store = stage.master.broker.state.store
        store.change_settings(replace(store._config, resident_bytes=4000))
        stats = stage.slave.state.stats
        given = Counter[str]()
        before = stats.got

        def counted(group: str, topic: str, messages: int, size_bytes: int) -> None:
            given[group] += messages
            before(group, topic, messages, size_bytes)

        stats.got = counted  # type: ignore[method-assign]
        seen, namesrv = Seen(), stage.master.name_server_address
        async with consuming(
            namesrv, GROUP, {TOPIC: seen}, config=consumer_config(pull_batch_max=2)
        ):
            await eventually(lambda: len(seen.messages) >= 30, "all are consumed")
        assert given[GROUP] > 0, "the slave gave some of them"
        assert len(seen.messages) == 30


async def test_consumers_read_and_commit_at_the_slave_while_the_master_is_gone(
    tmp_path: Path,
) -> None:
    async with replicated(tmp_path, slave_read_enable=True) as stage:
        await send(stage, 0, 20)
        seen, namesrv = Seen(), stage.master.name_server_address
        slow = asyncio.Event()

        async def listen(messages: Sequence[MessageExt], context: ConsumeContext) -> ListenerAnswer:
            if len(seen.messages) >= 8:
                await slow.wait()
            return await seen(messages, context)

        config = consumer_config(pull_batch_max=1, consume_concurrency=1)
        async with consuming(namesrv, GROUP, {TOPIC: listen}, config=config):
            await eventually(lambda: len(seen.messages) == 8, "some are consumed")
            await stage.caught_up()
            assert stage.slave is not None
            slave = stage.slave
            topics = slave.state.topics
            await eventually(lambda: topics.find(TOPIC) is not None, "the slave has the topic")
            await stage.master.broker.stop()
            slow.set()
            await eventually(lambda: len(seen.messages) >= 20, "the slave gives the rest")
            await eventually(lambda: committed(slave) == 20, "and takes the offsets")
            again = await stage.start_master_again()
            assert committed(again) == 20
            await send(stage, 20, 5)
            await eventually(lambda: len(set(seen.bodies)) == 25, "what comes then is consumed")
        times = Counter((one.queue_id, one.queue_offset) for one in seen.messages)
        assert {place for place, count in times.items() if count > 1} == set()


async def test_consumers_go_on_at_a_promoted_slave(tmp_path: Path) -> None:
    async with replicated(tmp_path) as stage:
        await send(stage, 0, 20)
        seen, namesrv = Seen(), stage.master.name_server_address
        async with consuming(namesrv, GROUP, {TOPIC: seen}):
            await eventually(lambda: len(seen.messages) == 20, "all are consumed")
            await eventually(lambda: committed(stage.master.broker) == 20, "and committed")
            await stage.caught_up()
            assert stage.slave is not None
            slave = stage.slave
            await eventually(lambda: committed(slave) == 20, "the slave has the offsets")
            await stage.master.broker.stop()
            assert await promote(slave.address) == (0, "")
            await send(stage, 20, 10)
            await eventually(lambda: len(set(seen.bodies)) == 30, "they read from the new master")
            await eventually(lambda: committed(slave) == 30, "and commit there")
        assert len(seen.messages) == 30, "each once"
