"""Pulls messages from all assigned queues, with at most one pull per queue at a time.

Place in the walk: the long-poll step.

A pull carries the consume offset with it, may be held by the broker while there is nothing to
answer, and its answer says where the next one begins. Before each pull the window is looked at: a
consumer that holds too much waits, and so does one that would consume too much again after a crash.

Invariant: the next pull begins where the broker said, so filtered messages are passed over, not
asked for again; a queue that was dropped puts nothing into its window any more. Absent on purpose:
offsets of consumed messages; the window and its listener know those. Row B3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Protocol

from engine.client.consuming.consume_stats import FlowControl
from engine.client.consuming.group_state import GroupState, Subscription
from engine.client.consuming.process_queue import ProcessQueue
from engine.client.consuming.pull_service import PullMessageService, PullRequest
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
LOOK_EACH_MS = 5 * SECOND_MS
"""How often a queue that rests is asked whether it goes on elsewhere."""
PAUSED_MS = 1 * SECOND_MS
LOCK_WAIT_MS = 3 * SECOND_MS
BROKER_BUSY_PAUSE_MS = 20
HELD_COUNTED_MS = 1 * SECOND_MS
"""A topic's share of `topic_messages_max` follows its queues so late; counting them at each pull
would take the square of them.
"""
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
    is_look: bool = False
    """It asks for no message: has the broker something else to say of the offset?"""


OnPulled = Callable[[PullResult | TidemarkError], None]
"""Hears what became of a pull: its answer, or why there is no usable one."""


class BrokerPulls(Protocol):
    """The broker's side of a pull."""

    def begin_pull(self, question: PullQuestion, on_pulled: OnPulled) -> None:
        """Ask once and go on; `on_pulled` is called later, once. The broker may hold the pull."""
        ...


