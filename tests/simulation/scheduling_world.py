"""Centres and executors on virtual time: their processes, and the network between them.

Centres and our executors are those of production, with their clients and servers of the wire: what
they write and read goes through the real encoders. Simulated are time, network, death, the children
that do the runs, and executors of XXL-Job. Files and database are real; a process that dies leaves
them as they are.

    executor ── AdminClient ──▶ Wire ──▶ WireApplication of a centre ──▶ database
    executor ◀── WireApplication ◀── Wire ◀── ExecutorClient ── centre

Absent on purpose: sockets, and what HTTP does with them.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from engine.foundation.errors import ConnectFailed, ConnectionLost, RequestTimedOut, TidemarkError
from pipelines.database.clock import SharedClock
from pipelines.database.database import Database, StoreUnavailable
from pipelines.scheduler.centre.calls import WiredExecutors
from pipelines.scheduler.centre.centre import Centre, Doors
from pipelines.scheduler.centre.serving import calls_of
from pipelines.scheduler.centre.token_book import TokenBook
from pipelines.scheduler.executor.job_queue import Ending, Gone, Returned
from pipelines.scheduler.executor.party import Executor, Ports
from pipelines.scheduler.executor.serving import BEAT_S, Post
from pipelines.scheduler.executor.worker import WorkerPool
from pipelines.scheduler.run_life import ENDED, FAILED, OK
from pipelines.scheduler.store import jobs, results
from pipelines.scheduler.store.audit import Change
from pipelines.scheduler.wire.addresses import Address
from pipelines.scheduler.wire.client import TIMEOUT_S, AdminClient
from pipelines.scheduler.wire.messages import (
    DISCARDED,
    Answer,
    LogPage,
    LogRequest,
    Registration,
    RunRequest,
    RunResult,
    decode_job,
    refused,
)
from pipelines.scheduler.wire.server import WireApplication, WireRequest
from pipelines.scheduler.wire.tokens import Tokens
from tests.integration.scheduler.stores import APP, NOW_MS
from tests.simulation.world.loop import VirtualLoop

CENTRES = {"a": "http://10.0.1.1:8080/", "b": "http://10.0.1.2:8080/"}
CLOCKS_APART_MS = {"a": -4_000, "b": 6_000}
"""What the machines of the centres show beside the database's clock."""
OURS = ("http://10.0.0.1:9999/", "http://10.0.0.2:9999/")
JAVA = ("http://10.0.0.3:9999/",)
AT_WORK_MAX = 4
JAVA_RETRY_S = 30
"""XXL-Job's executors report again what no admin took after so long."""

_LIFE: ContextVar[Life | None] = ContextVar("life", default=None)


class Life:
    """One life of a process: whatever it has begun ends with it, at any of its awaits."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._context = copy_context()
        self._context.run(_LIFE.set, self)
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.answers: WireApplication | None = None
        """What it serves; None: it does not listen yet, or any more."""

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Have the process do something."""
        return self._loop.create_task(work, context=self._context)

    def own(self, task: asyncio.Task[Any]) -> None:
        """It has begun this."""
        self._tasks[task] = None
        task.add_done_callback(lambda ended: self._tasks.pop(ended, None))

    async def kill(self) -> None:
        """SIGKILL."""
        self.answers = None
        while tasks := list(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


def born(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, Any],
    context: Context | None = None,
    **fields: Any,
) -> asyncio.Task[Any]:
    """Makes the loop's tasks: each belongs to the life that began it."""
    context = copy_context() if context is None else context
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, context=context, **fields)
    life = context.get(_LIFE)
    if life is not None:
        life.own(task)
    return task


