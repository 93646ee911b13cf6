"""Every redelivery after a kill was predicted as at risk, and every certain one happens.

Broker and members die at moments drawn by seed, alone and together, and come back; some are back
before the others have noticed. Their facts are shipped and judged as always, and held against what
the listeners were given, by the score of `tidemark experiment kills`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.client.consuming.listeners import (
    ConsumeConcurrentlyStatus,
    ConsumeContext,
    ConsumeOrderlyStatus,
    ConsumeStatus,
    MessageListener,
)
from engine.protocol.message import MessageExt
from engine.telemetry.shipper.shipper import Shipper
from experiment.kills import revisions, to_the_end
from experiment.ledger import Delivery
from experiment.plan import Flush, Kill, Victim
from experiment.score import score, verdict
from experiment.stage import Killed, Played
from pipelines.lake.lake import Lake
from tests.pipelines.in_process import SHORT, driver_of
from tests.seeds import seeded
from tests.simulation.cluster import BROKER, CONSUMERS, GROUP, QUEUES, SimCluster
from tests.simulation.world import World, run_world
from tests.simulation.world.world import EPOCH_MS

CLUSTER = "DefaultCluster"
KILLS = 8
DRAINED_S = 120.0
"""Virtual seconds within which all that was sent has been consumed."""


class WatchedCluster(SimCluster):
    """Its members note what they are given before they work on it."""

    def __init__(self, world: World, *, orderly: bool, **broker_settings: Any) -> None:
        super().__init__(world, **broker_settings)
        self.consuming = replace(SimCluster.consuming, orderly=orderly)
        self.deliveries: list[Delivery] = []
        self.killed: list[Killed] = []

    def now_us(self) -> int:
        """By the clock of all hosts, µs since 1970 UTC."""
        return EPOCH_MS * 1000 + int(self.world.loop.time() * 1_000_000)

    def listener(self, host: str) -> MessageListener:
        """Mostly short work, sometimes long: what comes later is finished before it."""
        chance = self.world.random
        done: ConsumeStatus = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
        long_s = 1.5
        if self.consuming.orderly:
            done = ConsumeOrderlyStatus.SUCCESS
            long_s = 0.3

        async def listen(messages: Sequence[MessageExt], context: ConsumeContext) -> ConsumeStatus:
            for one in messages:
                place = (one.topic, one.queue_id, one.queue_offset)
                arrival = (one.message_id, host, one.store_timestamp_ms * 1000)
                self.deliveries.append(Delivery(self.now_us(), GROUP, *place, *arrival))
            await asyncio.sleep(chance.choice((0.002, 0.02, 0.02, long_s)))
            for one in messages:
                place = (context.queue.topic, context.queue.queue_id, one.queue_offset)
                self.history.finish(place, one.body, host)
            return done

        return listen

    async def kill(self, number: int) -> None:
        """Somebody dies, is away for a moment, and comes back."""
        chance = self.world.random
        victim = chance.choice(tuple(Victim))
        hosts = (
            ()
            if victim is Victim.BROKER
            else tuple(chance.sample(CONSUMERS, chance.choice((1, 1, 1, 2))))
        )
        dying = [*hosts] if victim is Victim.CONSUMER else [*hosts, BROKER]
        chance.shuffle(dying)
        kill = Kill(number, 0.0, victim, hosts, dying[0] == BROKER, 0.0, Flush.SYNC)
        self.killed.append(Killed(kill, self.now_us(), 0, Flush.SYNC))
        for host in dying:
            self.crash(host, power_cut=False)
            await asyncio.sleep(chance.choice((0.0, 0.0, 0.05)))
        await asyncio.sleep(chance.uniform(0.1, 3.0))
        for host in sorted(dying):  # The broker first.
            await self.restart(host)
        await self.quiet()

    async def quiet(self) -> None:
        """Until each queue brings messages that were stored from now on."""
        now_us = self.now_us()
        await self.world.until(
            "each queue brings new messages", lambda: self.has_new(now_us), within_s=DRAINED_S
        )

    def has_new(self, since_us: int) -> bool:
        """Has each queue brought a message that was stored since?"""
        new = {one.queue_id for one in self.deliveries if one.stored_us > since_us}
        return len(new) == QUEUES

    def played(self) -> Played:
        """What happened; a kill's time ends with the next one."""
        ends = [*(one.at_us for one in self.killed[1:]), self.now_us()]
        killed = (replace(one, until_us=end) for one, end in zip(self.killed, ends, strict=True))
        return Played(CLUSTER, tuple(killed), tuple(self.deliveries))


async def send_until(cluster: WatchedCluster, ended: asyncio.Event) -> None:
    number = 0
    while not ended.is_set():
        await cluster.send(number)
        number += 1
        await asyncio.sleep(cluster.world.random.uniform(0.0, 0.1))


async def killing(cluster: WatchedCluster) -> None:
    chance, ended = cluster.world.random, asyncio.Event()
    await cluster.start()
    sending = asyncio.ensure_future(send_until(cluster, ended))
    await cluster.quiet()
    for number in range(1, KILLS + 1):
        # Who was answered where to begin has begun: the case that docs/adr/0032 gives up.
        await asyncio.sleep(chance.uniform(1.0, chance.choice((1.5, 3.0, 7.0))))
        await cluster.kill(number)
    ended.set()
    await sending
    await cluster.world.until(
        "all consumed", lambda: not cluster.history.unseen(), within_s=DRAINED_S
    )
    await asyncio.sleep(DRAINED_S)  # Who was answered where to begin has begun.


@seeded(2)
def test_what_was_called_certain_is_consumed_twice_and_nothing_comes_again_unforeseen(
    seed: int, tmp_path: Path
) -> None:
    lake = Lake.at(str(tmp_path / "lake"))
    played: list[Played] = []

    async def scenario(world: World) -> None:
        cluster = WatchedCluster(world, orderly=seed % 3 == 2, window_sample_interval_ms=1_000)
        await killing(cluster)
        played.append(cluster.played())
        Shipper(cluster.node(BROKER).runtime, "/store/spool", lake.root, {}).ship_all()

    run_world(seed, scenario)
    to_the_end(driver_of(Path(lake.root), evaluation=SHORT))
    rows = score(played[0], revisions(lake, CLUSTER))
    found = verdict(rows, KILLS)
    assert [(row.killed, row.queue, row.unforeseen) for row in rows if row.unforeseen] == []
    assert found.certain_again == found.certain
    assert found.redelivered > 0
