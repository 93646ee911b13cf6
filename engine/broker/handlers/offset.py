"""Consume offsets and queue offsets: asking, reporting, searching.

Place in the walk: clients report here what they have consumed (UPDATE_CONSUMER_OFFSET), and ask
here where to begin (QUERY_CONSUMER_OFFSET). Reports that change something become facts at once; the
others are counted. What is answered to who asks where to begin is a fact as well, at most
OFFSET_ANSWERS_TOLD_A_SECOND of them: rebalances ask, and few tools.

Invariant: what is answered is what memory holds; the file follows within seconds, and the facts say
how far behind it is. Absent on purpose: which report counts (`reported_offsets`).
"""

from __future__ import annotations

from engine.broker.new_lives import place_at_beginning
from engine.broker.parts import BrokerParts, client_id_of
from engine.broker.remembered_offsets import beginning_of
from engine.broker.reported_offsets import is_of_a_tool, tell_commit
from engine.broker.state.group_configs import TOOLS_GROUP
from engine.broker.state.readers import QueueKey
from engine.broker.state.row_rate import RowsPerSecond
from engine.foundation.errors import RequestRefused
from engine.foundation.limits import OFFSET_ANSWERS_TOLD_A_SECOND
from engine.foundation.observing import OffsetAnswer
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from engine.protocol.headers_client import NO_STORE_TIME
from engine.remoting import Handler, Peer

TRIGGERS = ("TIMER", "SHUTDOWN", "HAND_OVER")
"""Why our own clients say they report; others say nothing."""


