"""Background tasks of one client, each with an owner that sees it end.

A task group would stop every loop of the client when one pull fails in an unforeseen way. Here such
a failure is logged, the others go on, and `close` ends what is left.

Invariant: no task outlives `close`. Absent on purpose: restarts; a loop that must survive errors
catches them itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from engine.client.connection.task_stacks import stack_of, thread_frames

_log = logging.getLogger(__name__)


class OwnedTasks:
    """The running tasks, in order of their start."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._closed = False

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None] | None:
        """Run `work` as a task of its own; nothing is started any more after `close`."""
        if self._closed:
            work.close()
            return None
        task = asyncio.get_running_loop().create_task(work, name=f"{self._owner}: {name}")
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def __len__(self) -> int:
        """How many run now."""
        return len(self._tasks)

    def stacks(self, name_part: str) -> str:
        """Where the tasks stand whose name holds `name_part`: one block a task, as `stack_of`."""
        blocks = [
            stack_of(task, frames)
            for frames in [thread_frames()]
            for task in self._tasks
            if name_part in task.get_name()
        ]
        return "\n\n".join(block for block in blocks if block)

    async def close(self) -> None:
        """Cancel what runs and wait until it has ended."""
        self._closed = True
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("task %s ended by an error: %r", task.get_name(), error, exc_info=error)
