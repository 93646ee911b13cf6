"""Row F5: what becomes of runs of one job: blocking, kill, time-out, change of what is run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipelines.scheduler.executor.job_queue import (
    Gone,
    JobQueue,
    Report,
    Returned,
    Start,
    Stop,
)
from pipelines.scheduler.wire.messages import (
    DISCARDED,
    Answer,
    Blocking,
    RunRequest,
    RunResult,
    refused,
)
from tests.recorded_xxl import to_admin

DIED = Gone("the process of the handler ended by SIGKILL, without a result")


def a_run(log_id: int, blocking: Blocking = Blocking.SERIAL, *, timeout_s: int = 0) -> RunRequest:
    return RunRequest(
        job_id=7,
        log_id=log_id,
        log_time_ms=1000,
        handler="demo",
        blocking=blocking,
        timeout_s=timeout_s,
    )


def test_a_run_starts_at_once_and_the_next_waits_for_its_end() -> None:
    queue = JobQueue()
    assert queue.offer(a_run(1)) == (Answer(), [Start(a_run(1))])
    assert queue.offer(a_run(2)) == (Answer(), [])
    assert queue.ended(Returned(200, "done")) == [
        Report(RunResult(1, 1000, 200, "done")),
        Start(a_run(2)),
    ]
    assert queue.ended(DIED) == [Report(RunResult(2, 1000, 500, DIED.reason))]
    assert queue.is_idle


def test_who_is_to_be_discarded_is_refused_while_something_is_there() -> None:
    queue = JobQueue()
    queue.offer(a_run(1))
    assert queue.offer(a_run(2, Blocking.DISCARD_LATER)) == (refused(DISCARDED), [])
    queue.ended(Returned(200))
    answer, steps = queue.offer(a_run(3, Blocking.DISCARD_LATER))
    assert answer.is_success
    assert steps == [Start(a_run(3, Blocking.DISCARD_LATER))]


def test_who_covers_ends_all_before_and_starts_when_that_is_gone() -> None:
    queue = JobQueue()
    cover = a_run(3, Blocking.COVER_EARLY)
    queue.offer(a_run(1))
    queue.offer(a_run(2))
    why = "block strategy effect：Cover Early"
    assert queue.offer(cover) == (
        Answer(),
        [
            Report(RunResult(2, 1000, 500, f"{why} [job not executed, in the job queue, killed.]")),
            Stop(a_run(1), why),
        ],
    )
    assert queue.ended(Gone("")) == [
        Report(RunResult(1, 1000, 500, f"{why} [job running, killed]")),
        Start(cover),
    ]


def test_a_job_that_was_changed_ends_what_was_begun_of_the_old_one() -> None:
    queue = JobQueue()
    queue.offer(a_run(1))
    changed = replace(a_run(2, Blocking.DISCARD_LATER), handler="other")
    answer, steps = queue.offer(changed)
    assert answer.is_success
    assert [type(step) for step in steps] == [Stop]
    assert queue.ended(Gone(""))[1:] == [Start(changed)]
    edited = [
        replace(a_run(log_id), glue_type="GLUE_SHELL", glue_time_ms=log_id) for log_id in (3, 4)
    ]
    queue.kill()
    queue.ended(Gone(""))
    queue.offer(edited[0])
    assert [type(step) for step in queue.offer(edited[1])[1]] == [Stop]


def test_the_time_of_a_handler_is_of_no_matter() -> None:
    queue = JobQueue()
    queue.offer(a_run(1))
    assert queue.offer(replace(a_run(2), glue_time_ms=99)) == (Answer(), [])


def test_a_kill_of_one_run_leaves_the_others() -> None:
    queue = JobQueue()
    for log_id in (1, 2, 3):
        queue.offer(a_run(log_id))
    assert [step.result.log_id for step in queue.kill(log_id=2) if isinstance(step, Report)] == [2]
    assert queue.kill(log_id=9) == []
    assert queue.kill(log_id=1) == [Stop(a_run(1), "scheduling center kill job.")]
    assert queue.ended(Gone(""))[1:] == [Start(a_run(3))]


def test_a_kill_is_reported_in_the_words_of_the_java_executor() -> None:
    queue = JobQueue()
    queue.offer(a_run(1))
    queue.offer(a_run(2))
    steps = [*queue.kill(), *queue.ended(Gone(""))]
    messages = {step.result.message for step in steps if isinstance(step, Report)}
    recorded = next(
        call.request for call in to_admin() if call.request and b"killed." in call.request
    )
    assert all(message.encode() in recorded for message in messages)
    assert len(messages) == 2
    assert queue.kill() == []


def test_a_run_is_stopped_when_its_time_is_up_and_not_before() -> None:
    queue = JobQueue()
    queue.offer(a_run(1, timeout_s=2))
    assert queue.due_ms is None, "it has no process yet"
    queue.begun(now_ms=100)
    assert queue.due_ms == 2100
    assert queue.overdue(now_ms=2099) == []
    assert queue.overdue(now_ms=2100) == [Stop(a_run(1, timeout_s=2), "job execute timeout ")]
    assert queue.overdue(now_ms=9999) == []
    assert queue.ended(Gone("")) == [Report(RunResult(1, 1000, 502, "job execute timeout "))]


def test_time_in_the_queue_does_not_count() -> None:
    queue = JobQueue()
    queue.offer(a_run(1))
    queue.offer(a_run(2, timeout_s=1))
    assert queue.due_ms is None
    queue.ended(Returned(200))
    assert queue.due_ms is None
    queue.begun(now_ms=50_000)
    assert queue.due_ms == 51_000


@pytest.mark.parametrize("stop", ["kill", "overdue"])
def test_a_result_that_came_before_the_stop_reached_it_counts(stop: str) -> None:
    queue = JobQueue()
    queue.offer(a_run(1, timeout_s=1))
    queue.begun(now_ms=0)
    assert queue.kill() if stop == "kill" else queue.overdue(now_ms=1000)
    assert queue.ended(Returned(200)) == [Report(RunResult(1, 1000, 200))]


def test_a_run_that_is_here_is_accepted_again_and_runs_once() -> None:
    queue = JobQueue()
    queue.offer(a_run(1))
    queue.offer(a_run(2))
    for log_id in (1, 2):
        for blocking in Blocking:
            assert queue.offer(a_run(log_id, blocking)) == (Answer(), [])
    assert [run.log_id for run in queue.held()] == [1, 2]


def test_more_than_may_wait_are_refused() -> None:
    queue = JobQueue(waiting_max=2)
    answers = [queue.offer(a_run(log_id))[0].is_success for log_id in range(4)]
    assert answers == [True, True, True, False]
