"""A cluster that is played: a name server and brokers over real sockets, which answer an observer
as RocketMQ's do, unless a test gives them other answers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.admin import Admin
from engine.client.config import ClientConfig
from engine.observer.broker_watch import Watched
from engine.observer.cluster_watch import GONE_AFTER_MS, ClusterWatch
from engine.observer.observation import Observation
from engine.protocol import fastjson
from engine.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    ConsumerConnection,
    ConsumeStats,
    DataVersion,
    KVTable,
    OffsetWrapper,
    QueueData,
    TopicConfig,
    TopicConfigTable,
    TopicOffset,
    TopicRouteData,
    TopicStatsTable,
    encode_running_info,
)
from engine.protocol.bodies_admin import ClientConnection, ConsumeTimeSpans, QueueTimeSpan
from engine.protocol.body_codec import WireQueue
from engine.protocol.codes import RequestCode as Code
from engine.protocol.codes import ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.message import MessageExt, MessageQueue
from engine.protocol.message_record import encode_record
from engine.remoting import Handler, Peer, RpcServer
from engine.runtime import system_runtime
from engine.telemetry.frames import decode_frames
from tests.integration.broker.cluster import eventually
from tests.integration.broker.spooled import picked, spooled

BORN_MS = 1_700_000_000_000
"""When the brokers began."""
Place = tuple[str, int]
Row = dict[str, Any]


def ok(request: RemotingCommand, body: bytes = b"", **fields: str) -> RemotingCommand:
    """A success."""
    return request.respond(ResponseCode.SUCCESS, None, fields, body)


class PlayedBroker:
    """One broker: what it has, and what it answers otherwise."""

    def __init__(self, name: str, cluster: str = "c1") -> None:
        self.name = name
        self.cluster = cluster
        self.broker_id = 0
        """0: it is the master; others of the same name are its slaves."""
        self.booted_ms = BORN_MS
        self.queues: dict[Place, TopicOffset] = {("orders", 0): TopicOffset(0, 20, BORN_MS)}
        self.groups: dict[str, dict[Place, int]] = {"g": {("orders", 0): 10}}
        self.members: dict[str, dict[str, dict[Place, Row]]] = {}
        """What the members of groups hold: by group, by client id."""
        self.models: dict[str, str] = {}
        """Message models of groups that are not CLUSTERING."""
        self.figures: dict[str, str] = {}
        """Further ones of its own run."""
        self.jstack: str | None = None
        """The stacks of every member's threads."""
        self.messages: dict[Place, list[MessageExt]] = {}
        self.topics_version = 1
        """Of its topic table, as the name server has it."""
        self.first_ms: dict[Place, int] = {}
        """When the first message of a queue was stored, unless it is when the broker began."""
        self.answers: dict[int, Handler] = {}
        """Other answers than the usual ones."""
        self.asked: Counter[int] = Counter()
        self.stacks_asked = 0
        self.address = ""
        self.usual: dict[int, Handler] = {
            Code.GET_BROKER_RUNTIME_INFO: self._figures,
            Code.GET_BROKER_CONFIG: lambda _, ask: ok(ask, b"messageDelayLevel=1s 5s 10s\n"),
            Code.GET_BROKER_HA_STATUS: lambda _, ask: ask.respond(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "as before 5.0"
            ),
            Code.GET_BROKER_CONSUME_STATS: self._consume_stats,
            Code.GET_CONSUME_STATS: self._group_stats,
            Code.GET_ALL_TOPIC_CONFIG: self._topics,
            Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._groups,
            Code.GET_TOPIC_STATS_INFO: self._ends,
            Code.GET_CONSUMER_CONNECTION_LIST: self._connections,
            Code.GET_CONSUMER_RUNNING_INFO: self._running,
            Code.PULL_MESSAGE: self._read,
            Code.QUERY_MESSAGE: self._query,
            Code.QUERY_CONSUME_TIME_SPAN: self._spans,
            Code.GET_EARLIEST_MSG_STORETIME: self._first,
        }
        self._server = RpcServer(system_runtime(), dict.fromkeys(self.usual, self._answer))

    async def start(self) -> None:
        """Listen on a free port."""
        self.address = f"127.0.0.1:{await self._server.start('127.0.0.1', 0)}"

    async def stop(self) -> None:
        """Be gone."""
        await self._server.stop()

    def store(self, topic: str, *messages: MessageExt) -> None:
        """Put messages at the end of a topic's first queue."""
        kept = self.messages.setdefault((topic, 0), [])
        for message in messages:
            message.topic, message.queue_offset = topic, len(kept)
            message.physical_offset = 1000 * len(kept)
            kept.append(message)
        self.queues[topic, 0] = TopicOffset(0, len(kept), BORN_MS)

    def _answer(self, peer: Peer, request: RemotingCommand) -> Any:
        self.asked[request.code] += 1
        return self.answers.get(request.code, self.usual[request.code])(peer, request)

    def _queue(self, place: Place) -> MessageQueue:
        return MessageQueue(place[0], self.name, place[1])

    def _figures(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        table = {"bootTimestamp": str(self.booted_ms), **self.figures}
        return ok(request, KVTable(table).encode())

    def _consume_stats(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        listed = [
            fastjson.dumps(group) + b":[" + self._stats(rows).encode() + b"]"
            for group, rows in self.groups.items()
        ]
        return ok(request, b'{"consumeStatsList":[{' + b"},{".join(listed) + b"}]}")

    def _group_stats(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        rows = self.groups.get(request.fields["consumerGroup"], {})
        return ok(request, self._stats(rows).encode())

    def _stats(self, rows: dict[Place, int]) -> ConsumeStats:
        return ConsumeStats(
            {
                self._queue(place): OffsetWrapper(self.queues[place].max_offset, offset)
                for place, offset in rows.items()
            }
        )

    def _topics(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        names = dict.fromkeys(topic for topic, _ in self.queues)
        table = TopicConfigTable(DataVersion(), {name: TopicConfig(name) for name in names})
        return ok(request, table.encode())

    def _groups(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        table: dict[str, Any] = {group: {"groupName": group} for group in self.groups}
        return ok(request, fastjson.dumps({"subscriptionGroupTable": table}))

    def _ends(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        topic = request.fields["topic"]
        found = {self._queue(at): ends for at, ends in self.queues.items() if at[0] == topic}
        return ok(request, TopicStatsTable(found).encode())

    def _first(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        place = request.fields["topic"], int(request.fields["queueId"])
        return ok(request, timestamp=str(self.first_ms.get(place, BORN_MS)))

    def _connections(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        group = request.fields["consumerGroup"]
        members = self.members.get(group, {})
        if not members:
            return request.respond(ResponseCode.CONSUMER_NOT_ONLINE, "not online")
        connections = [ClientConnection(one, "127.0.0.1:1", "JAVA", 1) for one in members]
        model = self.models.get(group, "CLUSTERING")
        return ok(request, ConsumerConnection(connections, message_model=model).encode())

    def _running(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        group, client_id = request.fields["consumerGroup"], request.fields["clientId"]
        wants_stacks = request.fields.get("jstackEnable") == "true"
        self.stacks_asked += wants_stacks
        held = {self._queue(at): one for at, one in self.members[group][client_id].items()}
        jstack = self.jstack if wants_stacks else None
        return ok(request, encode_running_info({}, [], held, {}, jstack=jstack))

    def _spans(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        group, topic = request.fields["group"], request.fields["topic"]
        now_ms = system_runtime().clock.now_ms()
        spans = []
        for place, offset in self.groups.get(group, {}).items():
            kept = self.messages.get(place, [])
            if place[0] == topic and offset < len(kept):
                waited_ms = now_ms - kept[offset].store_timestamp_ms
                queue = WireQueue(self.name, place[1], topic)
                spans.append(QueueTimeSpan(queue, delay_time_ms=waited_ms))
        return ok(request, ConsumeTimeSpans(spans).encode())

    def _read(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        place = request.fields["topic"], int(request.fields["queueId"])
        begin = int(request.fields["queueOffset"])
        found = self.messages.get(place, [])[begin : begin + int(request.fields["maxMsgNums"])]
        if not found:
            return request.respond(ResponseCode.PULL_NOT_FOUND, "nothing there")
        return ok(request, b"".join(bytes(encode_record(message)) for message in found))

    def _query(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        topic, key = request.fields["topic"], request.fields["key"]
        stored = [one for place, kept in self.messages.items() if place[0] == topic for one in kept]
        found = [one for one in stored if one.uniq_key == key]
        if not found:
            return request.respond(ResponseCode.QUERY_NOT_FOUND, "nothing there")
        body = b"".join(bytes(encode_record(message)) for message in found)
        return ok(request, body, indexLastUpdateTimestamp="0", indexLastUpdatePhyoffset="0")


@dataclass
class PlayedCluster:
    """A name server that names brokers, and who watches them."""

    folder: Path
    brokers: list[PlayedBroker]
    namesrv: str = ""
    named: dict[str, dict[str, str]] = field(default_factory=dict)
    """Further brokers that it names: cluster → broker → address of the master."""
    listed_count: int = 0
    """How often it was asked who is there."""
    heard: list[Watched] = field(default_factory=list)
    """Brokers that the observer has begun to watch."""
    gone: list[Watched] = field(default_factory=list)
    """Brokers that it has reported gone."""
    on_listed: Callable[[], None] | None = None
    """Called once, when a list is made and has not arrived."""

    async def hear_gone(self, watched: Watched) -> None:
        """One is gone."""
        self.gone.append(watched)

    def info(self) -> ClusterInfo:
        """All that the name server knows."""
        self.listed_count += 1
        addresses = {
            cluster: {name: {0: address} for name, address in of.items()}
            for cluster, of in self.named.items()
        }
        for broker in self.brokers:
            copies = addresses.setdefault(broker.cluster, {}).setdefault(broker.name, {})
            copies[broker.broker_id] = broker.address
        if self.on_listed is not None:
            on_listed, self.on_listed = self.on_listed, None
            on_listed()
        return ClusterInfo(
            {
                name: BrokerData(cluster, name, copies)
                for cluster, of in addresses.items()
                for name, copies in of.items()
            },
            {cluster: list(of) for cluster, of in addresses.items()},
        )

    def topics_version(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """Of a broker's topic table; a version that is equal would be taken for a sign of life."""
        address = request.fields["brokerAddr"]
        (version,) = [one.topics_version for one in self.brokers if one.address == address]
        assert DataVersion.decode(request.body).counter != version
        return ok(request, DataVersion(counter=version).encode(), changed="true")

    def route(self) -> TopicRouteData:
        """The way to any topic."""
        return TopicRouteData(
            [QueueData(one.name, 4, 4, 6) for one in self.brokers],
            [BrokerData(one.cluster, one.name, {0: one.address}) for one in self.brokers],
        )

    def reported(self, broker: PlayedBroker, table: str) -> list[Row]:
        """Rows of a broker's observer so far, oldest first."""
        home = self.folder / broker.cluster / broker.name / "observer"
        return spooled(home, table) if (home / "spool").exists() else []

    async def says_at_last(
        self,
        broker: PlayedBroker,
        table: str,
        *names: str,
        wanted: tuple[Any, ...],
        **where: object,
    ) -> None:
        """Wait until the newest row of a table, of those with such values, says this."""

        def newest() -> tuple[Any, ...]:
            rows = self.reported(broker, table)
            rows = [row for row in rows if all(row[one] == value for one, value in where.items())]
            return picked(rows[-1], *names) if rows else ()

        async def is_said() -> bool:
            return newest() == wanted

        await eventually(is_said, f"{wanted}, not {newest()}")

    def horizon_us(self, broker: PlayedBroker) -> int:
        """Up to when its observer says that all was reported."""
        spool = self.folder / broker.cluster / broker.name / "observer" / "spool"
        segments = (decode_frames(segment.read_bytes())[0] for segment in spool.glob("*.seg"))
        return max(one.frame.as_of for placed in segments for one in placed)


@asynccontextmanager
async def played_cluster(folder: Path, *brokers: PlayedBroker) -> AsyncIterator[PlayedCluster]:
    """The name server and these brokers."""
    cluster = PlayedCluster(folder, list(brokers))
    name_server = RpcServer(
        system_runtime(),
        {
            Code.GET_BROKER_CLUSTER_INFO: lambda _, ask: ok(ask, cluster.info().encode()),
            Code.GET_ROUTEINFO_BY_TOPIC: lambda _, ask: ok(ask, cluster.route().encode()),
            Code.QUERY_DATA_VERSION: cluster.topics_version,
        },
    )
    cluster.namesrv = f"127.0.0.1:{await name_server.start('127.0.0.1', 0)}"
    for broker in brokers:
        await broker.start()
    try:
        yield cluster
    finally:
        for broker in brokers:
            await broker.stop()
        await name_server.stop()


@asynccontextmanager
async def observing(
    cluster: PlayedCluster,
    *,
    period_ms: int = 50,
    gone_after_ms: int = GONE_AFTER_MS,
    observation: Observation | None = None,
    **settings: Any,
) -> AsyncIterator[ClusterWatch]:
    """An observer of it, until the end; what ends it before fails the test."""
    config = ClientConfig(
        namesrv_addresses=(cluster.namesrv,), instance_name="observer", **settings
    )
    watch = ClusterWatch(
        system_runtime(),
        Admin(system_runtime(), config),
        observation or Observation(frozenset(), "observer", str(cluster.folder), period_ms),
        on_new=cluster.heard.append,
        on_gone=cluster.hear_gone,
        gone_after_ms=gone_after_ms,
    )
    watching = asyncio.create_task(watch.wait())
    try:
        yield watch
        assert not watching.done(), watching.exception()
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        await watch.stop()
