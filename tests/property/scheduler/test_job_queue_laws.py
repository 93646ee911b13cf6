"""Row F5: one job's runs in every order of run, kill, time-out and end, against a plain model.

The laws: each accepted run has one result; no two are at work at once; what waits starts in the
order in which it came; nothing that was ended starts.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pipelines.scheduler.executor.job_queue import (
    Gone,
    JobQueue,
    Report,
    Returned,
    Start,
    Step,
    Stop,
)
from pipelines.scheduler.wire.messages import Blocking, RunRequest

WAITING_MAX = 3


class OneJob(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue = JobQueue(waiting_max=WAITING_MAX)
        self.now_ms = 0
        self.last_id = 0
        self.at_work: RunRequest | None = None
        self.begun_ms: int | None = None
        self.is_stopped = False
        self.waiting: list[int] = []
        self.accepted: set[int] = set()
        self.results: dict[int, int] = {}

    @rule(blocking=st.sampled_from(Blocking), timeout_s=st.integers(0, 2), other=st.booleans())
    def a_new_run(self, blocking: Blocking, timeout_s: int, other: bool) -> None:
        self.last_id += 1
        run = RunRequest(
            job_id=1,
            log_id=self.last_id,
            log_time_ms=0,
            handler="other" if other else "demo",
            blocking=blocking,
            timeout_s=timeout_s,
        )
        busy = self.at_work is not None or bool(self.waiting)
        head = next(self.queue.held(), None)
        changed = head is not None and head.handler != run.handler
        answer, steps = self.queue.offer(run)
        if busy and not changed and blocking is Blocking.DISCARD_LATER:
            assert not answer.is_success
        elif busy and not changed and blocking is Blocking.SERIAL:
            assert answer.is_success == (len(self.waiting) < WAITING_MAX)
        else:
            assert answer.is_success
        if not answer.is_success:
            assert not steps
            return
        self.accepted.add(run.log_id)
        cleared = busy and (changed or blocking is Blocking.COVER_EARLY)
        ended = self.waiting if cleared else []
        self.waiting = [*([] if cleared else self.waiting), run.log_id]
        self.see(steps, ended=ended, stops=cleared)

    @precondition(lambda self: self.accepted)
    @rule(data=st.data())
    def the_same_run_again(self, data: st.DataObject) -> None:
        held = list(self.queue.held())
        if held:
            answer, steps = self.queue.offer(data.draw(st.sampled_from(held)))
            assert answer.is_success
            assert not steps

    @rule()
    def a_kill(self) -> None:
        ended, self.waiting = self.waiting, []
        self.see(self.queue.kill(), ended=ended, stops=True)

    @precondition(lambda self: self.at_work is not None and self.begun_ms is None)
    @rule()
    def a_process(self) -> None:
        self.begun_ms = self.now_ms
        self.queue.begun(now_ms=self.now_ms)

    @rule(passes_ms=st.integers(0, 1500))
    def time_passes(self, passes_ms: int) -> None:
        self.now_ms += passes_ms
        run = self.at_work
        is_late = (
            run is not None
            and bool(run.timeout_s)
            and self.begun_ms is not None
            and self.now_ms - self.begun_ms >= run.timeout_s * 1000
        )
        steps = self.queue.overdue(now_ms=self.now_ms)
        assert bool(steps) == (is_late and not self.is_stopped)
        self.see(steps, stops=is_late)

    @precondition(lambda self: self.at_work is not None)
    @rule(returns=st.booleans())
    def the_end_of_a_run(self, returns: bool) -> None:
        assert self.at_work is not None
        ended, self.at_work = self.at_work.log_id, None
        was_stopped, self.is_stopped = self.is_stopped, False
        ending = Returned(200) if returns else Gone("died")
        self.see(self.queue.ended(ending), ended=[ended])
        assert (self.results[ended] == 200) == returns
        assert returns or was_stopped or self.results[ended] == 500

    def see(self, steps: list[Step], *, ended: Sequence[int] = (), stops: bool = False) -> None:
        """Carry out the steps on the model, which refuses those that break a law."""
        reports = []
        for step in steps:
            match step:
                case Report(result):
                    assert result.log_id not in self.results, "two results"
                    self.results[result.log_id] = result.code
                    reports.append(result.log_id)
                case Start(run):
                    assert self.at_work is None, "two at work"
                    assert self.waiting.pop(0) == run.log_id, "out of turn"
                    self.at_work, self.begun_ms = run, None
                case Stop(run):
                    assert stops, "stopped without a reason"
                    assert run == self.at_work
                    assert not self.is_stopped, "stopped twice"
                    self.is_stopped = True
        assert reports == list(ended)

    @invariant()
    def each_run_is_in_one_place(self) -> None:
        here = [] if self.at_work is None else [self.at_work.log_id]
        assert [run.log_id for run in self.queue.held()] == here + self.waiting
        assert self.accepted == {*self.results, *here, *self.waiting}
        assert self.queue.is_idle == (not here and not self.waiting)
        assert not self.waiting or here, "work waits for nothing"


TestOneJob = OneJob.TestCase
TestOneJob.settings = settings(max_examples=40, stateful_step_count=25)
