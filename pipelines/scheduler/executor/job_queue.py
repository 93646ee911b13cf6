"""State machine for one job on one executor: its active run, waiting runs and results.

             offer                   the one before has ended
    (centre) ──────▶ waiting ──────────────────────────────▶ at work ──▶ ended: one result
                │        │ covered, killed, shut down           │ covered, killed, shut down, late
       refused ◀┘        └──▶ one result                        └──▶ being stopped ──▶ one result

Invariant: a run that was accepted has exactly one result, and no two runs of a job are at work at
once: who covers an earlier run waits until that one is really gone. (The Java executor reports a
run as killed when it asks the thread to end, and starts the next beside it.)

A result that the handler gave before the stop reached it counts: the work is done, and saying
otherwise would have it done again. Absent on purpose: processes, files, clocks. Moments are in ms
of a clock that never steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pipelines.scheduler.wire.messages import (
    DISCARDED,
    Answer,
    Blocking,
    Code,
    RunRequest,
    RunResult,
    refused,
)

WAITING_MAX: Final = 1_000
"""Runs of one job that wait; more are refused."""

KILLED: Final = "scheduling center kill job."
COVERED: Final = "block strategy effect：Cover Early"
CHANGED: Final = "change jobhandler or glue type, and terminate the old job thread."
SHUT_DOWN: Final = "web container destroy and kill the job."
LATE: Final = "job execute timeout "
"""These are the Java executor's words, to the last blank: people search for them."""

RunKey = tuple[int, int]


def key_of(run: RunRequest) -> RunKey:
    """What names a run: a centre that begins anew gives the same ids again, at other times."""
    return run.log_id, run.log_time_ms


@dataclass(frozen=True, slots=True)
class Returned:
    """The handler came to its end."""

    code: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class Gone:
    """Its process is no more, without a result."""

    reason: str


Ending = Returned | Gone


@dataclass(frozen=True, slots=True)
class Start:
    """Put this run to work, and say `begun` when it has a process."""

    run: RunRequest


@dataclass(frozen=True, slots=True)
class Stop:
    """End the process of this run, and say `ended` when it is gone."""

    run: RunRequest
    why: str


@dataclass(frozen=True, slots=True)
class Report:
    """Tell the centre."""

    result: RunResult


Step = Start | Stop | Report


class JobQueue:
    """What an executor has of one job. Whoever calls carries out the steps, in their order."""

    def __init__(self, *, waiting_max: int = WAITING_MAX) -> None:
        self._waiting_max = waiting_max
        self._waiting: deque[RunRequest] = deque()
        self._at_work: RunRequest | None = None
        self._due_ms: int | None = None
        self._stopped_for: tuple[int, str] | None = None
        """Code and message of the result, once the run at work is being stopped."""

    @property
    def is_idle(self) -> bool:
        """Is nothing at work, and does nothing wait?"""
        return self._at_work is None and not self._waiting

    @property
    def due_ms(self) -> int | None:
        """When `overdue` has something to say; None: nothing that is known of."""
        return None if self._stopped_for else self._due_ms

    def held(self) -> Iterator[RunRequest]:
        """What is at work, then what waits."""
        if self._at_work is not None:
            yield self._at_work
        yield from self._waiting

    def offer(self, run: RunRequest) -> tuple[Answer, list[Step]]:
        """Take a run, or refuse it. One that is here already is accepted once more and changes
        nothing: the centre had no answer, and asks again.
        """
        if any(key_of(run) == key_of(held) for held in self.held()):
            return Answer(), []
        steps: list[Step] = []
        if not self.is_idle:
            if self._does_something_else(run):
                steps = self._clear(Code.FAIL, CHANGED)
            elif run.blocking is Blocking.DISCARD_LATER:
                return refused(DISCARDED), []
            elif run.blocking is Blocking.COVER_EARLY:
                steps = self._clear(Code.FAIL, COVERED)
            elif len(self._waiting) >= self._waiting_max:
                return refused(f"{self._waiting_max:,} runs of this job wait already"), []
        self._waiting.append(run)
        return Answer(), steps + self._next()

    def kill(self, why: str = KILLED, *, log_id: int | None = None) -> list[Step]:
        """Stop all of the job, or one run alone."""
        return self._clear(Code.FAIL, why, only=log_id)

    def begun(self, *, now_ms: int) -> None:
        """What is at work has a process from now on: its time runs."""
        assert self._at_work is not None, "nothing was put to work"
        timeout_s = self._at_work.timeout_s
        self._due_ms = now_ms + timeout_s * 1000 if timeout_s else None

    def overdue(self, *, now_ms: int) -> list[Step]:
        """Stop what is at work for longer than it may be."""
        if self._at_work is None or self.due_ms is None or now_ms < self.due_ms:
            return []
        self._stopped_for = (Code.TIMED_OUT, LATE)
        return [Stop(self._at_work, LATE)]

    def ended(self, ending: Ending) -> list[Step]:
        """What was at work is not any more."""
        run = self._at_work
        assert run is not None, "nothing was at work"
        match ending:
            case Returned(code, message):
                result = _result(run, code, message)
            case Gone() if self._stopped_for is not None:
                result = _result(run, *self._stopped_for)
            case Gone(reason):
                result = _result(run, Code.FAIL, reason)
        self._at_work = self._due_ms = self._stopped_for = None
        return [Report(result), *self._next()]

    def _does_something_else(self, run: RunRequest) -> bool:
        """Was the job changed since what is here was asked for?"""
        other = next(self.held())
        return (run.glue_type, run.handler, run.glue_time_ms * (run.glue_type != "BEAN")) != (
            other.glue_type,
            other.handler,
            other.glue_time_ms * (other.glue_type != "BEAN"),
        )

    def _clear(self, code: int, why: str, *, only: int | None = None) -> list[Step]:
        never = f"{why} [job not executed, in the job queue, killed.]"
        ends = [run for run in self._waiting if only in {None, run.log_id}]
        steps: list[Step] = [Report(_result(run, code, never)) for run in ends]
        self._waiting = deque(run for run in self._waiting if only not in {None, run.log_id})
        is_meant = self._at_work is not None and only in {None, self._at_work.log_id}
        if self._at_work is not None and is_meant and self._stopped_for is None:
            self._stopped_for = (code, f"{why} [job running, killed]")
            steps.append(Stop(self._at_work, why))
        return steps

    def _next(self) -> list[Step]:
        if self._at_work is not None or not self._waiting:
            return []
        self._at_work = self._waiting.popleft()
        return [Start(self._at_work)]


def _result(run: RunRequest, code: int, message: str) -> RunResult:
    return RunResult(run.log_id, run.log_time_ms, code, message)
