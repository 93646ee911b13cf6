"""The world of one run: hosts, faults, time, and a trace whose hash distinguishes runs.

A node is a host with a disk and at most one life at a time. Its code runs as tasks of the one
virtual loop; a crash closes its doors (nothing it still does has an effect), ends its connections
and cancels its tasks.

Invariant: nothing here asks the real clock, the real disk or a random source that does not come
from the seed.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from engine.runtime import Runtime, SystemClock
from tests.simulation.world.disk import MountedDisk, VirtualDisk
from tests.simulation.world.loop import VirtualLoop
from tests.simulation.world.network import HostNetwork, VirtualNetwork

EPOCH_MS = 1_790_000_000_000
"""Virtual wall-clock time at which every run begins."""


class World:
    """Everything a scenario may touch."""

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        self.seed = seed
        self.loop = loop
        self.random = random.Random(seed)
        self.network = VirtualNetwork(self)
        self._trace = hashlib.sha256()
        self.nodes: dict[str, Node] = {}
        self.failures: list[str] = []

    def now_ms(self) -> int:
        return EPOCH_MS + int(self.loop.time() * 1000)

    def trace_event(self, kind: str, host: str, data: bytes) -> None:
        self._trace.update(f"{self.loop.time():.6f} {kind} {host} {len(data)} ".encode())
        self._trace.update(data)

    @property
    def trace(self) -> str:
        """Hash of everything delivered and written so far."""
        return self._trace.hexdigest()

    def node(self, host: str) -> Node:
        if host not in self.nodes:
            self.nodes[host] = Node(self, host)
        return self.nodes[host]

    async def until(self, what: str, condition: Callable[[], bool], *, within_s: float) -> None:
        """Wait, in virtual time, until `condition` holds; fail naming `what` when it does not."""
        end_s = self.loop.time() + within_s
        while not condition():
            assert self.loop.time() < end_s, f"not within {within_s} virtual seconds: {what}"
            await asyncio.sleep(0.05)


def sim_clock(node: Node) -> SystemClock:
    """The `Clock` port of one life: the production clock, fed with virtual time and with what the
    host's wall clock makes of it.
    """

    def steady_ns() -> int:
        return int(node.world.loop.time() * 1_000_000_000)

    return SystemClock(
        lambda: (EPOCH_MS + node.set_by_ms) * 1_000_000 + steady_ns(),
        steady_ns,
        lambda at_ms: (
            at_ms // 3_600_000 % 24
        ),  # The same on every machine that runs the simulation.
    )


class SimEntropy:
    """The `Entropy` port drawn from the world's seed."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def token(self, size_bytes: int) -> bytes:
        return self._random.randbytes(size_bytes)

    def process_id(self) -> int:
        return 1000 + self._random.randrange(30_000)


class _Life:
    """One life of a node: its doors and its tasks."""

    def __init__(self, node: Node, number: int) -> None:
        self.disk: MountedDisk = node.disk.mount()
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.runtime = Runtime(
            clock=sim_clock(node),
            network=HostNetwork(node.world.network, node.host),
            disk=self.disk,
            entropy=SimEntropy(f"{node.world.seed}/{node.host}/{number}"),
        )


class Node:
    """A host: its platter stays, its lives come and go."""

    def __init__(self, world: World, host: str) -> None:
        self.world = world
        self.host = host
        self.disk = VirtualDisk(world, host)
        self.set_by_ms = 0
        """How far somebody has set the host's wall clock from the true time."""
        self.lives = 0
        self._life: _Life | None = None

    @property
    def up(self) -> bool:
        return self._life is not None

    @property
    def runtime(self) -> Runtime:
        assert self._life is not None, f"{self.host} is down"
        return self._life.runtime

    async def boot(self, start: Callable[[Runtime], Awaitable[Any]]) -> Any:
        """Begin a life and run `start` in it; returns what `start` returned."""
        assert self._life is None, f"{self.host} is up already"
        self.lives += 1
        self._life = _Life(self, self.lives)
        return await self.run(start(self._life.runtime))

    async def run(self, work: Awaitable[Any]) -> Any:
        """Run `work` as a task of this node's present life."""
        assert self._life is not None
        context = contextvars.copy_context()
        context.run(_LIFE.set, self._life)
        task = context.run(self.world.loop.create_task, _as_coroutine(work))
        return await asyncio.shield(task)

    def crash(self, *, power_cut: bool) -> None:
        """SIGKILL, or the plug pulled: no clean-up of this life has an effect any more."""
        life = self._life
        assert life is not None, f"{self.host} is down already"
        self._life = None
        life.disk.alive = False
        self.disk.crash(power_cut=power_cut)
        self.world.network.crash_host(self.host, resets=not power_cut)
        for task in list(life.tasks):
            task.cancel()

    def end(self) -> None:
        """The life ended by itself (a clean stop was awaited before)."""
        self._life = None


async def _as_coroutine(work: Awaitable[Any]) -> Any:
    return await work


_LIFE: contextvars.ContextVar[_Life | None] = contextvars.ContextVar("life", default=None)


def _task_factory(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
) -> Any:
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
    life = _LIFE.get()
    if life is not None:
        life.tasks[task] = None
        task.add_done_callback(lambda done: life.tasks.pop(done, None))
    return task


def run_world(seed: int, scenario: Callable[[World], Awaitable[None]]) -> World:
    """Run a scenario to its end on its own virtual loop and return the world for a last look."""
    loop = VirtualLoop(random.Random(f"{seed}/interleaving"))
    loop.set_task_factory(_task_factory)
    world = World(seed, loop)
    loop.set_exception_handler(_note_failure(world))
    try:
        loop.run_until_complete(scenario(world))
        for node in world.nodes.values():
            if node.up:
                node.crash(power_cut=False)
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        _cancel_all(loop)
        loop.close()
    assert not world.failures, f"seed {seed}: " + "; ".join(world.failures)
    return world


def _note_failure(world: World) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    def note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        del loop
        world.failures.append(f"{context.get('message')}: {context.get('exception')!r}")

    return note


def _cancel_all(loop: VirtualLoop) -> None:
    tasks = list(asyncio.all_tasks(loop))
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
