"""Reads the messages requested by a pull and writes the response.

Place in the walk: behind a pull's checks, at once or when it is woken. An answer that brings a
group further moves its pulled mark and is counted; what it delivers again is a fact.

Invariant: nothing is noted of an answer without messages but that there was none. Absent on
purpose: holding pulls (long_poll).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from engine.broker.groups.readers import QueueKey, Readers
from engine.broker.identity import BrokerNode, Role
from engine.broker.offsets.remembered_offsets import RememberedOffsets
from engine.broker.offsets.topic_lives import Asked
from engine.broker.pulling.cold_reads import FAR_BEHIND_BYTES, ColdReadSums
from engine.broker.pulling.pull_checks import Pull
from engine.broker.stats.broker_stats import BrokerStats
from engine.foundation.limits import PULL_MESSAGES_MAX
from engine.foundation.observing import Observer
from engine.foundation.units import MIB, Buffer
from engine.protocol.codes import ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import PullMessageResponseHeader
from engine.protocol.message_record import queue_offsets
from engine.protocol.names import MASTER_ID
from engine.store import GetResult, GetStatus, MessageStore

ANSWER_BYTES_MAX = 4 * MIB

Handed = Callable[[QueueKey, range, Sequence[Buffer]], None]
"""An answer over these queue offsets, with these messages, brought a group further."""


def handed_to_nobody(_key: QueueKey, _span: range, _bodies: Sequence[Buffer]) -> None:
    """Nobody wants to hear of it."""


@dataclass(slots=True, kw_only=True, eq=False)
class PullAnswers:
    """The answers of one broker.

    `handed` hears of each answer that brought a group further.
    """

    node: BrokerNode
    store: MessageStore
    readers: Readers
    remembered: RememberedOffsets
    stats: BrokerStats
    cold_reads: ColdReadSums
    observer: Observer
    handed: Handed
    _far_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self._far_bytes = min(FAR_BEHIND_BYTES, self.node.config.store.resident_bytes)

    def read(self, pull: Pull) -> GetResult:
        """What the store has for it now."""
        header = pull.header
        return self.store.get(
            header.topic,
            header.queue_id,
            header.queue_offset,
            max_count=max(1, min(header.max_msg_nums, PULL_MESSAGES_MAX)),
            max_bytes=min(header.max_msg_bytes or ANSWER_BYTES_MAX, ANSWER_BYTES_MAX),
            wanted=pull.filter.wanted,
            matches=pull.filter.matches,
            max_tests=pull.filter.tests_max,
        )

    def elsewhere(self, pull: Pull) -> RemotingCommand | None:
        """The answer of a node that gives its readers nothing, as RocketMQ's slave sends them to
        the master: they stay where they are. None: they read here. Hot.
        """
        node = self.node
        if node.is_master or (node.role is Role.SLAVE and node.config.slave_read_enable):
            return None
        return self._at_the_master(pull)

    def _at_the_master(self, pull: Pull) -> RemotingCommand:
        return self._without_messages(
            pull,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            "this broker is no master; ask that one",
            pull.header.queue_offset,
        )

    def nothing(self, pull: Pull, reason: str) -> RemotingCommand:
        """No message, and why; the reader asks again."""
        remark = f"{reason}; ask again"
        return self._without_messages(
            pull, ResponseCode.PULL_NOT_FOUND, remark, pull.header.queue_offset
        )

    def moved(self, pull: Pull, offset: int) -> RemotingCommand:
        """The reader has to go on at another offset."""
        return self._without_messages(pull, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", offset)

    def _without_messages(
        self, pull: Pull, code: int, remark: str, next_begin_offset: int
    ) -> RemotingCommand:
        """An answer that was not read from the queue."""
        store, queue = self.store, (pull.header.topic, pull.header.queue_id)
        fields = _fields(
            pull,
            MASTER_ID,
            next_begin_offset=next_begin_offset,
            min_offset=store.min_offset(*queue),
            max_offset=store.max_offset(*queue),
        )
        return pull.request.respond(code, remark, fields)

    def found(self, pull: Pull, found: GetResult) -> RemotingCommand:
        """What was read. The group's pulled mark moves, and counts."""
        code = code_of(found, pull.header.queue_offset)
        if code == ResponseCode.PULL_OFFSET_MOVED and not self.node.is_master:
            return self._at_the_master(pull)  # A slave may lag behind: it moves nobody.
        body: bytes | memoryview = b""
        pieces: Sequence[memoryview] = ()
        if found.status is GetStatus.FOUND:
            body, pieces = found.body_and_pieces()
        if code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY):
            self._note_progress(pull, found, (body, *pieces))
        if found.count:
            group, topic, _ = pull.key
            self.stats.got(group, topic, found.count, found.size_bytes)
            behind_bytes = found.behind_bytes
            if behind_bytes is not None and behind_bytes > self._far_bytes:
                self._note_cold(group, topic, found, behind_bytes)
        else:
            self.stats.missed()
        if code == ResponseCode.PULL_OFFSET_MOVED:
            begin = found.next_begin_offset
            self.remembered.note_answer(pull.key, begin, pull.peer.address, asked=Asked.SENT)
        suggested = self._suggested(pull, found)
        fields = _fields(
            pull,
            suggested,
            next_begin_offset=found.next_begin_offset,
            min_offset=found.min_offset,
            max_offset=found.max_offset,
        )
        response = pull.request.respond(code, found.status.value, fields, body)
        response.pieces = pieces
        return response

    def _suggested(self, pull: Pull, found: GetResult) -> int:
        """The broker id that the reader is to ask next."""
        if not self.node.config.slave_read_enable:
            return MASTER_ID
        group = pull.group_config
        is_slow = found.suggest_pulling_from_slave
        return group.which_broker_when_consume_slowly if is_slow else group.broker_id

    def _note_cold(self, group: str, topic: str, found: GetResult, behind_bytes: int) -> None:
        config = self.node.config.store
        self.cold_reads.add(
            group,
            topic,
            messages=found.count,
            size_bytes=found.size_bytes,
            behind_bytes=behind_bytes,
            resident_bytes=config.resident_bytes,
            messages_a_pull_max=config.max_transfer_count_in_disk,
        )

    def _note_progress(self, pull: Pull, found: GetResult, bodies: Sequence[Buffer]) -> None:
        """Move the group's pulled mark, and report what the answer delivers again."""
        if not pull.shared:
            return
        moved, again = self.readers.answered(
            pull.key,
            pull.reader,
            from_offset=pull.header.queue_offset,
            next_offset=found.next_begin_offset,
            count_below=lambda offset: sum(
                one < offset for body in bodies for one in queue_offsets(body)
            ),
        )
        if again is not None:
            self.observer.observe(again)
        if moved:
            group, topic, queue_id = pull.key
            self.observer.pulled(group, topic, queue_id, found.next_begin_offset, pull.reader)
            self.handed(pull.key, range(pull.header.queue_offset, found.next_begin_offset), bodies)


