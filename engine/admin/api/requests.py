"""Sends admin requests to one broker, a name server or all of a topic's masters.

Each part of `Admin` holds the same one: one connection, and what it knows of routes.
"""

from __future__ import annotations

from engine.client.config import ClientConfig
from engine.client.connection.connection import ClusterConnection
from engine.foundation.errors import RequestRefused
from engine.protocol.bodies import ClusterInfo
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import SendMessageRequestHeader
from engine.protocol.message import MessageQueue
from engine.protocol.names import AUTO_CREATE_TOPIC
from engine.protocol.properties import encode_properties
from engine.runtime import Runtime


class AdminRequests:
    """The connection that the parts of `Admin` share, and its routes."""

    def __init__(self, runtime: Runtime, config: ClientConfig) -> None:
        self.clock = runtime.clock
        self.connection = ClusterConnection(runtime, config)
        self.routes = self.connection.routes

    async def ask(
        self,
        address: str,
        code: RequestCode,
        fields: dict[str, str],
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
    ) -> RemotingCommand:
        """The answer of a broker or name server, which has the configured time if no other is
        given. RequestRefused when it refuses.
        """
        request = RemotingCommand.request(code, fields, body)
        return await self.connection.ask(address, request, timeout_ms=timeout_ms)

    async def send(
        self,
        address: str,
        queue: MessageQueue,
        body: bytes,
        properties: dict[str, str],
        *,
        producer_group: str,
        born_timestamp_ms: int,
        sys_flag: int = 0,
        flag: int = 0,
        reconsume_times: int = 0,
    ) -> None:
        """Put a message into the queue at this broker, as a tool does. RequestRefused."""
        header = SendMessageRequestHeader(
            producer_group=producer_group,
            topic=queue.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=1,
            queue_id=queue.queue_id,
            sys_flag=sys_flag,
            born_timestamp_ms=born_timestamp_ms,
            flag=flag,
            properties=encode_properties(properties),
            reconsume_times=reconsume_times,
            broker_name=queue.broker_name,
        )
        await self.ask(address, RequestCode.SEND_MESSAGE_V2, header.encode_v2(), body)

    async def ask_namesrv(
        self, code: RequestCode, fields: dict[str, str], body: bytes = b""
    ) -> RemotingCommand:
        """The answer of a name server that answers. RequestRefused when it refuses."""
        answer = await self.routes.ask_namesrv(code, fields, body)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, answer.remark or "no remark")
        return answer

    async def brokers_of(self, topic: str) -> list[str]:
        """Addresses of the masters with readable queues of a topic."""
        await self.routes.refresh(topic)
        queues = await self.routes.readable_queues(topic) or []
        names = dict.fromkeys(queue.broker_name for queue in queues)
        return [a for name in names if (a := self.routes.master_address(name)) is not None]

    async def cluster_info(self) -> ClusterInfo:
        """All clusters and brokers the name server knows."""
        answer = await self.ask_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO, {})
        return ClusterInfo.decode(answer.body)

    async def masters(self) -> dict[str, str]:
        """Address of each broker's master, by broker name, sorted."""
        return (await self.cluster_info()).masters()
