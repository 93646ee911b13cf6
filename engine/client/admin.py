"""Questions and orders to a cluster from outside the walk: topics, offsets, lag, members, single
messages.

Works on our engine and on an Apache RocketMQ alike. What lives on several brokers is asked of each
and joined.

Invariant: reading changes nothing; an order names what it changes. Absent on purpose: deciding
when; the demo, the dashboard and notebooks do. Source: spec rocketmq.md, sections 1 and 11.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Self

from engine.client.config import ClientConfig
from engine.client.connection import ClusterConnection
from engine.client.wire_fields import number, wire_fields
from engine.foundation.errors import ConnectFailed, RequestRefused
from engine.protocol.bodies import (
    ClusterInfo,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStats,
    TopicList,
    TopicRouteData,
    decode_offset_table,
)
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.compression import decompress
from engine.protocol.message import MessageExt, MessageQueue
from engine.protocol.message_ids import parse_offset_message_id
from engine.protocol.message_record import decode_record, decode_records
from engine.protocol.names import AUTO_CREATE_TOPIC, Perm
from engine.runtime import Runtime

QUERY_MESSAGES_MAX = 32
"""Messages one query by key answers with (RocketMQ: defaultQueryMaxNum)."""


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """How far a group is in one queue, as its broker tells it."""

    broker_offset: int
    """The queue's max offset."""
    consumer_offset: int
    """The group's consume offset; 0 also when it has none."""
    pull_offset: int
    """Next offset not yet pulled."""
    last_timestamp_ms: int
    """Store time of the last consumed message; 0 when that is unknown."""

    @property
    def lag(self) -> int:
        """Messages waiting; negative when the broker lost its end of the log."""
        return self.broker_offset - self.consumer_offset


