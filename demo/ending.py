"""Defers Ctrl-C, SIGTERM and SIGHUP so that the demo stops only at a safe point.

An exception raised in a signal handler can come between the start of a process and the note of its
number, or while others are being stopped; that process would stay behind. So the handler only takes
a note, and waiting code calls `heed` at every poll.

Invariant: nothing is raised outside `heed`, however often and whenever a signal comes.
"""

from __future__ import annotations

import signal
import time
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

LOOK_S = 0.05
"""Between two looks of who waits."""


class WishToEnd:
    """Takes note of the signals while its `with` block runs, in the main thread."""

    def __init__(self) -> None:
        self.noted = False
        # What held before, to be put back.
        self._before = {number: signal.getsignal(number) for number in SIGNALS}

    def __enter__(self) -> Self:
        for number, before in self._before.items():
            if before is not signal.SIG_IGN:  # nohup wants it ignored.
                signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)

    def heed(self) -> None:
        """Raise KeyboardInterrupt when somebody wants the end."""
        if self.noted:
            raise KeyboardInterrupt

    def pause_until(self, moment_s: float) -> None:
        """Wait for a moment of steady time, whoever runs or not, and heed the wish meanwhile."""
        while (left_s := moment_s - time.monotonic()) > 0:
            self.heed()
            time.sleep(min(LOOK_S, left_s))

    def _note(self, *_: object) -> None:
        self.noted = True
