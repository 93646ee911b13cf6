"""Queries brokers for queue offsets and consume offsets.

Used by consumers before they begin, by tools, and by applications that look for a place
themselves.

Invariant: an answer other than SUCCESS is a RequestRefused, unless it means that there is none.
Absent on purpose: what anybody does with an offset, and which instance of a broker a consumer asks.
"""

from __future__ import annotations

from engine.client.connection.connection import ClusterConnection
from engine.foundation.errors import RequestRefused
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.header_fields import RequestHeader
from engine.protocol.headers import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from engine.protocol.message import MessageQueue


class QueueOffsets:
    """The questions of one client. All raise TidemarkError when the broker cannot be asked."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._connection = connection

    async def min_offset(self, queue: MessageQueue) -> int:
        """The first message of the queue still kept."""
        return await self._of_queue(RequestCode.GET_MIN_OFFSET, queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """One past the last message of the queue."""
        return await self._of_queue(RequestCode.GET_MAX_OFFSET, queue)

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first message stored at or after a time."""
        header = SearchOffsetRequestHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp_ms=timestamp_ms,
            broker_name=queue.broker_name,
        )
        address = await self._connection.routes.find_master(queue)
        return await self._ask(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def consume_offset(
        self, address: str, group: str, queue: MessageQueue, *, zero_if_young: bool | None = None
    ) -> int | None:
        """A group's consume offset as the broker at `address` has it; None when it has none.

        With `zero_if_young` a queue that still has its first message is answered with 0 instead;
        None leaves that to the broker.
        """
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=zero_if_young,
            broker_name=queue.broker_name,
        )
        try:
            return await self._ask(address, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except RequestRefused as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def _of_queue(self, code: RequestCode, queue: MessageQueue) -> int:
        address = await self._connection.routes.find_master(queue)
        return await self._ask(address, code, queue_header(queue))

    async def _ask(self, address: str, code: RequestCode, header: RequestHeader) -> int:
        request = RemotingCommand.request(code, header.encode())
        answer = await self._connection.ask(address, request)
        return OffsetResponseHeader.decode(answer.fields).offset


def queue_header(queue: MessageQueue) -> QueueRequestHeader:
    """What names a queue in every question about one."""
    return QueueRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
    )


def commit_request(
    group: str, queue: MessageQueue, offset: int, *, trigger: str | None = None
) -> RemotingCommand:
    """Reports a group's consume offset; `trigger` as in the header."""
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_offset=offset,
        trigger=trigger,
        broker_name=queue.broker_name,
    )
    return RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header.encode())
