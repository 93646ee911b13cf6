"""Row C11: A name server that missed a fail-over: a client that notices asks the next one."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from engine.client.config import ClientConfig, ProducerConfig
from engine.client.producer import Producer
from engine.foundation.errors import TidemarkError
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.message import Message, MessageQueue
from engine.remoting import Peer, RpcServer
from engine.runtime import Runtime
from tests.asynchronous import run_by
from tests.unit.client.scripted_cluster import (
    ScriptedBroker,
    ScriptedCluster,
    with_cluster,
)

TOPICS = {"T": {"broker-a": 2}}
FIRST_NAMESRV, OTHER_NAMESRV = "10.0.0.7", "10.0.0.8"


class NameServers:
    """Two of them. From the fail-over on, one says what it said then, or knows slaves only."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.cluster = cluster
        self.asked = ""
        self.stale: str | None = None
        self.former: dict[str, ScriptedBroker] = {}
        self.names_a_master = True

    async def start(self) -> None:
        for host in (FIRST_NAMESRV, OTHER_NAMESRV):

            async def serve(runtime: Runtime, host: str = host) -> None:
                def on_route(peer: Peer, request: RemotingCommand) -> RemotingCommand:
                    return self.on_route(host, peer, request)

                server = RpcServer(runtime, {RequestCode.GET_ROUTEINFO_BY_TOPIC: on_route})
                await server.start(host, 9876)

            await self.cluster.world.node(host).boot(serve)

    def on_route(self, host: str, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        self.asked = host
        if host != self.stale:
            return self.cluster.on_route(peer, request)
        present, self.cluster.brokers = self.cluster.brokers, self.former
        answer = self.cluster.on_route(peer, request)
        self.cluster.brokers = present
        if not self.names_a_master:
            answer.body = bytes(answer.body).replace(b'{"0":', b'{"1":')
        return answer

    def fail_over(self, *, of_the_other: bool, still_named: bool) -> None:
        """`of_the_other`: the stale one is not the one that was asked last."""
        brokers = self.cluster.brokers
        others = {FIRST_NAMESRV: OTHER_NAMESRV, OTHER_NAMESRV: FIRST_NAMESRV}
        self.stale = others[self.asked] if of_the_other else self.asked
        self.names_a_master = still_named
        self.former = dict(brokers)
        brokers["broker-a"].script = [ResponseCode.SERVICE_NOT_AVAILABLE] * 100
        self.cluster.brokers = brokers | {"broker-a": brokers["broker-b"]}


@pytest.mark.parametrize("of_the_other", [False, True], ids=["asked last", "the other"])
@pytest.mark.parametrize("still_named", [True, False], ids=["the former master", "slaves only"])
@run_by(with_cluster, topics=TOPICS)
async def test_sends_go_on_by_the_name_server_that_knows_of_the_new_master(
    cluster: ScriptedCluster, runtime: Runtime, *, of_the_other: bool, still_named: bool
) -> None:
    names = NameServers(cluster)
    await names.start()
    config = ClientConfig(namesrv_addresses=(f"{FIRST_NAMESRV}:9876", f"{OTHER_NAMESRV}:9876"))
    producer = Producer(runtime, config, "p", producer=ProducerConfig())
    await producer.start()
    queue = MessageQueue("T", "broker-a", 0)
    await producer.send(Message("T", b"before"), queue=queue)
    new = cluster.brokers["broker-b"]
    names.fail_over(of_the_other=of_the_other, still_named=still_named)

    async def send() -> None:
        for _ in range(30):
            with suppress(TidemarkError):
                await producer.send(Message("T", b"after"), queue=queue)
            await asyncio.sleep(0.1)

    await asyncio.gather(send(), send())
    assert new.received, "the client asks the stale name server alone"
    await producer.stop()