class OffsetHandlers:
    """Offsets of groups and of queues."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self._resident_bytes = parts.config.store.resident_bytes
        self._answers = RowsPerSecond(OFFSET_ANSWERS_TOLD_A_SECOND)

    def handlers(self) -> dict[int, Handler]:
        """Request code → handler."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query_consumer_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update_consumer_offset,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest_store_time,
        }

    def query_consumer_offset(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """QUERY_CONSUMER_OFFSET (14): 0 for a young queue nobody has an offset for (row A4)."""
        header = QueryConsumerOffsetRequestHeader.decode(request.fields)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        offset = self._parts.offsets.told(group, topic, queue_id)
        if offset is None and (first := self._beginning_of(group, topic, queue_id)) is not None:
            place_at_beginning(self._parts, (group, topic, queue_id))
            offset = first
        if offset is None:
            young = self._is_young(topic, queue_id)
            if header.set_zero_if_not_found is False or not young:
                self._tell_answer(peer, (group, topic, queue_id), None)
                raise RequestRefused(
                    ResponseCode.QUERY_NOT_FOUND,
                    f"Not found: group {group} has no offset for queue {queue_id} of {topic}",
                )
            offset = 0
        self._tell_answer(peer, (group, topic, queue_id), offset)
        return self._to_begin_at(peer, request, (topic, queue_id), offset)

    def _beginning_of(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where a group that read an earlier life of the topic has to begin."""
        config = self._parts.topics.find(topic)
        if config is None or not 0 <= queue_id < config.read_queue_nums:
            return None
        if not self._parts.group_configs.known(group):
            return None
        return beginning_of(self._parts, (group, topic, queue_id))

    def _tell_answer(self, peer: Peer, key: QueueKey, told_offset: int | None) -> None:
        """Who goes on there, and what is known of it: the messages between are consumed again. A
        question about what is not here, or by a group that is not, is nobody's progress.
        """
        parts = self._parts
        group, topic, queue_id = key
        client_id = client_id_of(peer)
        if (
            parts.topics.find(topic) is None
            or group == TOOLS_GROUP
            or not (parts.group_configs.known(group) or parts.offsets.has_any(group))
            or not self._answers.has_room(parts.steady_ms())
        ):
            return
        reading = parts.readers.of(key)
        parts.observer.observe(
            OffsetAnswer(
                client_id=client_id,
                group=group,
                topic=topic,
                queue_id=queue_id,
                told_offset=told_offset,
                committed=parts.offsets.committed(*key),
                pulled=None if reading is None else reading.pulled_offset,
                last_puller=None if reading is None else reading.last_puller,
            )
        )

    def _is_young(self, topic: str, queue_id: int) -> bool:
        """Is the queue's first message still there, and near the end of the log?

        A group without an offset then begins at 0, so that none of a new topic is missed; an old
        queue that was never cut must not be read from its beginning by everybody who comes.
        """
        store = self._parts.store
        if store.min_offset(topic, queue_id) > 0:
            return False
        first = store.queue_units(topic, queue_id, 0, 1)
        if not first:
            return False
        return store.physical_max - first[0][0] <= self._resident_bytes

    def update_consumer_offset(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_CONSUMER_OFFSET (15)."""
        header = UpdateConsumerOffsetRequestHeader.decode(request.fields)
        parts, key = self._parts, (header.consumer_group, header.topic, header.queue_id)
        topic = parts.topics.require(header.topic)
        if parts.group_configs.find(header.consumer_group) is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"Group {header.consumer_group} not exist!",
            )
        if header.queue_id < 0 or header.commit_offset < 0:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId={header.queue_id} and commitOffset={header.commit_offset} must not be "
                "negative",
            )
        queue_count = max(topic.read_queue_nums, topic.write_queue_nums)
        held = parts.store.max_offset(header.topic, header.queue_id)
        if header.queue_id >= queue_count and not held:  # Queues taken away may still be read.
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal: topic {header.topic} has {queue_count} "
                "queues",
            )
        is_reset = parts.offsets.is_expected_reset(*key, header.commit_offset)
        refused = tell_commit(
            parts,
            peer,
            key,
            header.commit_offset,
            path="RESET" if is_reset else "COMMIT_RPC",
            trigger=header.trigger if header.trigger in TRIGGERS else "UNKNOWN",
            is_chosen=is_reset
            or is_of_a_tool(
                parts,
                peer,
                header.consumer_group,
                waits=not request.is_oneway,
                trigger=header.trigger,
            ),
        )
        return request.respond(ResponseCode.SUCCESS, refused)

    def max_offset(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_MAX_OFFSET (30): the offset the queue's next message gets."""
        header = QueueRequestHeader.decode(request.fields)
        offset = self._parts.store.max_offset(header.topic, header.queue_id)
        return self._to_begin_at(peer, request, (header.topic, header.queue_id), offset)

    def min_offset(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_MIN_OFFSET (31): the first offset kept."""
        header = QueueRequestHeader.decode(request.fields)
        offset = self._parts.store.min_offset(header.topic, header.queue_id)
        return self._to_begin_at(peer, request, (header.topic, header.queue_id), offset)

    def search_offset(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """SEARCH_OFFSET_BY_TIMESTAMP (29): LOWER is the first message stored at or after that time,
        UPPER the last one stored at or before it.
        """
        header = SearchOffsetRequestHeader.decode(request.fields)
        store, topic, queue_id = self._parts.store, header.topic, header.queue_id
        if header.boundary_type == "UPPER":
            behind = store.offset_at_time(topic, queue_id, header.timestamp_ms + 1)
            offset = max(behind - 1, store.min_offset(topic, queue_id))
        else:
            offset = store.offset_at_time(topic, queue_id, header.timestamp_ms)
        return self._to_begin_at(peer, request, (topic, queue_id), offset)

    def earliest_store_time(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_EARLIEST_MSG_STORETIME (32): NO_STORE_TIME of a queue that holds no message."""
        header = QueueRequestHeader.decode(request.fields)
        store = self._parts.store
        first = store.min_offset(header.topic, header.queue_id)
        store_time_ms = store.store_time_at(header.topic, header.queue_id, first)
        found = TimestampResponseHeader(
            timestamp_ms=NO_STORE_TIME if store_time_ms is None else store_time_ms
        )
        return request.respond(ResponseCode.SUCCESS, fields=found.encode())

    def _to_begin_at(
        self, peer: Peer, request: RemotingCommand, queue: tuple[str, int], offset: int
    ) -> RemotingCommand:
        """The answer to one that may go on from it: it has the offset from the queue's present
        life.
        """
        if self._parts.lives.may_have_had_another(queue[0]):
            self._parts.lives.answered(peer.address, *queue, offset)
        return request.respond(
            ResponseCode.SUCCESS, fields=OffsetResponseHeader(offset=offset).encode()
        )
