"""Row A7: a listener that hangs stops its queue before thousands are consumed beyond it.

Real broker, producer and consumers in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from engine.client.consuming.consume_stats import FlowControl
from engine.client.consuming.listeners import (
    ConsumeConcurrentlyStatus,
    ConsumeContext,
    MessageListener,
)
from engine.client.consuming.process_queue import ProcessQueue
from engine.client.consuming.push_consumer import PushConsumer
from engine.protocol.message import Message, MessageExt, MessageQueue
from tests.simulation.cluster import CONSUMERS, GROUP, PRODUCER, TOPIC, SimCluster
from tests.simulation.world import World, run_world

HOST = CONSUMERS[0]
A_BATCH = 100


class OneHangs(SimCluster):
    """Listeners that are done at once, but for that of offset 0, which waits for `returns`."""

    def __init__(self, world: World, *, span_max: int) -> None:
        super().__init__(world)
        self.consuming = replace(self.consuming, queue_span_max=span_max)
        self.returns = asyncio.Event()
        self.done: list[int] = []

    def listener(self, host: str) -> MessageListener:
        async def listen(
            messages: Sequence[MessageExt], context: ConsumeContext
        ) -> ConsumeConcurrentlyStatus:
            if messages[0].queue_offset == 0:
                await self.returns.wait()
            self.done += [message.queue_offset for message in messages]
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

        return listen

    async def start_with(self, count: int) -> MessageQueue:
        """All up but the consumers, and so many messages in one queue."""
        await self.start_name_server()
        await self.start_broker()
        await self.start_producer()
        producer = self.producer
        assert producer is not None

        async def sent() -> MessageQueue:
            first = await producer.send(
                Message(TOPIC, b"x"), selector=lambda queues, _m, _a: queues[0]
            )
            for begin in range(1, count, A_BATCH):
                batch = [Message(TOPIC, b"x") for _ in range(min(A_BATCH, count - begin))]
                await producer.send_batch(batch, queue=first.queue)
            return first.queue

        return await self.node(PRODUCER).run(sent())

    async def consumer(self) -> PushConsumer:
        await self.start_consumer(HOST)
        return self.consumers[HOST]


@pytest.mark.parametrize(
    ("messages", "span_max"),
    [(600, 200), pytest.param(6_000, 2_000, marks=pytest.mark.slow)],
)
def test_a_crash_brings_no_more_again_than_the_span_and_a_pull(
    messages: int, span_max: int
) -> None:
    async def scenario(world: World) -> None:
        cluster = OneHangs(world, span_max=span_max)
        queue = await cluster.start_with(messages)
        consumer = await cluster.consumer()
        await asyncio.sleep(40)
        again = sorted(cluster.done)
        assert span_max <= len(again) <= span_max + cluster.consuming.pull_batch_max
        assert again == list(range(1, len(again) + 1)), "all behind the hanging one, to the limit"
        window: ProcessQueue = consumer.windows[queue]
        assert (window.resting, window.count) == (FlowControl.SPAN, 1)
        assert not cluster.committed().get(queue.queue_id)

        cluster.crash(HOST, power_cut=False)
        cluster.done = []
        cluster.returns.set()
        await cluster.consumer()
        await world.until("all are consumed", lambda: len(cluster.done) >= messages, within_s=60)
        assert sorted(cluster.done) == list(range(messages)), "those again, and all others once"

    run_world(3, scenario)


def test_a_head_that_returns_in_the_end_frees_its_queue() -> None:
    async def scenario(world: World) -> None:
        cluster = OneHangs(world, span_max=100)
        queue = await cluster.start_with(500)
        consumer = await cluster.consumer()
        await asyncio.sleep(30)
        assert (0 in cluster.done, consumer.windows[queue].resting) == (False, FlowControl.SPAN)
        cluster.returns.set()
        await world.until("all are consumed", lambda: len(cluster.done) == 500, within_s=10)
        await asyncio.sleep(2)
        assert consumer.windows[queue].resting is None
        assert cluster.committed()[queue.queue_id] == 500

    run_world(4, scenario)


def test_a_reset_moves_a_group_whose_queue_rests() -> None:
    """What one does when a listener hangs; a queue that is not pulled would never hear of it."""

    async def scenario(world: World) -> None:
        cluster = OneHangs(world, span_max=100)
        queue = await cluster.start_with(500)
        consumer = await cluster.consumer()
        await asyncio.sleep(30)
        assert consumer.windows[queue].resting is FlowControl.SPAN
        broker = cluster.broker
        assert broker is not None
        broker.state.offsets.reset(GROUP, TOPIC, queue.queue_id, 400)
        await world.until("it went on", lambda: 499 in cluster.done, within_s=20)
        assert 0 not in cluster.done
        assert set(range(400, 500)) <= set(cluster.done)

    run_world(5, scenario)
