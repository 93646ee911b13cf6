"""Routes as a client knows them: name servers that are away, brokers that come and go."""

from __future__ import annotations

import asyncio

import pytest

from engine.client.config import ClientConfig
from engine.client.connection.connection import ClusterConnection
from engine.foundation.errors import Unreachable
from engine.protocol.message import MessageQueue
from engine.runtime import Runtime
from tests.asynchronous import run_by
from tests.unit.client.scripted_cluster import NAMESRV, ScriptedCluster, with_cluster

TOPICS = {"T": {"broker-a": 2, "broker-b": 1}}


def connection(runtime: Runtime, *name_servers: str) -> ClusterConnection:
    return ClusterConnection(runtime, ClientConfig(namesrv_addresses=name_servers))


@run_by(with_cluster, topics=TOPICS)
async def test_queues_are_sorted_by_broker_and_number(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    client = connection(runtime, f"{NAMESRV}:9876")
    assert await client.routes.readable_queues("T") == [
        MessageQueue("T", "broker-a", 0),
        MessageQueue("T", "broker-a", 1),
        MessageQueue("T", "broker-b", 0),
    ]
    assert client.routes.master_address("broker-b") == "10.0.1.1:10911"
    await client.stop()


@run_by(with_cluster, topics=TOPICS)
async def test_callers_at_the_same_time_share_one_request(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    client = connection(runtime, f"{NAMESRV}:9876")
    await asyncio.gather(*(client.routes.readable_queues("T") for _ in range(20)))
    assert cluster.route_requests == 1
    await client.stop()


@run_by(with_cluster, topics=TOPICS)
async def test_a_silent_name_server_is_passed_over_and_remembered(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    client = connection(runtime, "10.0.7.7:9876", f"{NAMESRV}:9876", "10.0.8.8:9876")
    for _ in range(3):
        assert await client.routes.refresh("T")
    began_ms = runtime.clock.steady_ms()
    assert await client.routes.refresh("T")
    assert runtime.clock.steady_ms() - began_ms < 200, "the one that answered is asked first"
    await client.stop()


@run_by(with_cluster, topics=TOPICS)
async def test_without_a_name_server_a_known_route_stays_and_an_unknown_one_is_an_error(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    client = connection(runtime, f"{NAMESRV}:9876")
    await client.routes.refresh("T")
    cluster.world.node(NAMESRV).crash(power_cut=False)
    assert len(await client.routes.readable_queues("T") or []) == 3
    with pytest.raises(Unreachable):
        await client.routes.readable_queues("U")
    await client.stop()


@run_by(with_cluster, topics=dict(TOPICS))
async def test_an_unknown_topic_has_no_queues(cluster: ScriptedCluster, runtime: Runtime) -> None:
    client = connection(runtime, f"{NAMESRV}:9876")
    assert await client.routes.readable_queues("U") is None
    assert client.routes.known_topics() == ["U"]
    cluster.topics["U"] = {"broker-a": 1}
    assert await client.routes.readable_queues("U") == [MessageQueue("U", "broker-a", 0)]
    await client.stop()


@run_by(with_cluster, topics=dict(TOPICS))
async def test_a_broker_that_no_route_leads_to_any_more_is_forgotten(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    client = connection(runtime, f"{NAMESRV}:9876")
    await client.routes.refresh("T")
    assert len(client.routes.broker_addresses(masters_only=True)) == 2
    cluster.topics["T"] = {"broker-b": 1}
    await client.routes.refresh("T")
    assert client.routes.broker_addresses(masters_only=True) == ["10.0.1.1:10911"]
    await client.stop()
