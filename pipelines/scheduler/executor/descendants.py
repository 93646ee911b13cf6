"""Finds the processes that a handler has started, by a mark in their environment.

A process group is left by whoever begins a session of his own, and a parent is left by ending it.
The environment is inherited by all, and Linux shows it.

Absent on purpose: other systems, where only the process group is killed; and processes that have
put on another environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Final

MARK_VARIABLE: Final = "TIDEMARK_JOBS_PROCESS"
ROUNDS_MAX: Final = 10
"""Who is found may have started another meanwhile: it is looked again until nobody is left."""
_PROCESSES: Final = Path("/proc")


def marked(mark: str) -> list[int]:
    """Processes that live and have this mark, which is a word that nobody else has."""
    wanted = f"{MARK_VARIABLE}={mark}".encode()
    found = []
    for entry in _PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # It has ended, or is somebody else's.
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def kill_marked(mark: str) -> None:
    """Kill all that have this mark; of those that have ended the environment is empty."""
    for _ in range(ROUNDS_MAX):
        found = marked(mark)
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
