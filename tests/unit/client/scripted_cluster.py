"""A name server and brokers that answer by a script, over the virtual network: for faults a good
broker does not show.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from engine.client.config import ClientConfig
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.remoting import Peer, RpcServer
from engine.runtime import Runtime
from tests.simulation.world import World, run_world

NAMESRV, CLIENT = "10.0.0.9", "10.0.0.1"
SENDS = (
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
)
Answer = int | None
"""A response code, or None: no answer at all."""


@dataclass
class ScriptedBroker:
    """Answers sends by the next code of its script (SUCCESS when it is used up) and keeps what it
    got.
    """

    name: str
    host: str
    script: list[Answer] = field(default_factory=list)
    received: list[RemotingCommand] = field(default_factory=list)
    left: list[dict[str, str]] = field(default_factory=list)
    heartbeats: int = 0
    ends: list[RemotingCommand] = field(default_factory=list)
    """END_TRANSACTIONs; answered by `end_code` and `end_remark`."""
    end_code: Answer = ResponseCode.SUCCESS
    end_remark: str = "by script"
    other_code: Answer = ResponseCode.SUCCESS
    """What pulls, locks, send-backs and offsets are answered."""
    others: list[RemotingCommand] = field(default_factory=list)
    clients: list[Peer] = field(default_factory=list)
    """Who sent a heartbeat, newest last."""

    @property
    def address(self) -> str:
        return f"{self.host}:10911"

    def on_send(self, peer: Peer, request: RemotingCommand) -> RemotingCommand | None:
        self.received.append(request)
        code = self.script.pop(0) if self.script else ResponseCode.SUCCESS
        if code is None:
            return None
        fields = {
            "msgId": f"{len(self.received):032X}",
            "queueId": request.fields["e"],
            "queueOffset": str(len(self.received) - 1),
        }
        return request.respond(code, "by script", fields)

    def on_heartbeat(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        self.heartbeats += 1
        self.clients.append(peer)
        return request.respond(ResponseCode.SUCCESS)

    def on_end(self, peer: Peer, request: RemotingCommand) -> RemotingCommand | None:
        self.ends.append(request)
        if self.end_code is None:
            return None
        return request.respond(self.end_code, self.end_remark)

    def on_other(self, peer: Peer, request: RemotingCommand) -> RemotingCommand | None:
        self.others.append(request)
        if self.other_code is None:
            return None
        fields = {"nextBeginOffset": request.fields.get("queueOffset", "0"), "offset": "7"} | {
            "suggestWhichBrokerId": "0",
            "minOffset": "0",
            "maxOffset": "9",
        }
        return request.respond(self.other_code, "by script", fields, b'{"lockOKMQSet":[]}')

    def on_leave(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        self.left.append(dict(request.fields))
        return request.respond(ResponseCode.SUCCESS)


@dataclass
class ScriptedCluster:
    """Brokers behind one name server; `topics` says on which brokers a topic has how many
    queues.
    """

    world: World
    brokers: dict[str, ScriptedBroker]
    topics: dict[str, dict[str, int]]
    route_requests: int = 0
    others: Sequence[RequestCode] = ()
    """Further codes that the brokers serve, by `other_code`."""
    topic_sys_flag: int = 0
    """Of all topics, in their routes."""

    def config(self, **settings: object) -> ClientConfig:
        return ClientConfig(namesrv_addresses=(f"{NAMESRV}:9876",), **settings)  # type: ignore[arg-type]

    def on_route(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        self.route_requests += 1
        queues = self.topics.get(request.fields["topic"])
        if queues is None:
            return request.respond(ResponseCode.TOPIC_NOT_EXIST, "no such topic")
        route = {
            "brokerDatas": [
                {
                    "brokerName": name,
                    "cluster": "c",
                    "brokerAddrs": {"0": self.brokers[name].address},
                }
                for name in queues
            ],
            "queueDatas": [
                {
                    "brokerName": name,
                    "readQueueNums": count,
                    "writeQueueNums": count,
                    "perm": 6,
                    "topicSysFlag": self.topic_sys_flag,
                }
                for name, count in queues.items()
            ],
            "filterServerTable": {},
        }
        return request.respond(ResponseCode.SUCCESS, body=json.dumps(route).encode())

    async def start(self) -> None:
        async def serve_names(runtime: Runtime) -> None:
            server = RpcServer(runtime, {RequestCode.GET_ROUTEINFO_BY_TOPIC: self.on_route})
            await server.start(NAMESRV, 9876)

        await self.world.node(NAMESRV).boot(serve_names)
        for broker in self.brokers.values():
            handlers = dict.fromkeys(SENDS, broker.on_send) | dict.fromkeys(
                self.others, broker.on_other
            )
            handlers |= {
                RequestCode.HEART_BEAT: broker.on_heartbeat,
                RequestCode.UNREGISTER_CLIENT: broker.on_leave,
                RequestCode.END_TRANSACTION: broker.on_end,
            }

            async def serve(
                runtime: Runtime, host: str = broker.host, handlers: object = handlers
            ) -> None:
                await RpcServer(runtime, handlers).start(host, 10911)  # type: ignore[arg-type]

            await self.world.node(broker.host).boot(serve)


def with_cluster(
    story: Callable[[ScriptedCluster, Runtime], Awaitable[None]],
    *,
    topics: dict[str, dict[str, int]],
    names: Sequence[str] = ("broker-a", "broker-b"),
    others: Sequence[RequestCode] = (),
) -> None:
    """Run `story` on a client host of a virtual world with these brokers."""

    async def scenario(world: World) -> None:
        brokers = {
            name: ScriptedBroker(name, f"10.0.1.{number}") for number, name in enumerate(names)
        }
        cluster = ScriptedCluster(world, brokers, topics, others=others)
        await cluster.start()

        async def live(runtime: Runtime) -> None:
            await story(cluster, runtime)
            await asyncio.sleep(0.1)

        await world.node(CLIENT).boot(live)

    run_world(11, scenario)
