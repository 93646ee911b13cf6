"""Schedules a client's pull requests, both immediate and postponed.

Place in the walk: the long-poll step; RocketMQ's PullMessageService.

Every held queue has one pull request, which is in one place at a time: it waits for its turn, it
rests until a time, or it is under way at a broker, whose answer calls back and puts it in again.
One task takes them one after the other and waits for none of them, so ten thousand held queues are
as many small objects. A task for each takes 2.5 KiB more a queue, and a stop has to cancel them
all.

Invariant: requests that are due are taken in the order in which they came; nothing is taken once
`run` has ended, and with it end the times of those that rest. Absent on purpose: what to ask and
what an answer means; `pull` is its owner's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from engine.client.consuming.process_queue import ProcessQueue
from engine.foundation.units import SECOND_MS
from engine.protocol.message import MessageQueue

PULLS_A_TURN: Final = 64
"""Pulls sent before whatever else the loop has to do comes again: some 3 ms of work."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class PullRequest:
    """One held queue, as pulling sees it."""

    queue: MessageQueue
    window: ProcessQueue
    next_offset: int
    """Where its next pull begins."""
    pauses: int = 0
    """How often it had to rest since its last pull, for the window's or the consumer's sake."""
    looked_ms: int | None = None
    """Since when it rests, or when it was asked last whether it goes on elsewhere; steady time."""


class PullMessageService:
    """The requests of one client."""

    def __init__(self, pull: Callable[[PullRequest], None]) -> None:
        """`pull` begins one pull without waiting and sees to it that the request is put in again,
        unless its window was dropped.
        """
        self._pull = pull
        self._due: deque[PullRequest] = deque()
        self._resting: list[tuple[float, int, PullRequest]] = []
        """A heap: when it is due (seconds of the loop), the how manieth to rest, the request."""
        self._rested_count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._arrived = asyncio.Event()
        self.ended = False
        """Is nothing pulled any more? Answers that come now are nobody's."""

    def put(self, request: PullRequest, *, after_ms: int = 0) -> None:
        """Pull this queue when its turn comes; with `after_ms` it rests for so long before."""
        if self.ended:
            return
        if after_ms:
            self._rest(request, after_ms)
        else:
            self._due.append(request)
            self._arrived.set()

    async def run(self) -> None:
        """Take what is due, until cancelled."""
        try:
            while True:
                await self._arrived.wait()
                for _ in range(min(len(self._due), PULLS_A_TURN)):
                    self._take(self._due.popleft())
                if self._due:
                    await asyncio.sleep(0)
                else:
                    self._arrived.clear()
        finally:
            self._end()

    def _take(self, request: PullRequest) -> None:
        if request.window.dropped:
            return
        try:
            self._pull(request)
        except Exception:  # noqa: BLE001 - whatever it is, it is this queue's alone.
            # The others go on; this queue is taken up anew once nobody has pulled it for long.
            _log.exception("pull of %s ended by an error", request.queue)

    def _rest(self, request: PullRequest, after_ms: int) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + after_ms / SECOND_MS
        self._rested_count += 1
        heappush(self._resting, (due_s, self._rested_count, request))
        if self._resting[0][2] is request:
            self._wake_at(due_s)

    def _wake_at(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due_s, self._rested, due_s)

    def _rested(self, until_s: float) -> None:
        self._timer = None
        resting = self._resting
        while resting and resting[0][0] <= until_s:
            self.put(heappop(resting)[2])
        if resting:
            self._wake_at(resting[0][0])

    def _end(self) -> None:
        self.ended = True
        if self._timer is not None:
            self._timer.cancel()
        self._due.clear()
        self._resting.clear()
