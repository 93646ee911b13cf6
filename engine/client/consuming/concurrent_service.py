"""Passes pulled messages to the listener concurrently, in no particular order.

Place in the walk: between process queue and listener.

A finished message leaves its window, which answers the offset that is now safe. A failed one goes
back to the broker, to come again later through the retry topic; when the broker does not take it,
it stays in the window and the listener gets it again here. Broadcast consumers have no retry: a
failed message is logged and passed over.

Invariant: a message leaves its window only when its listener succeeded or the broker has taken it
back. Absent on purpose: threads; a listener that blocks the loop blocks the client. Row A11.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from engine.client.consuming.busy_listeners import ConsumeService
from engine.client.consuming.listeners import (
    LISTENER_TASK,
    ConsumeContext,
    acknowledged_count,
    call_traced,
)
from engine.client.consuming.process_queue import ProcessQueue
from engine.foundation.units import MINUTE_MS
from engine.protocol.message import MessageExt, MessageQueue

_log = logging.getLogger(__name__)

EXPIRED_PER_ROUND_MAX = 16
"""Messages of one window that one round of supervision sends back."""

EXPIRED_DELAY_LEVEL = 3
"""Level of the next try of a message that was too long in its listener (10 s)."""

SendBack = Callable[[MessageExt, int, MessageQueue], Awaitable[bool]]
"""Gives a message back to the broker with a delay level; False when neither way of doing so worked.
"""


@dataclass(slots=True)
class ConsumeRequest:
    """Messages of one queue for one listener call."""

    messages: list[MessageExt]
    window: ProcessQueue
    queue: MessageQueue


@dataclass(slots=True, eq=False)
class ConcurrentService(ConsumeService):
    """A consume service that takes batches as they come."""

    send_back: SendBack

    def start(self) -> None:
        """Begin to take requests."""
        for number in range(self.state.config.consume_concurrency):
            self.tasks.start(self._work(), f"{LISTENER_TASK} {number}")
        self.tasks.start(self._send_back_expired(), "expired messages")

    def submit(
        self, messages: Sequence[MessageExt], window: ProcessQueue, queue: MessageQueue
    ) -> None:
        """Hand over messages just put into `window`; cut into batches of one topic each."""
        for batch in _batches(messages, self.state.config.consume_batch_max):
            self._waiting.put_nowait(ConsumeRequest(batch, window, queue))

    async def _work(self) -> None:
        while not self._busy.stopping:
            request = await self._waiting.get()
            if self._busy.stopping or request.window.dropped:
                continue
            with self._busy.one_more():
                await self._consume(request)

    async def _consume(self, request: ConsumeRequest) -> None:
        messages, window = request.messages, request.window
        window.mark_started((m.queue_offset for m in messages), self.clock.steady_ms())
        context = ConsumeContext(request.queue)
        listener = self.state.listener_for(messages[0].topic)
        began_ms = self.clock.steady_ms()
        with self._busy.listening(request.queue, messages):
            outcome = await call_traced(self.state.tracer, listener, messages, context)
        succeeded = acknowledged_count(outcome, context, len(messages))
        self.state.speeds.consumed(
            request.queue.topic,
            succeeded=succeeded,
            failed=len(messages) - succeeded,
            took_ms=self.clock.steady_ms() - began_ms,
            now_ms=self.clock.steady_ms(),
        )
        if window.dropped:
            _log.info(
                "%s was given away while its listener worked; %d messages may be consumed again",
                *(request.queue, len(messages)),
            )
            return
        kept = await self._give_back(request, messages[succeeded:], context)
        self._finish(request, [m for m in messages if m.queue_offset not in kept])
        if kept:
            again = [m for m in messages if m.queue_offset in kept]
            window.mark_ended(m.queue_offset for m in again)
            self.tasks.start(
                self._consume_later(ConsumeRequest(again, window, request.queue)), "consume again"
            )

    async def _give_back(
        self, request: ConsumeRequest, failed: Sequence[MessageExt], context: ConsumeContext
    ) -> frozenset[int]:
        """Send failed messages back; answer the offsets of those that have to stay."""
        if failed and not self.state.is_clustering:
            for message in failed:
                _log.warning("broadcast message %s failed, it is passed over", message.message_id)
            return frozenset()
        kept = []
        for message in failed:
            if not request.window.holds(message.queue_offset):
                continue  # Sent back already, because it was too long in its listener.
            level = context.delay_level_when_next_consume
            if not await self.send_back(message, level, request.queue):
                message.reconsume_times += 1
                kept.append(message.queue_offset)
                request.window.local_retries.append(
                    (
                        self.clock.now_ms(),
                        message.message_id,
                        message.queue_offset,
                        message.reconsume_times,
                    )
                )
        return frozenset(kept)

    def _finish(self, request: ConsumeRequest, finished: Iterable[MessageExt]) -> None:
        safe = request.window.remove((m.queue_offset for m in finished), self.clock.steady_ms())
        if safe is not None and not request.window.dropped:
            self.state.offsets.update(request.queue, safe, increase_only=True)

    async def _consume_later(self, request: ConsumeRequest) -> None:
        await asyncio.sleep(self.state.config.send_back_retry_ms / 1000)
        self._waiting.put_nowait(request)

    async def _send_back_expired(self) -> None:
        timeout_ms = self.state.config.consume_timeout_ms
        while True:
            await asyncio.sleep(min(timeout_ms, MINUTE_MS) / 1000)
            for queue, window in list(self.state.windows.items()):
                if not window.dropped and self.state.is_clustering:
                    await self._send_back_expired_of(queue, window, timeout_ms)

    async def _send_back_expired_of(
        self, queue: MessageQueue, window: ProcessQueue, timeout_ms: int
    ) -> None:
        for _ in range(EXPIRED_PER_ROUND_MAX):
            message = window.expired_head(self.clock.steady_ms(), timeout_ms)
            if message is None:
                return
            if not await self.send_back(message, EXPIRED_DELAY_LEVEL, queue):
                return
            _log.warning("%s of %s was too long in its listener", message.message_id, queue)
            if window.holds(message.queue_offset):
                self._finish(ConsumeRequest([message], window, queue), [message])


def _batches(messages: Sequence[MessageExt], batch_max: int) -> list[list[MessageExt]]:
    """Neighbouring messages of one topic, at most `batch_max` each; a retry queue mixes topics."""
    batches: list[list[MessageExt]] = []
    for message in messages:
        if batches and len(batches[-1]) < batch_max and batches[-1][0].topic == message.topic:
            batches[-1].append(message)
        else:
            batches.append([message])
    return batches
