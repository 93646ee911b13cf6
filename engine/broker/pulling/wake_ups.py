"""Wakes held pulls and answers them in bounded steps.

Place in the walk: dispatch signals messages that became visible, a second has passed, the accounts
changed or the broker stops; a pull that leaves the hold table for that is answered here, soon.

Invariant: they are answered in the order in which they were woken; one step of the loop answers
LOOP_STEP_ANSWERS_MAX of them at most, fewer when their filters cost much. Absent on purpose: the
hold table (long_poll), what an answer says (handlers/pull).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from engine.broker.pulling.long_poll import HeldPull, HeldPulls
from engine.foundation.limits import FILTER_COST_MAX, LOOP_STEP_ANSWERS_MAX
from engine.foundation.units import SECOND_MS
from engine.store.record import DispatchRequest


class WakeUps:
    """Those of one broker."""

    def __init__(self, holds: HeldPulls) -> None:
        self._holds = holds
        self._woken: deque[HeldPull] = deque()

    def arrived(self, messages: Sequence[DispatchRequest]) -> None:
        """Dispatch made messages visible: wake who waits for them, once it is through."""
        if self._holds.count:
            self.wake(self._holds.all_arrived(messages))

    def wake(self, pulls: Sequence[HeldPull]) -> None:
        """Answer these soon."""
        if pulls and not self._woken:
            asyncio.get_running_loop().call_soon(self._answer)
        self._woken.extend(pulls)

    async def run(
        self, every_ms: int, steady_ms: Callable[[], int], max_offset: Callable[[str, int], int]
    ) -> None:
        """Answer held pulls whose time is up, and any that an arrival failed to wake, on the
        second; until cancelled.
        """
        interval_ms = min(every_ms, SECOND_MS)
        while True:
            await asyncio.sleep(interval_ms / SECOND_MS)
            for woken in self._holds.due(steady_ms(), max_offset):
                self.wake(woken)
                await asyncio.sleep(0)

    def wake_all(self) -> None:
        """Nobody is to wait any longer."""
        self.wake(self._holds.take_all())

    def answer_topic(self, topic: str) -> Iterator[None]:
        """The topic is being deleted: pulls on it wait for what never comes; in steps."""
        return self._woken_each(self._holds.take_topic(topic))

    def answer_group(self, group: str) -> Iterator[None]:
        """The group is being deleted: as `answer_topic`."""
        return self._woken_each(self._holds.take_group(group))

    def _woken_each(self, held: Iterator[list[HeldPull]]) -> Iterator[None]:
        for pulls in held:
            self.wake(pulls)
            yield

    async def finish(self) -> None:
        """Answer every held pull: the broker stops."""
        self.wake_all()
        while self._woken:
            self._answer()
            await asyncio.sleep(0)

    def _answer(self) -> None:
        """How many do not hold up the loop; the rest follow in its next pass."""
        cost_left = FILTER_COST_MAX
        for _ in range(min(len(self._woken), LOOP_STEP_ANSWERS_MAX)):
            pull = self._woken.popleft()
            pull.resume()
            cost_left -= pull.look_cost
            if cost_left <= 0:
                break
        if self._woken:
            asyncio.get_running_loop().call_soon(self._answer)
