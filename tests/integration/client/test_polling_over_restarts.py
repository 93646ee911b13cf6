"""Row A12: a polling consumer lives through a broker's restart, and its commits do too."""

from __future__ import annotations

import signal
from pathlib import Path

from engine.admin import Admin
from engine.protocol.message import MessageQueue
from engine.runtime import system_runtime
from tests.integration.client.cluster_users import client_config
from tests.integration.client.pull_stories import numbers, polled, polling, send_numbers
from tests.integration.client.stories import make_topic
from tests.integration.telemetry.killable_engine import SMALL, KillableEngine


class Restartable:
    """An engine as the stories take it, on the same ports in every life."""

    def __init__(self, engine: KillableEngine) -> None:
        self.engine = engine

    @property
    def name_server(self) -> str:
        return self.engine.namesrv

    @property
    def broker(self) -> str:
        return self.engine.broker


async def test_polling_goes_on_after_restarts_and_a_commit_answered_before_a_clean_one_is_kept(
    tmp_path: Path,
) -> None:
    engine = KillableEngine(tmp_path)
    await engine.start()
    cluster = Restartable(engine)
    try:
        await make_topic(cluster, "tide", queues=1)
        queue = MessageQueue("tide", "broker-a", 0)
        await send_numbers(cluster, queue, range(6))
        async with polling(cluster, "pollers", queues=[queue], pull_batch_max=3) as consumer:
            assert await polled(consumer, 3) == numbers(range(3))
            await consumer.commit()
            await engine.end(signal.SIGTERM)
            await engine.start()
            assert await consumer.committed(queue) == 3
            rest = [body for body in await polled(consumer, 3) if body in numbers(range(3, 6))]
            assert rest == numbers(range(3, 6)), "what was pulled ahead is handed out once"
            await engine.end(signal.SIGKILL)
            await engine.start()
            await send_numbers(cluster, queue, range(6, 8))
            assert await polled(consumer, 2) == numbers(range(6, 8))
        async with polling(cluster, "pollers", queues=[queue]) as successor:
            assert await polled(successor, 5) == numbers(range(3, 8)), "not committed since"
    finally:
        await engine.end(signal.SIGKILL)


async def test_an_assigned_queue_is_read_when_its_broker_answers_and_again_after_a_pushed_reset(
    tmp_path: Path,
) -> None:
    """Nobody rebalances assigned queues: what a reset takes away has to come back by itself."""
    engine = KillableEngine(tmp_path, *SMALL, "--set", "useServerSideResetOffset=false")
    await engine.start()
    cluster = Restartable(engine)
    try:
        await make_topic(cluster, "tide", queues=1)
        queue = MessageQueue("tide", "broker-a", 0)
        await send_numbers(cluster, queue, range(3))
        await engine.end(signal.SIGTERM)
        async with polling(cluster, "pollers", queues=[queue]) as consumer:
            assert consumer.assignment() == []
            await engine.start()
            assert await polled(consumer, 3) == numbers(range(3))
            await consumer.commit()
            async with Admin(system_runtime(), client_config(cluster.name_server)) as admin:
                await admin.offsets.reset("pollers", "tide", 0)
            assert await polled(consumer, 3) == numbers(range(3)), "from the beginning"
    finally:
        await engine.end(signal.SIGKILL)
