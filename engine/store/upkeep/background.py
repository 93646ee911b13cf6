"""The store's background tasks: started with it, owned until it closes.

Place in the walk: `MessageStore.start` begins them, `MessageStore.close` ends them.

Invariant: no task of the store outlives it. One that fails has a bug, and `on_failure` is called:
the store stops writing rather than go on without it.
Absent on purpose: what the tasks do, and how those that flush learn that it is time to stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any


class BackgroundTasks:
    """Tasks of one store, by name."""

    def __init__(self, on_failure: Callable[[str], object]) -> None:
        """`on_failure` gets what ended, in words."""
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._tasks: list[asyncio.Task[None]] = []
        self._asleep: list[asyncio.Task[None]] = []

    @property
    def begun(self) -> bool:
        """Is there any?"""
        return bool(self._tasks)

    def __iter__(self) -> Iterator[asyncio.Task[None]]:
        return iter(self._tasks)

    def begin(
        self, work: Coroutine[Any, Any, None], name: str, *, only_sleeps: bool = False
    ) -> None:
        """Run `work` until it ends by itself, as whatever flushes must; a task that only sleeps
        between short steps is cancelled instead of waited for.
        """
        task = self._loop.create_task(work, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)
        if only_sleeps:
            self._asleep.append(task)

    async def end(self) -> None:
        """Cancel who only sleeps, wait for all others; what failed was reported when it did."""
        for task in self._asleep:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        self._on_failure(f"background task {task.get_name()!r} ended: {error!r}")
        self._loop.call_exception_handler(
            {"message": f"{task.get_name()} ended", "exception": error, "task": task}
        )
