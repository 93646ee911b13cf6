"""Row C11: a name server that does not answer keeps no other one from hearing who leads."""

from __future__ import annotations

import asyncio

from engine.broker.config import BrokerConfig
from engine.broker.identity import BrokerNode, Role
from engine.broker.registration import Registration
from engine.broker.table_changes import TableChanges
from engine.broker.topics.topics import Topics
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.names import MASTER_ID
from engine.remoting import Peer, RpcClient, RpcServer
from engine.runtime import Runtime
from engine.store import StoreConfig
from tests.simulation.world import World, run_world

SILENT, ANSWERS, BROKER = "10.0.0.8", "10.0.0.9", "10.0.0.1"


def registration_of(runtime: Runtime, *hosts: str) -> Registration:
    """That of a slave of term 1, which knows these name servers."""
    names = tuple(f"{host}:9876" for host in hosts)
    config = BrokerConfig(store=StoreConfig(root="/store"), namesrv_addresses=names)
    node = BrokerNode(config, 0, f"{BROKER}:10911")
    node.take_role(Role.SLAVE, 1)
    return Registration(
        changes=TableChanges(), node=node, topics=Topics(), client=RpcClient(runtime)
    )


def test_a_new_master_is_registered_while_an_earlier_round_waits() -> None:
    ids: list[int] = []

    def silent(peer: Peer, request: RemotingCommand) -> None:
        return None

    def answers(peer: Peer, request: RemotingCommand) -> RemotingCommand:
        ids.append(int(request.fields["brokerId"]))
        return request.respond(ResponseCode.SUCCESS)

    async def scenario(world: World) -> None:
        for host, handler in ((SILENT, silent), (ANSWERS, answers)):

            async def serve(runtime: Runtime, host: str = host, handler: object = handler) -> None:
                codes = (RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER)
                server = RpcServer(runtime, dict.fromkeys(codes, handler))  # type: ignore[arg-type]
                await server.start(host, 9876)

            await world.node(host).boot(serve)

        async def live(runtime: Runtime) -> None:
            registration = registration_of(runtime, SILENT, ANSWERS)
            node, changes = registration.node, registration.changes
            work = asyncio.get_running_loop().create_task(registration.run())
            changes.of_role()
            await world.until("the slave is heard of", lambda: bool(ids), within_s=1)
            node.take_role(Role.MASTER, 2)
            changes.of_role()
            await world.until("the master is heard of", lambda: MASTER_ID in ids, within_s=1)
            work.cancel()

        await world.node(BROKER).boot(live)

    run_world(5, scenario)


def test_who_waits_for_a_round_that_was_given_up_waits_for_the_next() -> None:
    asked: list[int] = []
    heard: list[int] = []

    def answers_the_second(peer: Peer, request: RemotingCommand) -> RemotingCommand | None:
        asked.append(int(request.fields["brokerId"]))
        if len(asked) == 1:
            return None
        heard.append(asked[-1])
        return request.respond(ResponseCode.SUCCESS)

    async def scenario(world: World) -> None:
        async def serve(runtime: Runtime) -> None:
            server = RpcServer(runtime, {RequestCode.REGISTER_BROKER: answers_the_second})
            await server.start(ANSWERS, 9876)

        await world.node(ANSWERS).boot(serve)

        async def live(runtime: Runtime) -> None:
            registration = registration_of(runtime, ANSWERS)
            node, changes = registration.node, registration.changes
            work = asyncio.get_running_loop().create_task(registration.run())
            changes.of_topics()
            await world.until("a round is under way", lambda: bool(asked), within_s=1)
            waiting = asyncio.get_running_loop().create_task(registration.registered())
            await asyncio.sleep(0)
            node.take_role(Role.MASTER, 2)
            changes.of_role()
            await waiting
            assert heard == [MASTER_ID]
            work.cancel()

        await world.node(BROKER).boot(live)

    run_world(5, scenario)
