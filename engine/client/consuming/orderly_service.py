"""Passes each queue's messages to the listener strictly in order.

Place in the walk: between process queue and listener.

A queue is consumed in sessions: batch after batch from the front of its window, until the window is
empty, a batch fails or the queue has to give way to others. In a clustering group the broker's
order lock on the queue must be held and fresh. A failed batch stays at the front and the queue
rests; a message that failed too often goes to the retry topic's dead end, and leaves the window
also when others of its batch come again: RocketMQ's client gives it up anew each round.

Invariant: at most one batch of a queue is in a listener, also across a queue's loss and return.
Absent on purpose: taking and renewing locks, which `queue_locks` does on a timer. Row B7.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field

from engine.client.consuming.busy_listeners import ConsumeService
from engine.client.consuming.listeners import (
    LISTENER_TASK,
    ConsumeContext,
    ListenerOutcome,
    call_traced,
)
from engine.client.consuming.process_queue import ProcessQueue
from engine.foundation.units import SECOND_MS
from engine.protocol.message import MessageExt, MessageQueue

_log = logging.getLogger(__name__)

GIVE_WAY_MS = 10
"""Pause of a queue that gave way to others, or got its lock back."""

LOCK_MISSING_MS = 100
"""Pause before the lock of a session's queue is asked for."""

LOCK_REFUSED_MS = 3 * SECOND_MS
"""Pause after the broker refused the lock."""

SUSPEND_MS_MIN, SUSPEND_MS_MAX = 10, 30 * SECOND_MS

LockQueue = Callable[[MessageQueue, ProcessQueue], Awaitable[bool]]
"""Asks the broker for the order lock of one queue."""

SendToRetryTopic = Callable[[MessageExt], Awaitable[bool]]
"""Gives up on a message: sends it to the retry topic, where the broker lays it into the dead-letter
queue.
"""


@dataclass(slots=True, eq=False)
class OrderlyService(ConsumeService):
    """A consume service that takes queues in sessions."""

    _: KW_ONLY
    lock_queue: LockQueue
    give_up: SendToRetryTopic
    _order: dict[MessageQueue, asyncio.Lock] = field(default_factory=dict, init=False)

    def start(self) -> None:
        """Begin to take sessions."""
        for number in range(self.state.config.consume_concurrency):
            self.tasks.start(self._work(), f"orderly {LISTENER_TASK} {number}")

    def submit(self, queue: MessageQueue, window: ProcessQueue) -> None:
        """Start a session, because `window.put` said that none is under way."""
        self._waiting.put_nowait((queue, window))

    async def batch_ended(self, queue: MessageQueue, wait_ms: int) -> bool:
        """Wait until no batch of `queue` is in a listener; False when one is after `wait_ms`."""
        order = self._order.get(queue)
        if order is None or not order.locked():
            return True
        try:
            async with asyncio.timeout(wait_ms / 1000):
                async with order:
                    return True
        except TimeoutError:
            return False

    async def _work(self) -> None:
        while not self._busy.stopping:
            queue, window = await self._waiting.get()
            if self._busy.stopping or window.dropped:
                continue
            with self._busy.one_more():
                async with self._order.setdefault(queue, asyncio.Lock()):
                    await self._session(queue, window)

    async def _session(self, queue: MessageQueue, window: ProcessQueue) -> None:
        began_ms = self.clock.steady_ms()
        while not self._busy.stopping and not window.dropped:
            if self._is_lock_missing(window):
                self.tasks.start(self._lock_and_continue(queue, window), f"lock {queue}")
                return
            if self.clock.steady_ms() - began_ms > self.state.config.continuous_consume_ms:
                self._continue_later(queue, window, GIVE_WAY_MS)
                return
            batch_max = self._batch_max(window)
            batch = window.take(batch_max, self.clock.steady_ms())
            if not batch:
                return
            context = ConsumeContext(queue)
            outcome = await self._listen(batch, context, window)
            if not await self._finish(batch, context, window, outcome=outcome):
                return

    def _batch_max(self, window: ProcessQueue) -> int:
        """A batch goes to one listener, so it ends where the topic changes (a retry queue mixes
        topics).
        """
        return window.same_topic_count(self.state.config.consume_batch_max)

    async def _listen(
        self, batch: Sequence[MessageExt], context: ConsumeContext, window: ProcessQueue
    ) -> ListenerOutcome:
        began_ms = self.clock.steady_ms()
        try:
            listener = self.state.listener_for(batch[0].topic)
            with self._busy.listening(context.queue, batch):
                outcome = await call_traced(self.state.tracer, listener, batch, context)
        except asyncio.CancelledError:
            window.roll_back_taken()
            raise
        self.state.speeds.consumed(
            context.queue.topic,
            succeeded=len(batch) if outcome.succeeded else 0,
            failed=0 if outcome.succeeded else len(batch),
            took_ms=self.clock.steady_ms() - began_ms,
            now_ms=self.clock.steady_ms(),
        )
        return outcome

    async def _finish(
        self,
        batch: Sequence[MessageExt],
        context: ConsumeContext,
        window: ProcessQueue,
        *,
        outcome: ListenerOutcome,
    ) -> bool:
        """Commit the batch, or put it back and let the queue rest; True: the session may go on."""
        again = [] if outcome.succeeded else await self._to_come_again(batch)
        if again:
            window.consume_again(again)
            self._report(context.queue, window, window.give_up_taken())
            rest_ms = context.suspend_queue_ms
            if rest_ms is None:
                rest_ms = self.state.config.suspend_queue_ms
            self._continue_later(
                context.queue, window, min(max(rest_ms, SUSPEND_MS_MIN), SUSPEND_MS_MAX)
            )
            return False
        self._report(context.queue, window, window.commit_taken())
        return True

    def _report(self, queue: MessageQueue, window: ProcessQueue, offset: int | None) -> None:
        """Note a consume offset. A queue given away stays ours to report while we hold its lock:
        nobody else reads it before we let go.
        """
        if offset is not None and (not window.dropped or window.locked):
            self.state.offsets.update(queue, offset, increase_only=False)

    async def _to_come_again(self, batch: Sequence[MessageExt]) -> list[MessageExt]:
        """Count the failure; those that come again. A message that failed too often is given up,
        once, and alone does not hold the queue.
        """
        again: list[MessageExt] = []
        for message in batch:
            if message.reconsume_times >= self.state.max_reconsume_times:
                given_up = await self.give_up(message)
                if given_up:
                    continue
            message.reconsume_times += 1
            again.append(message)
        return again

    def _is_lock_missing(self, window: ProcessQueue) -> bool:
        if not self.state.is_clustering:
            return False
        return not window.locked or window.is_lock_expired(self.clock.steady_ms())

    async def _lock_and_continue(self, queue: MessageQueue, window: ProcessQueue) -> None:
        await asyncio.sleep(LOCK_MISSING_MS / 1000)
        if window.dropped:
            return
        locked = await self.lock_queue(queue, window)
        await asyncio.sleep((GIVE_WAY_MS if locked else LOCK_REFUSED_MS) / 1000)
        self.submit(queue, window)

    def _continue_later(self, queue: MessageQueue, window: ProcessQueue, delay_ms: int) -> None:
        self.tasks.start(self._submit_after(queue, window, delay_ms), f"continue {queue}")

    async def _submit_after(self, queue: MessageQueue, window: ProcessQueue, delay_ms: int) -> None:
        await asyncio.sleep(delay_ms / 1000)
        self.submit(queue, window)
