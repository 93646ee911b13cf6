"""An executor that carries out a centre's requests and reports the outcomes.

The decisions are those of `job_queue` (runs of a job) and `reports` (results on their way); here
they meet processes, files and the clock. A run is written down before it is accepted and before it
starts; its result before it is reported.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from engine.foundation.errors import TidemarkError
from pipelines.scheduler.executor.job_queue import (
    SHUT_DOWN,
    Ending,
    Gone,
    JobQueue,
    Report,
    RunKey,
    Start,
    Step,
    Stop,
    key_of,
)
from pipelines.scheduler.executor.log_files import LogFile, LogFiles
from pipelines.scheduler.executor.reports import Reports
from pipelines.scheduler.executor.run_files import RunFiles, TakenRuns
from pipelines.scheduler.executor.worker import Child, WorkerPool
from pipelines.scheduler.scripts import LANGUAGES, SWITCHED_OFF, runnable
from pipelines.scheduler.wire.messages import (
    Answer,
    Glue,
    LogPage,
    LogRequest,
    RunRequest,
    RunResult,
    decode_job,
    decode_kill,
    refused,
)
from pipelines.scheduler.wire.server import Call, WireRequest

RUNS_MAX: Final = 20_000
"""Runs at work and waiting, of all jobs; more are refused."""
HELD_CHARS_MAX: Final = 64 * 1024 * 1024
"""Of their parameters and sources together; a run that would bring more is refused."""
BUSY: Final = "job thread is running or has trigger queue."
FULL: Final = "as many runs are here as may be"
UNTOLD: Final = "too many results here were taken by no admin yet"
TOO_LATE: Final = "the run was asked about since this was sent, and is planned anew"
ENDING: Final = "the executor is ending"

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Job:
    """What there is of a job that has a run."""

    queue: JobQueue = field(default_factory=JobQueue)
    worker: Child | None = None
    """Of the run at work, as soon as it has one."""
    unwanted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the run at work is to end."""
    task: asyncio.Task[None] | None = None
    """Of the run at work."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What an executor takes from the machine, besides its files and children."""

    steady_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000
    """ms of a clock that never steps."""
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    """ms since 1970, by the clock of this machine."""
    off_loop: Callable[[Callable[[], LogPage]], Awaitable[LogPage]] = asyncio.to_thread
    """Runs what may block, beside the loop."""


