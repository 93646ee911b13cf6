"""A cluster whose topic is deleted and made again under four groups of consumers.

Two groups are of our own clients, two of stubborn ones. The seed decides their modes and policies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from engine.admin import Admin
from engine.client.config import ClientConfig, ConsumerConfig
from engine.client.consuming.listeners import (
    ConsumeConcurrentlyStatus,
    ConsumeContext,
    ConsumeOrderlyStatus,
    ConsumeStatus,
    MessageListener,
)
from engine.client.consuming.push_consumer import PushConsumer
from engine.client.consuming.start_offset import ConsumeFromWhere
from engine.client.sending.send_result import SendStatus
from engine.foundation.errors import TidemarkError
from engine.protocol.message import Message, MessageExt, MessageQueue
from engine.protocol.names import is_retry_topic
from engine.runtime import Runtime
from engine.store.config import FlushDiskType
from tests.simulation.cluster import BROKER, NAMESRV_ADDRESS, PRODUCER, SimCluster
from tests.simulation.lives_ledger import LivesLedger
from tests.simulation.raw_clients import remove_store
from tests.simulation.stubborn_client import Habits, StubbornConsumer
from tests.simulation.world import World

TOPIC: Final = "reborn"
QUEUES: Final = 2
ADMIN: Final = "10.0.0.9"
BROKER_ADDRESS: Final = f"{BROKER}:10911"
OWN_GROUPS, STUBBORN_GROUPS = ("own-a", "own-b"), ("java-a", "java-b")
GROUPS: Final = OWN_GROUPS + STUBBORN_GROUPS
HOSTS: Final = {
    group: (f"10.0.{number}.1", f"10.0.{number}.2") for number, group in enumerate(GROUPS, 1)
}
"""Two members of each group."""
GROUP_OF: Final = {host: group for group, hosts in HOSTS.items() for host in hosts}
ADMIN_RETRY_S: Final = 1.0


class LivesCluster(SimCluster):
    """The parties, the ledger, and what may befall the topic."""

    def __init__(self, world: World) -> None:
        chance = world.random
        flush = chance.choice(list(FlushDiskType))
        super().__init__(
            world,
            flush,
            auto_create_topic_enable=False,
            flush_consumer_offset_interval_ms=5_000,
            window_sample_interval_ms=600_000,
            sample_interval_ms=10_000,
        )
        self.ledger = LivesLedger(GROUPS, world.loop.time)
        self.own = {group: self._own_settings() for group in OWN_GROUPS}
        self.habits = {group: self._habits(group) for group in STUBBORN_GROUPS}
        self.fails_percent = chance.choice((0, 0, 5))
        self.stubborn: dict[str, StubbornConsumer] = {}
        self.admin: Admin | None = None
        self.sent_count = 0

    def _own_settings(self) -> ConsumerConfig:
        chance = self.world.random
        where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        if chance.random() < 0.4:
            where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        return ConsumerConfig(consume_from_where=where, orderly=chance.random() < 0.4)

    def _habits(self, group: str) -> Habits:
        chance = self.world.random
        return Habits(
            group,
            TOPIC,
            from_first=chance.random() < 0.4,
            orderly=chance.random() < 0.4,
            is_4x=chance.random() < 0.5,
        )

    def described(self) -> str:
        """Who plays, in a line."""
        own = [
            f"{group} {one.consume_from_where.value[13:-7]} {'orderly' if one.orderly else ''}"
            for group, one in self.own.items()
        ]
        java = [
            f"{group} {'FIRST' if one.from_first else 'LAST'} "
            f"{'orderly' if one.orderly else ''} {'4.x' if one.is_4x else '5.x'}"
            for group, one in self.habits.items()
        ]
        return f"{self.flush.value}; " + "; ".join(own + java)

    # The parties.

    async def start(self) -> None:
        """Everything up, and no topic yet."""
        await self.start_name_server()
        await self.start_broker()
        await self.start_producer()

        async def boot(runtime: Runtime) -> Admin:
            return Admin(runtime, ClientConfig(namesrv_addresses=(NAMESRV_ADDRESS,)))

        self.admin = await self.node(ADMIN).boot(boot)
        for host in GROUP_OF:
            await self.start_member(host)

    async def start_member(self, host: str) -> None:
        """A member of its group comes."""
        group = GROUP_OF[host]
        if group in OWN_GROUPS:
            await self._start_own(host, group)
        else:
            await self._start_stubborn(host, group)

    async def _start_own(self, host: str, group: str) -> None:
        async def boot(runtime: Runtime) -> PushConsumer:
            config = ClientConfig(namesrv_addresses=(NAMESRV_ADDRESS,), instance_name="own")
            consumer = PushConsumer(runtime, config, group, consumer=self.own[group])
            consumer.subscribe(TOPIC, "*", self._own_listener(group))
            await consumer.start()
            return consumer

        self.consumers[host] = await self.node(host).boot(boot)

    async def _start_stubborn(self, host: str, group: str) -> None:
        async def boot(runtime: Runtime) -> StubbornConsumer:
            member = StubbornConsumer(
                runtime,
                f"{host}@java#{self.node(host).lives}",
                self.habits[group],
                namesrv=NAMESRV_ADDRESS,
                broker=BROKER_ADDRESS,
                process=self._stubborn_listener(group),
                on_pulled=lambda queue, messages, asked_s: self._pulled(
                    group, queue, messages, asked_s
                ),
            )
            await member.start()
            return member

        self.stubborn[host] = await self.node(host).boot(boot)

    async def stop_member(self, host: str) -> None:
        """It leaves as it should."""
        member: PushConsumer | StubbornConsumer
        member = self.consumers.pop(host, None) or self.stubborn.pop(host)
        await self.node(host).run(member.stop())
        self.node(host).end()

    def kill_member(self, host: str, *, power_cut: bool) -> None:
        """It dies."""
        self.stubborn.pop(host, None)
        self.crash(host, power_cut=power_cut)

    async def stop_broker(self) -> None:
        """A clean stop."""
        broker, self.broker = self.broker, None
        assert broker is not None
        await self.node(BROKER).run(broker.stop())
        self.node(BROKER).end()

    # What members do.

    def _own_listener(self, group: str) -> MessageListener:
        done: ConsumeStatus = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
        later: ConsumeStatus = ConsumeConcurrentlyStatus.RECONSUME_LATER
        if self.own[group].orderly:
            done = ConsumeOrderlyStatus.SUCCESS
            later = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT

        async def listen(messages: Sequence[MessageExt], context: ConsumeContext) -> ConsumeStatus:
            await self._work()
            if self._fails():
                return later
            for message in messages:
                is_fresh = message.reconsume_times == 0 and not self.own[group].orderly
                self.ledger.finish(group, message.body, is_fresh=is_fresh)
            return done

        return listen

    def _stubborn_listener(self, group: str) -> Callable[[MessageExt], Awaitable[bool]]:
        async def listen(message: MessageExt) -> bool:
            await self._work()
            if self._fails():
                return False
            self.ledger.finish(group, message.body, is_fresh=False)  # Its pulls are judged.
            return True

        return listen

    async def _work(self) -> None:
        await asyncio.sleep(self.world.random.choice((0.001, 0.01, 0.01, 0.3)))

    def _fails(self) -> bool:
        return self.world.random.random() * 100 < self.fails_percent

    def _pulled(
        self, group: str, queue: MessageQueue, messages: list[MessageExt], asked_s: float
    ) -> None:
        if not is_retry_topic(queue.topic):
            self.ledger.pulled(group, [message.body for message in messages], asked_s)

    # Sending.

    async def send_one(self) -> None:
        """Send a message; it binds the life in which this began, when that is still there at the
        answer.
        """
        assert self.producer is not None
        life, self.sent_count = self.ledger.present, self.sent_count + 1
        body = b"%d/%d" % (0 if life is None else life.number, self.sent_count)
        try:
            result = await self.node(PRODUCER).run(
                self.producer.send(Message(TOPIC, body), timeout_ms=2_000)
            )
        except TidemarkError:
            return
        if result.status is SendStatus.SEND_OK:
            self.ledger.acknowledged(life, body)

    async def send_many(self, count: int) -> None:
        """One after the other."""
        for _ in range(count):
            await self.send_one()
            await asyncio.sleep(self.world.random.choice((0.0, 0.0, 0.01, 0.2)))

    # What befalls the topic.

    async def ask(self, order: Callable[[Admin], Awaitable[Any]]) -> Any:
        """Ask the cluster until it answers; the broker may be down or cut off meanwhile."""
        assert self.admin is not None
        while True:
            try:
                return await self.node(ADMIN).run(order(self.admin))
            except TidemarkError:
                await asyncio.sleep(ADMIN_RETRY_S)

    async def make_topic(self) -> None:
        """A life begins."""
        await self.ask(
            lambda admin: admin.topics.create(
                BROKER_ADDRESS, TOPIC, read_queues=QUEUES, write_queues=QUEUES
            )
        )
        self.ledger.begin()

    async def delete_topic(self) -> None:
        """The life ends."""
        self.ledger.end()
        await self.ask(lambda admin: admin.topics.delete(TOPIC))
        self.ledger.gone()

    async def delete_group(self, group: str) -> None:
        """Settings and offsets go; the members stay."""
        await self.ask(lambda admin: admin.groups.delete(BROKER_ADDRESS, group, with_offsets=True))

    async def reset_to_the_end(self, group: str) -> None:
        """The group passes over what there is, once its members pull."""
        with suppress(TidemarkError):  # The group may be gone, or the broker.
            assert self.admin is not None
            await self.node(ADMIN).run(self.admin.offsets.reset(group, TOPIC, -1))

    async def take_queues(self, count: int) -> None:
        """So many queues are there from now on, of the same life."""
        await self.ask(
            lambda admin: admin.topics.create(
                BROKER_ADDRESS, TOPIC, read_queues=count, write_queues=count, force=True
            )
        )

    async def empty_store(self, *, keeps_settings: bool) -> None:
        """Somebody removes the store of a stopped broker, or all of it but its tables."""
        was_there = self.ledger.present is not None
        self.ledger.note("but for its settings" if keeps_settings else "with its settings")
        self.ledger.end()
        await self.stop_broker()
        if self.ledger.lives and self.ledger.lives[-1].gone_s is None:
            self.ledger.gone()
        await asyncio.sleep(self.world.random.uniform(0.1, 5.0))
        remove_store(self.node(BROKER), keeps_settings=keeps_settings)
        await self.start_broker()
        if was_there and keeps_settings:
            self.ledger.begin()

    # Looking on.

    async def watch_progress(self) -> None:
        """Ask how far each group is; a lag below 0 is none."""
        while True:
            await asyncio.sleep(self.world.random.uniform(2.0, 4.0))
            for group in GROUPS:
                assert self.admin is not None
                try:
                    stats = await self.node(ADMIN).run(
                        self.admin.groups.consume_stats(group, TOPIC)
                    )
                except TidemarkError:
                    continue
                for queue, one in stats.items():
                    if one.lag < 0:
                        how = f"{group} queue {queue.queue_id}: {one.consumer_offset} of "
                        self.ledger.break_law("a lag is negative", f"{how}{one.broker_offset}")

    def look_at_commits(self) -> None:
        """No offset lies beyond the end of its queue."""
        assert self.broker is not None
        state = self.broker.state
        keys = state.offsets.keys()
        for group, topic, queue_id in keys:
            end = state.store.max_offset(topic, queue_id)
            offset = state.offsets.committed(group, topic, queue_id)
            if offset is not None and offset > end:
                how = f"{group} queue {queue_id} of {topic}: {offset} of {end}"
                self.ledger.break_law("an offset is beyond the end", how)
