"""Consumers that hold thousands of queues: one task pulls them all, over losses and stops.

Row B3.
"""

from __future__ import annotations

import asyncio

from engine.client import ConsumeFromWhere, ConsumerConfig, LitePullConfig, LitePullConsumer
from engine.client.sending.queue_choice import select_by_index
from engine.runtime import Runtime
from tests.asynchronous import run_by
from tests.integration.client.cluster_users import Seen, text
from tests.integration.client.virtual_cluster import (
    BROKER,
    GROUP,
    ONE,
    TOPIC,
    VirtualCluster,
    on_virtual_cluster,
)

QUEUES = 2000
TASKS_MAX = 40
"""Of a whole consumer: 20 for listeners, then heartbeats, routes, rebalance, offsets, pulls, its
connections.
"""
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


async def send_to(cluster: VirtualCluster, *queue_ids: int) -> None:
    for queue_id in queue_ids:
        message = text(TOPIC, f"{queue_id}")
        await cluster.producer.send(message, selector=select_by_index, argument=queue_id)


def held_pulls(cluster: VirtualCluster) -> int:
    return cluster.broker.state.holds.count


async def polling(cluster: VirtualCluster, **settings: int) -> LitePullConsumer:
    """A running consumer of the topic that asks for its messages."""

    async def boot(runtime: Runtime) -> LitePullConsumer:
        config = LitePullConfig(consume_from_where=FIRST, **settings)  # type: ignore[arg-type]
        consumer = LitePullConsumer(runtime, cluster.client(), GROUP, consumer=config)
        consumer.subscribe(TOPIC)
        await consumer.start()
        return consumer

    consumer: LitePullConsumer = await cluster.world.node(ONE).boot(boot)
    return consumer


@run_by(on_virtual_cluster, queues=QUEUES)
async def test_two_thousand_held_queues_are_no_thousand_tasks_and_all_come_back_after_a_loss(
    cluster: VirtualCluster,
) -> None:
    seen, before = Seen(), len(asyncio.all_tasks())
    consumer = await cluster.consume(ONE, seen, ConsumerConfig(consume_from_where=FIRST))
    await cluster.world.until(
        "all are pulled", lambda: held_pulls(cluster) == QUEUES + 1, within_s=120
    )
    assert len(consumer.windows) == QUEUES + 1, "and the retry queue"
    assert len(asyncio.all_tasks()) <= before + TASKS_MAX
    await send_to(cluster, 0, 1, QUEUES - 1)
    await cluster.world.until("consumed", lambda: len(seen.messages) == 3, within_s=5)

    cluster.world.node(BROKER).crash(power_cut=False)
    await asyncio.sleep(5)
    assert len(asyncio.all_tasks()) <= before + TASKS_MAX, "nor while nobody answers"
    await cluster.start_broker()
    await cluster.world.until(
        "all are pulled again", lambda: held_pulls(cluster) == QUEUES + 1, within_s=60
    )
    await send_to(cluster, 7, 1999)
    await cluster.world.until("consumed", lambda: "7" in seen.bodies, within_s=5)

    await cluster.leave(ONE, consumer)
    await asyncio.sleep(40)  # What was held is answered by now, to nobody.
    assert held_pulls(cluster) == 0
    assert len(asyncio.all_tasks()) <= before


@run_by(on_virtual_cluster, queues=QUEUES)
async def test_who_polls_holds_thousands_of_queues_as_well(cluster: VirtualCluster) -> None:
    before = len(asyncio.all_tasks())

    consumer = await polling(cluster)
    await cluster.world.until("all are pulled", lambda: held_pulls(cluster) == QUEUES, within_s=120)
    assert len(asyncio.all_tasks()) <= before + TASKS_MAX
    await send_to(cluster, 3, 1500)
    found = [m for _ in range(2) for m in await consumer.poll(5000)]
    assert sorted(bytes(m.body) for m in found) == [b"1500", b"3"]
    await cluster.world.node(ONE).run(consumer.stop())
    assert len(asyncio.all_tasks()) <= before


@run_by(on_virtual_cluster, queues=8)
async def test_who_polls_seldom_holds_no_more_than_allowed_however_often_it_seeks(
    cluster: VirtualCluster,
) -> None:
    await send_to(cluster, *(number % 8 for number in range(400)))
    consumer = await polling(cluster, held_messages_max=40, pull_batch_max=5)
    held = lambda: sum(len(messages) for _, _, messages in consumer._ready)  # noqa: E731
    await cluster.world.until("some", lambda: held() > 40, within_s=10)
    for _ in range(20):
        for queue in consumer.assignment():
            await consumer.seek_to_begin(queue)
        await asyncio.sleep(0.2)
        assert held() <= 40 + 8 * 5, "what was under way when it was enough may still come"
    found = [message for _ in range(80) for message in await consumer.poll(5000)]
    assert len(found) == 400
    await cluster.world.node(ONE).run(consumer.stop())
