"""A name server and a broker in this process, and a client that speaks raw commands to them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.broker.broker import Broker
from engine.broker.config import BrokerConfig
from engine.broker.offsets.topic_lives import NEW_STORE_MS
from engine.broker.reporting.watermarks import Watermarks
from engine.broker.service_groups import offset_services, reporters
from engine.broker.state import BrokerState
from engine.namesrv import NameServer, NameServerConfig
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.message import MessageExt
from engine.protocol.message_record import decode_records
from engine.remoting import Peer, RpcClient
from engine.remoting.access import Access
from engine.remoting.signing import Credentials
from engine.runtime import ClientTls, Runtime, system_runtime
from engine.store import FlushDiskType, StoreConfig

TOPIC, GROUP = "orders", "orders-group"
READERS = "readers"
"""A group that reads the dead letters of others."""
LOG_BYTES = 1 << 20


def broker_config(folder: Path, **settings: Any) -> BrokerConfig:
    """A broker on any free port, with a small log and quick timers."""
    store = StoreConfig(
        root=str(folder / "store"),
        mapped_file_size_commit_log_bytes=settings.pop("log_bytes", LOG_BYTES),
        flush_disk_type=settings.pop("flush", FlushDiskType.ASYNC_FLUSH),
        max_hash_slot_count=100,
        max_index_count=1000,
        delay_levels_ms=settings.pop("delay_levels_ms", (200, 400, 600)),
        sync_flush_timeout_ms=settings.pop("sync_flush_timeout_ms", 5000),
    )
    defaults: dict[str, Any] = {
        "port": 0,
        "default_topic_queue_nums": 4,
        "flush_consumer_offset_interval_ms": 200,
        "hold_check_interval_ms": 100,
    }
    return BrokerConfig(store=store, **(defaults | settings))


@dataclass
class RawClient:
    """One client connection's worth of commands; pushes from the broker are kept."""

    address: str
    client_id: str = "127.0.0.1@raw"
    pushed: list[RemotingCommand] = field(default_factory=list)
    replies: list[RemotingCommand] = field(default_factory=list)
    """Replies that the broker has handed over."""
    running_info: dict[str, Any] = field(default_factory=dict)
    status_table: dict[str, Any] = field(default_factory=dict)
    jstack: str | None = None
    """The stacks of its threads, as it returns them when asked."""
    stacks_asked_count: int = 0
    """How often the broker has asked for them."""
    asked_count: int = 0
    """How often the broker has asked what this client holds."""
    runtime: Runtime = field(default_factory=system_runtime)
    credentials: Credentials | None = None
    tls: ClientTls | None = None

    def __post_init__(self) -> None:
        self.rpc = RpcClient(
            self.runtime,
            {
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._pushed,
                RequestCode.CHECK_TRANSACTION_STATE: self._pushed,
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._take_reply,
                RequestCode.GET_CONSUMER_RUNNING_INFO: self._send_running_info,
            },
            credentials=self.credentials,
            tls=self.tls,
        )

    def _pushed(self, peer: Peer, request: RemotingCommand) -> None:
        self.pushed.append(request)

    def _take_reply(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        self.replies.append(request)
        return request.respond(ResponseCode.SUCCESS)

    def _send_running_info(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        self.asked_count += 1
        entries = ",".join(
            f"{queue}:{json.dumps(info)}" for queue, info in self.running_info.items()
        )
        status = json.dumps(self.status_table)
        stacks = "null"
        if request.fields.get("jstackEnable") == "true":
            self.stacks_asked_count += 1
            stacks = json.dumps(self.jstack)
        body = (
            f'{{"mqTable":{{{entries}}},"statusTable":{status},"subscriptionSet":[],'
            f'"jstack":{stacks}}}'
        )
        return request.respond(ResponseCode.SUCCESS, body=body.encode())

    async def ask(
        self, code: int, body: bytes = b"", *, timeout_ms: int = 20_000, **fields: object
    ) -> RemotingCommand:
        """Send a request with these fields and return the response, whatever its code."""
        texts = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in fields.items()
        }
        return await self.rpc.invoke(
            self.address, RemotingCommand.request(code, texts, body), timeout_ms=timeout_ms
        )

    async def make_topic(self, topic: str, attributes: str = "") -> RemotingCommand:
        """Of one queue, as RocketMQ's tools make one; or change its attributes."""
        return await self.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            topic=topic,
            defaultTopic="TBW102",
            readQueueNums=1,
            writeQueueNums=1,
            perm=6,
            topicFilterType="SINGLE_TAG",
            topicSysFlag=0,
            order=False,
            attributes=attributes,
        )

    async def send(
        self,
        body: bytes = b"hello",
        *,
        topic: str = TOPIC,
        queue_id: int = 0,
        code: int = RequestCode.SEND_MESSAGE,
        **more: object,
    ) -> RemotingCommand:
        """SEND_MESSAGE with long names; `more` are properties by name, or header fields in camel
        case."""
        header = {
            "producerGroup": "p",
            "topic": topic,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": 4,
            "queueId": queue_id,
            "sysFlag": 0,
            "bornTimestamp": 1_700_000_000_000,
            "flag": 0,
        }
        properties = {name: value for name, value in more.items() if name.isupper()}
        header |= {name: value for name, value in more.items() if not name.isupper()}
        header.setdefault(
            "properties", "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        )
        return await self.ask(code, body, **header)

    async def pull(
        self,
        offset: int,
        *,
        topic: str = TOPIC,
        group: str | None = None,
        queue_id: int = 0,
        wait_ms: int = 0,
        **more: object,
    ) -> RemotingCommand:
        """PULL_MESSAGE that carries its own subscription (`*` unless given); by GROUP, but for dead
        letters, which no group reads of its own.
        """
        header: dict[str, object] = {
            "consumerGroup": group or (READERS if topic.startswith("%DLQ%") else GROUP),
            "topic": topic,
            "queueId": queue_id,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": 4 | (2 if wait_ms else 0),
            "commitOffset": 0,
            "suspendTimeoutMillis": wait_ms,
            "subscription": "*",
            "subVersion": 0,
            "expressionType": "TAG",
        }
        return await self.ask(RequestCode.PULL_MESSAGE, **(header | more))

    async def commit(
        self, offset: int, *, topic: str = TOPIC, group: str = GROUP, queue_id: int = 0, **more: Any
    ) -> RemotingCommand:
        """UPDATE_CONSUMER_OFFSET."""
        return await self.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup=group,
            topic=topic,
            queueId=queue_id,
            commitOffset=offset,
            **more,
        )

    async def committed(
        self, *, topic: str = TOPIC, group: str = GROUP, queue_id: int = 0
    ) -> RemotingCommand:
        """QUERY_CONSUMER_OFFSET without the benefit of zero."""
        return await self.ask(
            RequestCode.QUERY_CONSUMER_OFFSET,
            consumerGroup=group,
            topic=topic,
            queueId=queue_id,
            setZeroIfNotFound=False,
        )

    async def heartbeat(
        self,
        group: str = GROUP,
        topics: tuple[str, ...] = (TOPIC,),
        *,
        expression: str = "*",
        version: int = 1,
        model: str = "CLUSTERING",
        kind: str = "TAG",
        consume_type: str = "CONSUME_PASSIVELY",
    ) -> RemotingCommand:
        """HEART_BEAT of a consumer; `kind` of its expression: TAG, SQL92."""
        subscriptions = [
            {
                "classFilterMode": False,
                "topic": topic,
                "subString": expression,
                "tagsSet": [] if expression == "*" or kind != "TAG" else [expression],
                "codeSet": [] if expression == "*" or kind != "TAG" else [java_code(expression)],
                "subVersion": version,
                "expressionType": kind,
            }
            for topic in topics
        ]
        data = {
            "clientID": self.client_id,
            "producerDataSet": [],
            "consumerDataSet": [
                {
                    "groupName": group,
                    "consumeType": consume_type,
                    "messageModel": model,
                    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                    "subscriptionDataSet": subscriptions,
                    "unitMode": False,
                }
            ],
            "heartbeatFingerprint": 0,
            "withoutSub": False,
        }
        return await self.ask(RequestCode.HEART_BEAT, json.dumps(data).encode())

    async def close(self) -> None:
        """End the connection."""
        await self.rpc.close()


