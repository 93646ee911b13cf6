"""Runs our engine and records the CPU time of each event-loop step by type.

Run as `python -m bench.observed_engine FIGURES engine ...`, the rest being what `tidemark` takes.
Each line on standard input names the phase that begins; FIGURES is written when the engine ends. A
step is one callback, or one resumption of a task; the watch is around asyncio's handles, in this
process only, so that the engine itself carries none.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Kind:
    """The steps of one kind in one phase, in seconds of CPU time."""

    count: int = 0
    total_s: float = 0.0
    longest_s: float = 0.0
    longest_own_s: float = 0.0
    """The longest one without what Python's collector took of it."""


class Watch:
    """Measures steps."""

    def __init__(self) -> None:
        self.phase = "start"
        self.kinds: dict[tuple[str, str], Kind] = {}
        self._collected_s = self._collecting_since_s = 0.0

    def begin(self) -> None:
        """Measure every step of every loop of this process from now on."""
        run, watch = asyncio.Handle._run, self  # noqa: SLF001 - asyncio has no other place

        def observed(handle: asyncio.Handle) -> None:
            name = _name(handle._callback)  # type: ignore[attr-defined]  # noqa: SLF001
            collected_s, began_s = watch._collected_s, time.thread_time()
            try:
                run(handle)
            finally:
                took_s = time.thread_time() - began_s
                watch.note(name, took_s, watch._collected_s - collected_s)

        asyncio.Handle._run = observed  # type: ignore[method-assign,assignment]  # noqa: SLF001
        gc.callbacks.append(self._collecting)

    def note(self, name: str, took_s: float, collecting_s: float) -> None:
        """A step ended."""
        kind = self.kinds.setdefault((self.phase, name), Kind())
        kind.count += 1
        kind.total_s += took_s
        kind.longest_s = max(kind.longest_s, took_s)
        kind.longest_own_s = max(kind.longest_own_s, took_s - collecting_s)

    def _collecting(self, phase: str, _info: dict[str, int]) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if phase == "start":
            self._collecting_since_s = time.thread_time()
        else:
            self._collected_s += time.thread_time() - self._collecting_since_s

    def follow(self) -> None:
        """Take phases from standard input, until it ends."""
        for line in sys.stdin:
            self.phase = line.strip()

    def figures(self) -> list[dict[str, Any]]:
        """Every kind of every phase."""
        return [
            {
                "phase": phase,
                "kind": name,
                "count": kind.count,
                "total_ms": kind.total_s * 1000,
                "longest_ms": kind.longest_s * 1000,
                "longest_own_ms": kind.longest_own_s * 1000,
            }
            for (phase, name), kind in self.kinds.items()
        ]


def _name(callback: Any) -> str:
    """What a step belongs to: the coroutine of a task, or the function."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return getattr(owner.get_coro(), "__qualname__", "task")
    while hasattr(callback, "func"):
        callback = callback.func
    return getattr(callback, "__qualname__", None) or type(callback).__name__


def main() -> None:
    """Run `tidemark` under the watch."""
    from tidemark import main as tidemark  # noqa: PLC0415 - the watch measures what it imports

    path = Path(sys.argv[1])
    sys.argv = ["tidemark", *sys.argv[2:]]
    watch = Watch()
    watch.begin()
    threading.Thread(target=watch.follow, daemon=True).start()
    try:
        tidemark()
    finally:
        path.write_text(json.dumps(watch.figures()))


if __name__ == "__main__":
    main()
