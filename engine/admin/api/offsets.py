"""Offset administration: looking up queue offsets and managing consume offsets."""

from __future__ import annotations

from typing import Final

from engine.admin.api.requests import AdminRequests
from engine.client.connection.queue_offsets import QueueOffsets, commit_request, queue_header
from engine.foundation.errors import RequestRefused
from engine.protocol.bodies import decode_offset_table
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.headers import (
    CloneGroupOffsetRequestHeader,
    DeleteConsumerOffsetsRequestHeader,
    ResetOffsetRequestHeader,
    TimestampResponseHeader,
)
from engine.protocol.headers_client import NO_STORE_TIME
from engine.protocol.message import MessageQueue

_CANNOT: Final = (
    "the broker at {} cannot delete a group's offsets on one topic: brokers of Apache RocketMQ "
    "delete all offsets of a group, or none (tidemark admin group delete --offsets); nothing was "
    "deleted"
)


class OffsetAdmin:
    """Questions and orders about offsets."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests
        self._offsets = QueueOffsets(requests.connection)

    async def max_offset(self, queue: MessageQueue) -> int:
        """One past the last message."""
        return await self._offsets.max_offset(queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The first message still kept."""
        return await self._offsets.min_offset(queue)

    async def earliest_store_time(
        self, queue: MessageQueue, *, address: str | None = None
    ) -> int | None:
        """Store time (ms) of the first message still kept; None when there is none. Asks the broker
        at `address`, or the master that the queue's route names.
        """
        address = address or await self._requests.routes.find_master(queue)
        fields = queue_header(queue).encode()
        answer = await self._requests.ask(address, RequestCode.GET_EARLIEST_MSG_STORETIME, fields)
        stored_ms = TimestampResponseHeader.decode(answer.fields).timestamp_ms
        return None if stored_ms == NO_STORE_TIME else stored_ms

    async def search(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first message stored at or after a time."""
        return await self._offsets.search_offset(queue, timestamp_ms)

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set a group's consume offset of one queue; members at work overwrite it with their own.

        Raises RequestRefused with the broker's words when it passes the offset over: it answers
        that as a success with a remark.
        """
        address = await self._requests.routes.find_master(queue)
        answer = await self._requests.connection.ask(address, commit_request(group, queue, offset))
        if answer.remark:
            raise RequestRefused(answer.code, answer.remark)

    async def consume_offset(self, group: str, queue: MessageQueue) -> int | None:
        """A group's consume offset of one queue; None when its broker has none, however young the
        queue is.
        """
        address = await self._requests.routes.find_master(queue)
        return await self._offsets.consume_offset(address, group, queue, zero_if_young=False)

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
        for address in await self._requests.brokers_of(topic):
            await self._requests.ask(address, RequestCode.CLONE_GROUP_OFFSET, fields)

    async def delete(
        self, group: str, topic: str, *, dry_run: bool = False
    ) -> dict[MessageQueue, int]:
        """Delete a group's offsets on one topic, on every broker of it; what is deleted, or would
        be. All brokers are asked before the first one deletes anything.

        Raises RequestRefused while somebody of the group reads the topic, and where a broker of
        the topic is none of ours: RocketMQ deletes all offsets of a group or none.
        """
        found: dict[MessageQueue, int] = {}
        addresses = await self._requests.brokers_of(topic)
        for is_dry in (True,) if dry_run else (True, False):
            fields = DeleteConsumerOffsetsRequestHeader(
                group=group, topic=topic, dry_run=is_dry
            ).encode()
            for address in addresses:
                try:
                    answer = await self._requests.ask(
                        address, RequestCode.DELETE_CONSUMER_OFFSETS, fields
                    )
                except RequestRefused as error:
                    if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                        raise
                    raise RequestRefused(error.code, _CANNOT.format(address)) from error
                found |= decode_offset_table(answer.body)
        return dict(sorted(found.items()))

    async def reset(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True
    ) -> dict[MessageQueue, int]:
        """Set a group back (or, with `force`, forward) to the messages stored from a time on; the
        new offsets.
        """
        offsets: dict[MessageQueue, int] = {}
        for address in await self._requests.brokers_of(topic):
            fields = ResetOffsetRequestHeader(
                topic=topic, group=group, timestamp_ms=timestamp_ms, is_force=force, offset=-1
            ).encode()
            answer = await self._requests.ask(
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
        answer = await self._requests.ask(
            await self._requests.routes.find_master(queue),
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            fields,
        )
        return decode_offset_table(answer.body)
