"""Runs `async def test_...` on an event loop of its own, or in a world that it names.

A plain async test is run by the hook in conftest.py. One that lives in a simulated cluster or in
virtual time names its runner:

    @run_by(with_cluster, topics=ONE_BROKER)
    async def test_a_send_is_tried_again(
        cluster: ScriptedCluster, runtime: Runtime, *, tmp_path: Path
    ) -> None:

Its positional parameters come from the world, fixtures stand behind the star. A stage that needs
fixtures itself has their names: `@run_by(on_a_bench, "tmp_path")`. A property test is written
`@given(...) async def test_...`: each example has a loop of its own.
Absent on purpose: fixtures that are async. A world ends with its test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import wraps
from inspect import Parameter, iscoroutinefunction, signature
from typing import Any, TypeVar

import pytest

Answer = TypeVar("Answer")
Story = Callable[..., Awaitable[None]]


@asynccontextmanager
async def meanwhile(loops: Iterable[Coroutine[Any, Any, object]]) -> AsyncIterator[None]:
    """Work that never ends by itself: it goes on until then, and none of it has failed."""
    tasks = [asyncio.create_task(one) for one in loops]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in outcomes:
        assert isinstance(outcome, asyncio.CancelledError), outcome


def run_by(
    stage: Callable[..., object], *fixtures: str, **settings: Any
) -> Callable[[Story], Callable[..., None]]:
    """Make a test that pytest can call of what `stage(*fixtures, story, **settings)` runs."""

    def decorate(test: Story) -> Callable[..., None]:
        of_test = signature(test)
        own = {
            name: parameter
            for name, parameter in of_test.parameters.items()
            if parameter.kind is Parameter.KEYWORD_ONLY
        }

        @wraps(test)
        def run(**given_by_pytest: Any) -> None:
            async def play(*given: Any) -> None:
                await test(*given, **{name: given_by_pytest[name] for name in own})

            stage(*(given_by_pytest[name] for name in fixtures), play, **settings)

        of_stage = {name: Parameter(name, Parameter.KEYWORD_ONLY) for name in fixtures}
        wanted = of_test.replace(parameters=[*(of_stage | own).values()])
        run.__signature__ = wanted  # type: ignore[attr-defined]
        return run

    return decorate


def run_async_test(item: pytest.Function) -> bool | None:
    """Run an async test on a loop of its own; None for any other, which pytest then calls."""
    of_hypothesis = getattr(item.obj, "hypothesis", None)
    if of_hypothesis is not None and iscoroutinefunction(of_hypothesis.inner_test):
        of_hypothesis.inner_test = _each_on_a_loop(of_hypothesis.inner_test)
        return None
    if not iscoroutinefunction(item.obj):
        return None
    wanted = signature(item.obj).parameters
    awaited(item.obj(**{name: item.funcargs[name] for name in wanted}))
    return True


def awaited(work: Coroutine[Any, Any, Answer]) -> Answer:
    """What `work` comes to, on a loop of its own: in a thread of its own behind tests of pages, for
    the browser's driver keeps a loop running in this one for the rest of the session.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def _each_on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*given: Any, **named: Any) -> None:
        awaited(test(*given, **named))

    return run
