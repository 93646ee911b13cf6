"""Counts the work of a step in Python instructions, the same on every machine and run."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any, TypeVar

import pytest

Found = TypeVar("Found")

STEP_INSTRUCTIONS_MAX = 500_000
"""Some 25 ms of CPU time on the machine of the bars: half of what a step may take."""


def instructions(work: Callable[[], object]) -> int:
    """Python instructions that `work` executes; what C does within one of them is not seen.

    Nor are finalizers of garbage that others left: nothing is collected meanwhile.
    """
    count = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        if event == "opcode":
            count += 1
        elif event == "call":
            frame.f_trace_lines = False
            frame.f_trace = trace  # Python 3.13 counts a frame from its first instruction on only
            frame.f_trace_opcodes = True  # when they are set in this order.
        return trace

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 looks for it when tracing begins.
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return count


def outcome(steps: Generator[object, None, Found]) -> Found:
    """What a work in steps returns at its end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Found = end.value
            return found


def instructions_by_step(steps: Iterable[object]) -> list[int]:
    """Python instructions of each step, the last one included, which ends the work."""
    work = iter(steps)
    counts: list[int] = []
    ended = False

    def step() -> None:
        nonlocal ended
        ended = next(work, work) is work

    while not ended:
        counts.append(instructions(step))
    return counts


async def longest_step(work: Awaitable[object]) -> int:
    """Python instructions of the longest step of the running loop while `work` is under way,
    whoever's step it is: one callback, or one resumption of a task.
    """
    run, longest = asyncio.Handle._run, 0

    def counted(handle: asyncio.Handle) -> None:
        nonlocal longest
        longest = max(longest, instructions(lambda: run(handle)))

    asyncio.Handle._run = counted  # type: ignore[method-assign,assignment]
    try:
        await work
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
    return longest


@asynccontextmanager
async def passes_counted() -> AsyncIterator[Callable[[], int]]:
    """Count the passes of the running loop; what is handed out says how many there were."""
    count = 0

    async def counting() -> None:
        nonlocal count
        while True:
            count += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(counting())
    try:
        yield lambda: count
    finally:
        task.cancel()


def heard(patch: pytest.MonkeyPatch, owner: object, name: str, hear: Callable[..., object]) -> None:
    """From now on `hear` is called with the arguments of each call, which is done all the same."""
    called = getattr(owner, name)

    def hearing(*arguments: Any, **named: Any) -> Any:
        hear(*arguments, **named)
        return called(*arguments, **named)

    patch.setattr(owner, name, hearing)
