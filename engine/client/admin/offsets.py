"""Offsets of queues, and consume offsets of groups as tools read and move them."""

from __future__ import annotations

from engine.client.admin.asking import Asking
from engine.foundation.errors import RequestRefused
from engine.protocol.bodies import decode_offset_table
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.headers import (
    CloneGroupOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from engine.protocol.headers_client import NO_STORE_TIME
from engine.protocol.message import MessageQueue


class OffsetAdmin:
    """Questions and orders about offsets."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def max_offset(self, queue: MessageQueue) -> int:
        """One past the last message."""
        return await self._asking.offset(RequestCode.GET_MAX_OFFSET, queue, _queue(queue))

    async def min_offset(self, queue: MessageQueue) -> int:
        """The first message still kept."""
        return await self._asking.offset(RequestCode.GET_MIN_OFFSET, queue, _queue(queue))

    async def earliest_store_time(self, queue: MessageQueue) -> int | None:
        """Store time (ms) of the first message still kept; None when there is none."""
        address, fields = await self._asking.master_of(queue), _queue(queue).encode()
        answer = await self._asking.ask(address, RequestCode.GET_EARLIEST_MSG_STORETIME, fields)
        told_ms = TimestampResponseHeader.decode(answer.fields).timestamp_ms
        return None if told_ms == NO_STORE_TIME else told_ms

    async def search(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first message stored at or after a time."""
        header = SearchOffsetRequestHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp_ms=timestamp_ms,
            broker_name=queue.broker_name,
        )
        return await self._asking.offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue, header)

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set a group's consume offset of one queue; members at work overwrite it with their own.

        Raises RequestRefused with the broker's words when it passes the offset over: it answers
        that as a success with a remark.
        """
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            broker_name=queue.broker_name,
        )
        address = await self._asking.master_of(queue)
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        answer = await self._asking.ask(address, code, header.encode())
        if answer.remark:
            raise RequestRefused(answer.code, answer.remark)

    async def consume_offset(self, group: str, queue: MessageQueue) -> int | None:
        """A group's consume offset of one queue; None when its broker has none, however young the
        queue is.
        """
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False,
            broker_name=queue.broker_name,
        )
        try:
            return await self._asking.offset(RequestCode.QUERY_CONSUMER_OFFSET, queue, header)
        except RequestRefused as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def clone(
        self, source: str, target: str, topic: str, *, online_too: bool = False
    ) -> None:
        """Give a group the consume offsets that another one has on a topic.

        Without `online_too` a source that is online and does not subscribe to the topic is left
        alone.
        """
        fields = CloneGroupOffsetRequestHeader(
            src_group=source, dest_group=target, topic=topic, offline=online_too
        ).encode()
        for address in await self._asking.brokers_of(topic):
            await self._asking.ask(address, RequestCode.CLONE_GROUP_OFFSET, fields)

    async def reset(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True
    ) -> dict[MessageQueue, int]:
        """Set a group back (or, with `force`, forward) to the messages stored from a time on; the
        new offsets.
        """
        offsets: dict[MessageQueue, int] = {}
        for address in await self._asking.brokers_of(topic):
            fields = ResetOffsetRequestHeader(
                topic=topic, group=group, timestamp_ms=timestamp_ms, is_force=force, offset=-1
            ).encode()
            answer = await self._asking.ask(
                address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields
            )
            offsets |= decode_offset_table(answer.body)
        return dict(sorted(offsets.items()))

    async def reset_queue(
        self, group: str, queue: MessageQueue, offset: int
    ) -> dict[MessageQueue, int]:
        """Let a group go on at an offset of one queue, its members at work as well; where it goes
        on.
        """
        fields = ResetOffsetRequestHeader(
            topic=queue.topic,
            group=group,
            timestamp_ms=-1,
            is_force=True,
            queue_id=queue.queue_id,
            offset=offset,
        ).encode()
        answer = await self._asking.ask(
            await self._asking.master_of(queue), RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields
        )
        return decode_offset_table(answer.body)


def _queue(queue: MessageQueue) -> QueueRequestHeader:
    return QueueRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
    )
