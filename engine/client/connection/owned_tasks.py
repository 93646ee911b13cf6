"""Owns a client's background tasks and reports their current stacks.

A task group would stop every loop of the client when one pull fails in an unforeseen way. Here such
a failure is logged, the others go on, and `close` ends what is left. A broker asks a consumer whose
head does not move for stacks (code 307): a task is a chain of coroutines, and when the innermost
one waits for a thread (`asyncio.to_thread`), what the thread does is the answer. Work handed to an
executor without its context (`run_in_executor`) cannot be distinguished from others'.

Invariant: no task outlives `close`; looking at stacks changes nothing. Absent on purpose: restarts
(a loop that must survive errors catches them itself), values of variables, which are the users'.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Coroutine, Iterator, Mapping
from contextvars import Context, ContextVar
from types import FrameType
from typing import Any

EXECUTOR = "concurrent.futures.thread"
"""The module that runs what `asyncio.to_thread` hands over: `_WorkItem.run` has it as `self.fn`."""

FRAMES_MAX = 64
"""Innermost calls of one thread that are shown."""

WORKING_FOR: ContextVar[asyncio.Task[Any] | None] = ContextVar("working_for", default=None)
"""The task for which this code runs, on whichever thread."""


def thread_frames() -> dict[asyncio.Task[Any], list[FrameType]]:
    """The innermost frames of threads that work for a task, by task."""
    found: dict[asyncio.Task[Any], list[FrameType]] = {}
    for frame in sys._current_frames().values():  # noqa: SLF001 - the only way to ask for them
        task = _task_of(frame)
        if task is not None:
            found.setdefault(task, []).append(frame)
    return found


def stack_of(
    task: asyncio.Task[Any], frames: Mapping[asyncio.Task[Any], list[FrameType]]
) -> str | None:
    """The task's name, then a line a call, as module:line function, the innermost last; None when
    it has not begun or has ended.
    """
    lines = list(_coroutines(task.get_coro()))
    if not lines:
        return None
    for frame in frames.get(task, ()):
        lines += ["  in a thread:", *_calls(frame)]
    return "\n".join([task.get_name(), *lines])


def _coroutines(work: Any) -> Iterator[str]:
    """The coroutines that wait for each other, outermost first."""
    while (frame := getattr(work, "cr_frame", None)) is not None:
        yield _line(frame, frame.f_lineno)
        work = work.cr_await


def _calls(innermost: FrameType) -> list[str]:
    """The calls of a thread, outermost first, without those of the executor."""
    lines: list[str] = []
    frame: FrameType | None = innermost
    while frame is not None and len(lines) < FRAMES_MAX and not _is_executor(frame):
        lines.append(_line(frame, frame.f_lineno))
        frame = frame.f_back
    return lines[::-1]


def _line(frame: FrameType, line_number: int) -> str:
    module = frame.f_globals.get("__name__", "?")
    return f"  {module}:{line_number} {frame.f_code.co_name}"


def _is_executor(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") == EXECUTOR


def _task_of(innermost: FrameType) -> asyncio.Task[Any] | None:
    """The task whose context the work of this thread runs in; None when it runs in none."""
    frame: FrameType | None = innermost
    while frame is not None:
        if _is_executor(frame):
            item = frame.f_locals.get("self")
            context = getattr(getattr(getattr(item, "fn", None), "func", None), "__self__", None)
            return context.get(WORKING_FOR) if isinstance(context, Context) else None
        frame = frame.f_back
    return None


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
