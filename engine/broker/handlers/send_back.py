"""Handles CONSUMER_SEND_MSG_BACK, which returns messages that consumers failed to process.

Place in the walk: the message is read from the log by its physical offset, and put again: into its
delay level on the way to %RETRY%group, or into %DLQ%group when it has been tried often enough
(rows E1 and E2).

Invariant: UNIQ_KEY, RETRY_TOPIC (the first topic) and ORIGIN_MESSAGE_ID stay through all tries, and
each step is a fact, so that sent back = scheduled + dead can be checked. A retry has all properties
of its message: the send has reserved room for what it adds (`copy_room`). A message that was
accepted without that room becomes a dead letter at once, with a note of what had to be left out.
Absent on purpose: waiting (engine/delay).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from engine.broker.groups.group_configs import GroupConfigs
from engine.broker.identity import BrokerNode
from engine.broker.sending.durability import Durability, broker_takes_nothing
from engine.broker.sending.retry_copies import DeadLetterTopics, Origin, Origins, retries_failed
from engine.broker.sending.target_queues import TargetQueues
from engine.broker.stats.broker_stats import DELAY, NORMAL, BrokerStats
from engine.broker.transactions.stored_messages import is_named_by, no_message
from engine.delay import Delays
from engine.foundation.errors import RequestRefused
from engine.foundation.limits import MESSAGE_ID_CHARS_MAX, PROPERTIES_BYTES_MAX
from engine.foundation.observing import Observer, RetryStep
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.copy_room import left_out_in_words, noted_properties
from engine.protocol.header_fields import INT32_MAX
from engine.protocol.headers import ConsumerSendMessageBackRequestHeader
from engine.protocol.message import MessageExt
from engine.protocol.names import (
    PERM_WRITE,
    RETRY_PREFIX,
    WAITING_TOPICS,
    dlq_topic,
    is_legal_topic,
    retry_topic,
)
from engine.protocol.properties import (
    PROPERTY_DELAY,
    PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_WAIT,
)
from engine.remoting import Handlers, Peer, serves
from engine.remoting.dispatcher import HandlerResult
from engine.store import MessageDraft
from engine.store.record_writing import redraft

OF_A_DEAD_LETTER = frozenset(
    (
        *(PROPERTY_WAIT, PROPERTY_RETRY_TOPIC, PROPERTY_ORIGIN_MESSAGE_ID),
        *(PROPERTY_DLQ_ORIGIN_TOPIC, PROPERTY_DLQ_ORIGIN_MESSAGE_ID),
    )
)
"""What a dead letter must say, even if all else has to be left out."""

_log = logging.getLogger(__name__)

FIRST_RETRY_LEVEL = 3
"""Retry k of a message waits at level 2 + k when the consumer leaves it to the broker."""


def level_for(asked_level: int, reconsume_times: int, levels_count: int) -> int:
    """The delay level of the next try; `reconsume_times` is how often it failed before this."""
    level = FIRST_RETRY_LEVEL + reconsume_times if asked_level == 0 else asked_level
    return max(1, min(level, levels_count))


def is_spent(asked_level: int, reconsume_times: int, times_max: int) -> bool:
    """Does the message go to the dead letters? A negative level asks for it at once."""
    return asked_level < 0 or reconsume_times >= times_max


@dataclass(slots=True, kw_only=True, eq=False)
class SendBackHandlers(Handlers):
    """Takes failed messages back."""

    node: BrokerNode
    group_configs: GroupConfigs
    queues: TargetQueues
    origins: Origins
    dead_letters: DeadLetterTopics
    delays: Delays[int]
    durability: Durability
    stats: BrokerStats
    observer: Observer

    @serves(RequestCode.CONSUMER_SEND_MSG_BACK)
    def send_back(self, peer: Peer, request: RemotingCommand) -> HandlerResult:
        """CONSUMER_SEND_MSG_BACK (36)."""
        header = ConsumerSendMessageBackRequestHeader.decode(request.fields)
        if not self.node.is_master:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"no master available along with {self.node.config.host}",
            )
        config = self.group_configs.find(header.group)
        if config is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {header.group}",
            )
        if not self.node.config.broker_permission & PERM_WRITE:
            raise broker_takes_nothing(self.node.config)
        if config.retry_queue_nums <= 0:
            return request.respond(ResponseCode.SUCCESS)
        queue_id = self.queues.retry_queue_for(retry_topic(header.group), config.retry_queue_nums)
        message = self._message_at(header.offset)
        _check_named(message, header.origin_msg_id)
        times_max = config.retry_max_times
        if header.max_reconsume_times is not None and header.max_reconsume_times >= 0:
            times_max = header.max_reconsume_times
        levels_ms = self.node.config.store.delay_levels_ms
        step, delay_ms, reason = "DEAD_LETTERED", None, None
        if is_spent(header.delay_level, message.reconsume_times, times_max):
            asked = header.delay_level < 0
            reason = "asked by the consumer" if asked else retries_failed(times_max)
        else:
            level = level_for(header.delay_level, message.reconsume_times, len(levels_ms))
            draft = self._retry(message, header.group, level=level, queue_id=queue_id)
            reason = _why_no_record(draft)
            if reason is None:
                step, delay_ms = "SCHEDULED", levels_ms[level - 1]
        if reason is not None:
            draft, left_out = self._dead_letter(message, header.group)
            if left_out:
                reason = f"{reason}; {left_out_in_words(left_out)}"
                _log.error("%s sent back by %s: %s", message.message_id, header.group, reason)
        put = self.durability.put(draft)
        self._emit(message, header.group, "SENT_BACK")  # Now: what is refused stays where it was.
        self._emit(message, header.group, step, delay_ms=delay_ms, reason=reason)
        self._count(header.group, message, put.size_bytes, dead=delay_ms is None)
        response = request.respond(ResponseCode.SUCCESS)
        return self.durability.answer_put(peer, request, response, end_offset=put.end_offset)

    def _count(self, group: str, message: MessageExt, size_bytes: int, *, dead: bool) -> None:
        """As RocketMQ counts it: a message sent to the retry topic, or to the dead letters."""
        traffic, key = self.stats, (group, _origin_topic(message))
        if dead:
            traffic.put(dlq_topic(group), NORMAL, 1, size_bytes)
            traffic.dead_letters.add(key, 1, size_bytes)
        else:
            traffic.put(retry_topic(group), DELAY, 1, size_bytes)
            traffic.send_backs.add(key, 1, size_bytes)

    def _message_at(self, physical_offset: int) -> MessageExt:
        message = self.origins.message_at(physical_offset)
        if message is None:
            raise no_message(physical_offset, "look message by offset failed")
        if message.topic in WAITING_TOPICS:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"look message by offset failed: {message.message_id} at {physical_offset} waits "
                "for its time or for its producer, no consumer has been given it",
            )
        return message

    def _retry(self, message: MessageExt, group: str, *, level: int, queue_id: int) -> MessageDraft:
        """The draft of its next try."""
        properties = _kept_properties(message)
        properties[PROPERTY_DELAY] = str(level)
        draft = self._draft(message, retry_topic(group), queue_id, properties)
        return self.delays.park(draft, level)

    def _dead_letter(self, message: MessageExt, group: str) -> tuple[MessageDraft, dict[str, int]]:
        """The draft of its dead letter, and the bytes of each property left out for want of room,
        of which it has a note.
        """
        topic = dlq_topic(group)
        self.dead_letters.make(group)
        properties = _kept_properties(message)
        properties.pop(PROPERTY_DELAY, None)
        if not is_legal_topic(properties.get(PROPERTY_DLQ_ORIGIN_TOPIC, "")):
            properties[PROPERTY_DLQ_ORIGIN_TOPIC] = _origin_topic(message)
        if not _is_short(properties.get(PROPERTY_DLQ_ORIGIN_MESSAGE_ID, "")):
            properties[PROPERTY_DLQ_ORIGIN_MESSAGE_ID] = properties[PROPERTY_ORIGIN_MESSAGE_ID]
        properties, left_out = noted_properties(
            properties, OF_A_DEAD_LETTER, whole_in=f"message {message.offset_message_id}"
        )
        return self._draft(message, topic, 0, properties), left_out

    def _draft(
        self, message: MessageExt, topic: str, queue_id: int, properties: dict[str, str]
    ) -> MessageDraft:
        draft = redraft(message, topic, queue_id, properties)
        draft.store_host = self.node.address
        draft.reconsume_times = min(draft.reconsume_times + 1, INT32_MAX)
        return draft

    def _emit(
        self,
        message: MessageExt,
        group: str,
        step: str,
        *,
        delay_ms: int | None = None,
        reason: str | None = None,
    ) -> None:
        origin = Origin(message.queue_id, message.queue_offset)
        if message.topic.startswith(RETRY_PREFIX):
            origin = self.origins.origin_of(message.properties)
        self.observer.observe(
            RetryStep(
                message_id=message.uniq_key,
                origin_topic=_origin_topic(message),
                origin_queue_id=origin.queue_id,
                origin_offset=origin.queue_offset,
                group=group,
                reconsume_times=min(message.reconsume_times + 1, INT32_MAX),
                step=step,
                delay_ms=delay_ms,
                reason=reason,
            )
        )


def _check_named(message: MessageExt, named_id: str | None) -> None:
    """Raise RequestRefused when the consumer means another message: in a store that stands where
    another was, its offset names what happens to be there now.
    """
    if not is_named_by(message, named_id, message.physical_offset):
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            f"look message by offset failed: at {message.physical_offset} is {message.uniq_key}, "
            f"not {named_id}, which is of another store",
        )


def _origin_topic(message: MessageExt) -> str:
    """The first topic; a client may have written anything there, then the message's own."""
    topic = message.properties.get(PROPERTY_RETRY_TOPIC, "")
    return topic if is_legal_topic(topic) else message.topic


def _is_short(message_id: str) -> bool:
    """Is it there, and of a length that an id has? Clients may write any text."""
    return 0 < len(message_id.encode()) <= MESSAGE_ID_CHARS_MAX


def _why_no_record(retry: MessageDraft) -> str | None:
    """Why no record can hold a retry: its message was accepted without room for it, by an older
    version or another broker. None when one can.
    """
    length = len(str(retry.properties).encode())
    if length <= PROPERTIES_BYTES_MAX:
        return None
    return f"the properties of its retry are {length} bytes, the limit is {PROPERTIES_BYTES_MAX}"


def _kept_properties(message: MessageExt) -> dict[str, str]:
    """The message's properties with its origin in them, without where it waited last time."""
    properties = dict(message.properties)
    properties[PROPERTY_RETRY_TOPIC] = _origin_topic(message)
    if not _is_short(properties.get(PROPERTY_ORIGIN_MESSAGE_ID, "")):
        properties[PROPERTY_ORIGIN_MESSAGE_ID] = message.offset_message_id
    properties[PROPERTY_WAIT] = "false"
    properties.pop(PROPERTY_REAL_TOPIC, None)
    properties.pop(PROPERTY_REAL_QUEUE_ID, None)
    return properties
