"""Pulls messages of each held queue, one request at a time per queue (long-poll step of the walk).

A pull carries the consume offset with it, may be held by the broker while there is nothing to
answer, and tells where the next one begins. Before each pull the window is looked at: a consumer
that holds too much waits.

Invariant: the next pull begins where the broker said, so filtered messages are passed over, not
asked for again; a queue that was dropped puts nothing into its window any more. Absent on purpose:
offsets of consumed messages; the window and its listener know those. Row B3.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from engine.client.consuming.group_state import GroupState, Subscription
from engine.client.consuming.process_queue import ProcessQueue
from engine.foundation.errors import RequestRefused, TidemarkError
from engine.foundation.units import SECOND_MS
from engine.protocol.codes import ResponseCode
from engine.protocol.message import MessageExt, MessageQueue
from engine.protocol.names import SysFlag, retry_topic
from engine.protocol.properties import PROPERTY_RETRY_TOPIC
from engine.protocol.tag_bits import split_tags
from engine.runtime.clock import Clock

_log = logging.getLogger(__name__)

FLOW_CONTROL_PAUSE_MS = 50
PAUSED_MS = 1 * SECOND_MS
LOCK_WAIT_MS = 3 * SECOND_MS
BROKER_BUSY_PAUSE_MS = 20
FLOW_CONTROL_LOG_EACH = 1000
"""One log line for so many pauses of one queue."""


class PullStatus(Enum):
    """What a pull brought."""

    FOUND = "FOUND"
    NO_NEW_MESSAGE = "NO_NEW_MSG"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


@dataclass(slots=True)
class PullResult:
    """A broker's answer to a pull."""

    status: PullStatus
    next_begin_offset: int
    messages: list[MessageExt]
    """All messages of the answer, before the exact tag test."""


@dataclass(slots=True)
class PullQuestion:
    """One pull, as the consumer means it."""

    queue: MessageQueue
    subscription: Subscription
    queue_offset: int
    commit_offset: int | None
    """The consume offset to report with it; None: nothing to report."""
    is_lite: bool = False
    """A pull of a consumer that polls: it carries its subscription itself."""


class BrokerPulls(Protocol):
    """The broker's side of a pull."""

    async def pull(self, question: PullQuestion) -> PullResult:
        """Ask once; may be held. Raises TidemarkError when there is no usable answer."""
        ...


@dataclass(slots=True)
class PullHooks:
    """Who goes on with what a pull brought."""

    on_messages: Callable[[list[MessageExt], MessageQueue, ProcessQueue], None]
    """Messages that passed the tag test; they have to be put into the window and given to the
    listener.
    """
    on_offset_illegal: Callable[[MessageQueue, ProcessQueue], Awaitable[None]]
    """The window was dropped and the offset corrected and frozen; the queue has to be given up and
    taken up anew.
    """
    on_commit_answered: Callable[[MessageQueue, int], None] | None
    """The broker answered a pull that reported an offset."""


