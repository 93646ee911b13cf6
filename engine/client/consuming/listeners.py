"""Message listeners: their arguments, results and invocation.

A listener is an `async def` or a plain function. A plain function runs in the event loop: it must
not block, or the client misses heartbeats. Blocking work belongs into a coroutine that hands it to
an executor of its own.

Invariant: whatever a listener does, the answer is a status: None and any exception mean "again
later" (row A11). Absent on purpose: threads; windows and offsets, which
the two consume services own.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from engine.protocol.message import MessageExt, MessageQueue

_log = logging.getLogger(__name__)


class ConsumeConcurrentlyStatus(Enum):
    """Answer of a concurrent listener."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


class ConsumeOrderlyStatus(Enum):
    """Answer of an orderly listener."""

    SUCCESS = "SUCCESS"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


@dataclass(slots=True)
class ConsumeContext:
    """What a listener may read and set, as well as its answer."""

    queue: MessageQueue
    """Where the messages were pulled from; for retried ones a queue of the retry topic."""

    delay_level_when_next_consume: int = 0
    """Concurrent: level of the next try; 0 lets the broker decide, -1 sends to the dead-letter
    queue at once.
    """

    ack_index: int | None = None
    """Concurrent: index of the last message that succeeded; None: all of them. Counts with
    CONSUME_SUCCESS only.
    """

    suspend_queue_ms: int | None = None
    """Orderly: rest of the queue after a failed batch, 10 to 30 000 ms; None: the consumer's
    setting.
    """


LISTENER_TASK = "listener"
"""Part of the name of each task that runs listeners."""

ConsumeStatus = ConsumeConcurrentlyStatus | ConsumeOrderlyStatus
ListenerAnswer = ConsumeStatus | None
MessageListener = Callable[
    [Sequence[MessageExt], ConsumeContext], ListenerAnswer | Awaitable[ListenerAnswer]
]


@dataclass(slots=True)
class ListenerOutcome:
    """How a listener call ended."""

    succeeded: bool
    answer: ListenerAnswer = None
    error: Exception | None = None


class ConsumeTracer(Protocol):
    """Notes listener calls for the message trace; must neither raise nor wait."""

    def consuming(self, messages: Sequence[MessageExt]) -> Any:
        """A call begins; what is answered here is handed to `consumed`."""
        ...

    def consumed(self, begun: Any, outcome: ListenerOutcome) -> None:
        """The call that `begun` stands for has ended."""
        ...


async def call_traced(
    tracer: ConsumeTracer | None,
    listener: MessageListener,
    messages: Sequence[MessageExt],
    context: ConsumeContext,
) -> ListenerOutcome:
    """As `call_listener`, and traced when there is a tracer."""
    if tracer is None:
        return await call_listener(listener, messages, context)
    begun = tracer.consuming(messages)
    outcome = await call_listener(listener, messages, context)
    tracer.consumed(begun, outcome)
    return outcome


async def call_listener(
    listener: MessageListener, messages: Sequence[MessageExt], context: ConsumeContext
) -> ListenerOutcome:
    """Give `messages` to the listener; cancellation passes, every other end becomes an outcome."""
    try:
        answer = listener(messages, context)
        if inspect.isawaitable(answer):
            answer = await answer
    except Exception as error:  # noqa: BLE001 - user code may raise anything; it means "again later"
        first = messages[0]
        _log.warning(
            "listener raised for %s %s (queue offset %d): %r",
            *(context.queue.topic, first.message_id, first.queue_offset, error),
            exc_info=error,
        )
        return ListenerOutcome(succeeded=False, error=error)
    succeeded = answer in (ConsumeConcurrentlyStatus.CONSUME_SUCCESS, ConsumeOrderlyStatus.SUCCESS)
    return ListenerOutcome(succeeded, answer)


def acknowledged_count(outcome: ListenerOutcome, context: ConsumeContext, batch: int) -> int:
    """How many messages of a concurrent batch, from the front, count as consumed."""
    if not outcome.succeeded:
        return 0
    if context.ack_index is None:
        return batch
    return min(max(context.ack_index + 1, 0), batch)
