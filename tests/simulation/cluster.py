"""A simulated cluster of production code: name server, broker, producer and two consumers.

Both consumers are of one group.

Each party runs on a host of its own, can be killed and started again, and writes what it did into
the history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from engine.broker.broker import Broker
from engine.broker.config import BrokerConfig
from engine.client.config import ClientConfig, ConsumerConfig, ProducerConfig
from engine.client.consuming.listeners import (
    ConsumeConcurrentlyStatus,
    ConsumeContext,
    MessageListener,
)
from engine.client.consuming.push_consumer import PushConsumer
from engine.client.consuming.start_offset import ConsumeFromWhere
from engine.client.producer import Producer
from engine.client.sending.send_result import SendStatus
from engine.foundation.errors import TidemarkError
from engine.namesrv.config import NameServerConfig
from engine.namesrv.namesrv import NameServer
from engine.protocol.message import Message, MessageExt
from engine.protocol.message_record import decode_records
from engine.remoting.access import Access
from engine.runtime import Runtime
from engine.store.config import FlushDiskType, StoreConfig
from engine.telemetry.frames import Turn, decode_frames
from engine.telemetry.segments import segment_names
from engine.telemetry.tables import CONSUME_OFFSETS, LIFECYCLE, TABLES
from tests.simulation.history import History
from tests.simulation.world import Node, World

TOPIC, GROUP = "tide", "watchers"
QUEUES = 4
VIRTUAL_HOSTS = Access(admin_networks=("10.0.0.0/8", "127.0.0.0/8"))
"""All virtual hosts may do what else only the own machine may."""
NAME_SERVER, BROKER, PRODUCER = "10.0.0.1", "10.0.0.2", "10.0.0.3"
CONSUMERS = ("10.0.0.4", "10.0.0.5")
NAMESRV_ADDRESS = f"{NAME_SERVER}:9876"
LOG_FILE_BYTES = 16 * 1024
"""Small, so that files roll within seconds."""


class SimCluster:
    """The parties, up or down."""

    consuming = ConsumerConfig(
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        rebalance_ms=3_000,
        persist_first_ms=1_000,
        persist_ms=1_000,
    )

    def __init__(
        self,
        world: World,
        flush: FlushDiskType = FlushDiskType.SYNC_FLUSH,
        **broker_settings: Any,
    ) -> None:
        self.world = world
        self.flush = flush
        self.broker_settings = broker_settings
        self.history = History()
        self.broker: Broker | None = None
        self.producer: Producer | None = None
        self.consumers: dict[str, PushConsumer] = {}

    async def start(self) -> None:
        """Everything up."""
        await self.start_name_server()
        await self.start_broker()
        await self.start_producer()
        for host in CONSUMERS:
            await self.start_consumer(host)

    async def start_name_server(self) -> None:
        async def boot(runtime: Runtime) -> None:
            await NameServer(
                runtime, NameServerConfig(host=NAME_SERVER, access=VIRTUAL_HOSTS)
            ).start()

        await self.node(NAME_SERVER).boot(boot)

    async def start_broker(self) -> None:
        config = BrokerConfig(
            access=VIRTUAL_HOSTS,
            store=StoreConfig(
                root="/store",
                flush_disk_type=self.flush,
                mapped_file_size_commit_log_bytes=LOG_FILE_BYTES,
                mapped_file_size_consume_queue_bytes=20 * 64,
                max_hash_slot_count=50,
                max_index_count=200,
            ),
            host=BROKER,
            namesrv_addresses=(NAMESRV_ADDRESS,),
            default_topic_queue_nums=QUEUES,
            **({"flush_consumer_offset_interval_ms": 700} | self.broker_settings),
        )

        async def boot(runtime: Runtime) -> Broker:
            broker = Broker(runtime, config)
            await broker.start()
            return broker

        self.broker = await self.node(BROKER).boot(boot)

    async def start_producer(self) -> None:
        async def boot(runtime: Runtime) -> Producer:
            config = ProducerConfig(default_topic_queue_count=QUEUES, retry_times=0)
            producer = Producer(runtime, self._client("p"), "producers", producer=config)
            await producer.start()
            return producer

        self.producer = await self.node(PRODUCER).boot(boot)

    async def start_consumer(self, host: str) -> None:
        async def boot(runtime: Runtime) -> PushConsumer:
            consumer = PushConsumer(
                runtime, self._client(host.replace(".", "-")), GROUP, consumer=self.consuming
            )
            consumer.subscribe(TOPIC, "*", self.listener(host))
            await consumer.start()
            return consumer

        self.consumers[host] = await self.node(host).boot(boot)

    async def send(self, number: int) -> None:
        """Send one message and note how that went; its fate may stay unknown."""
        if self.producer is None:
            return
        body = b"message %05d" % number
        self.history.sent.append(body)
        try:
            result = await self.node(PRODUCER).run(
                self.producer.send(Message(TOPIC, body), timeout_ms=2_000)
            )
        except TidemarkError:
            return
        if result.status is SendStatus.SEND_OK:
            queue = result.queue
            self.history.ack(queue.topic, queue.queue_id, result.queue_offset, body)

    def crash(self, host: str, *, power_cut: bool) -> None:
        """A node dies."""
        if host == BROKER:
            self.broker = None
        self.consumers.pop(host, None)
        self.node(host).crash(power_cut=power_cut)

    async def restart(self, host: str) -> None:
        """A dead node comes back."""
        if host == BROKER:
            await self.start_broker()
        else:
            await self.start_consumer(host)

    def committed(self) -> dict[int, int]:
        """Consume offsets in the broker's memory, by queue id; empty while it is down."""
        if self.broker is None:
            return {}
        return dict(self.broker.state.offsets.queues(GROUP, TOPIC))

    def reported_offsets(self, group: str = GROUP, topic: str = TOPIC) -> list[dict[str, Any]]:
        """Every report of the group's consume offsets that is in the spool, oldest first."""
        disk, directory, table = self.node(BROKER).runtime.disk, "/store/spool", CONSUME_OFFSETS
        return [
            dict(zip(table.own_names, values, strict=True))
            for name in segment_names(disk, directory)
            for placed in decode_frames(disk.read(f"{directory}/{name}"))[0]
            if isinstance(placed.frame, Turn)
            for number, _, values in placed.frame.rows
            if TABLES[number] is table and values[:2] == (group, topic)
        ]

    def reported(self, kind: str) -> list[str]:
        """The details of all lifecycle rows of this kind in the spool, oldest first."""
        disk, directory = self.node(BROKER).runtime.disk, "/store/spool"
        rows = [
            dict(zip(LIFECYCLE.own_names, values, strict=True))
            for name in segment_names(disk, directory)
            for placed in decode_frames(disk.read(f"{directory}/{name}"))[0]
            if isinstance(placed.frame, Turn)
            for number, _, values in placed.frame.rows
            if TABLES[number] is LIFECYCLE
        ]
        return [str(row["detail"]) for row in rows if row["kind"] == kind]

    def stored(self) -> dict[tuple[str, int, int], bytes]:
        """Every message the broker can serve."""
        assert self.broker is not None
        store = self.broker.state.store
        found: dict[tuple[str, int, int], bytes] = {}
        for queue_id in range(QUEUES):
            offset = store.min_offset(TOPIC, queue_id)
            while offset < store.max_offset(TOPIC, queue_id):
                got = store.get(
                    TOPIC, queue_id, offset, max_count=32, max_bytes=1 << 20, wanted=None
                )
                for message in decode_records(b"".join(bytes(part) for part in got.records)):
                    found[(TOPIC, queue_id, message.queue_offset)] = message.body
                assert got.next_begin_offset > offset, f"reading stands still: {got.status}"
                offset = got.next_begin_offset
        return found

    def owners(self) -> list[tuple[str, list[tuple[str, int]]]]:
        """Which queues of the topic each live consumer holds."""
        return [
            (
                host,
                [(q.topic, q.queue_id) for q in sorted(consumer.windows) if q.topic == TOPIC],
            )
            for host, consumer in sorted(self.consumers.items())
        ]

    def node(self, host: str) -> Node:
        return self.world.node(host)

    def _client(self, name: str) -> ClientConfig:
        return ClientConfig(
            namesrv_addresses=(NAMESRV_ADDRESS,),
            instance_name=name,
            heartbeat_ms=2_000,
            route_poll_ms=2_000,
        )

    def listener(self, host: str) -> MessageListener:
        """What a member does with messages: it takes its time, and is done."""
        choice = self.world.random

        async def listen(
            messages: Sequence[MessageExt], context: ConsumeContext
        ) -> ConsumeConcurrentlyStatus:
            await asyncio.sleep(choice.uniform(0.001, 0.2))
            for message in messages:
                place = (context.queue.topic, context.queue.queue_id, message.queue_offset)
                self.history.finish(place, message.body, host)
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

        return listen
