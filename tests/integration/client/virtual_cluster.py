"""Name server, broker and clients of production code on virtual hosts: hours of behaviour in
milliseconds, the same every time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from engine.admin import Admin
from engine.broker.broker import Broker
from engine.broker.config import BrokerConfig
from engine.client import ClientConfig, ConsumerConfig, Producer, PushConsumer
from engine.client.consuming.listeners import MessageListener
from engine.foundation.observing import EmittedUpTo, Fact, HandedTail, OffsetReport
from engine.namesrv.config import NameServerConfig
from engine.namesrv.namesrv import NameServer
from engine.protocol.message import MessageQueue
from engine.remoting.access import Access
from engine.runtime import Runtime
from engine.store.config import StoreConfig
from tests.simulation.world import World, run_world

NAMESRV, BROKER, PRODUCER = "10.0.0.1", "10.0.0.2", "10.0.0.3"
ONE, OTHER = "10.0.0.4", "10.0.0.5"
ADMIN = "10.0.0.6"
TOPIC, GROUP = "tide", "watchers"
VIRTUAL_HOSTS = Access(admin_networks=("10.0.0.0/8",))
"""All virtual hosts may do what else only the own machine may."""
Q0, Q1, Q2, Q3 = (MessageQueue(TOPIC, "broker-a", number) for number in range(4))


@dataclass
class Facts:
    """What the broker observed."""

    facts: list[Fact] = field(default_factory=list)

    def observe(self, fact: Fact) -> None:
        self.facts.append(fact)

    def observe_all(self, facts: Sequence[Fact]) -> None:
        self.facts += facts

    def pulled(self, *_pull: object) -> None:
        """Not looked at here."""

    def handed(self, tail: HandedTail) -> None:
        """Not looked at here."""

    def emitted_up_to(self) -> EmittedUpTo | None:
        """Facts have no numbers here."""
        return None

    @property
    def reports(self) -> list[OffsetReport]:
        """Consume offsets reported for the topic, in order."""
        return [f for f in self.facts if isinstance(f, OffsetReport) and f.topic == TOPIC]


class VirtualCluster:
    """The parties; clients run on the host they are given."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.facts = Facts()
        self.store_settings: dict[str, object] = {}
        """Of the broker's store, where they are not the usual ones."""
        self.broker: Broker
        self.producer: Producer
        self.admin: Admin

    async def start(self, queues: int = 4) -> None:
        async def names(runtime: Runtime) -> None:
            await NameServer(runtime, NameServerConfig(host=NAMESRV, access=VIRTUAL_HOSTS)).start()

        await self.world.node(NAMESRV).boot(names)
        await self.start_broker()

        async def produce(runtime: Runtime) -> Producer:
            producer = Producer(runtime, self.client(), "producers")
            await producer.start()
            return producer

        async def administer(runtime: Runtime) -> Admin:
            return Admin(runtime, self.client())

        self.producer = await self.world.node(PRODUCER).boot(produce)
        self.admin = await self.world.node(ADMIN).boot(administer)
        await self.admin.topics.create(
            self.broker.address, TOPIC, read_queues=queues, write_queues=queues
        )

    async def start_broker(self) -> None:
        store = StoreConfig(
            root="/store",
            mapped_file_size_commit_log_bytes=1 << 20,
            mapped_file_size_consume_queue_bytes=20 * 1000,
            max_hash_slot_count=50,
            max_index_count=200,
            **self.store_settings,  # type: ignore[arg-type]
        )
        config = BrokerConfig(
            access=VIRTUAL_HOSTS,
            store=store,
            host=BROKER,
            namesrv_addresses=(f"{NAMESRV}:9876",),
            telemetry=False,
        )

        async def boot(runtime: Runtime) -> Broker:
            broker = Broker(runtime, config, observer=self.facts)
            await broker.start()
            return broker

        self.broker = await self.world.node(BROKER).boot(boot)
        self.facts.facts.clear()  # Those of its start.

    def client(self, **settings: object) -> ClientConfig:
        return ClientConfig(
            namesrv_addresses=(f"{NAMESRV}:9876",),
            route_poll_ms=2000,
            heartbeat_ms=5000,
            **settings,  # type: ignore[arg-type]
        )

    async def consume(
        self,
        host: str,
        listener: MessageListener,
        config: ConsumerConfig,
        *,
        expression: str = "*",
        on_commit_answered: Callable[[MessageQueue, int], None] | None = None,
    ) -> PushConsumer:
        """A running consumer on `host` (which comes up when it is down)."""

        async def boot(runtime: Runtime) -> PushConsumer:
            consumer = PushConsumer(
                *(runtime, self.client(), GROUP),
                consumer=config,
                on_commit_answered=on_commit_answered,
            )
            consumer.subscribe(TOPIC, expression, listener)
            await consumer.start()
            return consumer

        consumer: PushConsumer = await self.world.node(host).boot(boot)
        return consumer

    async def leave(self, host: str, consumer: PushConsumer) -> None:
        """Stop the consumer of `host` cleanly; the host is free for another life."""
        await self.world.node(host).run(consumer.stop())
        self.world.node(host).end()

    def committed(self) -> dict[int, int]:
        """Consume offsets of the group in the broker's memory, by queue id."""
        return dict(self.broker.state.offsets.queues(GROUP, TOPIC))


def on_virtual_cluster(
    story: Callable[[VirtualCluster], Awaitable[None]],
    *,
    queues: int = 4,
    seed: int = 5,
    **store: object,
) -> None:
    """Run `story` on a fresh cluster with one topic; `store` are settings of the broker's store."""

    async def scenario(world: World) -> None:
        cluster = VirtualCluster(world)
        cluster.store_settings = store
        await cluster.start(queues)
        await story(cluster)

    run_world(seed, scenario)
