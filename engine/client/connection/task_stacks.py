"""Finds where a task and the threads that work for it stand, to show a listener that hangs.

Place in the walk: the broker asks a consumer whose head does not move (code 307 with stacks), and
shows the answer to people.

A task is a chain of coroutines that wait for each other. When the innermost one waits for a thread
(`asyncio.to_thread`), what the thread does is the answer; a thread says whose work it does by the
context it runs in, in which each listener call has a mark of its own. Work handed to an executor
without its context (`run_in_executor`) cannot be distinguished from others': there the line that
waits for it is the innermost.

Invariant: looking changes nothing. Absent on purpose: values of variables, which are the users'.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
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
