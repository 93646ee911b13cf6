"""Tracks slave acknowledgements and completes the puts that wait for them.

Place in the walk: `ha_service` notes what each slave reports; a SYNC_MASTER's puts wait here, as
one of the conditions under which a put is safe.

Invariant: an end counts when so many slaves that were sent it, each on its present connection, have
reported it. Puts between two sendings share a waiter. Absent on purpose: terms; whoever cuts the
log, or steps down, calls `forget_all`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from engine.store import GroupCommit


class Acknowledgements:
    """What the slaves of one master have."""

    def __init__(self, *, timeout_ms: int, needed: int = 0) -> None:
        """`needed`: slaves that a put waits for, 0 for none."""
        self.needed = needed
        self.timeout_ms = timeout_ms
        self.on_wait: Callable[[], None] = lambda: None
        """Called in the step of a put that has to wait: its bytes are to be sent."""
        self._ends: dict[object, int] = {}
        self._waiting: deque[tuple[int, GroupCommit]] = deque()
        self._open: GroupCommit | None = None
        self._common = 0
        self.replicated_end: int | None = None
        """The end that as many slaves as are waited for have had, one at least; None: none has."""

    def when_met(self, term: int, end_offset: int) -> GroupCommit | None:
        """Settles True when enough slaves have the log up to there; None: they have, or none is
        waited for. Hot.
        """
        del term
        if not self.needed or end_offset <= self._common:
            return None
        if self._open is None:
            self._settle()
            self._open = GroupCommit(asyncio.get_running_loop(), self.timeout_ms)
            self._waiting.append((end_offset, self._open))
            self.on_wait()
        else:
            self._waiting[-1] = (max(end_offset, self._waiting[-1][0]), self._open)
        return self._open

    def close_turn(self) -> None:
        """What was put so far is sent: later puts wait for themselves."""
        self._open = None

    def note(self, replica: object, end_offset: int) -> None:
        """This slave has the log up to there."""
        self._ends[replica] = end_offset
        self._common = self._common_end()
        reached = self._common if self.needed else max(self._ends.values())
        if reached:
            self.replicated_end = max(reached, self.replicated_end or 0)
        self._settle()

    def forget(self, replica: object) -> None:
        """This slave is not connected any more."""
        self._ends.pop(replica, None)
        self._common = self._common_end()

    def forget_all(self) -> None:
        """The log was cut, or somebody else leads: what slaves reported says nothing any more, and
        whoever waits waits in vain.
        """
        self._ends.clear()
        self._common, self.replicated_end = 0, None
        self._open = None
        waiting, self._waiting = self._waiting, deque()
        for _, commit in waiting:
            commit.settle(False)

    def _settle(self) -> None:
        """Those that wait no more: what they wait for has come, or their time is over."""
        waiting = self._waiting
        while waiting and (waiting[0][0] <= self._common or waiting[0][1].done()):
            _, commit = waiting.popleft()
            if commit is self._open:
                self._open = None
            commit.settle(True)

    def _common_end(self) -> int:
        """The end that at least `needed` slaves have; 0 while they are not so many."""
        if not self.needed or len(self._ends) < self.needed:
            return 0
        return sorted(self._ends.values(), reverse=True)[self.needed - 1]
