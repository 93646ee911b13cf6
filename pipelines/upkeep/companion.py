"""Runs lake maintenance and data checks alongside a pipeline at low priority.

Place in the walk: `tidemark pipeline run`, unless it has `--no-upkeep` or `--checks-every 0`. They
are started again when they die, and ended with the pipeline. Invariant: nothing that happens to
them reaches the pipeline, but for a line; one that is killed takes them along: they look for their
parent.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Final, Self

FIRST_AFTER_S: Final = 60.0
"""A lake that was just begun needs nothing, and whoever starts is busy."""

EVERY_S: Final = 60.0
"""From the end of a round to the next."""

RESTART_PAUSE_S: Final = 5.0
RESTART_PAUSE_MAX_S: Final = 300.0
"""Doubled after each end, up to this: another maintainer may be at work on the lake."""

NICENESS: Final = 10
"""Whoever computes goes first."""

STOP_PATIENCE_S: Final = 10.0
"""A merge under way may end by itself; then it is killed, and done again by the next."""

_THREADS: Final = {"TOKIO_WORKER_THREADS": "1"}
"""What delta-rs reads when it is loaded: there is no hurry."""


def checking(lake: str, every_cycles: int) -> tuple[str, ...]:
    """The command that checks a lake after every so many cycles."""
    return ("check", "--lake", lake, "--every-cycles", str(every_cycles))


class Companion:
    """Keeps one process running while its context lasts: the maintainer of a lake, or another
    command of `tidemark` that knows `--parent`."""

    def __init__(
        self,
        lake: str,
        say: Callable[[str], None],
        *,
        name: str = "upkeep",
        command: Sequence[str] | None = None,
        first_after_s: float = FIRST_AFTER_S,
        every_s: float = EVERY_S,
        restart_pause_s: float = RESTART_PAUSE_S,
    ) -> None:
        self._name = name
        upkeep = ("lake", "maintain", "--lake", lake, "--every", str(every_s))
        self._command = tuple(command) if command is not None else upkeep
        self._say = say
        self._first_after_s = first_after_s
        self._restart_pause_s = restart_pause_s
        self._ended = threading.Event()
        self._keeping = threading.Thread(target=self._keep, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._keeping.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._keeping.join()

    def _keep(self) -> None:
        pause_s = self._first_after_s
        restart_s = self._restart_pause_s
        while not self._ended.wait(pause_s):
            try:
                code = self._run_one()
            except OSError as error:
                self._say(
                    f"{self._name} cannot be started ({error}); trying again in {restart_s:.0f} s"
                )
            else:
                if code is None:
                    return
                self._say(
                    f"{self._name} ended with code {code}; started again in {restart_s:.0f} s"
                )
            pause_s, restart_s = restart_s, min(2 * restart_s, RESTART_PAUSE_MAX_S)

    def _run_one(self) -> int | None:
        """Exit code of a maintainer that ended by itself; None when it was ended here."""
        command = (
            *(sys.executable, "-m", "tidemark", *self._command),
            *("--parent", str(os.getpid())),
        )
        # Its lines are not this process's answers: to standard error.
        with subprocess.Popen(command, env={**os.environ, **_THREADS}, stdout=2) as process:
            os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
            while not self._ended.wait(0.2):
                if (code := process.poll()) is not None:
                    return code
            process.terminate()
            try:
                process.wait(STOP_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
        return None
