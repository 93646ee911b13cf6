"""Under ASYNC_FLUSH no table overtakes the log when a power cut takes the log's tail.

After every power cut no consume offset and no delay cursor lies beyond its queue, and everything
that was acknowledged by then and synced, or is acknowledged afterwards, is delivered, at its level
for what is delayed. Consumers die with the broker, as in one rack, or live on and remember messages
that are gone.
"""

from __future__ import annotations

import asyncio

import pytest

from engine.broker.config import BrokerConfig
from engine.client.sending.send_result import SendStatus
from engine.foundation.errors import TidemarkError
from engine.protocol.message import Message
from engine.protocol.message_ids import parse_offset_message_id
from engine.protocol.names import SCHEDULE_TOPIC
from engine.store.config import FlushDiskType, StoreConfig
from tests.seeds import seeded
from tests.simulation.cluster import BROKER, CONSUMERS, GROUP, PRODUCER, QUEUES, TOPIC, SimCluster
from tests.simulation.world import World, run_world

CUTS = 4
SETTLE_S = 90.0


class Rack(SimCluster):
    """A cluster with ASYNC_FLUSH, what was acknowledged in it, and where that lies in the log."""

    def __init__(self, world: World, **broker_settings: int) -> None:
        settings = {"flush_delay_offset_interval_ms": 900} | broker_settings
        super().__init__(world, FlushDiskType.ASYNC_FLUSH, **settings)
        self.promised: dict[bytes, int] = {}
        """Acknowledged and not lost by a power cut: body → physical offset."""
        self.next_number = 0

    async def send(self, number: int) -> None:
        """One message, now and then a delayed one; its fate may stay unknown."""
        if self.producer is None:
            return
        message = Message(TOPIC, b"message %05d" % number)
        message.delay_level = self.world.random.choice((0, 0, 0, 1, 2))  # 1 s and 5 s.
        try:
            result = await self.node(PRODUCER).run(self.producer.send(message, timeout_ms=2_000))
        except TidemarkError:
            return
        if result.status is SendStatus.SEND_OK:
            _, physical_offset = parse_offset_message_id(result.offset_message_id)
            self.promised[message.body] = physical_offset

    async def send_for(self, duration_s: float) -> None:
        end_s = self.world.loop.time() + duration_s
        while self.world.loop.time() < end_s:
            await self.send(self.next_number)
            self.next_number += 1
            await asyncio.sleep(self.world.random.uniform(0.01, 0.2))

    async def lose_power(self, *, consumers_too: bool) -> None:
        """Everything unsynced may go, and with it what was promised of it."""
        assert self.broker is not None
        flushed = self.broker.state.store.physical_flushed
        self.promised = {body: at for body, at in self.promised.items() if at < flushed}
        down = [BROKER, *(CONSUMERS if consumers_too else ())]
        for host in down:
            self.crash(host, power_cut=True)
        await asyncio.sleep(self.world.random.uniform(0.1, 3.0))
        await self.restart(BROKER)
        self.check_tables()
        for host in down[1:]:
            await self.restart(host)

    def check_tables(self) -> None:
        """Nothing counts messages that are not there."""
        assert self.broker is not None
        store, offsets = self.broker.state.store, self.broker.state.offsets
        for group, topic, queue_id in list(offsets.keys()):
            end = store.max_offset(topic, queue_id)
            committed = offsets.committed(group, topic, queue_id)
            assert committed is not None
            assert committed <= end, (
                f"{group} is at {committed} of {topic} {queue_id}, ends at {end}"
            )
        running = self.broker._running
        assert running is not None
        for level, cursor in running.state.delay_levels.cursors().items():
            end = store.max_offset(SCHEDULE_TOPIC, level - 1)
            assert cursor <= end, (
                f"the cursor of level {level} is {cursor}, its queue ends at {end}"
            )

    def all_read(self) -> bool:
        assert self.broker is not None
        readers = self.broker.state.readers
        return all(readers.has_pulled((GROUP, TOPIC, queue_id)) for queue_id in range(QUEUES))

    def all_persisted(self) -> bool:
        assert self.broker is not None
        offsets = self.broker.state.offsets
        return all(offsets.persisted(GROUP, TOPIC, queue_id) for queue_id in range(QUEUES))

    def missing(self) -> list[bytes]:
        return [body for body in self.promised if body not in self.history.bodies_seen]


