"""One simulated broker, and clients that send exactly the requests a test names.

They send one request at a time.

A raw client has no memory and no timers: what it names of an earlier life, the test names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from engine.foundation.errors import RequestRefused
from engine.protocol.bodies import (
    ConsumerData,
    HeartbeatData,
    LockBatchRequest,
    LockBatchResponse,
    SubscriptionData,
)
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import (
    ConsumerSendMessageBackRequestHeader,
    CreateTopicRequestHeader,
    EndTransactionRequestHeader,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from engine.protocol.message import MessageExt, MessageQueue
from engine.protocol.message_ids import parse_offset_message_id
from engine.protocol.message_record import decode_records
from engine.protocol.names import PullSysFlag, SysFlag, retry_topic
from engine.protocol.properties import encode_properties
from engine.remoting import RpcClient
from engine.remoting.signing import Credentials
from engine.runtime import Runtime
from engine.store.config import FlushDiskType
from tests.simulation.cluster import BROKER, SimCluster
from tests.simulation.world import Node, World, run_world

ADDRESS: Final = f"{BROKER}:10911"
TOPIC, OTHER_TOPIC, GROUP = "reborn", "other", "readers"
QUEUE: Final = MessageQueue(TOPIC, "broker-a", 0)
STORED: Final = ("/store/commitlog", "/store/consumequeue", "/store/index", "/store/spool")


def remove_store(node: Node, *, keeps_settings: bool) -> None:
    """What somebody removes of the store of a broker that is down: everything, or messages, index
    and spool, so that topics, groups and offsets are left.
    """
    folders = node.disk.folders
    for path in list(folders):
        if path.startswith(STORED if keeps_settings else "/store"):
            del folders[path]
    if keeps_settings:
        for name in ("checkpoint", "abort"):
            folders["/store"].entries.pop(name, None)


class Stage:
    """The broker, its topic of one queue, and whoever speaks to it."""

    def __init__(self, world: World, **settings: Any) -> None:
        made = {"auto_create_topic_enable": False, "window_sample_interval_ms": 600_000}
        self.cluster = SimCluster(world, FlushDiskType.ASYNC_FLUSH, **(made | settings))
        self.world = world
        self._hosts = 0
        self._attributes = ""
        self.tool: RawClient

    async def start(self) -> None:
        """Name server and broker are up, and nothing else."""
        await self.cluster.start_name_server()
        await self.cluster.start_broker()
        self.tool = await self.client("tool")

    async def client(self, client_id: str) -> RawClient:
        """A client on a host of its own."""
        self._hosts += 1

        async def boot(runtime: Runtime) -> RawClient:
            return RawClient(runtime, client_id)

        host = f"10.0.7.{self._hosts}"
        client: RawClient = await self.world.node(host).boot(boot)
        client.host = host
        return client

    async def member(self, client_id: str, *, at: int | None = None) -> RawClient:
        """A client that is a member of the group; `at`: it has pulled and committed so far."""
        client = await self.client(client_id)
        await client.heartbeat()
        if at is not None:
            following = await client.first_offset()
            while following < at:
                _, following, _ = await client.pull(following)
            await client.commit(at)
        return client

    async def make(self, attributes: str = "", topic: str = TOPIC) -> None:
        """Make the topic."""
        fields = CreateTopicRequestHeader(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=1,
            write_queue_nums=1,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            attributes=attributes,
        ).encode()
        await self.tool.done(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)

    async def delete(self) -> None:
        """Delete the topic."""
        await self.tool.done(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})

    async def delete_group(self, group: str = GROUP) -> None:
        """Delete the group with its offsets."""
        fields = {"groupName": group, "cleanOffset": "true"}
        await self.tool.done(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)

    async def send(self, count: int, word: str = "m", topic: str = TOPIC) -> None:
        """So many messages, `word-0` and so on."""
        for number in range(count):
            await self.tool.send(b"%s-%d" % (word.encode(), number), topic=topic)

    async def again(self, count: int, word: str = "new") -> None:
        """Delete the topic, make it, send: a new life."""
        await self.delete()
        await self.make()
        await self.send(count, word)

    async def restart(self, *, before: Callable[[Node], None] | None = None) -> None:
        """Stop the broker cleanly, and start it again; `before` it starts its disk is changed."""
        node, broker = self.world.node(BROKER), self.cluster.broker
        assert broker is not None
        await node.run(broker.stop())
        node.end()
        if before is not None:
            before(node)
        await self.cluster.start_broker()
        await asyncio.sleep(1.0)  # By then clients know that their connections have ended.

    def bodies(self, topic: str = TOPIC) -> list[bytes]:
        """What the topic's first queue holds."""
        assert self.cluster.broker is not None
        store, found, offset = self.cluster.broker.state.store, [], 0
        while offset < store.max_offset(topic, 0):
            got = store.get(topic, 0, offset, max_count=32, max_bytes=1 << 20, wanted=None)
            found += decode_records(b"".join(bytes(part) for part in got.records))
            offset = got.next_begin_offset
        return [message.body for message in found]

    def refused_offsets(self) -> list[int]:
        """Offsets of the group that were refused, as the rows say."""
        return [row["offset"] for row in self.reports() if not row["accepted"]]

    def reports(self) -> list[dict[str, Any]]:
        """Every row of an offset of the group on the topic, oldest first."""
        return self.cluster.reported_offsets(GROUP, TOPIC)


