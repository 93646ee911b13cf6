"""Runs handlers in child processes, one per active run, and keeps idle ones for reuse.

A run takes the child that had its job last, else any that is idle, else a new one; whoever would be
one too many waits. A stop is SIGTERM to the child, which writes its stack into the log and raises
RunStopped in the handler; after STOP_GRACE_S it is killed, with its process group and, on Linux,
all that bears its mark in its environment. A child that was stopped is never used again.

Each order has a word of its own, which its answer repeats: what a fork or a handler writes into the
socket is no other run's result. The end of the process ends its run, whoever else holds the socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, Self

import orjson

from engine.foundation.errors import MustBe
from pipelines.scheduler.executor.job_queue import Ending, Gone, Returned

STOP_GRACE_S: Final = 3.0
START_TIMEOUT_S: Final = 60.0
"""For a module that imports much."""
ANSWER_BYTES_MAX: Final = 1024 * 1024
LAST_ANSWER_S: Final = 1.0
"""An answer that was given before the process ended has come by then."""
READ_BYTES: Final = 65_536
READS_MAX: Final = 16
"""More than a pipe holds."""
CHILD: Final = "pipelines.scheduler.executor.child"
MARK_VARIABLE: Final = "TIDEMARK_JOBS_PROCESS"
ROUNDS_MAX: Final = 10
"""Who is found may have started another meanwhile: it is looked again until nobody is left."""
_PROCESSES: Final = Path("/proc")
IDLE_S: Final = 90.0
"""A child without a run ends after so long; XXL-Job's figure for its threads."""
NO_JOB: Final = -1


class Worker:
    """One child. `write` gets what it prints, in order and before the answer that follows it."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        output: int,
        mark: str,
    ) -> None:
        self.handlers: frozenset[str] = frozenset()
        self.is_stopped = False
        self.write: Callable[[bytes], None] = lambda _: None
        self._process = process
        self._reader, self._writer = streams
        self._output = output
        self._mark = mark
        self._grace: asyncio.TimerHandle | None = None
        asyncio.get_running_loop().add_reader(output, self._drain)

    @classmethod
    async def start(cls, module: str, environment: Mapping[str, str]) -> Self:
        """A child that has imported its module. Raises ConfigError, which says why, when it
        could not."""
        mark = secrets.token_hex(8)
        ours, theirs = socket.socketpair()
        output, printed = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", CHILD, str(theirs.fileno()), module, str(os.getpid())),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={**environment, MARK_VARIABLE: mark},
            )
        except BaseException:
            ours.close()
            os.close(output)
            raise
        finally:
            theirs.close()
            os.close(printed)
        os.set_blocking(output, False)
        streams = await asyncio.open_unix_connection(sock=ours, limit=ANSWER_BYTES_MAX)
        worker = cls(process, streams, output, mark)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                answer = await worker._answer()
        except BaseException as error:
            await worker.close()
            if isinstance(error, TimeoutError):
                raise MustBe("module", module, f"imported in {START_TIMEOUT_S:g} s") from None
            raise
        if answer is None or "handlers" not in answer:
            await worker.close()
            why = "its process ended" if answer is None else answer.get("failed", "")
            raise MustBe("module", module, f"one that can be imported: {why}")
        worker.handlers = frozenset(answer["handlers"])
        return worker

    @property
    def pid(self) -> int:
        """Of the child, which leads a process group of its own."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """May it be given a run?"""
        return not self.is_stopped and self._process.returncode is None

    async def run(self, order: Mapping[str, Any]) -> Ending:
        """Have a run done; return how it ended, which includes that the child is no more."""
        word = secrets.token_hex(8)
        with contextlib.suppress(ConnectionError):
            self._writer.write(orjson.dumps({**order, "word": word}) + b"\n")
            await self._writer.drain()
        answer = await self._answer_of_the_living(word)
        self._drain()
        match answer:
            case {"code": int(code), "message": str(message)} if code > 0:
                return Returned(code, message)
        await self.close()
        status = self._process.returncode or 0
        how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        return Gone(f"the process of the handler ended {how}, without a result")

    def stop(self) -> None:
        """Ask the child to end its run and itself, and see to it that it does."""
        if self.is_stopped:
            return
        self.is_stopped = True
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        self._grace = asyncio.get_running_loop().call_later(STOP_GRACE_S, self._kill)

    async def close(self) -> None:
        """End the child now, and what it has started."""
        self.is_stopped = True
        self._kill()
        await self._process.wait()
        if self._grace is not None:
            self._grace.cancel()
            await asyncio.to_thread(kill_marked, self._mark)
        if self._output >= 0:
            self._drain()
            asyncio.get_running_loop().remove_reader(self._output)
            os.close(self._output)
            self._output = -1
        self._writer.close()

    async def _answer_of_the_living(self, word: str) -> dict[str, Any] | None:
        """As `_answer`, as long as the process lives; what it has said before counts."""
        answering = asyncio.create_task(self._answer(word))
        ending = asyncio.create_task(self._process.wait())
        try:
            await asyncio.wait({answering, ending}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({answering}, timeout=LAST_ANSWER_S)
            if answering.done() and answering.result() is None:  # What it has to do at its end.
                grace_s = STOP_GRACE_S if self.is_stopped else LAST_ANSWER_S
                await asyncio.wait({ending}, timeout=grace_s)
        finally:
            for task in (answering, ending):
                task.cancel()
            await asyncio.wait({answering, ending})
        return None if answering.cancelled() else answering.result()

    async def _answer(self, word: str | None = None) -> dict[str, Any] | None:
        """The next line of the child with this word; None when there will be none, or what comes is
        no answer at all."""
        try:
            while (line := await self._reader.readline()).endswith(b"\n"):
                answer = orjson.loads(line)
                if not isinstance(answer, dict):
                    return None
                if answer.get("word") == word:
                    return answer
        except (ConnectionError, ValueError):  # ValueError: no JSON, or a line beyond the limit.
            pass
        return None

    def _drain(self) -> None:
        """Take all that was printed until now, and not what is printed meanwhile for ever."""
        for _ in range(READS_MAX if self._output >= 0 else 0):
            try:
                printed = os.read(self._output, READ_BYTES)
            except BlockingIOError:
                return
            if not printed:
                asyncio.get_running_loop().remove_reader(self._output)
                return
            self.write(printed)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def marked(mark: str) -> list[int]:
    """Processes that live and have this mark, which is a word that nobody else has."""
    wanted = f"{MARK_VARIABLE}={mark}".encode()
    found = []
    for entry in _PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # It has ended, or is somebody else's.
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def kill_marked(mark: str) -> None:
    """Kill all that have this mark; of those that have ended the environment is empty."""
    for _ in range(ROUNDS_MAX):
        found = marked(mark)
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


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