def java_code(text: str) -> int:
    """Java's string hash, the plain way."""
    code = 0
    for char in text:
        code = (code * 31 + ord(char)) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code


def bodies(response: RemotingCommand) -> list[bytes]:
    """The bodies of a pull's answer."""
    return [message.body for message in messages(response)]


def messages(response: RemotingCommand) -> list[MessageExt]:
    """The messages of a pull's answer."""
    return decode_records(response.body)


@dataclass
class Cluster:
    """A running name server and broker."""

    name_server: NameServer
    name_server_address: str
    broker: Broker
    clients: list[RawClient] = field(default_factory=list)

    def client(self, client_id: str = "127.0.0.1@raw") -> RawClient:
        """A client of the broker, closed with the cluster."""
        client = RawClient(self.broker.address, client_id)
        self.clients.append(client)
        return client

    def of_name_server(self) -> RawClient:
        """A client of the name server."""
        client = RawClient(self.name_server_address)
        self.clients.append(client)
        return client


@asynccontextmanager
async def cluster(
    config: BrokerConfig,
    runtime: Runtime | None = None,
    *,
    access: Access | None = None,
    is_new: bool = False,
) -> AsyncIterator[Cluster]:
    """A name server and a broker with this configuration, stopped cleanly at the end; `runtime`
    is the broker's, `access` the name server's. Unless it `is_new`, the store counts as one that
    has been there for long: clients may pull from any offset and report it.
    """
    name_server = NameServer(system_runtime(), NameServerConfig(port=0, access=access or Access()))
    address = f"127.0.0.1:{await name_server.start()}"
    broker = Broker(runtime or system_runtime(), replace(config, namesrv_addresses=(address,)))
    running = Cluster(name_server, address, broker)
    try:
        await broker.start()
        if not is_new:
            broker.state.lives.grow_older(broker.state.clock.steady_ms() + NEW_STORE_MS)
        try:
            yield running
        finally:
            for client in running.clients:
                await client.close()
            await broker.stop()
    finally:
        await name_server.stop()


async def eventually(
    condition: Callable[[], Awaitable[bool]], what: str, *, within_s: float = 15
) -> None:
    """Wait until `condition` holds; fail, saying `what` did not happen."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while not await condition():
        assert loop.time() < deadline, f"not within {within_s} s: {what}"
        await asyncio.sleep(0.02)


def watermarks_of(state: BrokerState) -> Watermarks:
    """Watermarks over a broker's tables, made once more: a test samples them by hand."""
    return reporters(state, offset_services(state, None)).watermarks