class Wire:
    """What lies between one party and all others."""

    def __init__(self, world: World, here: str) -> None:
        self._world = world
        self._here = here

    async def call(
        self, at: Address, path: str, body: bytes, *, headers: Mapping[str, str]
    ) -> Answer:
        """One request and its answer, each of which may be lost."""
        world, there = self._world, at.text
        until_s = world.loop.time() + TIMEOUT_S
        if path == "run":
            planned_ms = RunRequest.decode(body).fire_time_ms or 0
            world.early_ms = max(world.early_ms, planned_ms - world.now_ms())
        await self._passes(there, until_s)
        life = world.lives.get(there)
        if life is None or life.answers is None:
            if world.chance.random() < 0.5:
                raise ConnectFailed(f"{there}: nobody listens")
            await self._silence(there, until_s)
        assert life is not None
        answering = life.spawn(_answered(life.answers, f"/{path}", body, headers))
        await asyncio.wait({answering}, timeout=until_s - world.loop.time())
        if not answering.done():
            raise RequestTimedOut(f"{there}: no answer")
        if answering.cancelled():
            raise ConnectionLost(f"{there}: it died")
        await self._passes(there, until_s)
        return Answer.decode(answering.result())

    async def _passes(self, there: str, until_s: float) -> None:
        world = self._world
        await asyncio.sleep(world.chance.uniform(0.001, 0.05))
        is_cut = (self._here, there) in world.cut or (there, self._here) in world.cut
        if is_cut or world.chance.random() < world.loss:
            world.unanswered += 1
            world.cut_off += is_cut and self._here not in CENTRES.values()
            await self._silence(there, until_s)

    async def _silence(self, there: str, until_s: float) -> None:
        await asyncio.sleep(max(0.0, until_s - self._world.loop.time()))
        raise RequestTimedOut(f"{there}: no answer")


async def _answered(
    application: WireApplication | None, path: str, body: bytes, headers: Mapping[str, str]
) -> bytes:
    assert application is not None
    answers: list[bytes] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Mapping[str, Any]) -> None:
        answers.append(message.get("body", b""))

    given = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": path, "headers": given}
    await application(scope, receive, send)
    return b"".join(answers)


class PlayedChild:
    """A child of one of our executors: what it does takes a while, and ends well or not."""

    def __init__(self, world: World) -> None:
        self.handlers = frozenset({"report"})
        self.write: Callable[[bytes], None] = _nowhere
        self._world = world
        self._stopped = asyncio.Event()

    @classmethod
    async def start(cls, world: World, module: str, environment: Mapping[str, str]) -> Self:
        del module, environment
        await asyncio.sleep(world.chance.uniform(0.05, 0.5))
        return cls(world)

    @property
    def is_alive(self) -> bool:
        return not self._stopped.is_set()

    async def run(self, order: Mapping[str, Any]) -> Ending:
        chance = self._world.chance
        self._world.begun[order["log_id"]] += 1
        try:
            async with asyncio.timeout(chance.uniform(0.2, 2)):
                await self._stopped.wait()
        except TimeoutError:
            return Returned(chance.choice([OK, OK, OK, FAILED]))
        return Gone("its process ended")

    def stop(self) -> None:
        self._stopped.set()

    async def close(self) -> None:
        self._stopped.set()


def _nowhere(_: bytes) -> None:
    pass


