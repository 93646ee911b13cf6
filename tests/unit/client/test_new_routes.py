"""A client asks for a new route as soon as a broker is unreachable or says that it is no master.

In each story broker-a fails, and broker-b's host is what name servers call broker-a from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from engine.admin.api.requests import AdminRequests
from engine.client.config import ConsumerConfig, ProducerConfig
from engine.client.connection.connection import ClusterConnection
from engine.client.connection.route_cache import DOUBT_EACH_MS
from engine.client.consuming.broker_api import BrokerSide
from engine.client.consuming.failed_messages import SendBackRequest
from engine.client.consuming.group_state import Subscription
from engine.client.consuming.offset_store import CommitTrigger
from engine.client.consuming.pulling import PullQuestion, PullResult
from engine.client.producer import Producer
from engine.foundation.errors import RequestRefused, TidemarkError
from engine.foundation.units import SECOND_MS
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.message import Message, MessageExt, MessageQueue
from engine.runtime import Runtime
from tests.asynchronous import run_by
from tests.unit.client.consuming_parts import subscription
from tests.unit.client.scripted_cluster import ScriptedBroker, ScriptedCluster, with_cluster

TOPICS = {"T": {"broker-a": 2}}
QUEUE = MessageQueue("T", "broker-a", 0)
OTHERS = (
    RequestCode.PULL_MESSAGE,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.GET_BROKER_RUNTIME_INFO,
)
NEW = "10.0.1.1:10911"
"""Where broker-a is after the fail-over."""


def fail_over(cluster: ScriptedCluster) -> ScriptedBroker:
    """Name servers know the new master; the broker that was it."""
    former = cluster.brokers["broker-a"]
    cluster.brokers["broker-a"] = cluster.brokers["broker-b"]
    return former


class Client:
    """A connection with the route of T, and what is done over it."""

    def __init__(self, cluster: ScriptedCluster, runtime: Runtime) -> None:
        self.cluster = cluster
        self.admin = AdminRequests(runtime, cluster.config())
        self.connection: ClusterConnection = self.admin.connection
        self.broker = BrokerSide(self.connection, "g", ConsumerConfig(commit_acknowledged=True))
        self.pulled: asyncio.Future[PullResult | TidemarkError]

    def question(self, offset: int = 0) -> PullQuestion:
        return PullQuestion(QUEUE, Subscription(subscription("T", "*"), None), offset, None)

    async def pull(self) -> object:
        return await self.broker.pull(self.question())

    async def pull_in_background(self) -> object:
        self.pulled = asyncio.get_running_loop().create_future()
        self.broker.begin_pull(self.question(), self.pulled.set_result)
        outcome = await self.pulled
        if isinstance(outcome, TidemarkError):
            raise outcome
        return outcome

    async def commit(self) -> object:
        return await self.broker.commit(QUEUE, 1, CommitTrigger.TIMER)

    async def fetch(self) -> object:
        return await self.broker.fetch(QUEUE)

    async def lock(self) -> object:
        return await self.broker.lock("broker-a", [QUEUE])

    async def send_back(self) -> object:
        message = MessageExt("T", b"x")
        await self.broker.send_back(SendBackRequest(message, "g", 0, 16, "broker-a"))
        return None

    async def ask_as_admin(self) -> object:
        address = await self.admin.routes.find_master(QUEUE)
        return await self.admin.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO, {})

    async def begin(self) -> None:
        await self.connection.routes.refresh("T")
        assert self.cluster.route_requests == 1

    async def knows_the_new_master(self) -> None:
        """Long before a route is due."""
        routes = self.connection.routes
        await self.cluster.world.until(
            "a new route", lambda: routes.master_address("broker-a") == NEW, within_s=1
        )
        assert self.cluster.route_requests == 2


WAYS: dict[str, Callable[[Client], Awaitable[object]]] = {
    "pull": Client.pull,
    "pull in the background": Client.pull_in_background,
    "commit": Client.commit,
    "fetch": Client.fetch,
    "lock": Client.lock,
    "send-back": Client.send_back,
    "admin": Client.ask_as_admin,
}


@pytest.mark.parametrize("way", WAYS)
@run_by(with_cluster, topics=TOPICS, others=OTHERS)
async def test_a_broker_that_cannot_be_reached_makes_its_route_doubtful(
    cluster: ScriptedCluster, runtime: Runtime, *, way: str
) -> None:
    client = Client(cluster, runtime)
    await client.begin()
    cluster.world.node(fail_over(cluster).host).crash(power_cut=False)
    with pytest.raises(TidemarkError):
        await WAYS[way](client)
    await client.knows_the_new_master()
    await client.connection.stop()


@pytest.mark.parametrize("way", WAYS)
@run_by(with_cluster, topics=TOPICS, others=OTHERS)
async def test_a_broker_that_takes_nothing_makes_its_route_doubtful(
    cluster: ScriptedCluster, runtime: Runtime, *, way: str
) -> None:
    client = Client(cluster, runtime)
    await client.begin()
    fail_over(cluster).other_code = ResponseCode.SERVICE_NOT_AVAILABLE
    with pytest.raises(RequestRefused):
        await WAYS[way](client)
    await client.knows_the_new_master()
    await client.connection.stop()


@pytest.mark.parametrize("way", ["pull", "pull in the background"])
@run_by(with_cluster, topics=TOPICS, others=OTHERS)
async def test_a_slave_that_sends_its_readers_to_a_master_that_it_was_makes_the_route_doubtful(
    cluster: ScriptedCluster, runtime: Runtime, *, way: str
) -> None:
    client = Client(cluster, runtime)
    await client.begin()
    fail_over(cluster).other_code = ResponseCode.PULL_RETRY_IMMEDIATELY
    with pytest.raises(RequestRefused, match="no master"):
        await WAYS[way](client)
    await client.knows_the_new_master()
    await client.connection.stop()


@pytest.mark.parametrize(
    "code", [None, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR]
)
@run_by(with_cluster, topics=TOPICS)
async def test_a_send_goes_on_at_the_new_master(
    cluster: ScriptedCluster, runtime: Runtime, *, code: ResponseCode | None
) -> None:
    producer = await producer_of(cluster, runtime)
    await producer.send(Message("T", b"before"))
    former = fail_over(cluster)
    former.script = [code]
    if code is None:
        cluster.world.node(former.host).crash(power_cut=False)
    result = await producer.send(Message("T", b"behind"))
    assert result.status.value == "SEND_OK"
    assert len(cluster.brokers["broker-b"].received) == 1
    await producer.stop()


@run_by(with_cluster, topics=TOPICS)
async def test_a_send_to_one_queue_is_refused_and_the_next_one_goes_to_the_new_master(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    producer = await producer_of(cluster, runtime)
    await producer.send(Message("T", b"before"), queue=QUEUE)
    fail_over(cluster).script = [ResponseCode.SERVICE_NOT_AVAILABLE]
    with pytest.raises(RequestRefused):
        await producer.send(Message("T", b"refused"), queue=QUEUE)
    await asyncio.sleep(0.5)
    assert (await producer.send(Message("T", b"behind"), queue=QUEUE)).status.value == "SEND_OK"
    assert len(cluster.brokers["broker-b"].received) == 1
    await producer.stop()


async def producer_of(cluster: ScriptedCluster, runtime: Runtime) -> Producer:
    producer = Producer(runtime, cluster.config(), "g", producer=ProducerConfig())
    await producer.start()
    return producer


@run_by(with_cluster, topics=TOPICS)
async def test_an_end_of_a_transaction_that_a_slave_refuses_makes_the_route_doubtful(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    client = Client(cluster, runtime)
    await client.begin()
    fail_over(cluster).end_code = ResponseCode.SLAVE_NOT_AVAILABLE
    address = await client.connection.routes.find_master(QUEUE)
    end = RemotingCommand.request(RequestCode.END_TRANSACTION, {})
    with pytest.raises(RequestRefused):
        await client.connection.ask(address, end)
    await client.knows_the_new_master()
    await client.connection.stop()


@run_by(with_cluster, topics=TOPICS)
async def test_a_send_that_is_stored_without_a_slave_leaves_the_route_alone(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    producer = await producer_of(cluster, runtime)
    await producer.send(Message("T", b"before"))
    cluster.brokers["broker-a"].script = [ResponseCode.SLAVE_NOT_AVAILABLE]
    requests = cluster.route_requests
    await producer.send(Message("T", b"stored"))
    assert cluster.route_requests == requests
    await producer.stop()


@run_by(with_cluster, topics=TOPICS, others=OTHERS)
async def test_a_broker_that_fails_all_the_time_is_asked_about_once_a_second(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    client = Client(cluster, runtime)
    await client.begin()
    cluster.brokers["broker-a"].other_code = ResponseCode.SERVICE_NOT_AVAILABLE
    ends_ms = runtime.clock.steady_ms() + 10 * DOUBT_EACH_MS
    while runtime.clock.steady_ms() < ends_ms:
        with pytest.raises(RequestRefused):
            await client.fetch()
        await asyncio.sleep(0.02)
    assert 9 <= cluster.route_requests - 1 <= 11
    await client.connection.stop()


@run_by(with_cluster, topics=TOPICS, others=OTHERS)
async def test_a_route_is_tried_again_while_no_name_server_knows_of_the_new_master(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    client = Client(cluster, runtime)
    await client.begin()
    former = cluster.brokers["broker-a"]
    cluster.world.node(former.host).crash(power_cut=False)
    for _ in range(3):
        with pytest.raises(TidemarkError):
            await client.fetch()
        await asyncio.sleep(DOUBT_EACH_MS / SECOND_MS)
    fail_over(cluster)
    with pytest.raises(TidemarkError):
        await client.fetch()
    await asyncio.sleep(0.5)
    assert await client.fetch() == 7
    await client.connection.stop()


@run_by(with_cluster, topics=TOPICS)
async def test_a_name_server_that_is_away_and_a_client_that_stops_make_no_route_doubtful(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    client = Client(cluster, runtime)
    await client.begin()
    client.connection.routes.doubt("10.0.9.9:9876")
    client.connection.routes.close()
    client.connection.routes.doubt(cluster.brokers["broker-a"].address)
    await asyncio.sleep(0.2)
    assert cluster.route_requests == 1
    await client.connection.stop()
