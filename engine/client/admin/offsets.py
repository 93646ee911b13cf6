"""Offsets of queues, and consume offsets of groups as tools read and move them."""

from __future__ import annotations

from engine.client.admin.asking import Asking, place
from engine.client.wire_fields import number, wire_fields
from engine.foundation.errors import RequestRefused
from engine.protocol.bodies import decode_offset_table
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.message import MessageQueue


class OffsetAdmin:
    """Questions and orders about offsets."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def max_offset(self, queue: MessageQueue) -> int:
        """One past the last message."""
        return await self._asking.queue_number(RequestCode.GET_MAX_OFFSET, queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The first message still kept."""
        return await self._asking.queue_number(RequestCode.GET_MIN_OFFSET, queue)

    async def search(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first message stored at or after a time."""
        return await self._asking.queue_number(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue, timestamp=timestamp_ms
        )

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set a group's consume offset of one queue; members at work overwrite it with their
        own.
        """
        fields = wire_fields(consumerGroup=group, commitOffset=offset, **place(queue))
        address = await self._asking.master_of(queue)
        await self._asking.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)

    async def consume_offset(self, group: str, queue: MessageQueue) -> int | None:
        """A group's consume offset of one queue; None when its broker has none, however young the
        queue is.
        """
        fields = wire_fields(consumerGroup=group, setZeroIfNotFound=False, **place(queue))
        try:
            answer = await self._asking.ask(
                await self._asking.master_of(queue), RequestCode.QUERY_CONSUMER_OFFSET, fields
            )
        except RequestRefused as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return number(answer.fields, "offset")

    async def clone(
        self, source: str, target: str, topic: str, *, online_too: bool = False
    ) -> None:
        """Give a group the consume offsets that another one has on a topic.

        Without `online_too` a source that is online and does not subscribe to the topic is left
        alone.
        """
        fields = wire_fields(srcGroup=source, destGroup=target, topic=topic, offline=online_too)
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
            fields = wire_fields(
                topic=topic,
                group=group,
                timestamp=timestamp_ms,
                isForce=force,
                queueId=-1,
                offset=-1,
            )
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
        fields = wire_fields(
            topic=queue.topic,
            group=group,
            timestamp=-1,
            isForce=True,
            queueId=queue.queue_id,
            offset=offset,
        )
        answer = await self._asking.ask(
            await self._asking.master_of(queue), RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields
        )
        return decode_offset_table(answer.body)