class JavaExecutor:
    """One of XXL-Job: a queue in memory, of which nothing is heard when it dies; logs and untold
    results on its disk."""

    def __init__(self, world: World, address: str) -> None:
        self._world = world
        self._address = address
        self.logs: set[int] = set()
        self.untold: dict[int, RunResult] = {}
        self._queue: list[RunRequest] = []
        self._at_work: RunRequest | None = None

    async def live(self, life: Life, admins: Sequence[AdminClient]) -> None:
        self._queue, self._at_work = [], None
        calls = {
            "/beat": self._beat,
            "/idleBeat": self._idle_beat,
            "/run": self._run,
            "/log": self._log,
        }
        life.answers = WireApplication(calls, Tokens(None))
        await asyncio.gather(self._register(admins), self._work(), self._report(admins))

    async def _register(self, admins: Sequence[AdminClient]) -> None:
        me = Registration(APP, self._address)
        while True:
            await _first(admins, lambda admin: admin.register(me))
            await asyncio.sleep(BEAT_S)

    async def _work(self) -> None:
        chance = self._world.chance
        while True:
            await asyncio.sleep(chance.uniform(0.05, 0.4))
            if not self._queue:
                continue
            run = self._at_work = self._queue.pop(0)
            self.logs.add(run.log_id)
            self._world.begun[run.log_id] += 1
            await asyncio.sleep(chance.uniform(0.2, 2))
            code = chance.choice([OK, OK, OK, FAILED])
            self.untold[run.log_id] = RunResult(run.log_id, run.log_time_ms, code)
            self._at_work = None

    async def _report(self, admins: Sequence[AdminClient]) -> None:
        while True:
            await asyncio.sleep(self._world.chance.uniform(0.05, 0.4))
            batch = list(self.untold.values())
            if not batch:
                continue
            if await _first(admins, lambda admin, batch=batch: admin.report(batch)):  # type: ignore[misc]
                for one in batch:
                    del self.untold[one.log_id]
            else:
                await asyncio.sleep(JAVA_RETRY_S)

    async def _beat(self, _: WireRequest) -> Answer:
        return Answer()

    async def _idle_beat(self, asked: WireRequest) -> Answer:
        held = [*self._queue, *([self._at_work] if self._at_work else [])]
        job_id = decode_job(asked.body)
        return refused("busy") if any(run.job_id == job_id for run in held) else Answer()

    async def _run(self, asked: WireRequest) -> Answer:
        if self._world.chance.random() < 0.03:
            return refused(DISCARDED)
        self._queue.append(RunRequest.decode(asked.body))
        return Answer()

    async def _log(self, asked: WireRequest) -> Answer:
        is_there = LogRequest.decode(asked.body).log_id in self.logs
        fields = {"fromLineNum": 1, "toLineNum": int(is_there), "logContent": "", "isEnd": True}
        return Answer(content=fields)


async def _first(
    admins: Sequence[AdminClient], call: Callable[[AdminClient], Awaitable[Answer]]
) -> bool:
    """Has one of them taken it?"""
    for admin in admins:
        try:
            if (await call(admin)).is_success:
                return True
        except TidemarkError:
            continue
    return False


@dataclass
class Active:
    """A stretch of time in which a job is active, by its planned times."""

    first_ms: int
    until_ms: int | None = None
    left_out: frozenset[int] = frozenset()

    def end(self, until_ms: int, left_out: Iterable[int]) -> None:
        self.until_ms, self.left_out = until_ms, frozenset(left_out)


