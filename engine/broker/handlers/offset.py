"""Handles client requests to query or report consume offsets and to look up queue offsets.

Place in the walk: clients report here what they have consumed (UPDATE_CONSUMER_OFFSET), and ask
here where to begin (QUERY_CONSUMER_OFFSET). Reports that change something become facts at once; the
others are counted. The answer to where a group begins is a fact as well, at most
OFFSET_ANSWERS_TOLD_A_SECOND of them: rebalances ask, and few tools.

Invariant: what is answered is what memory holds; the file follows within seconds, and the facts say
how far behind it is. Absent on purpose: which report counts (`offsets/commit_reports`).
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.broker.groups.group_configs import GroupConfigs
from engine.broker.offsets.commit_reports import CommitReports
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.offsets.new_lives import StartingPoints
from engine.broker.offsets.remembered_offsets import RememberedOffsets
from engine.broker.offsets.topic_lives import Asked
from engine.broker.reporting.offset_answers import OffsetAnswers
from engine.broker.topics.topics import Topics
from engine.foundation.errors import RequestRefused
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
from engine.remoting import Handlers, Peer, serves
from engine.store import MessageStore

TRIGGERS = ("TIMER", "SHUTDOWN", "HAND_OVER")
"""Why our own clients say they report; others say nothing."""


@dataclass(slots=True, kw_only=True, eq=False)
class OffsetHandlers(Handlers):
    """Offsets of groups and of queues."""

    store: MessageStore
    topics: Topics
    group_configs: GroupConfigs
    offsets: ConsumerOffsets
    starting_points: StartingPoints
    answers: OffsetAnswers
    remembered: RememberedOffsets
    reports: CommitReports

    @serves(RequestCode.QUERY_CONSUMER_OFFSET)
    def query_consumer_offset(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """QUERY_CONSUMER_OFFSET (14): 0 for a young queue nobody has an offset for (row A4)."""
        header = QueryConsumerOffsetRequestHeader.decode(request.fields)
        key = group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        offset = self.offsets.answered(*key)
        if offset is None:
            offset = self.starting_points.place(key)
        if offset is None:
            young = self.starting_points.is_young(topic, queue_id)
            if header.set_zero_if_not_found is False or not young:
                self.answers.emit(peer, key, None)
                if not young:  # Else consumers hear 0; only tools want to hear of nothing.
                    self.remembered.note_nowhere(key, peer.address)
                raise RequestRefused(
                    ResponseCode.QUERY_NOT_FOUND,
                    f"Not found: group {group} has no offset for queue {queue_id} of {topic}",
                )
            offset = 0
        self.answers.emit(peer, key, offset)
        self.remembered.note_group(key, offset, peer.address)
        return request.respond(
            ResponseCode.SUCCESS, fields=OffsetResponseHeader(offset=offset).encode()
        )

    @serves(RequestCode.UPDATE_CONSUMER_OFFSET)
    def update_consumer_offset(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_CONSUMER_OFFSET (15)."""
        header = UpdateConsumerOffsetRequestHeader.decode(request.fields)
        key = (header.consumer_group, header.topic, header.queue_id)
        topic = self.topics.require(header.topic)
        if self.group_configs.find(header.consumer_group) is None:
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
        held = self.store.max_offset(header.topic, header.queue_id)
        if header.queue_id >= queue_count and not held:  # Queues taken away may still be read.
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal: topic {header.topic} has {queue_count} "
                "queues",
            )
        is_reset = self.offsets.is_expected_reset(*key, header.commit_offset)
        waits = not request.is_oneway and header.trigger is None
        refused = self.reports.commit(
            peer,
            key,
            header.commit_offset,
            path="RESET" if is_reset else "COMMIT_RPC",
            trigger=header.trigger if header.trigger in TRIGGERS else "UNKNOWN",
            is_chosen=is_reset
            or (waits and self.reports.is_of_a_tool(peer, key, header.commit_offset)),
        )
        if refused is not None and waits and not self.offsets.reset_pending(*key):
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, refused)
        return request.respond(ResponseCode.SUCCESS, refused)

    @serves(RequestCode.GET_MAX_OFFSET)
    def max_offset(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_MAX_OFFSET (30): the offset the queue's next message gets."""
        header = QueueRequestHeader.decode(request.fields)
        queue = (header.topic, header.queue_id)
        end = self.store.max_offset(*queue)
        return self._given(peer, request, queue, end, asked=Asked.END)

    @serves(RequestCode.GET_MIN_OFFSET)
    def min_offset(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_MIN_OFFSET (31): the first offset kept."""
        header = QueueRequestHeader.decode(request.fields)
        queue = (header.topic, header.queue_id)
        first = self.store.min_offset(*queue)
        return self._given(peer, request, queue, first, asked=Asked.FIRST)

    @serves(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
    def search_offset(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """SEARCH_OFFSET_BY_TIMESTAMP (29): LOWER is the first message stored at or after that time,
        UPPER the last one stored at or before it.
        """
        header = SearchOffsetRequestHeader.decode(request.fields)
        store, topic, queue_id = self.store, header.topic, header.queue_id
        if header.boundary_type == "UPPER":
            behind = store.offset_at_time(topic, queue_id, header.timestamp_ms + 1)
            offset = max(behind - 1, store.min_offset(topic, queue_id))
        else:
            offset = store.offset_at_time(topic, queue_id, header.timestamp_ms)
        return self._given(peer, request, (topic, queue_id), offset, asked=Asked.TIME)

    @serves(RequestCode.GET_EARLIEST_MSG_STORETIME)
    def earliest_store_time(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_EARLIEST_MSG_STORETIME (32): NO_STORE_TIME of a queue that holds no message."""
        header = QueueRequestHeader.decode(request.fields)
        store = self.store
        first = store.min_offset(header.topic, header.queue_id)
        store_time_ms = store.store_time_at(header.topic, header.queue_id, first)
        found = TimestampResponseHeader(
            timestamp_ms=NO_STORE_TIME if store_time_ms is None else store_time_ms
        )
        return request.respond(ResponseCode.SUCCESS, fields=found.encode())

    def _given(
        self,
        peer: Peer,
        request: RemotingCommand,
        queue: tuple[str, int],
        offset: int,
        *,
        asked: Asked,
    ) -> RemotingCommand:
        """The answer to one that may go on from it: it has the offset from the queue's present
        life.
        """
        self.remembered.note_answer((None, *queue), offset, peer.address, asked=asked)
        return request.respond(
            ResponseCode.SUCCESS, fields=OffsetResponseHeader(offset=offset).encode()
        )
