"""Workflows in the database: steps begin in their order, once, whoever dies, and can be stopped."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from engine.foundation.errors import ConfigError
from pipelines.database.database import Database
from pipelines.scheduler.job_settings import JobSettings
from pipelines.scheduler.run_life import CLAIM_MS, FAILED, OK, RunEvent, RunState
from pipelines.scheduler.store import flow_life, flows, jobs, passes, results
from pipelines.scheduler.store.kills import begin_kill
from pipelines.scheduler.store.passes import Claim
from pipelines.scheduler.store.tables import runs
from pipelines.scheduler.store.troubles import troubles
from pipelines.scheduler.wire.messages import DISCARDED
from pipelines.scheduler.workflows import StepState
from tests.integration.alerting.stores import sqlite_address
from tests.integration.scheduler.stores import (
    MINUTE_MS,
    NOW_MS,
    SECOND_MS,
    a_group,
    answered,
    by,
    note_result,
    send,
    settings,
)

DUE_MS = NOW_MS + MINUTE_MS
DIAMOND = """
[steps.extract]
job = {0}
[steps.clean]
job = {1}
after = ["extract"]
[steps.count]
job = {2}
after = ["extract"]
parameters = "count all"
[steps.report]
job = {3}
after = ["clean", "count"]
"""


def a_flow(text: str, **changed: object) -> JobSettings:
    return settings(handler="", glue_type="WORKFLOW", glue_source=text, **changed)


def a_workflow(database: Database, text: str = DIAMOND, **of_steps: object) -> int:
    """An active workflow, due at DUE_MS, over four jobs of a new group."""
    group_id = a_group(database)
    steps = {"schedule_kind": "NONE", "schedule_text": ""} | of_steps
    numbers = [jobs.add_job(database, group_id, settings(**steps), by()) for _ in range(4)]
    job_id = jobs.add_job(database, group_id, a_flow(text.format(*numbers)), by())
    jobs.start_job(database, job_id, by())
    return job_id


def run_of_flow(database: Database, job_id: int) -> results.Run:
    return results.runs_of(database, job_id)[0]


def states(database: Database, flow_id: int) -> dict[str, str]:
    return {step.name: step.state.value for step in flows.steps_of(database, flow_id)}


def go_on(database: Database, now_ms: int) -> dict[str, int]:
    """Send what waits; what was sent now: the step's name and its run."""
    batch = send(database, passes.claim_due(database, "one", now_ms=now_ms), now_ms)
    answered(database, batch, RunEvent.ACCEPT, now_ms)
    with database.reading() as connection:
        rows = connection.execute(
            sa.select(runs.c.log_id, runs.c.step).where(
                runs.c.log_id.in_([one.log_id for one in batch.sendings])
            )
        ).all()
    return {row.step: row.log_id for row in rows}


def begun(database: Database, job_id: int) -> tuple[int, dict[str, int]]:
    """Its run, begun at DUE_MS, and the first steps, sent."""
    batch = send(database, passes.plan_due(database, "one", now_ms=DUE_MS).claims, DUE_MS)
    assert batch.sendings == (), "a workflow is sent nowhere"
    return run_of_flow(database, job_id).log_id, go_on(database, DUE_MS)


def test_steps_begin_in_their_order_with_the_time_that_the_workflow_was_planned_for(
    database: Database,
) -> None:
    flow_id, first = begun(database, job_id := a_workflow(database))
    assert list(first) == ["extract"]
    note_result(database, first["extract"], OK, DUE_MS + 1)
    both = go_on(database, DUE_MS + 2)
    assert set(both) == {"clean", "count"}
    assert note_result(database, flow_id, OK, DUE_MS + 3) == 0, (
        "nobody was sent the workflow itself"
    )
    note_result(database, both["clean"], OK, DUE_MS + 3)
    assert go_on(database, DUE_MS + 4) == {}, "the report waits for both"
    note_result(database, both["count"], OK, DUE_MS + 5)
    note_result(database, both["count"], OK, DUE_MS + 6)
    last = go_on(database, DUE_MS + 7)
    assert list(last) == ["report"]
    note_result(database, last["report"], OK, DUE_MS + 8)

    run = results.run_of(database, flow_id)
    assert (run.state, run.ended_ms) == (RunState.DONE, DUE_MS + 8)
    assert run.result_message == "4 of 4 steps done"
    of_steps = [results.run_of(database, one) for one in (*both.values(), *last.values())]
    assert {one.planned_ms for one in of_steps} == {run.planned_ms} == {DUE_MS}
    assert set(states(database, flow_id).values()) == {StepState.DONE.value}
    assert jobs.job_of(database, job_id).next_ms == DUE_MS + MINUTE_MS


