"""Recognises ordinary sends that belong to a failed message, and reports its origin.

They are a consumer's own copy to its retry topic, a re-driven dead letter, and the record of a
discard.

Place in the walk: `handlers/send` asks before it puts (does the copy go to the dead letters?) and
reports after it has put, so that `retry_dlq_flow` holds the same steps whichever way they came. A
copy keeps the broker's id of the first record (ORIGIN_MESSAGE_ID), which leads to its place.

Invariant: a copy sent by the consumer itself goes by the same limit as a send-back, and counts as
one. A group that holds order locks sends copies of what it gave up only, so these are dead at once,
as RocketMQ 5.5 has it. A place is named only if the message stands there now, in the present life
of its topic. Absent on purpose: storing; send-backs by request (handlers/send_back); the key index,
which costs a search of files in a step of the loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from engine.broker.groups.group_configs import GroupConfigs
from engine.broker.groups.queue_locks import QueueLocks
from engine.broker.identity import BrokerNode
from engine.broker.table_changes import TableChanges
from engine.broker.topics.topics import Topics
from engine.broker.transactions.stored_messages import stored_message, stored_record
from engine.broker.transactions.transactions import Transactions
from engine.foundation.errors import CorruptRecord, RemoteProtocolError, RequestRefused
from engine.foundation.observing import Observer, RetryStep
from engine.protocol.codes import ResponseCode
from engine.protocol.dead_letters import (
    DISCARDS_TOPIC,
    PROPERTY_DEAD_GROUP,
    PROPERTY_DEAD_MESSAGE_ID,
    PROPERTY_DEAD_RECONSUME_TIMES,
    PROPERTY_REDRIVEN_FROM,
    decision_in_words,
)
from engine.protocol.headers import SendMessageRequestHeader
from engine.protocol.message import MessageExt
from engine.protocol.message_ids import parse_offset_message_id
from engine.protocol.message_record import decode_record
from engine.protocol.names import RETRY_PREFIX, dlq_topic
from engine.protocol.properties import (
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_UNIQ_KEY,
)
from engine.runtime.clock import Clock
from engine.store import MessageDraft, MessageStore


class Origin(NamedTuple):
    """A place in the topic of origin; None: not known here."""

    queue_id: int | None
    queue_offset: int | None


UNKNOWN = Origin(None, None)


@dataclass(slots=True, kw_only=True, eq=False)
class Origins:
    """Finds where failed messages stood first."""

    store: MessageStore
    transactions: Transactions

    def message_at(self, physical_offset: int) -> MessageExt | None:
        """The message that begins at an offset somebody named; None when none does."""
        return stored_message(self.store, self.transactions, physical_offset)

    def origin_of(self, properties: Mapping[str, str]) -> Origin:
        """Where the message was first whose copy has these properties."""
        try:
            _, physical_offset = parse_offset_message_id(
                properties.get(PROPERTY_ORIGIN_MESSAGE_ID, "")
            )
            record = stored_record(self.store, self.transactions, physical_offset)
            if record is None:
                return UNKNOWN
            message = decode_record(record, check_crc=False, read_body=False)
        except (RemoteProtocolError, CorruptRecord):
            return UNKNOWN
        uniq_key = properties.get(PROPERTY_UNIQ_KEY)
        is_named = uniq_key is not None and message.uniq_key == uniq_key
        if not is_named or message.topic != properties.get(PROPERTY_RETRY_TOPIC):
            return UNKNOWN
        return Origin(message.queue_id, message.queue_offset)


TOLD_TOPICS = (RETRY_PREFIX, DISCARDS_TOPIC)
"""How the topics begin whose sends are steps of failed messages."""


@dataclass(slots=True, kw_only=True, eq=False)
class RetryCopies:
    """Judges and reports such sends."""

    clock: Clock
    dead_letters: DeadLetterTopics
    group_configs: GroupConfigs
    node: BrokerNode
    locks: QueueLocks
    observer: Observer
    origins: Origins

    def why_buried(
        self,
        draft: MessageDraft,
        header: SendMessageRequestHeader,
        properties: Mapping[str, str],
    ) -> str | None:
        """Turn a copy that is given up into a dead letter; why, and None for one that is tried
        again. Raises RequestRefused.
        """
        group = header.topic.removeprefix(RETRY_PREFIX)
        config = self.group_configs.find(group)
        if config is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group {group} not exist"
            )
        times_max = config.retry_max_times
        if header.max_reconsume_times is not None and header.max_reconsume_times >= 0:
            times_max = header.max_reconsume_times
        if (header.reconsume_times or 0) > times_max:
            reason = retries_failed(times_max)
        elif not is_redrive(header, properties) and self._consumes_in_order(group):
            reason = "given up by a consumer in order"
        else:
            return None
        draft.topic, draft.queue_id = dlq_topic(group), 0
        self.dead_letters.make(group)
        return reason

    def _consumes_in_order(self, group: str) -> bool:
        return self.locks.is_held(group, now_ms=self.clock.steady_ms())

    def report(
        self,
        header: SendMessageRequestHeader,
        properties: Mapping[str, str],
        *,
        delay_level: int,
        why_buried: str | None,
    ) -> None:
        """Report the steps that a stored send was."""
        times = header.reconsume_times or 0
        if header.topic == DISCARDS_TOPIC:
            self._emit_discard(properties)
        elif times or why_buried:
            self._emit(header, properties, "SENT_BACK", reason="sent by the consumer itself")
            if why_buried:
                self._emit(header, properties, "DEAD_LETTERED", reason=why_buried)
                return
            levels_ms = self.node.config.store.delay_levels_ms
            delay_ms = levels_ms[delay_level - 1] if delay_level else 0
            self._emit(header, properties, "SCHEDULED", delay_ms=delay_ms)
            if not delay_level:
                self._emit(header, properties, "DELIVERED")
        elif PROPERTY_REDRIVEN_FROM in properties:
            self._emit(header, properties, "REDRIVEN", reason=decision_in_words(properties))

    def _emit(
        self,
        header: SendMessageRequestHeader,
        properties: Mapping[str, str],
        step: str,
        *,
        delay_ms: int | None = None,
        reason: str | None = None,
    ) -> None:
        origin = self.origins.origin_of(properties)
        self.observer.observe(
            RetryStep(
                message_id=properties.get(PROPERTY_UNIQ_KEY),
                origin_topic=properties.get(PROPERTY_RETRY_TOPIC),
                origin_queue_id=origin.queue_id,
                origin_offset=origin.queue_offset,
                group=header.topic.removeprefix(RETRY_PREFIX),
                reconsume_times=header.reconsume_times or 0,
                step=step,
                delay_ms=delay_ms,
                reason=reason,
            )
        )

    def _emit_discard(self, properties: Mapping[str, str]) -> None:
        group = properties.get(PROPERTY_DEAD_GROUP)
        if not group:
            return  # Somebody's message of that topic, but no record of a discard.
        times = properties.get(PROPERTY_DEAD_RECONSUME_TIMES, "")
        self.observer.observe(
            RetryStep(
                message_id=properties.get(PROPERTY_DEAD_MESSAGE_ID),
                origin_topic=properties.get(PROPERTY_RETRY_TOPIC),
                origin_queue_id=None,
                origin_offset=None,
                group=group,
                reconsume_times=int(times) if times.isdecimal() and len(times) < 9 else 0,
                step="DISCARDED",
                delay_ms=None,
                reason=decision_in_words(properties),
            )
        )


def is_redrive(header: SendMessageRequestHeader, properties: Mapping[str, str]) -> bool:
    """Is it a re-drive itself? The tries of its copy carry the property too, and a limit."""
    is_named = PROPERTY_REDRIVEN_FROM in properties and header.max_reconsume_times is None
    return is_named and header.topic.startswith(RETRY_PREFIX)


def retries_failed(times_max: int) -> str:
    """Why a message whose retries are spent is dead."""
    return "1 retry failed" if times_max == 1 else f"{times_max} retries failed"


@dataclass(slots=True, kw_only=True, eq=False)
class DeadLetterTopics:
    """Makes the dead-letter topics of groups."""

    changes: TableChanges
    node: BrokerNode
    topics: Topics

    def make(self, group: str) -> None:
        """The group's one dead-letter topic, made on demand with one queue (row E2)."""
        config, made = self.topics.ensure(dlq_topic(group), 1)
        if made:
            config.perm = self.node.config.dlq_topic_perm
            self.changes.of_topics()