@dataclass(slots=True)
class PullHooks:
    """Callbacks for what a pull brought."""

    on_messages: Callable[[list[MessageExt], MessageQueue, ProcessQueue], None]
    """Messages that passed the tag test; they have to be put into the window and given to the
    listener.
    """
    on_offset_illegal: Callable[[MessageQueue], None]
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
        self._service = PullMessageService(self._pull)
        self._held_of: dict[str, tuple[int, int]] = {}
        """Topic → when its held queues were counted, and how many they were."""

    async def run(self) -> None:
        """Pull what was taken up, until cancelled; nothing is pulled after that."""
        await self._service.run()

    def take_up(self, queue: MessageQueue, window: ProcessQueue, first_offset: int) -> None:
        """Pull `queue` from `first_offset` on, until its window is dropped."""
        self._service.put(PullRequest(queue, window, first_offset))

    def _pull(self, request: PullRequest) -> None:
        """Begin the next pull of a queue, or let it rest."""
        queue, window = request.queue, request.window
        now_ms = window.last_pull_ms = self._clock.steady_ms()
        pause_ms = self._pause_ms(queue, window, now_ms)
        if pause_ms:
            request.pauses += 1
            if request.pauses % FLOW_CONTROL_LOG_EACH == 1:
                self._log_pause(queue, window)
            if window.resting is None or not self._looks(request, now_ms):
                self._service.put(request, after_ms=pause_ms)
            return
        request.pauses, request.looked_ms = 0, None
        subscription = self._state.subscriptions.get(queue.topic)
        if subscription is None:  # Unsubscribed; the next rebalance drops the queue.
            self._service.put(request, after_ms=PAUSED_MS)
            return
        question = PullQuestion(
            queue, subscription, request.next_offset, self._offset_to_report(queue)
        )
        self._broker.begin_pull(question, partial(self._pulled, request, question, now_ms))

    def _looks(self, request: PullRequest, now_ms: int) -> bool:
        """Ask now and then whether the queue goes on elsewhere, while it rests because it holds too
        much: a reset, or another life of its topic, is said in answer to a pull.
        """
        subscription = self._state.subscriptions.get(request.queue.topic)
        if request.looked_ms is None:
            request.looked_ms = now_ms
        if subscription is None or now_ms - request.looked_ms < LOOK_EACH_MS:
            return False
        request.looked_ms = now_ms
        question = PullQuestion(
            request.queue, subscription, request.next_offset, None, is_look=True
        )
        self._broker.begin_pull(question, partial(self._looked, request))
        return True

    def _looked(self, request: PullRequest, outcome: PullResult | TidemarkError) -> None:
        """Messages that a broker of RocketMQ answers all the same are left: pulled later."""
        if self._service.ended or request.window.dropped:
            return
        if isinstance(outcome, PullResult) and outcome.status is PullStatus.OFFSET_ILLEGAL:
            self._begin_elsewhere(request, outcome.next_begin_offset)
            return
        self._service.put(request, after_ms=FLOW_CONTROL_PAUSE_MS)

    def _pulled(
        self,
        request: PullRequest,
        question: PullQuestion,
        began_ms: int,
        outcome: PullResult | TidemarkError,
    ) -> None:
        """A pull has ended: what it brought is held, and the request goes back into the queue."""
        if self._service.ended:
            return
        if isinstance(outcome, TidemarkError):
            if not request.window.dropped:
                self._service.put(request, after_ms=self._rest_ms(outcome, request.queue))
            return
        if outcome.status is PullStatus.FOUND:
            now_ms = self._clock.steady_ms()
            self._state.speeds.pulled(
                request.queue.topic,
                count=len(outcome.messages),
                took_ms=now_ms - began_ms,
                now_ms=now_ms,
            )
        if question.commit_offset is not None and self._hooks.on_commit_answered is not None:
            self._hooks.on_commit_answered(request.queue, question.commit_offset)
        if request.window.dropped:
            return
        if outcome.status is PullStatus.OFFSET_ILLEGAL:
            self._begin_elsewhere(request, outcome.next_begin_offset)
            return
        self._hold(request, question.subscription, outcome)
        request.next_offset = outcome.next_begin_offset
        self._service.put(request, after_ms=self._state.config.pull_interval_ms)

    def _hold(self, request: PullRequest, subscription: Subscription, result: PullResult) -> None:
        """Give on what was wanted of an answer, and pass over the rest."""
        queue, window = request.queue, request.window
        wanted = self._wanted(result.messages, subscription)
        window.filtered_count += len(result.messages) - len(wanted)
        if wanted:
            self._hooks.on_messages(wanted, queue, window)
        elif window.count == 0:
            # Everything up to here was filtered: the group is past it, though no listener saw it.
            self._state.offsets.update(queue, result.next_begin_offset, increase_only=True)

    def _begin_elsewhere(self, request: PullRequest, offset: int) -> None:
        """The broker has no such offset: this window ends, and the queue begins where it says."""
        _log.warning("%s: the broker moves this group to offset %d", request.queue, offset)
        request.window.dropped = True
        self._state.offsets.update_and_freeze(request.queue, offset)
        self._hooks.on_offset_illegal(request.queue)

    def _pause_ms(self, queue: MessageQueue, window: ProcessQueue, now_ms: int) -> int:
        """How long this queue must not be pulled; 0: pull now."""
        config = self._state.config
        if self._state.paused:
            window.resting = None
            return PAUSED_MS
        why = window.resting = self._holds_too_much(queue, window)
        if why is not None:
            self._state.speeds.rested(
                queue.topic, why, rest_ms=FLOW_CONTROL_PAUSE_MS, now_ms=now_ms
            )
            return FLOW_CONTROL_PAUSE_MS
        if config.orderly and self._state.is_clustering and not window.locked:
            return LOCK_WAIT_MS
        return 0

    def _holds_too_much(self, queue: MessageQueue, window: ProcessQueue) -> FlowControl | None:
        config = self._state.config
        if window.count > self._queue_messages_max(queue.topic):
            return FlowControl.COUNT
        if window.held_bytes > config.queue_bytes_max:
            return FlowControl.BYTES
        # In order nothing is handed out beyond the head but the rest of its batch, which may be
        # given up while the head comes again.
        beyond = window.finished_count if config.orderly else window.uncommitted_count
        if beyond > config.queue_span_max:
            return FlowControl.SPAN
        return None

    def _queue_messages_max(self, topic: str) -> int:
        config = self._state.config
        if config.topic_messages_max is None:
            return config.queue_messages_max
        now_ms = self._clock.steady_ms()
        counted_ms, held = self._held_of.get(topic, (now_ms - HELD_COUNTED_MS, 0))
        if now_ms - counted_ms >= HELD_COUNTED_MS:
            held = sum(1 for queue in self._state.windows if queue.topic == topic)
            self._held_of[topic] = (now_ms, held)
        return max(config.topic_messages_max // max(held, 1), 1)

    def _offset_to_report(self, queue: MessageQueue) -> int | None:
        if not self._state.is_clustering or not self._state.config.piggyback_commit:
            return None
        offset = self._state.offsets.in_memory(queue)
        return offset or None  # 0 is what the broker assumes anyway.

    def _wanted(self, messages: list[MessageExt], subscription: Subscription) -> list[MessageExt]:
        """The exact tag test (the broker's is by hash); retried messages get their topic back."""
        messages = with_tags(messages, subscription.data.tags_set)
        for message in messages:
            if message.topic == self._retry_topic:
                message.topic = message.properties.get(PROPERTY_RETRY_TOPIC, message.topic)
        return messages

    def _rest_ms(self, error: TidemarkError, queue: MessageQueue) -> int:
        if isinstance(error, RequestRefused) and error.code == ResponseCode.FLOW_CONTROL:
            return BROKER_BUSY_PAUSE_MS
        if queue.topic != self._retry_topic:
            _log.warning("pull of %s failed: %s", queue, error)
        return self._state.config.pull_error_delay_ms

    def _log_pause(self, queue: MessageQueue, window: ProcessQueue) -> None:
        _log.info(
            "pulling of %s pauses: %d messages, %d bytes, %d behind the head, locked %s",
            *(queue, window.count, window.held_bytes, window.uncommitted_count, window.locked),
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