def test_a_step_that_fails_for_good_leaves_out_what_comes_after_it(database: Database) -> None:
    flow_id, first = begun(database, a_workflow(database, retries=1))
    note_result(database, first["extract"], FAILED, DUE_MS + 1)
    again = go_on(database, DUE_MS + 2)
    assert list(again) == ["extract"], "it is tried again"
    assert states(database, flow_id)["clean"] == "WAITING"
    note_result(database, again["extract"], OK, DUE_MS + 3)
    both = go_on(database, DUE_MS + 4)
    note_result(database, both["count"], OK, DUE_MS + 5)
    note_result(database, both["clean"], FAILED, DUE_MS + 5)
    note_result(database, go_on(database, DUE_MS + 6)["clean"], FAILED, DUE_MS + 7)
    run = results.run_of(database, flow_id)
    assert run.state is RunState.FAILED
    assert run.result_message == "2 of 4 steps done; failed: clean; left out: report"


def test_a_workflow_that_fails_is_tried_again_as_a_whole_and_lost_steps_are_failures(
    database: Database,
) -> None:
    job_id = a_workflow(database)
    flow = jobs.job_of(database, job_id).settings
    jobs.edit_job(database, job_id, a_flow(flow.glue_source, retries=1), by())
    flow_id, first = begun(database, job_id)
    findings = {first["extract"]: (RunEvent.BEREAVE, "its executor is gone")}
    results.note_findings(database, findings, now_ms=DUE_MS + 1)
    assert results.run_of(database, flow_id).state is RunState.FAILED

    assert go_on(database, DUE_MS + 2) == {}
    retry = run_of_flow(database, job_id)
    assert (retry.attempt, retry.planned_ms, retry.state) == (1, DUE_MS, RunState.RUNNING)
    assert list(go_on(database, DUE_MS + 3)) == ["extract"]


def test_parents_that_end_at_one_moment_begin_the_join_once(database: Database) -> None:
    flow_id, first = begun(database, a_workflow(database))
    note_result(database, first["extract"], OK, DUE_MS + 1)
    both = go_on(database, DUE_MS + 2)
    with ThreadPoolExecutor(2) as threads:
        ended = [
            threads.submit(note_result, database, one, OK, DUE_MS + 3) for one in both.values()
        ]
    assert [one.result() for one in ended] == [1, 1]
    assert list(go_on(database, DUE_MS + 4)) == ["report"]
    assert states(database, flow_id)["report"] == "BEGUN"


def test_what_is_stopped_begins_nothing_more(database: Database) -> None:
    flow_id, first = begun(database, a_workflow(database, retries=3))
    note_result(database, first["extract"], OK, DUE_MS + 1)
    waiting = passes.claim_due(database, "one", now_ms=DUE_MS + 2)
    assert flow_life.stop_by_hand(database, flow_id, by("bob", DUE_MS + 3))
    assert not flow_life.stop_by_hand(database, flow_id, by("bob", DUE_MS + 3)), "it is stopped"

    assert send(database, waiting, DUE_MS + 4).sendings == ()
    assert states(database, flow_id) == {
        "extract": "DONE", "clean": "FAILED", "count": "FAILED", "report": "LEFT_OUT"
    }  # fmt: skip
    run = results.run_of(database, flow_id)
    assert (run.state, run.result_message) == (RunState.FAILED, "stopped by bob")
    assert passes.claim_due(database, "one", now_ms=DUE_MS + CLAIM_MS + 4) == ()
    assert begin_kill(database, flow_id, by()).message == "", "it is over"
    with pytest.raises(ConfigError, match="is no run of a workflow"):
        flow_life.stop_by_hand(database, first["extract"], by())


@pytest.mark.parametrize("blocking", ["SERIAL_EXECUTION", "DISCARD_LATER", "COVER_EARLY"])
def test_one_run_of_a_workflow_is_under_way(database: Database, blocking: str) -> None:
    job_id = a_workflow(database)
    flow = jobs.job_of(database, job_id).settings
    jobs.edit_job(database, job_id, a_flow(flow.glue_source, blocking=blocking, title="one"), by())
    flow_id, first = begun(database, job_id)
    next_ms = DUE_MS + MINUTE_MS
    send(database, passes.plan_due(database, "one", now_ms=next_ms).claims, next_ms)
    second = run_of_flow(database, job_id)
    first_run = results.run_of(database, flow_id)
    if blocking == "COVER_EARLY":
        assert (first_run.state, second.state) == (RunState.FAILED, RunState.RUNNING)
        assert first_run.result_message == f"run {second.log_id} took its place"
    elif blocking == "DISCARD_LATER":
        assert (first_run.state, second.state) == (RunState.RUNNING, RunState.REFUSED)
        assert second.trigger_message == f"{DISCARDED}: run {flow_id} of it is under way"
        assert troubles(database, now_ms=next_ms) == [], "that is what was asked for"
    else:
        assert (first_run.state, second.state) == (RunState.RUNNING, RunState.CLAIMED)
        note_result(database, first["extract"], FAILED, next_ms + 1)
        assert go_on(database, next_ms + 2) == {}
        assert results.run_of(database, second.log_id).state is RunState.RUNNING


