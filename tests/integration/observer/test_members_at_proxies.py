"""Clients of a gRPC SDK are connected with a proxy alone: their broker says that nobody is there.
Whoever watches asks the proxies too, and says why when none can be asked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine.foundation.errors import ConfigError
from engine.observer.observation import Observation
from engine.observer.proxies import HEARTBEAT_GROUP, check_proxies
from engine.protocol.bodies import ConsumerConnection, SubscriptionData
from engine.protocol.bodies_admin import ClientConnection
from engine.protocol.codes import RequestCode as Code
from tests.integration.broker.spooled import picked
from tests.integration.observer.played_cluster import (
    PlayedBroker,
    PlayedCluster,
    observing,
    ok,
    played_cluster,
)

UNNAMED = "a proxy at 127.0.0.1 serves this cluster; give its port with --proxy"


def beside_a_proxy() -> PlayedBroker:
    """A broker whose group g nobody is connected with, and in whose heartbeat group a proxy is."""
    broker = PlayedBroker("broker-a")
    broker.groups[HEARTBEAT_GROUP] = {}
    broker.members[HEARTBEAT_GROUP] = {"192.0.2.2@DEFAULT": {}}
    return broker


@asynccontextmanager
async def proxy_with(*clients: str) -> AsyncIterator[PlayedBroker]:
    """A proxy that names these clients as members of g, as 5.5.0 does."""
    proxy = PlayedBroker("proxy")
    connection = ConsumerConnection(
        [ClientConnection(one, "192.0.2.9:35988", "PYTHON", 513) for one in clients],
        {"orders": SubscriptionData("orders", "a || b")},
        consume_type="CONSUME_ACTIVELY",
        message_model="CLUSTERING",
    )
    usual = proxy.usual[Code.GET_CONSUMER_CONNECTION_LIST]
    proxy.answers[Code.GET_CONSUMER_CONNECTION_LIST] = lambda peer, request: (
        ok(request, connection.encode())
        if request.fields["consumerGroup"] == "g" and clients
        else usual(peer, request)
    )
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()


def asking(cluster: PlayedCluster, *proxies: str) -> Observation:
    """An observer that asks these proxies."""
    return Observation(frozenset(), "observer", str(cluster.folder), 50, proxies=proxies)


async def members(
    cluster: PlayedCluster, broker: PlayedBroker, *, wanted: tuple[int | None, str | None]
) -> None:
    """Wait until the group's newest mark says this of its members."""
    names = ("members", "members_unknown_reason")
    await cluster.says_at_last(broker, "group_watermarks", *names, wanted=wanted, group="g")


async def test_members_are_unknown_and_not_none_when_a_proxy_serves_and_nobody_names_its_port(
    tmp_path: Path,
) -> None:
    broker = beside_a_proxy()
    async with played_cluster(tmp_path, broker) as cluster, observing(cluster):
        await members(cluster, broker, wanted=(None, UNNAMED))
        marks = [row for row in cluster.reported(broker, "group_watermarks") if row["group"] == "g"]
    assert {row["members"] for row in marks} == {None}, "never 0"


async def test_members_of_a_cluster_without_proxies_are_as_its_broker_says(tmp_path: Path) -> None:
    broker = PlayedBroker("broker-a")
    async with played_cluster(tmp_path, broker) as cluster, observing(cluster):
        await members(cluster, broker, wanted=(0, None))


async def test_a_proxy_that_is_named_says_who_reads_through_it_and_what(tmp_path: Path) -> None:
    broker = beside_a_proxy()
    async with (
        proxy_with("vm@1@1@x") as proxy,
        played_cluster(tmp_path, broker) as cluster,
        observing(cluster, observation=asking(cluster, proxy.address)),
    ):
        await members(cluster, broker, wanted=(1, None))
        broker.members["g"] = {"direct@1": {}}
        await members(cluster, broker, wanted=(2, None))
        events = cluster.reported(broker, "rebalance_events")
    joined = [row for row in events if row["group"] == "g" and row["kind"] == "JOINED"]
    reported = [picked(row, "client_id", "language", "client_version", "proxy") for row in joined]
    assert reported == [
        ("vm@1@1@x", "PYTHON", 513, proxy.address),
        ("direct@1", "JAVA", 1, None),
    ]
    assert joined[0]["subscription"] == ["orders:a || b"]


async def test_a_proxy_that_stops_answering_leaves_members_unknown_until_it_is_back(
    tmp_path: Path,
) -> None:
    broker = beside_a_proxy()
    async with (
        proxy_with("vm@1@1@x") as proxy,
        played_cluster(tmp_path, broker) as cluster,
        observing(cluster, observation=asking(cluster, proxy.address)),
    ):
        await members(cluster, broker, wanted=(1, None))
        said = proxy.answers.pop(Code.GET_CONSUMER_CONNECTION_LIST)
        proxy.answers[Code.GET_CONSUMER_CONNECTION_LIST] = lambda _, request: request.respond(
            1, "it is going down"
        )
        await members(cluster, broker, wanted=(None, f"no proxy answers: {proxy.address}"))
        proxy.answers[Code.GET_CONSUMER_CONNECTION_LIST] = said
        await members(cluster, broker, wanted=(1, None))
        events = cluster.reported(broker, "rebalance_events")
    kinds = [row["kind"] for row in events if row["group"] == "g"]
    assert kinds == ["JOINED"], "that it was not asked is no departure"


async def test_one_proxy_that_answers_is_enough_since_they_inform_each_other(
    tmp_path: Path,
) -> None:
    broker = beside_a_proxy()
    async with (
        proxy_with() as proxy,
        played_cluster(tmp_path, broker) as cluster,
        observing(cluster, observation=asking(cluster, "127.0.0.1:1", proxy.address)),
    ):
        await members(cluster, broker, wanted=(0, None))


@pytest.mark.parametrize("text", ["proxy-1", "proxy-1:", ":8080", "proxy-1:0", "proxy-1:99999"])
def test_an_address_of_a_proxy_is_a_host_and_a_port(text: str) -> None:
    with pytest.raises(ConfigError, match="the remoting port of a proxy"):
        check_proxies([text])


async def test_a_proxy_is_of_one_cluster(tmp_path: Path) -> None:
    brokers = PlayedBroker("broker-a", "c1"), PlayedBroker("broker-b", "c2")
    async with played_cluster(tmp_path, *brokers) as cluster:
        info = cluster.info()
        with pytest.raises(ConfigError, match="one of one cluster"):
            asking(cluster, "127.0.0.1:8080").checked(info)
        named = Observation(
            frozenset({"c1"}), "observer", str(tmp_path), 50, proxies=("127.0.0.1:8080",)
        )
        assert named.checked(info) == named
