"""Delays the first pull from a newly assigned queue until the rebalance has settled.

Place in the walk: between rebalance and the long-poll step.

Members that start together divide the queues again with each that joins, and rounds are a second
apart. A member that pulled at once would consume what the next round gives to another one, which
would begin where the offset stood before. So a first pull waits a moment, and for the round that
somebody has asked for since; then it begins where the offset stands by now, which the previous
owner has reported meanwhile.

Invariant: a stored offset wins over what was believed when the queue was taken up; a queue waits
for one further round at most, however often the group changes. One task serves all queues. Absent
on purpose: later pulls.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from engine.client.consuming.group_state import GroupState
from engine.client.consuming.offset_store import ReadOffset
from engine.client.consuming.process_queue import ProcessQueue
from engine.foundation.errors import TidemarkError
from engine.foundation.units import SECOND_MS
from engine.protocol.message import MessageQueue
from engine.runtime.clock import Clock

_log = logging.getLogger(__name__)


class Rounds(Protocol):
    """The rebalances of this member."""

    @property
    def round(self) -> int:
        """Names the present round, or the last one."""
        ...

    async def settled(self, taken_up_in: int) -> None:
        """Wait for the round after that one, if somebody has asked for it and it has not ended."""
        ...


@dataclass(slots=True)
class _TakenUp:
    queue: MessageQueue
    window: ProcessQueue
    first_offset: int
    due_ms: int
    in_round: int


@dataclass(slots=True, eq=False)
class FirstPulls:
    """The queues of one member that nobody has pulled yet, in the order of their taking up.

    `begin` pulls a queue from an offset on.
    """

    state: GroupState
    clock: Clock
    rounds: Rounds
    begin: Callable[[MessageQueue, ProcessQueue, int], None]
    _waiting: deque[_TakenUp] = field(default_factory=deque, init=False)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _silent: dict[str, int] = field(default_factory=dict, init=False)
    """Brokers that returned no offset, and in which round their queue was taken up."""

    def put(self, queue: MessageQueue, window: ProcessQueue, first_offset: int) -> None:
        """A queue was taken up; `first_offset` is where it begins as far as is known now."""
        due_ms = self.clock.steady_ms() + self.state.config.first_pull_delay_ms
        taken_up = _TakenUp(queue, window, first_offset, due_ms, self.rounds.round)
        if self._is_handed_over:
            # Until it is read again nothing may be reported: its last owner may still do so.
            self.state.offsets.remove(queue)
        self._waiting.append(taken_up)
        self._arrived.set()

    async def run(self) -> None:
        """Begin one queue after the other, until cancelled."""
        while True:
            await self._arrived.wait()
            while self._waiting:
                await self._begin_one(self._waiting.popleft())
            self._arrived.clear()

    @property
    def _is_handed_over(self) -> bool:
        """May another member have the queue still? In order only its lock's holder reads it."""
        return self.state.is_clustering and not self.state.config.orderly

    async def _begin_one(self, one: _TakenUp) -> None:
        wait_ms = one.due_ms - self.clock.steady_ms()
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / SECOND_MS)
        if self.state.is_clustering:
            await self._settled(one)
        offset = one.first_offset
        if self._is_handed_over and not one.window.dropped:
            offset = await self._offset_by_now(one)
        if not one.window.dropped:
            self.begin(one.queue, one.window, offset)

    async def _settled(self, one: _TakenUp) -> None:
        """No longer than two rounds are apart, whatever a round waits for."""
        until_ms = one.due_ms + 2 * self.state.config.rebalance_retry_ms
        try:
            async with asyncio.timeout((until_ms - self.clock.steady_ms()) / SECOND_MS):
                await self.rounds.settled(one.in_round)
        except TimeoutError:
            pass  # Another member may read it as well for a moment, as it may anyway.

    async def _offset_by_now(self, one: _TakenUp) -> int:
        if self._silent.get(one.queue.broker_name) == one.in_round:
            return one.first_offset  # The others are not to wait for it again and again.
        try:
            stored = await self.state.offsets.read(one.queue, ReadOffset.READ_FROM_STORE)
        except TidemarkError as error:
            _log.warning(
                "%s begins at offset %d, as far as is known: %s", one.queue, one.first_offset, error
            )
            self._silent[one.queue.broker_name] = one.in_round
            return one.first_offset
        return one.first_offset if stored is None else stored