def test_a_run_goes_on_by_the_workflow_as_it_was_when_it_began(database: Database) -> None:
    flow_id, first = begun(database, job_id := a_workflow(database))
    steps = flows.steps_of(database, flow_id)
    with pytest.raises(ConfigError, match="so it cannot be removed"):
        jobs.remove_job(database, steps[0].job_id, by())
    with pytest.raises(ConfigError, match="there is no job"):
        jobs.edit_job(database, job_id, a_flow("[steps.a]\njob = 99999"), by())
    with pytest.raises(ConfigError, match="is a workflow, and a step is a job"):
        jobs.edit_job(database, job_id, a_flow(f"[steps.a]\njob = {job_id}"), by())
    jobs.edit_job(database, job_id, a_flow(f"[steps.only]\njob = {steps[0].job_id}"), by())
    jobs.remove_job(database, steps[3].job_id, by())
    note_result(database, first["extract"], OK, DUE_MS + 1)
    both = go_on(database, DUE_MS + 2)
    for one in both.values():
        note_result(database, one, OK, DUE_MS + 3)
    assert go_on(database, DUE_MS + 4) == {}
    run = results.run_of(database, flow_id)
    assert run.result_message == "3 of 4 steps done; failed: report", "its job was removed"


def test_a_workflow_that_is_killed_is_stopped(database: Database) -> None:
    flow_id, _ = begun(database, a_workflow(database))
    assert begin_kill(database, flow_id, by("bob")).message == "no further step of it begins"
    run = results.run_of(database, flow_id)
    assert (run.state, run.result_message) == (RunState.FAILED, "killed by bob")


def test_parameters_are_the_steps_own_or_those_of_the_run(database: Database) -> None:
    job_id = a_workflow(database)
    results.run_by_hand(database, job_id, "k", by(), parameters="for May")
    go_on(database, NOW_MS)
    first = send(database, passes.claim_due(database, "one", now_ms=NOW_MS), NOW_MS)
    assert [one.settings.parameters for one in first.sendings] == ["for May"]
    note_result(database, first.sendings[0].log_id, OK, NOW_MS + 1)
    both = send(database, passes.claim_due(database, "one", now_ms=NOW_MS + 1), NOW_MS + 1)
    assert {one.settings.parameters for one in both.sendings} == {"for May", "count all"}


def test_steps_of_a_run_that_is_not_over_are_not_forgotten(database: Database) -> None:
    flow_id, first = begun(database, a_workflow(database))
    note_result(database, first["extract"], OK, DUE_MS + 1)
    assert results.forget(database, before_ms=DUE_MS + MINUTE_MS) == 0
    flow_life.stop_by_hand(database, flow_id, by())
    assert results.forget(database, before_ms=DUE_MS + MINUTE_MS) == 2


class _Killed(BaseException):
    """No error: nothing that is there to go on after one may catch it."""


def test_a_centre_killed_at_any_statement_leaves_no_step_out_and_begins_none_twice(
    tmp_path: Path,
) -> None:
    """Each transaction of a run is broken off before each of its statements, then done again."""
    database = Database.at(sqlite_address(tmp_path))
    job_id = a_workflow(database)
    left = [0]

    def kill(*_: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise _Killed

    engine = database._writer.engine
    sa.event.listen(engine, "before_cursor_execute", kill)
    kills = 0
    now_ms = DUE_MS
    claims: tuple[Claim, ...] = ()
    sent: list[int] = []

    def plan() -> None:
        nonlocal claims
        claims = passes.plan_due(database, "one", now_ms=now_ms).claims
        claims += passes.claim_due(database, "one", now_ms=now_ms)

    def send_all() -> None:
        sent.extend(one.log_id for one in send(database, claims, now_ms).sendings)

    def end_all() -> None:
        results.note_results(database, [results.Result(one, OK) for one in sent], now_ms=now_ms)

    while not any(run.state is RunState.DONE for run in results.runs_of(database, job_id)):
        for work in (plan, send_all, end_all):
            for at in range(1, 200):
                left[0] = at
                try:
                    work()
                except _Killed:
                    kills += 1
                    continue
                break
        left[0] = 0
        now_ms += SECOND_MS
        assert now_ms < DUE_MS + 50 * SECOND_MS
    sa.event.remove(engine, "before_cursor_execute", kill)
    flow_id = results.runs_of(database, job_id)[-1].log_id
    assert [len(step.log_ids) for step in flows.steps_of(database, flow_id)] == [1, 1, 1, 1]
    assert len(sent) == len(set(sent)) == 4
    assert kills > 50
    database.close()
