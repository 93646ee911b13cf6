"""Acquires and renews broker order locks so that only one member reads each queue.

A clustering member reads a queue in order only while the broker has given it to this member alone.

The broker leases a lock for 60 s; the member renews each 20 s and stops trusting a lock after 30 s
without renewal (row B7), so two members never read a queue in order at
the same time.

Invariant: `window.locked` is True only after the broker granted the lock. Absent on purpose:
consuming and rebalancing, which ask here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from engine.client.consuming.group_state import GroupState
from engine.client.consuming.process_queue import ProcessQueue
from engine.foundation.errors import TidemarkError
from engine.foundation.units import SECOND_MS
from engine.protocol.message import MessageQueue
from engine.runtime.clock import Clock

_log = logging.getLogger(__name__)

FIRST_LOCK_MS = 1 * SECOND_MS
"""Milliseconds until the first timed renewal."""


class BrokerLocks(Protocol):
    """The broker's side of the locks."""

    async def lock(self, broker_name: str, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        """Ask for locks; answers those granted.

        Raises TidemarkError when the broker cannot be asked.
        """
        ...

    async def unlock(self, broker_name: str, queues: Sequence[MessageQueue]) -> None:
        """Let go of locks.

        Raises TidemarkError when the broker cannot be reached; the lease then ends by itself.
        """
        ...


class QueueLocks:
    """The locks of one member."""

    def __init__(self, state: GroupState, clock: Clock, broker: BrokerLocks) -> None:
        self._state = state
        self._clock = clock
        self._broker = broker

    async def lock(self, queue: MessageQueue, window: ProcessQueue | None = None) -> bool:
        """Ask for one queue's lock; note it in its window. False when refused or not answered."""
        try:
            granted = await self._broker.lock(queue.broker_name, [queue])
        except TidemarkError as error:
            _log.warning("order lock of %s not answered: %s", queue, error)
            return False
        locked = queue in granted
        if window is not None:
            self._note(window, locked=locked)
        return locked

    async def unlock(self, queue: MessageQueue) -> None:
        """Let go of one queue's lock."""
        await self._unlock(queue.broker_name, [queue])

    async def keep(self) -> None:
        """Renew all locks again and again; runs until cancelled."""
        await asyncio.sleep(FIRST_LOCK_MS / 1000)
        while True:
            await self.lock_all()
            await asyncio.sleep(self._state.config.lock_ms / 1000)

    async def lock_all(self) -> None:
        """Renew the locks of all held queues, one request per broker."""
        for broker_name, queues in self._queues_by_broker().items():
            try:
                granted = await self._broker.lock(broker_name, queues)
            except TidemarkError as error:
                _log.warning("order locks of %s not renewed: %s", broker_name, error)
                continue
            for queue in queues:
                window = self._state.windows.get(queue)
                if window is None:
                    continue  # Given away while the request was under way.
                if queue not in granted:
                    _log.warning("order lock of %s is refused", queue)
                self._note(window, locked=queue in granted)

    async def unlock_all(self) -> None:
        """Let go of all locks."""
        for broker_name, queues in self._queues_by_broker().items():
            for queue in queues:
                self._state.windows[queue].locked = False
            await self._unlock(broker_name, queues)

    def _note(self, window: ProcessQueue, *, locked: bool) -> None:
        window.locked = locked
        if locked:
            window.last_lock_ms = self._clock.steady_ms()

    def _queues_by_broker(self) -> dict[str, list[MessageQueue]]:
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue, window in self._state.windows.items():
            if not window.dropped:
                by_broker.setdefault(queue.broker_name, []).append(queue)
        return by_broker

    async def _unlock(self, broker_name: str, queues: Sequence[MessageQueue]) -> None:
        try:
            await self._broker.unlock(broker_name, queues)
        except TidemarkError as error:
            _log.warning("order locks of %s not let go, their lease ends: %s", broker_name, error)
