"""Plain sends that are steps of failed messages: a consumer's own copy to its retry topic, a
re-driven dead letter, the record of a discard.

Place in the walk: `handlers/send` asks before it puts (does the copy go to the dead letters?) and
tells after it has put, so that `retry_dlq_flow` holds the same steps whichever way they came.

Invariant: a copy sent by the consumer itself goes by the same limit as a send-back, and counts as
one. A group that holds order locks sends copies of what it gave up only, so these are dead at once
whatever their count, as RocketMQ 5.5 has it.
Absent on purpose: storing; send-backs by request (handlers/send_back).
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.broker.parts import BrokerParts
from engine.foundation.errors import RequestRefused
from engine.foundation.observing import RetryStep
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
from engine.protocol.names import RETRY_PREFIX, dlq_topic
from engine.protocol.properties import PROPERTY_RETRY_TOPIC, PROPERTY_UNIQ_KEY
from engine.store import MessageDraft

TOLD_TOPICS = (RETRY_PREFIX, DISCARDS_TOPIC)
"""How the topics begin whose sends are steps of failed messages."""


class RetrySends:
    """Judges and tells such sends."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts

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
        config = self._parts.group_configs.find(group)
        if config is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group {group} not exist"
            )
        times_max = config.retry_max_times
        if header.max_reconsume_times is not None and header.max_reconsume_times >= 0:
            times_max = header.max_reconsume_times
        if (header.reconsume_times or 0) > times_max:
            reason = retries_failed(times_max)
        elif not _is_redrive(header, properties) and self._consumes_in_order(group):
            reason = "given up by a consumer in order"
        else:
            return None
        draft.topic, draft.queue_id = dlq_topic(group), 0
        make_dead_letter_topic(self._parts, group)
        return reason

    def _consumes_in_order(self, group: str) -> bool:
        return self._parts.locks.is_held(group, now_ms=self._parts.steady_ms())

    def tell(
        self,
        header: SendMessageRequestHeader,
        properties: Mapping[str, str],
        *,
        delay_level: int,
        why_buried: str | None,
    ) -> None:
        """Tell the steps that a stored send was."""
        times = header.reconsume_times or 0
        if header.topic == DISCARDS_TOPIC:
            self._tell_discard(properties)
        elif times or why_buried:
            self._tell(header, properties, "SENT_BACK", reason="sent by the consumer itself")
            if why_buried:
                self._tell(header, properties, "DEAD_LETTERED", reason=why_buried)
                return
            levels_ms = self._parts.config.store.delay_levels_ms
            delay_ms = levels_ms[delay_level - 1] if delay_level else 0
            self._tell(header, properties, "SCHEDULED", delay_ms=delay_ms)
            if not delay_level:
                self._tell(header, properties, "DELIVERED")
        elif PROPERTY_REDRIVEN_FROM in properties:
            self._tell(header, properties, "REDRIVEN", reason=decision_in_words(properties))

    def _tell(
        self,
        header: SendMessageRequestHeader,
        properties: Mapping[str, str],
        step: str,
        *,
        delay_ms: int | None = None,
        reason: str | None = None,
    ) -> None:
        self._parts.observer.observe(
            RetryStep(
                message_id=properties.get(PROPERTY_UNIQ_KEY),
                origin_topic=properties.get(PROPERTY_RETRY_TOPIC),
                origin_queue_id=None,
                origin_offset=None,
                group=header.topic.removeprefix(RETRY_PREFIX),
                reconsume_times=header.reconsume_times or 0,
                step=step,
                delay_ms=delay_ms,
                reason=reason,
            )
        )

    def _tell_discard(self, properties: Mapping[str, str]) -> None:
        group = properties.get(PROPERTY_DEAD_GROUP)
        if not group:
            return  # Somebody's message of that topic, but no record of a discard.
        times = properties.get(PROPERTY_DEAD_RECONSUME_TIMES, "")
        self._parts.observer.observe(
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


def _is_redrive(header: SendMessageRequestHeader, properties: Mapping[str, str]) -> bool:
    """Is it the order itself? The tries of its copy carry the property too, and a limit."""
    return PROPERTY_REDRIVEN_FROM in properties and header.max_reconsume_times is None


def retries_failed(times_max: int) -> str:
    """Why a message whose retries are spent is dead."""
    return "1 retry failed" if times_max == 1 else f"{times_max} retries failed"


def make_dead_letter_topic(parts: BrokerParts, group: str) -> None:
    """The group's one dead-letter topic, made on demand with one queue (row E2)."""
    config, made = parts.topics.ensure(dlq_topic(group), 1)
    if made:
        config.perm = parts.config.dlq_topic_perm
        parts.topics_changed()