async def power_cuts(world: World, *, consumers_too: bool) -> None:
    """Send, lose power, send on; in the end everything promised was delivered."""
    rack = Rack(world)
    await rack.start()
    if not consumers_too:  # Of a group without any offset nobody can say what it remembers.
        sending = asyncio.ensure_future(rack.send_for(4.0))
        await world.until("the group is known", rack.all_persisted, within_s=SETTLE_S)
        await sending
    for _ in range(CUTS):
        await rack.send_for(world.random.uniform(1.0, 8.0))
        await rack.lose_power(consumers_too=consumers_too)
        if not consumers_too:  # What they remember is corrected by their first pull.
            sending = asyncio.ensure_future(rack.send_for(world.random.uniform(1.0, 8.0)))
            await world.until("all queues are read again", rack.all_read, within_s=SETTLE_S)
            await sending
    await rack.send_for(2.0)
    await world.until(
        f"all promised messages delivered; {rack.missing()[:3]} were not",
        lambda: not rack.missing(),
        within_s=SETTLE_S,
    )
    assert rack.promised, "a run in which nothing was promised proves nothing"


@seeded(5)
@pytest.mark.parametrize("consumers_too", [True, False], ids=["consumers die", "consumers live"])
def test_no_table_overtakes_the_log_and_all_that_is_promised_is_delivered(
    seed: int, consumers_too: bool
) -> None:
    run_world(seed, lambda world: power_cuts(world, consumers_too=consumers_too))


def test_a_broker_that_dies_each_8_seconds_persists_what_is_older_than_5() -> None:
    async def scenario(world: World) -> None:
        rack = Rack(world, flush_consumer_offset_interval_ms=5_000)
        await rack.start()
        await rack.send_for(2.5)
        await world.until("all queues are read", rack.all_read, within_s=SETTLE_S)
        for life in range(4):
            assert rack.broker is not None
            offsets = rack.broker.state.offsets
            begun_s = world.loop.time()
            await rack.send_for(2.5)
            before = {queue_id: offsets.committed(GROUP, TOPIC, queue_id) for queue_id in range(4)}
            assert any(before.values()), "a life in which nothing was reported proves nothing"
            await asyncio.sleep(8.0 - (world.loop.time() - begun_s))
            rack.crash(BROKER, power_cut=False)
            await rack.restart(BROKER)
            assert rack.broker is not None
            found = rack.broker.state.offsets
            for queue_id, offset in before.items():
                persisted = found.persisted(GROUP, TOPIC, queue_id)
                assert (persisted or 0) >= (offset or 0), f"life {life}: queue {queue_id}"
            await world.until("all queues are read again", rack.all_read, within_s=SETTLE_S)

    run_world(1, scenario)


def test_a_broker_that_dies_each_8_seconds_delivers_a_delayed_message_once() -> None:
    """With RocketMQ's 10 s each life would deliver what all before it have delivered."""

    async def scenario(world: World) -> None:
        every_ms = BrokerConfig(store=StoreConfig("/store")).flush_delay_offset_interval_ms
        rack = Rack(world, flush_delay_offset_interval_ms=every_ms)
        await rack.start()
        for life in range(4):
            assert rack.broker is not None
            begun_s = world.loop.time()
            assert rack.producer is not None
            message = Message(TOPIC, b"delayed in life %d" % life)
            message.delay_level = 1
            await rack.node(PRODUCER).run(rack.producer.send(message, timeout_ms=2_000))
            await asyncio.sleep(8.0 - (world.loop.time() - begun_s))
            store = rack.broker.state.store
            stored_count = sum(store.max_offset(TOPIC, queue_id) for queue_id in range(QUEUES))
            assert stored_count == life + 1, "one for each that was sent"
            rack.crash(BROKER, power_cut=False)
            await rack.restart(BROKER)

    run_world(1, scenario)
