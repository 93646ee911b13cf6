"""Pulls that nobody waits for, from the question to what calls back: the broker's side of pulling.

Row B3.
"""

from __future__ import annotations

import asyncio

from engine.client.config import ClientConfig, ConsumerConfig
from engine.client.connection.connection import ClusterConnection
from engine.client.consuming.broker_api import BrokerSide
from engine.client.consuming.group_state import Subscription
from engine.client.consuming.pulling import PullQuestion, PullResult
from engine.foundation.errors import ConnectFailed, RequestRefused, TidemarkError, Unreachable
from engine.protocol.message import MessageQueue
from engine.runtime import Runtime
from tests.asynchronous import run_by
from tests.unit.client.consuming_parts import subscription
from tests.unit.client.scripted_cluster import NAMESRV, ScriptedCluster, with_cluster

TOPICS = {"T": {"broker-a": 200}}


class Asking:
    """One member's pulls, and what called back."""

    def __init__(self, runtime: Runtime, name_server: str = f"{NAMESRV}:9876") -> None:
        self.connection = ClusterConnection(runtime, ClientConfig(namesrv_addresses=(name_server,)))
        self.broker = BrokerSide(self.connection, "g", ConsumerConfig())
        self.outcomes: list[PullResult | TidemarkError] = []

    def pull(self, queue_id: int, broker_name: str = "broker-a") -> None:
        queue = MessageQueue("T", broker_name, queue_id)
        question = PullQuestion(queue, Subscription(subscription("T", "*"), None), 0, None)
        self.broker.begin_pull(question, self.outcomes.append)

    async def all_outcomes(
        self, cluster: ScriptedCluster, count: int
    ) -> list[PullResult | TidemarkError]:
        await cluster.world.until("all ended", lambda: len(self.outcomes) == count, within_s=40)
        await self.connection.stop()
        return self.outcomes


@run_by(with_cluster, topics=TOPICS)
async def test_queues_of_a_broker_no_route_leads_to_share_one_look_for_it(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    asking, before = Asking(runtime), len(asyncio.all_tasks())
    for queue_id in range(200):
        asking.pull(queue_id)
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) <= before + 2, "one asks, one connects"
    outcomes = await asking.all_outcomes(cluster, 200)
    assert cluster.route_requests == 1
    assert {type(one) for one in outcomes} == {RequestRefused}, "the broker has no such code"


@run_by(with_cluster, topics=TOPICS)
async def test_a_broker_that_no_name_server_knows_is_named(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    asking = Asking(runtime)
    asking.pull(0, "broker-z")
    [outcome] = await asking.all_outcomes(cluster, 1)
    assert isinstance(outcome, ConnectFailed)
    assert "no route leads to broker broker-z" in str(outcome)


@run_by(with_cluster, topics=TOPICS)
async def test_name_servers_that_do_not_answer_are_the_pulls_error(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    asking = Asking(runtime, f"{NAMESRV}:1")
    asking.pull(0)
    [outcome] = await asking.all_outcomes(cluster, 1)
    assert isinstance(outcome, Unreachable)
    assert "refused" in str(outcome)


@run_by(with_cluster, topics=TOPICS)
async def test_a_broker_that_is_down_is_the_pulls_error(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    asking = Asking(runtime)
    await asking.connection.routes.refresh("T")
    cluster.world.node(cluster.brokers["broker-a"].host).crash(power_cut=False)
    for queue_id in range(3):
        asking.pull(queue_id)
    outcomes = await asking.all_outcomes(cluster, 3)
    assert {type(one) for one in outcomes} == {ConnectFailed}