class Puller:
    """The pulls of one consumer."""

    def __init__(
        self, state: GroupState, clock: Clock, broker: BrokerPulls, hooks: PullHooks
    ) -> None:
        self._state = state
        self._clock = clock
        self._broker = broker
        self._hooks = hooks
        self._retry_topic = retry_topic(state.group)

    async def run(self, queue: MessageQueue, window: ProcessQueue, first_offset: int) -> None:
        """Pull `queue` from `first_offset` on, until its window is dropped."""
        config = self._state.config
        if config.first_pull_delay_ms:
            await asyncio.sleep(config.first_pull_delay_ms / 1000)
        offset = first_offset
        paused_count = 0
        while not window.dropped:
            window.last_pull_ms = self._clock.steady_ms()
            pause_ms = self._pause_ms(queue, window)
            if pause_ms:
                paused_count += 1
                if paused_count % FLOW_CONTROL_LOG_EACH == 1:
                    self._log_pause(queue, window)
                await asyncio.sleep(pause_ms / 1000)
                continue
            paused_count = 0
            try:
                offset = await self._pull(queue, window, offset)
            except TidemarkError as error:
                if not window.dropped:
                    await self._rest_after(error, queue)
            else:
                if config.pull_interval_ms:
                    await asyncio.sleep(config.pull_interval_ms / 1000)

    def _pause_ms(self, queue: MessageQueue, window: ProcessQueue) -> int:
        """How long this queue must not be pulled; 0: pull now."""
        config = self._state.config
        if self._state.paused:
            return PAUSED_MS
        if window.count > self._queue_messages_max(queue.topic):
            return FLOW_CONTROL_PAUSE_MS
        if window.held_bytes > config.queue_bytes_max:
            return FLOW_CONTROL_PAUSE_MS
        if not config.orderly and window.max_span > config.queue_span_max:
            return FLOW_CONTROL_PAUSE_MS
        if config.orderly and self._state.is_clustering and not window.locked:
            return LOCK_WAIT_MS
        return 0

    def _queue_messages_max(self, topic: str) -> int:
        config = self._state.config
        if config.topic_messages_max is None:
            return config.queue_messages_max
        held = sum(1 for queue in self._state.windows if queue.topic == topic)
        return max(config.topic_messages_max // max(held, 1), 1)

    async def _pull(self, queue: MessageQueue, window: ProcessQueue, offset: int) -> int:
        """One pull; the offset of the next one."""
        subscription = self._state.subscriptions.get(queue.topic)
        if subscription is None:
            await asyncio.sleep(
                PAUSED_MS / 1000
            )  # Unsubscribed; the next rebalance drops the queue.
            return offset
        question = PullQuestion(queue, subscription, offset, self._offset_to_report(queue))
        began_ms = self._clock.steady_ms()
        result = await self._broker.pull(question)
        if result.status is PullStatus.FOUND:
            self._state.speeds.pulled(
                queue.topic,
                count=len(result.messages),
                took_ms=self._clock.steady_ms() - began_ms,
                now_ms=self._clock.steady_ms(),
            )
        if question.commit_offset is not None and self._hooks.on_commit_answered is not None:
            self._hooks.on_commit_answered(queue, question.commit_offset)
        if window.dropped:
            return result.next_begin_offset
        if result.status is PullStatus.OFFSET_ILLEGAL:
            _log.warning(
                "%s: the broker moves this group to offset %d", queue, result.next_begin_offset
            )
            window.dropped = True
            self._state.offsets.update_and_freeze(queue, result.next_begin_offset)
            await self._hooks.on_offset_illegal(queue, window)
            return result.next_begin_offset
        wanted = self._wanted(result.messages, subscription)
        window.filtered_count += len(result.messages) - len(wanted)
        if wanted:
            self._hooks.on_messages(wanted, queue, window)
        elif window.count == 0:
            # Everything up to here was filtered: the group is past it, though no listener saw it.
            self._state.offsets.update(queue, result.next_begin_offset, increase_only=True)
        return result.next_begin_offset

    def _offset_to_report(self, queue: MessageQueue) -> int | None:
        if not self._state.is_clustering or not self._state.config.piggyback_commit:
            return None
        offset = self._state.offsets.in_memory(queue)
        return offset or None  # 0 is what the broker assumes anyway.

    def _wanted(self, messages: list[MessageExt], subscription: Subscription) -> list[MessageExt]:
        """The exact tag test (the broker's is by hash), then retried messages get their topic
        back.
        """
        messages = with_tags(messages, subscription.data.tags_set)
        for message in messages:
            if message.topic == self._retry_topic:
                message.topic = message.properties.get(PROPERTY_RETRY_TOPIC, message.topic)
        return messages

    async def _rest_after(self, error: TidemarkError, queue: MessageQueue) -> None:
        if isinstance(error, RequestRefused) and error.code == ResponseCode.FLOW_CONTROL:
            await asyncio.sleep(BROKER_BUSY_PAUSE_MS / 1000)
            return
        if queue.topic != self._retry_topic:
            _log.warning("pull of %s failed: %s", queue, error)
        await asyncio.sleep(self._state.config.pull_error_delay_ms / 1000)

    def _log_pause(self, queue: MessageQueue, window: ProcessQueue) -> None:
        _log.info(
            "pulling of %s pauses: %d messages, %d bytes, span %d, locked %s",
            *(queue, window.count, window.held_bytes, window.max_span, window.locked),
        )


def with_tags(messages: list[MessageExt], wanted: Collection[str]) -> list[MessageExt]:
    """The messages that carry one of these tags; all of them when none is named.

    The exact test behind the broker's by hash or bits; every consumer has to make it.
    """
    return [one for one in messages if carries_one(one, wanted)] if wanted else messages


def carries_one(message: MessageExt, wanted: Collection[str]) -> bool:
    """Does the message carry one of these tags? With MULTI_TAGS it may carry several."""
    if message.sys_flag & SysFlag.MULTI_TAGS:
        return any(tag in wanted for tag in split_tags(message.tags))
    return message.tags in wanted