class Executor:
    """Answers the calls of a centre. Belongs to one loop."""

    def __init__(
        self, home: Path, pool: WorkerPool, *, scripts: bool, ports: Ports | None = None
    ) -> None:
        """`scripts`: may source from the centre be run?"""
        self.ports: Final = ports or Ports()
        self.reports: Final = Reports()
        self.news: Final = asyncio.Event()
        """Set when there is a result to report."""
        self._pool = pool
        self._scripts = home / "scripts" if scripts else None
        self._files = RunFiles(home)
        self._logs = LogFiles(home)
        self._jobs: dict[int, _Job] = {}
        self._runs = 0
        """Accepted, and without a result."""
        self._held_chars: dict[RunKey, int] = {}
        """Of the parameters and the source of each of these runs."""
        self._chars = 0
        """Their sum."""
        self._taken = TakenRuns(home, now_ms=self.ports.now_ms())
        self._handlers: frozenset[str] = frozenset()
        self._is_ending = False

    async def begin(self) -> Sequence[str]:
        """Take over what an earlier process left; return the names of the handlers. Raises
        ConfigError when the module cannot be imported."""
        self._handlers = await self._pool.begin()
        for result in self._files.left():
            if not self._taken.has(result.log_id, result.log_time_ms, None):
                self._taken.take(result.log_id, result.log_time_ms, None)
            self.reports.add(result)
        self.news.set()
        return sorted(self._handlers)

    def calls(self) -> dict[str, Call]:
        """Path → what answers it. `/trigger` is the later word for `/run`."""
        return {
            "/beat": self._beat,
            "/idleBeat": self._idle_beat,
            "/run": self._run,
            "/trigger": self._run,
            "/kill": self._kill,
            "/log": self._log_page,
        }

    def delivered(self) -> None:
        """An admin has the batch of results that was under way."""
        for result in self.reports.delivered():
            self._files.forget((result.log_id, result.log_time_ms))

    def tidy(self, *, retention_days: int) -> None:
        """Remove logs that are old."""
        self._logs.tidy(today=datetime.now(UTC).date(), retention_days=retention_days)

    async def end(self) -> None:
        """Accept nothing more, stop all that is at work, and wait until it is gone."""
        self._is_ending = True
        for job in list(self._jobs.values()):
            self._carry_out(job, job.queue.kill(SHUT_DOWN))
        while tasks := [job.task for job in self._jobs.values() if job.task is not None]:
            await asyncio.wait(tasks)
        await self._pool.close()
        self._taken.close()

    async def _beat(self, _: WireRequest) -> Answer:
        return refused(ENDING) if self._is_ending else Answer()

    async def _idle_beat(self, request: WireRequest) -> Answer:
        return refused(BUSY) if decode_job(request.body) in self._jobs else Answer()

    async def _run(self, request: WireRequest) -> Answer:
        run = RunRequest.decode(request.body)
        key = key_of(run)
        if self._taken.has(*key, run.fire_time_ms):
            return Answer()
        if self._taken.is_too_late(*key, run.fire_time_ms):
            return refused(TOO_LATE)
        if (why := self._why_not(run)) is not None:
            return refused(why)
        job = self._jobs.get(run.job_id) or _Job()
        try:
            self._taken.take(*key, run.fire_time_ms)
            self._files.accept(key)
        except OSError as error:
            self._taken.give_back(*key, run.fire_time_ms)
            return refused(f"the executor cannot write it down: {error.strerror or error}")
        answer, steps = job.queue.offer(run)
        if answer.is_success:
            self._jobs[run.job_id] = job
            self._runs += 1
            self._held_chars[key] = _chars_of(run)
            self._chars += self._held_chars[key]
        else:
            self._files.forget(key)
            self._taken.give_back(*key, run.fire_time_ms)
        self._carry_out(job, steps)
        return answer

    def _why_not(self, run: RunRequest) -> str | None:
        """Why this run can never be done here, or not now."""
        if self._is_ending:
            return ENDING
        if run.glue_type == Glue.BEAN:
            if run.handler not in self._handlers:
                return f"job handler [{run.handler}] not found."
        elif run.glue_type not in LANGUAGES:
            return f"glueType[{run.glue_type}] is not valid."
        elif self._scripts is None:
            return SWITCHED_OFF
        if self.reports.is_full:
            return UNTOLD
        is_full = self._runs >= RUNS_MAX or self._chars + _chars_of(run) > HELD_CHARS_MAX
        return FULL if is_full else None

    async def _kill(self, request: WireRequest) -> Answer:
        job_id, log_id = decode_kill(request.body)
        job = self._jobs.get(job_id)
        if job is None:
            return Answer(message="job thread already killed.")
        self._carry_out(job, job.queue.kill(log_id=log_id))
        return Answer()

    async def _log_page(self, request: WireRequest) -> Answer:
        log_request = LogRequest.decode(request.body)
        key = (log_request.log_id, log_request.log_time_ms)
        is_finished = not any(
            key_of(run) == key for job in self._jobs.values() for run in job.queue.held()
        )
        page = await self.ports.off_loop(
            partial(self._logs.page, log_request, is_finished=is_finished)
        )
        if log_request.fire_time_ms is not None:
            page = replace(page, taken=self._taken.says(*key, log_request.fire_time_ms))
        return Answer(content=page.as_content())

    def _carry_out(self, job: _Job, steps: Sequence[Step]) -> None:
        for step in steps:
            match step:
                case Report(result):
                    self._runs -= 1
                    key = (result.log_id, result.log_time_ms)
                    self._chars -= self._held_chars.pop(key)
                    self._keep(result)
                    self.reports.add(result)
                    self.news.set()
                case Stop(run, why):
                    _log.warning("run %d of job %d is stopped: %s", run.log_id, run.job_id, why)
                    job.unwanted.set()
                    if job.worker is not None:
                        job.worker.stop()
                case Start(run):
                    job.unwanted.clear()
                    job.task = asyncio.create_task(self._work(job, run), name=f"run {run.log_id}")

    def _keep(self, result: RunResult) -> None:
        """A result is reported even when the disk is full, as long as this process lives."""
        try:
            self._files.finish(result)
        except OSError:
            _log.exception("the result of run %d is not written down", result.log_id)

    async def _work(self, job: _Job, run: RunRequest) -> None:
        """One run from its start to its end, and the next after it."""
        ending: Ending = Gone("the executor failed; its log has why")
        try:
            ending = await self._done(job, run)
        except (OSError, TidemarkError) as error:
            ending = Gone(str(error))
        except Exception:  # noqa: BLE001 - the run must have an end, and the job go on
            _log.exception("run %d of job %d", run.log_id, run.job_id)
        job.task = None
        self._carry_out(job, job.queue.ended(ending))
        if job.queue.is_idle:
            del self._jobs[run.job_id]

    async def _done(self, job: _Job, run: RunRequest) -> Ending:
        if not await self._pool.place(job.unwanted):
            return Gone("it was stopped before it had a process")
        try:
            log = self._logs.open(run.log_id, run.log_time_ms)
            try:
                return await self._logged(job, run, log)
            finally:
                log.close()
        finally:
            self._pool.leave()

    async def _logged(self, job: _Job, run: RunRequest, log: LogFile) -> Ending:
        log.say(f"begins: parameters {run.parameters!r}")
        worker = job.worker = await self._pool.take(run.job_id)
        worker.write = log.write
        try:
            if job.unwanted.is_set():
                return Gone("it was stopped before it began")
            self._files.start(key_of(run))
            job.queue.begun(now_ms=self.ports.steady_ms())
            ending = await self._watched(job, worker, run, log)
            log.say(f"ends: {ending}")
            return ending
        finally:
            job.worker = None
            worker.write = _nowhere
            await self._pool.give(run.job_id, worker)

    async def _watched(self, job: _Job, worker: Child, run: RunRequest, log: LogFile) -> Ending:
        """The run's end; it is stopped when its time is up."""
        running = asyncio.create_task(worker.run(self._order(run)))
        while not running.done():
            due_ms = job.queue.due_ms
            patience_s = None if due_ms is None else max(0, due_ms - self.ports.steady_ms()) / 1000
            await asyncio.wait({running}, timeout=patience_s)
            if not running.done() and (steps := job.queue.overdue(now_ms=self.ports.steady_ms())):
                log.say(f"takes longer than {run.timeout_s} s: its stack, then its end")
                self._carry_out(job, steps)
        return running.result()

    def _order(self, run: RunRequest) -> dict[str, Any]:
        """The instructions that the child gets."""
        script = None
        if run.glue_type != Glue.BEAN:
            assert self._scripts is not None, "refused when it was offered"
            language = LANGUAGES[Glue(run.glue_type)]
            self._scripts.mkdir(exist_ok=True, mode=0o700)
            file = self._scripts / f"{run.job_id}{language.suffix}"
            script = {
                "command": language.command,
                "file": str(file.resolve()),
                "source": runnable(run.glue_type, run.glue_source),
            }
        return {
            "job_id": run.job_id,
            "log_id": run.log_id,
            "log_time_ms": run.log_time_ms,
            "fire_time_ms": run.fire_time_ms,
            "handler": run.handler,
            "parameters": run.parameters,
            "shard_index": run.shard_index,
            "shard_total": run.shard_total,
            "script": script,
        }


def _chars_of(run: RunRequest) -> int:
    return len(run.parameters) + len(run.glue_source)


def _nowhere(_: bytes) -> None:
    """What a handler's threads print between runs."""
