"""The executor's pool of child processes: one per run at work, kept a while for the next.

A run takes the child that had its job last, else any that is idle, else a new one: all have the
same module, and a start costs more than what a handler keeps. Whoever would be one too many waits;
a wait can be ended.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from pipelines.scheduler.executor.job_queue import Ending
from pipelines.scheduler.executor.worker import Worker

IDLE_S: Final = 90.0
"""A child without a run ends after so long; XXL-Job's figure for its threads."""
NO_JOB: Final = -1


class Child(Protocol):
    """A process that does runs: `Worker`."""

    handlers: frozenset[str]
    write: Callable[[bytes], None]
    """Gets what it prints, in order and before its answer."""

    @property
    def is_alive(self) -> bool:
        """May it be given a run?"""

    async def run(self, order: Mapping[str, Any]) -> Ending:
        """Have a run done; return how it ended."""

    def stop(self) -> None:
        """Have it end its run and itself."""

    async def close(self) -> None:
        """End it now."""


class WorkerPool:
    """Children, at most `size` of them at work."""

    def __init__(
        self,
        module: str,
        environment: Mapping[str, str],
        *,
        size: int,
        start: Callable[[str, Mapping[str, str]], Awaitable[Child]] = Worker.start,
    ) -> None:
        """`start` begins a child with the module and the environment; as `Worker.start` raises."""
        self._module = module
        self._environment = environment
        self._start = start
        self._places = asyncio.Semaphore(size)
        self._idle: OrderedDict[int, Child] = OrderedDict()
        self._timers: dict[Child, asyncio.TimerHandle] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def begin(self) -> frozenset[str]:
        """Start a first child; return the names of the handlers. Raises ConfigError when the module
        cannot be imported."""
        worker = await self._start(self._module, self._environment)
        self._keep(NO_JOB, worker)
        return worker.handlers

    async def place(self, unwanted: asyncio.Event) -> bool:
        """Wait for a place among those at work, which `leave` gives back; False when the event came
        first."""
        getting = asyncio.create_task(self._places.acquire())
        ending = asyncio.create_task(unwanted.wait())
        try:
            await asyncio.wait({getting, ending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
            if not getting.done():
                getting.cancel()
        return getting.done()

    def leave(self) -> None:
        """Give a place back."""
        self._places.release()

    async def take(self, job_id: int) -> Child:
        """A child for a run of this job. Raises ConfigError when none can be started."""
        while self._idle:
            at = job_id if job_id in self._idle else next(iter(self._idle))
            worker = self._idle.pop(at)
            self._timers.pop(worker).cancel()
            if worker.is_alive:
                return worker
            await worker.close()
        return await self._start(self._module, self._environment)

    async def give(self, job_id: int, worker: Child) -> None:
        """A child whose run has ended: kept, unless it was asked to stop or is gone."""
        if worker.is_alive:
            self._keep(job_id, worker)
        else:
            await worker.close()

    async def close(self) -> None:
        """End all that are idle."""
        for job_id, worker in list(self._idle.items()):
            self._retire(job_id, worker)
        if self._closing:
            await asyncio.wait(self._closing)

    def _keep(self, job_id: int, worker: Child) -> None:
        assert job_id not in self._idle, "a job has one run at work"
        self._idle[job_id] = worker
        loop = asyncio.get_running_loop()
        self._timers[worker] = loop.call_later(IDLE_S, self._retire, job_id, worker)

    def _retire(self, job_id: int, worker: Child) -> None:
        self._timers.pop(worker).cancel()
        del self._idle[job_id]
        task = asyncio.create_task(worker.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
