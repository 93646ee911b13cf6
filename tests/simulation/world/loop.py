"""An asyncio event loop on virtual time that jumps to the next timer when it is idle.

It is asyncio's own SelectorEventLoop over a selector that has no sockets: `select(timeout)` adds
the timeout to the virtual time. Ready callbacks are shuffled by seed before each turn, which
explores interleavings that a real machine shows once a year. `select(None)` means that no timer
is left either: a deadlock, reported as such.

This is the one file that touches private parts of asyncio (`_ready`, `_run_once`, the self-pipe);
it is proven on 3.11 to 3.13. Absent on purpose: threads and sockets.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections import deque
from collections.abc import Mapping
from typing import Any


class SimulationDeadlock(AssertionError):
    """Every task waits for something that no timer will bring about."""


class _TimeSelector(selectors.BaseSelector):
    def __init__(self) -> None:
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise SimulationDeadlock("no callback is ready and no timer is set")
        if timeout > 0:
            self.now_s += timeout
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        raise AssertionError("simulated code opened a real socket")

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        raise AssertionError("simulated code closed a real socket")

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop; `time()` is virtual seconds since the run began."""

    def __init__(self, shuffle: random.Random) -> None:
        self._time = _TimeSelector()
        self._shuffle = shuffle
        self.turns = 0
        super().__init__(self._time)

    def time(self) -> float:
        return self._time.now_s

    def _make_self_pipe(self) -> None:
        self._ssock = self._csock = None
        self._internal_fds = 0

    def _close_self_pipe(self) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _run_once(self) -> None:
        self.turns += 1
        ready: deque[Any] = self._ready  # type: ignore[attr-defined]
        if len(ready) > 1:
            handles = list(ready)
            self._shuffle.shuffle(handles)
            ready.clear()
            ready.extend(handles)
        super()._run_once()  # type: ignore[misc]