class World:
    """The database, the processes, the network, and what happened."""

    def __init__(self, seed: int, loop: VirtualLoop, database: Database, home: Path) -> None:
        self.chance = random.Random(seed)
        self.loop = loop
        self.database = database
        self.lives: dict[str, Life] = {}
        """By address: the newest life of each process."""
        self.mains: list[asyncio.Task[Any]] = []
        """What ends only when somebody ends it."""
        self.cut: set[tuple[str, str]] = set()
        """Pairs of a centre and an executor; nothing goes either way."""
        self.loss = 0.3
        self.unanswered = self.early_ms = self.cut_off = 0
        """`cut_off`: what executors had to say and a cut kept from a centre."""
        self.awake = {centre: asyncio.Event() for centre in CENTRES}
        for event in self.awake.values():
            event.set()
        self.begun: Counter[int] = Counter()
        self.active: dict[int, list[Active]] = {}
        """Of each job, the stretches in which it was active."""
        self.is_locked = False
        self.damaged = 0
        self._home = home
        self._java = {address: JavaExecutor(self, address) for address in JAVA}
        self._numbers: Counter[str] = Counter()
        loop.set_task_factory(born)  # type: ignore[arg-type]

    def now_ms(self) -> int:
        return NOW_MS + int(self.loop.time() * 1000)

    async def stored(self, centre: str, work: Callable[[], Any]) -> Any:
        """What a centre's work in the database gives. One that is stopped does it when it goes on,
        as if nothing had been."""
        await asyncio.sleep(self.chance.uniform(0.0005, 0.01))
        await self.awake[centre].wait()
        if self.is_locked:
            raise StoreUnavailable("the database is locked")
        return work()

    def stop(self, centre: str, for_s: float) -> None:
        """SIGSTOP, and after a while SIGCONT. It stops at its work in the database: one that stops
        between its look at the clock and a write to a socket may send late (docs/adr/0043).
        """
        self.awake[centre].clear()
        self.loop.call_later(for_s, self.awake[centre].set)

    def begin_centre(self, name: str) -> None:
        self._begin(CENTRES[name], partial(self._centre, name))

    async def _centre(self, name: str, life: Life) -> None:
        apart_ms = CLOCKS_APART_MS[name]
        off_loop = partial(self.stored, name)
        clock = SharedClock(lambda: self.now_ms() + apart_ms, self.now_ms)
        clock.set()
        book = TokenBook(self.database, None, off_loop, may_be_open=True)
        calls = calls_of(self.database, book.tokens, clock.now_ms, off_loop)
        executors = WiredExecutors(Wire(self, CENTRES[name]), book)
        doors = Doors(
            executors, clock.now_ms, lambda: self.chance.getrandbits(32), off_loop, clock.set
        )
        life.answers = WireApplication(calls, book.tokens)
        self._numbers[name] += 1
        await Centre(self.database, f"{name}{self._numbers[name]}", doors).run()

    def begin_executor(self, address: str) -> None:
        java = self._java.get(address)
        self._begin(address, partial(self._ours, address) if java is None else java_life(java))

    async def _ours(self, address: str, life: Life) -> None:
        pool = WorkerPool("played", {}, size=AT_WORK_MAX, start=partial(PlayedChild.start, self))
        ports = Ports(lambda: int(self.loop.time() * 1000), self.now_ms, _at_once)
        home = self._home / address.replace("/", "").replace(":", "-")
        home.mkdir(exist_ok=True)
        executor = Executor(home, pool, scripts=False, ports=ports)
        await executor.begin()
        post = Post(executor, self.admins(address), Registration(APP, address))
        life.answers = WireApplication(executor.calls(), Tokens(None))
        await asyncio.gather(post.beat(BEAT_S, asyncio.Event()), post.report())

    def admins(self, address: str) -> list[AdminClient]:
        """The centres as an executor asks them, each in an order of its own."""
        found = [
            AdminClient(Wire(self, address), Address.parse(at), token=None, app=APP)
            for at in CENTRES.values()
        ]
        return found[::-1] if address == OURS[1] else found

    def _begin(self, address: str, main: Callable[[Life], Coroutine[Any, Any, None]]) -> None:
        life = self.lives[address] = Life(self.loop)
        self.mains.append(life.spawn(main(life)))

    async def kill(self, address: str) -> None:
        await self.lives[address].kill()

    async def end(self) -> None:
        """End all; AssertionError when one had ended by itself."""
        failed = [main for main in self.mains if main.done() and not main.cancelled()]
        for life in self.lives.values():
            await life.kill()
        assert not failed, failed[0].exception()

    def close(self) -> None:
        """Leave nothing behind, whatever has become of the story."""
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        if left:
            self.loop.run_until_complete(asyncio.wait(left))
        self.loop.close()
        self.database.close()

    def change(self, how: str, job_id: int) -> None:
        """What people do to jobs at any moment: a time within the next seconds is planned then."""
        now = Change("bob", self.now_ms())
        if how == "edit":
            job = jobs.job_of(self.database, job_id)
            wanted = replace(job.settings, title=f"at {now.now_ms}")
            if wanted != job.settings:
                jobs.edit_job(self.database, job_id, wanted, now)
            return
        waits = {
            run.planned_ms
            for run in results.runs_of(self.database, job_id)
            if run.sent_ms is None and run.state not in ENDED
        }
        next_ms = jobs.job_of(self.database, job_id).next_ms
        jobs.pause_job(self.database, job_id, now)
        # What was due and not sent yet is left out: it was paused. What is to come is not.
        until_ms = now.now_ms if next_ms is None else min(now.now_ms, next_ms - 1)
        self.active[job_id][-1].end(until_ms, waits)
        begun = jobs.start_job(self.database, job_id, now).job
        assert begun is not None
        assert begun.next_ms is not None
        self.active[job_id].append(Active(begun.next_ms))


def java_life(java: JavaExecutor) -> Callable[[Life], Coroutine[Any, Any, None]]:
    """What its process does."""

    async def lived(life: Life) -> None:
        await java.live(life, java._world.admins(java._address))

    return lived


async def _at_once(work: Callable[[], LogPage]) -> LogPage:
    return work()
