"""Shared by both consume services: running listener calls, and the wait for them at a stop.

Invariant: after `stop` nothing new may begin; a caller checks `stopping` first. Absent on purpose:
cancelling. A listener that outlasts the wait is ended with its task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from engine.client.connection.owned_tasks import (
    WORKING_FOR,
    OwnedTasks,
    stack_of,
    thread_frames,
)
from engine.client.consuming.group_state import GroupState
from engine.client.consuming.listeners import ConsumeContext, ListenerOutcome, call_listener
from engine.protocol.bodies import ListenerPool
from engine.protocol.message import MessageExt, MessageQueue
from engine.runtime.clock import Clock

_log = logging.getLogger(__name__)


class BusyListeners:
    """The count of one consume service."""

    def __init__(self) -> None:
        self._count = 0
        self._calls: dict[asyncio.Task[Any], tuple[MessageQueue, Sequence[MessageExt]]] = {}
        """What each task has in a listener."""
        self._all_idle = asyncio.Event()
        self._all_idle.set()
        self.stopping = False
        """Was `stop` called?"""

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """A listener is at work inside."""
        self._count += 1
        self._all_idle.clear()
        try:
            yield
        finally:
            self._count -= 1
            if self._count == 0:
                self._all_idle.set()

    @property
    def listening_count(self) -> int:
        """Listener calls under way."""
        return len(self._calls)

    @contextmanager
    def listening(self, queue: MessageQueue, messages: Sequence[MessageExt]) -> Iterator[None]:
        """These messages are in a listener inside, called by this task."""
        task = asyncio.current_task()
        assert task is not None, "listeners are called by tasks"
        self._calls[task] = (queue, messages)
        mark = WORKING_FOR.set(task)
        try:
            yield
        finally:
            WORKING_FOR.reset(mark)
            del self._calls[task]

    def head_stacks(self, heads: Mapping[MessageQueue, int]) -> dict[MessageQueue, str]:
        """Where the listeners stand that have these queues' messages at these offsets."""
        frames = thread_frames()
        found: dict[MessageQueue, str] = {}
        for task, (queue, messages) in self._calls.items():
            offset = heads.get(queue)
            if offset is not None and any(one.queue_offset == offset for one in messages):
                stack = stack_of(task, frames)
                if stack is not None:
                    found[queue] = stack
        return found

    async def stop(self, wait_ms: int) -> bool:
        """Let nothing new begin and wait for listeners at work; False when some did not end in
        time.
        """
        self.stopping = True
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._all_idle.wait()
        except TimeoutError:
            _log.warning("%d listeners still at work after %d ms", self._count, wait_ms)
            return False
        return True


@dataclass(slots=True, eq=False)
class ConsumeService:
    """Listener calls of one consumer, at most `consume_concurrency` at a time."""

    state: GroupState
    clock: Clock
    tasks: OwnedTasks
    _waiting: asyncio.Queue[Any] = field(default_factory=asyncio.Queue, init=False)
    """What waits for a listener; bounded by the windows: pulling pauses while one holds too much,
    and a queue has a session and its delayed continuation at most.
    """
    _busy: BusyListeners = field(default_factory=BusyListeners, init=False)

    async def stop(self, wait_ms: int) -> bool:
        """Begin nothing new and wait for listeners at work; False when some did not end in time."""
        return await self._busy.stop(wait_ms)

    def pool(self) -> ListenerPool:
        """How many listeners there are, are at work, and how many batches or queues wait."""
        slots = self.state.config.consume_concurrency
        return ListenerPool(
            slots, self._busy.listening_count, self._waiting.qsize(), self.state.paused
        )

    def head_stacks(self, heads: Mapping[MessageQueue, int]) -> dict[MessageQueue, str]:
        """See `BusyListeners.head_stacks`."""
        return self._busy.head_stacks(heads)

    async def consume_directly(self, message: MessageExt, queue: MessageQueue) -> ListenerOutcome:
        """Give one message to the listener at an operator's wish; window and offset stay."""
        listener = self.state.listener_for(message.topic)
        return await call_listener(listener, [message], ConsumeContext(queue))