class RawClient:
    """One connection, as one client."""

    def __init__(
        self, runtime: Runtime, client_id: str, credentials: Credentials | None = None
    ) -> None:
        self.client_id = client_id
        self.host = ""
        self.address = ADDRESS
        self.timeout_ms = 60_000
        self._runtime = runtime
        self._rpc = RpcClient(runtime, credentials=credentials)

    async def ask(
        self, code: RequestCode, fields: dict[str, str], body: bytes = b"", *, oneway: bool = False
    ) -> RemotingCommand | None:
        """The answer, whatever it says; None to what is said one-way."""
        request = RemotingCommand.request(code, fields, body)
        if oneway:
            request.mark_oneway()
            await self._rpc.invoke_oneway(self.address, request)
            await asyncio.sleep(1.0)
            return None
        return await self._rpc.invoke(self.address, request, timeout_ms=self.timeout_ms)

    async def done(
        self, code: RequestCode, fields: dict[str, str], body: bytes = b""
    ) -> RemotingCommand:
        """The answer of a success. Raises RequestRefused."""
        answer = await self.ask(code, fields, body)
        assert answer is not None
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, answer.remark or "no remark")
        return answer

    async def heartbeat(self, topics: Sequence[str] = (TOPIC,)) -> None:
        """As a member of the group that reads the topics and the group's retry topic; without
        topics as one that polls: it subscribes to nothing.
        """
        named = (*topics, retry_topic(GROUP)) if topics else ()
        consumer = ConsumerData(
            GROUP, subscription_data_set=[SubscriptionData.build(topic, "*") for topic in named]
        )
        data = HeartbeatData(client_id=self.client_id, consumer_data_set=[consumer])
        await self.done(RequestCode.HEART_BEAT, {}, data.encode())

    async def leave(self) -> None:
        """Say farewell to the group."""
        fields = UnregisterClientRequestHeader(
            client_id=self.client_id, consumer_group=GROUP
        ).encode()
        await self.done(RequestCode.UNREGISTER_CLIENT, fields)

    async def send(
        self,
        body: bytes,
        *,
        topic: str = TOPIC,
        key: str | None = None,
        half_of: str | None = None,
        level: int = 0,
    ) -> SendMessageResponseHeader:
        """Send a message under a UNIQ_KEY; with `half_of` it is that producer group's half, with
        `level` it waits there.
        """
        properties = {"UNIQ_KEY": key or f"K{body.decode()}"}
        if level:
            properties["DELAY"] = str(level)
        if half_of is not None:
            properties |= {"TRAN_MSG": "true", "PGROUP": half_of}
        fields = SendMessageRequestHeader(
            producer_group=half_of or "senders",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=1,
            queue_id=0,
            sys_flag=int(SysFlag.TRANSACTION_PREPARED) if half_of else 0,
            born_timestamp_ms=self._runtime.clock.now_ms(),
            flag=0,
            properties=encode_properties(properties),
        ).encode()
        answer = await self.done(RequestCode.SEND_MESSAGE, fields, body)
        return SendMessageResponseHeader.decode(answer.fields)

    async def end(self, half: SendMessageResponseHeader, group: str, key: str) -> int:
        """Commit a half message; the code of the answer."""
        fields = EndTransactionRequestHeader(
            topic=TOPIC,
            producer_group=group,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=parse_offset_message_id(half.msg_id)[1],
            commit_or_rollback=int(SysFlag.TRANSACTION_COMMIT),
            msg_id=key,
            transaction_id=key,
        ).encode()
        answer = await self.ask(RequestCode.END_TRANSACTION, fields)
        assert answer is not None
        return answer.code

    async def send_back(self, message: MessageExt) -> int:
        """Fail on a message; the code of the answer."""
        fields = ConsumerSendMessageBackRequestHeader(
            offset=message.physical_offset,
            group=GROUP,
            delay_level=1,
            origin_msg_id=message.uniq_key,
            origin_topic=message.topic,
            max_reconsume_times=16,
        ).encode()
        answer = await self.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
        assert answer is not None
        return answer.code

    async def pull(
        self,
        offset: int,
        *,
        suspend_ms: int = 0,
        commit: int | None = None,
        topic: str = TOPIC,
        subscription: str | None = None,
    ) -> tuple[int, int, list[MessageExt]]:
        """Code, where the next pull begins, and the messages. `subscription`: the pull's own."""
        flags = PullSysFlag.SUSPEND if suspend_ms else PullSysFlag(0)
        if subscription is not None:
            flags |= PullSysFlag.SUBSCRIPTION
        if commit is not None:
            flags |= PullSysFlag.COMMIT_OFFSET
        fields = PullMessageRequestHeader(
            consumer_group=GROUP,
            topic=topic,
            queue_id=0,
            queue_offset=offset,
            max_msg_nums=32,
            sys_flag=int(flags),
            commit_offset=commit or 0,
            suspend_timeout_ms=suspend_ms,
            subscription=subscription,
            sub_version=0,
        ).encode()
        answer = await self.ask(RequestCode.PULL_MESSAGE, fields)
        assert answer is not None
        if "nextBeginOffset" not in answer.fields:
            return answer.code, -1, []
        header = PullMessageResponseHeader.decode(answer.fields)
        messages = decode_records(answer.body) if answer.code == ResponseCode.SUCCESS else []
        return answer.code, header.next_begin_offset, messages

    async def commit(self, offset: int) -> None:
        """One-way, as RocketMQ's clients report."""
        fields = UpdateConsumerOffsetRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=offset
        ).encode()
        await self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields, oneway=True)

    async def first_offset(self) -> int:
        """Where a member without memory begins that reads the last messages only."""
        fields = QueryConsumerOffsetRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=0
        ).encode()
        answer = await self.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        assert answer is not None
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            fields = QueueRequestHeader(topic=TOPIC, queue_id=0).encode()
            answer = await self.done(RequestCode.GET_MAX_OFFSET, fields)
        return OffsetResponseHeader.decode(answer.fields).offset

    async def lock(self) -> bool:
        """Is the queue's order lock ours now?"""
        body = LockBatchRequest(
            consumer_group=GROUP, client_id=self.client_id, mq_set=[QUEUE]
        ).encode()
        answer = await self.done(RequestCode.LOCK_BATCH_MQ, {}, body)
        return QUEUE in LockBatchResponse.decode(answer.body).lock_ok_mq_set


def on_a_stage(play: Callable[[Stage], Awaitable[None]], **settings: Any) -> None:
    """For `run_by`: a world with a broker in it and nothing else."""

    async def scenario(world: World) -> None:
        stage = Stage(world, **settings)
        await stage.start()
        await play(stage)

    run_world(0, scenario)