class Admin:
    """One connection for questions and orders; use it as `async with Admin(...) as admin`."""

    def __init__(self, runtime: Runtime, config: ClientConfig) -> None:
        self._connection = ClusterConnection(runtime, config)
        self._routes = self._connection.routes

    async def __aenter__(self) -> Self:
        """Connections are made when the first question needs them."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all connections."""
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._connection.stop()

    # Topics and the cluster.

    async def cluster_info(self) -> ClusterInfo:
        """All clusters and brokers the name server knows."""
        answer = await self._ask_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO, {})
        return ClusterInfo.decode(answer.body)

    async def topics(self) -> list[str]:
        """All topics the name server knows, sorted."""
        answer = await self._ask_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
        return sorted(TopicList.decode(answer.body).topic_list)

    async def topic_route(self, topic: str) -> TopicRouteData | None:
        """Brokers and queues of a topic; None when no broker has it."""
        answer = await self._routes.ask_namesrv(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"}
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, answer.remark or "no remark")
        return TopicRouteData.decode(answer.body)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, sorted; empty when no broker has it."""
        await self._routes.refresh(topic)
        return await self._routes.readable_queues(topic) or []

    async def create_topic(
        self,
        broker_address: str,
        topic: str,
        *,
        read_queues: int = 8,
        write_queues: int = 8,
        perm: int = Perm.READ | Perm.WRITE,
    ) -> None:
        """Create a topic on one broker, or change it."""
        fields = wire_fields(
            topic=topic,
            defaultTopic=AUTO_CREATE_TOPIC,
            readQueueNums=read_queues,
            writeQueueNums=write_queues,
            perm=int(perm),
            topicFilterType="SINGLE_TAG",
            topicSysFlag=0,
            order=False,
            attributes="",
        )
        await self._ask(broker_address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic on all its brokers, then in all name servers."""
        await self._routes.refresh(topic)
        for address in self._routes.broker_addresses(masters_only=True):
            await self._ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        request_code = RequestCode.DELETE_TOPIC_IN_NAMESRV
        for address in self._connection.config.namesrv_addresses:
            await self._ask(address, request_code, {"topic": topic})

    # Ends of queues.

    async def max_offset(self, queue: MessageQueue) -> int:
        """One past the last message."""
        return await self._queue_number(RequestCode.GET_MAX_OFFSET, queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The first message still kept."""
        return await self._queue_number(RequestCode.GET_MIN_OFFSET, queue)

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first message stored at or after a time."""
        return await self._queue_number(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue, timestamp=timestamp_ms
        )

    # Groups.

    async def consume_stats(
        self, group: str, topic: str | None = None
    ) -> dict[MessageQueue, QueueProgress]:
        """How far a group is in each queue of a topic, or of all it reads; sorted by queue.

        Without a topic the brokers of the group's retry topic are asked.
        """
        found: dict[MessageQueue, QueueProgress] = {}
        for address in await self._brokers_of(topic or f"%RETRY%{group}"):
            fields = wire_fields(consumerGroup=group, topic=topic or "")
            answer = await self._ask(address, RequestCode.GET_CONSUME_STATS, fields)
            for queue, told in ConsumeStats.decode(answer.body).offset_table.items():
                found[queue] = QueueProgress(
                    told.broker_offset,
                    told.consumer_offset,
                    told.pull_offset,
                    told.last_timestamp_ms,
                )
        return dict(sorted(found.items()))

    async def consumer_connections(self, broker_address: str, group: str) -> ConsumerConnection:
        """The members of a group, as one broker sees them.

        RequestRefused (206) when there are none.
        """
        answer = await self._ask(
            broker_address, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group}
        )
        return ConsumerConnection.decode(answer.body)

    async def consumer_running_info(
        self, broker_address: str, group: str, client_id: str, *, stacks: bool = False
    ) -> ConsumerRunningInfo:
        """What a member tells of itself and its windows, asked through a broker it is connected
        with.
        """
        fields = wire_fields(consumerGroup=group, clientId=client_id, jstackEnable=stacks)
        answer = await self._ask(broker_address, RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
        return ConsumerRunningInfo.decode(answer.body)

    async def commit_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set a group's consume offset of one queue; members at work overwrite it with their
        own.
        """
        fields = wire_fields(consumerGroup=group, commitOffset=offset, **_place(queue))
        address = await self._master_of(queue)
        await self._ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)

    async def consume_offset(self, group: str, queue: MessageQueue) -> int | None:
        """A group's consume offset of one queue; None when its broker has none."""
        fields = wire_fields(consumerGroup=group, **_place(queue))
        try:
            answer = await self._ask(
                await self._master_of(queue), RequestCode.QUERY_CONSUMER_OFFSET, fields
            )
        except RequestRefused as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return number(answer.fields, "offset")

    async def reset_offset(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True
    ) -> dict[MessageQueue, int]:
        """Set a group back (or, with `force`, forward) to the messages stored from a time on; the
        new offsets.
        """
        offsets: dict[MessageQueue, int] = {}
        for address in await self._brokers_of(topic):
            fields = wire_fields(
                topic=topic,
                group=group,
                timestamp=timestamp_ms,
                isForce=force,
                queueId=-1,
                offset=-1,
            )
            answer = await self._ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
            offsets |= decode_offset_table(answer.body)
        return dict(sorted(offsets.items()))

    # Single messages.

    async def view_message(self, offset_message_id: str) -> MessageExt:
        """The message a broker stored under this id. RequestRefused when it is gone."""
        address, physical_offset = parse_offset_message_id(offset_message_id)
        answer = await self._ask(
            address, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(physical_offset)}
        )
        message = decode_record(answer.body)
        message.body = decompress(message.body, message.sys_flag)
        return message

    async def query_messages(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = 2**63 - 1,
        is_unique_key: bool = False,
        count_max: int = QUERY_MESSAGES_MAX,
    ) -> list[MessageExt]:
        """Messages with a key, or with a UNIQ_KEY, oldest first.

        The index knows hashes, so keys are compared here.
        """
        found: list[MessageExt] = []
        for address in await self._brokers_of(topic):
            fields = wire_fields(
                topic=topic,
                key=key,
                maxNum=count_max,
                beginTimestamp=begin_ms,
                endTimestamp=end_ms,
                indexType="U" if is_unique_key else "K",
            )
            if is_unique_key:
                fields["_UNIQUE_KEY_QUERY"] = "true"
            try:
                answer = await self._ask(address, RequestCode.QUERY_MESSAGE, fields)
            except RequestRefused as error:
                if error.code == ResponseCode.QUERY_NOT_FOUND:
                    continue
                raise
            found += decode_records(answer.body)
        wanted = [m for m in found if _has_key(m, topic, key, is_unique_key=is_unique_key)]
        for message in wanted:
            message.body = decompress(message.body, message.sys_flag)
        return sorted(wanted, key=lambda m: (m.store_timestamp_ms, m.store_host, m.physical_offset))

    # Asking.

    async def _ask(
        self, address: str, code: RequestCode, fields: dict[str, str]
    ) -> RemotingCommand:
        return await self._connection.ask(address, RemotingCommand.request(code, fields))

    async def _ask_namesrv(self, code: RequestCode, fields: dict[str, str]) -> RemotingCommand:
        answer = await self._routes.ask_namesrv(code, fields)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, answer.remark or "no remark")
        return answer

    async def _queue_number(self, code: RequestCode, queue: MessageQueue, **more: int) -> int:
        fields = wire_fields(**_place(queue), **more)
        answer = await self._ask(await self._master_of(queue), code, fields)
        return number(answer.fields, "offset")

    async def _brokers_of(self, topic: str) -> list[str]:
        await self._routes.refresh(topic)
        queues = await self._routes.readable_queues(topic) or []
        names = dict.fromkeys(queue.broker_name for queue in queues)
        return [a for name in names if (a := self._routes.master_address(name)) is not None]

    async def _master_of(self, queue: MessageQueue) -> str:
        address = self._routes.master_address(queue.broker_name)
        if address is None:
            await self._routes.refresh(queue.topic)
            address = self._routes.master_address(queue.broker_name)
        if address is None:
            raise ConnectFailed(f"no route leads to a master of {queue.broker_name} for {queue}")
        return address


def _place(queue: MessageQueue) -> dict[str, str | int]:
    return {"topic": queue.topic, "queueId": queue.queue_id, "bname": queue.broker_name}


def _has_key(message: MessageExt, topic: str, key: str, *, is_unique_key: bool) -> bool:
    if message.topic != topic:
        return False
    if is_unique_key:
        return message.properties.get("UNIQ_KEY") == key
    return key in message.properties.get("KEYS", "").split()
