"""Row D4 under faults drawn by seed: a committed message appears once, nothing else does.

The business's record is outside every node, as a database would be; the producer's executor writes
it, its checker reads it, also in its next life. Broker and producer are killed, the power fails,
the network is cut; then all is healed, and every transaction must come to its end.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from engine.client.config import ProducerConfig
from engine.client.transaction_producer import TransactionProducer, TransactionState
from engine.foundation.errors import TidemarkError
from engine.protocol.message import Message, MessageExt
from engine.protocol.names import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_GROUP
from engine.runtime import Runtime
from tests.seeds import seeded
from tests.simulation.cluster import BROKER, PRODUCER, QUEUES, TOPIC, SimCluster
from tests.simulation.world import World, run_world

TROUBLE_S = 20.0
SETTLE_S = 90.0


class Business(SimCluster):
    """A cluster, a producer of transactions, and the record of what was committed."""

    def __init__(self, world: World) -> None:
        super().__init__(
            world,
            transaction_timeout_ms=1_000,
            transaction_op_batch_interval_ms=900,
            transaction_check_interval_ms=1_500,
            transaction_check_max=40,
        )
        self.record: dict[bytes, TransactionState] = {}
        self.begun: list[bytes] = []

    async def start_producer(self) -> None:
        async def boot(runtime: Runtime) -> TransactionProducer:
            producer = TransactionProducer(
                runtime,
                self._client("p"),
                "producers",
                execute=self.execute,
                check=self.check,
                producer=ProducerConfig(default_topic_queue_count=QUEUES, retry_times=0),
            )
            await producer.start()
            return producer

        self.producer = await self.node(PRODUCER).boot(boot)

    async def execute(self, message: Message, _argument: object) -> TransactionState:
        """Decide, write it down, and say so; or not know in time."""
        choice = self.world.random
        await asyncio.sleep(choice.uniform(0.0, 2.5))  # Longer than the time-out, now and then.
        state = choice.choice((TransactionState.COMMIT, TransactionState.ROLLBACK))
        self.record[message.body] = state
        return choice.choice((state, state, TransactionState.UNKNOWN))

    async def check(self, message: MessageExt) -> TransactionState:
        """What stands in the record; what is not there may still be under way."""
        await asyncio.sleep(self.world.random.uniform(0.0, 0.2))
        return self.record.get(message.body, TransactionState.UNKNOWN)

    async def send_one(self, number: int) -> None:
        body = b"transaction %05d" % number
        self.begun.append(body)
        if isinstance(self.producer, TransactionProducer):
            sending = self.producer.send_in_transaction(Message(TOPIC, body), timeout_ms=2_000)
            try:
                await self.node(PRODUCER).run(sending)
            except (TidemarkError, asyncio.CancelledError):
                return  # Refused, unknown, or its producer died: the record decides.

    def committed_bodies(self) -> list[bytes]:
        return [body for body, state in self.record.items() if state is TransactionState.COMMIT]

    def give_up_the_unrecorded(self) -> None:
        """What no executor has decided by now never will be: its producer died before."""
        for body in self.begun:
            self.record.setdefault(body, TransactionState.ROLLBACK)

    def settled(self) -> bool:
        """Have the progress offsets reached the end?"""
        if self.broker is None:
            return False
        state = self.broker.state
        end = state.store.max_offset(HALF_TOPIC, 0)
        return state.offsets.committed(TRANSACTION_GROUP, HALF_TOPIC, 0) == end


async def scenario(world: World) -> None:
    """Begin transactions through trouble, heal, settle; then hold the topic against the record."""
    business = Business(world)
    await business.start_name_server()
    await business.start_broker()
    await business.start_producer()
    sending = asyncio.ensure_future(begin_through_trouble(business))
    await make_trouble(business)
    world.network.loss_percent = 0
    world.network.heal()
    await sending
    business.give_up_the_unrecorded()
    await world.until("every transaction at its end", business.settled, within_s=SETTLE_S)
    found = Counter(business.stored().values())
    assert found, "a run in which nothing was committed proves nothing"
    assert found == Counter(business.committed_bodies())
    assert business.broker is not None
    ops = business.broker.state.offsets.committed(TRANSACTION_GROUP, OP_HALF_TOPIC, 0)
    assert ops == business.broker.state.store.max_offset(OP_HALF_TOPIC, 0)


async def begin_through_trouble(business: Business) -> None:
    """Several under way at a time, about ten a second."""
    number, end_s = 0, business.world.loop.time() + TROUBLE_S
    under_way: list[asyncio.Future[None]] = []
    while business.world.loop.time() < end_s:
        under_way.append(asyncio.ensure_future(business.send_one(number)))
        number += 1
        await asyncio.sleep(business.world.random.uniform(0.01, 0.2))
    await asyncio.gather(*under_way)


async def make_trouble(business: Business) -> None:
    """A fault every few seconds, each repaired before the next one."""
    world = business.world
    world.network.loss_percent = world.random.choice((0, 1, 10))
    end_s = world.loop.time() + TROUBLE_S
    while world.loop.time() < end_s:
        await asyncio.sleep(world.random.uniform(0.5, 4.0))
        match world.random.choice(("kill broker", "power cut", "kill producer", "partition")):
            case "kill broker":
                business.crash(BROKER, power_cut=False)
                await asyncio.sleep(world.random.uniform(0.1, 3.0))
                await business.start_broker()
            case "power cut":
                business.crash(BROKER, power_cut=True)
                await asyncio.sleep(world.random.uniform(0.1, 3.0))
                await business.start_broker()
            case "kill producer":
                business.producer = None
                business.crash(PRODUCER, power_cut=False)
                await asyncio.sleep(world.random.uniform(0.1, 3.0))
                await business.start_producer()
            case "partition":
                world.network.partition(BROKER, PRODUCER)
                await asyncio.sleep(world.random.uniform(0.5, 5.0))
                world.network.heal()


@seeded(20)
def test_what_was_committed_appears_once_and_nothing_else_ever(seed: int) -> None:
    run_world(seed, scenario)