def _fields(
    pull: Pull, suggested_id: int, *, next_begin_offset: int, min_offset: int, max_offset: int
) -> dict[str, str]:
    return PullMessageResponseHeader(
        suggest_which_broker_id=suggested_id,
        next_begin_offset=next_begin_offset,
        min_offset=min_offset,
        max_offset=max_offset,
        topic_sys_flag=pull.topic_sys_flag,
        group_sys_flag=pull.group_config.group_sys_flag,
    ).encode()


def code_of(found: GetResult, asked_offset: int) -> ResponseCode:
    """RocketMQ's code for what was read from `asked_offset`."""
    match found.status:
        case GetStatus.FOUND:
            return ResponseCode.SUCCESS
        case GetStatus.NO_MATCHED_MESSAGE | GetStatus.MESSAGE_WAS_REMOVING:
            return ResponseCode.PULL_RETRY_IMMEDIATELY
        case GetStatus.OFFSET_FOUND_NULL | GetStatus.OFFSET_OVERFLOW_ONE:
            return ResponseCode.PULL_NOT_FOUND
        case GetStatus.NO_MESSAGE_IN_QUEUE | GetStatus.NO_MATCHED_LOGIC_QUEUE:
            if asked_offset == 0:
                return ResponseCode.PULL_NOT_FOUND
            return ResponseCode.PULL_OFFSET_MOVED
        case GetStatus.OFFSET_OVERFLOW_BADLY | GetStatus.OFFSET_TOO_SMALL:
            return ResponseCode.PULL_OFFSET_MOVED
