"""Rows F1, F5 and F7: a job is changed while its next time is planned and not yet sent: each time
has one run, and no centre ends for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from pipelines.database.database import Database
from pipelines.scheduler.run_life import OK, RunState
from pipelines.scheduler.store import jobs, kills, passes, results
from tests.integration.scheduler.stores import (
    NOW_MS,
    SECOND_MS,
    a_group,
    by,
    by_hand,
    note_result,
    refusing,
    send,
    settings,
    started,
)

PLANNED_MS, CHANGED_MS, AGAIN_MS = (NOW_MS + ms for ms in (1_000, 1_500, 2_000))
DUE_MS = NOW_MS + 7 * SECOND_MS
ONE_STEP = "[steps.only]\njob = {}"
KINDS = {
    "CRON": {"schedule_kind": "CRON", "schedule_text": "0/5 * * * * ?"},
    "FIX_RATE": {"schedule_kind": "FIX_RATE", "schedule_text": "5"},
    "FIX_DELAY": {"schedule_kind": "FIX_DELAY", "schedule_text": "5"},
    "ONCE": {"schedule_kind": "ONCE", "schedule_text": "2026-05-28T20:26:45Z"},
    "workflow": {
        "schedule_kind": "CRON",
        "schedule_text": "0/5 * * * * ?",
        "glue_type": "WORKFLOW",
    },
}


def edited(database: Database, job_id: int, at_ms: int = CHANGED_MS, **changed: str) -> int:
    wanted = jobs.job_of(database, job_id).settings
    changed |= {"title": f"as of {at_ms}"}
    jobs.edit_job(database, job_id, replace(wanted, **changed), by(now_ms=at_ms))
    return job_id


def rescheduled(database: Database, job_id: int) -> int:
    """And back again."""
    before = jobs.job_of(database, job_id).settings
    edited(database, job_id, schedule_kind="FIX_RATE", schedule_text="600")
    words = {name: getattr(before, name) for name in ("schedule_kind", "schedule_text")}
    return edited(database, job_id, **words)


def paused_and_started(database: Database, job_id: int) -> int:
    jobs.pause_job(database, job_id, by(now_ms=CHANGED_MS))
    jobs.start_job(database, job_id, by(now_ms=CHANGED_MS))
    return job_id


def killed_and_started(database: Database, job_id: int) -> int:
    for run in results.runs_of(database, job_id):
        kills.begin_kill(database, run.log_id, by(now_ms=CHANGED_MS))
    return paused_and_started(database, job_id)


def removed_and_added(database: Database, job_id: int) -> int:
    wanted, group_id = (
        jobs.job_of(database, job_id).settings,
        jobs.job_of(database, job_id).group_id,
    )
    jobs.remove_job(database, job_id, by(now_ms=CHANGED_MS))
    added = jobs.add_job(database, group_id, wanted, by(now_ms=CHANGED_MS))
    jobs.start_job(database, added, by(now_ms=CHANGED_MS))
    assert added != job_id, "the runs of the one that is gone are not its own"
    return added


CHANGES: tuple[Callable[[Database, int], int], ...] = (
    rescheduled, paused_and_started, killed_and_started, removed_and_added,
)  # fmt: skip


def a_job(database: Database, kind: str, **more: str) -> int:
    group_id = a_group(database)
    words = KINDS[kind] | more
    if kind == "workflow":
        step = jobs.add_job(database, group_id, settings(schedule_kind="NONE"), by())
        words |= {"glue_source": ONE_STEP.format(step), "handler": ""}
    return started(database, group_id, **words)


def kept(database: Database, job_id: int) -> list[results.Run]:
    runs = results.runs_of(database, job_id)
    return [run for run in runs if run.state is not RunState.CANCELLED]


@pytest.mark.parametrize("misfire", ["DO_NOTHING", "FIRE_ONCE_NOW"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_time_that_was_cancelled_is_planned_anew_and_sent_once(
    kind: str, change: Callable[[Database, int], int], misfire: str, database: Database
) -> None:
    before = a_job(database, kind, misfire=misfire)
    old = passes.plan_due(database, "one", now_ms=PLANNED_MS).claims
    assert len(old) == 1

    job_id = change(database, before)
    new = passes.plan_due(database, "two", now_ms=AGAIN_MS).claims
    assert [claim.job_id for claim in new] == [job_id]
    assert passes.plan_due(database, "one", now_ms=AGAIN_MS).claims == ()
    assert Counter(run.planned_ms for run in kept(database, job_id)).most_common(1)[0][1] == 1

    assert send(database, old, DUE_MS).sendings == (), "the claim is one on what was cancelled"
    sent = send(database, new, DUE_MS).sendings
    assert send(database, [*old, *new], DUE_MS).sendings == ()
    [run] = kept(database, job_id)
    if kind == "workflow":
        assert run.state is RunState.RUNNING
    else:
        assert [one.log_id for one in sent] == [run.log_id]
    [gone] = [one for one in results.runs_of(database, before) if one.log_id == old[0].log_id]
    assert gone.state is RunState.CANCELLED, "what was cancelled stays so"


@pytest.mark.parametrize("misfire", ["DO_NOTHING", "FIRE_ONCE_NOW"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_change_that_leaves_the_schedule_leaves_the_times(
    kind: str, misfire: str, database: Database
) -> None:
    job_id = a_job(database, kind, misfire=misfire)
    claims = passes.plan_due(database, "one", now_ms=PLANNED_MS).claims
    before = jobs.job_of(database, job_id)
    for later_ms in (0, 1, DUE_MS - CHANGED_MS):
        edited(database, job_id, CHANGED_MS + later_ms)
    after = jobs.job_of(database, job_id)
    assert (after.next_ms, after.is_active) == (before.next_ms, before.is_active)
    sent = send(database, claims, DUE_MS).sendings
    assert [one.settings.title for one in sent] == [after.settings.title] * (kind != "workflow")
    [run] = results.runs_of(database, job_id)
    assert run.state in {RunState.SENT, RunState.RUNNING}


@pytest.mark.parametrize("kind", ["CRON", "FIX_RATE", "FIX_DELAY"])
def test_a_time_that_has_had_its_run_has_no_other_when_a_clock_went_back(
    kind: str, database: Database
) -> None:
    job_id = a_job(database, kind)
    claims = passes.plan_due(database, "one", now_ms=PLANNED_MS).claims
    [sent] = send(database, claims, DUE_MS).sendings
    note_result(database, sent.log_id, OK, DUE_MS)
    jobs.pause_job(database, job_id, by(now_ms=NOW_MS))
    begun = jobs.start_job(database, job_id, by(now_ms=NOW_MS)).job
    assert begun is not None
    assert begun.next_ms == sent.planned_ms

    assert passes.plan_due(database, "two", now_ms=NOW_MS).claims == ()
    assert [run.state for run in results.runs_of(database, job_id)] == [RunState.DONE]
    claimed = [
        len(passes.plan_due(database, "two", now_ms=NOW_MS + seconds * SECOND_MS).claims)
        for seconds in range(1, 15)
    ]
    assert any(claimed), "and it goes on"


def test_a_job_that_is_changed_again_and_again_keeps_its_times(database: Database) -> None:
    job_id = started(database, a_group(database), schedule_kind="FIX_RATE", schedule_text="60")
    for at_s in range(0, 200, 5):
        if at_s % 25 == 0:
            edited(database, job_id, NOW_MS + at_s * SECOND_MS)
        passes.plan_due(database, "one", now_ms=NOW_MS + at_s * SECOND_MS)
    times = {run.planned_ms - NOW_MS for run in kept(database, job_id)}
    assert times == {60_000, 120_000, 180_000}


def test_a_new_schedule_begins_from_now_on(database: Database) -> None:
    job_id = a_job(database, "CRON")
    passes.plan_due(database, "one", now_ms=PLANNED_MS)
    wanted = replace(jobs.job_of(database, job_id).settings, schedule_text="3 * * * * ?")
    jobs.edit_job(database, job_id, wanted, by(now_ms=CHANGED_MS))
    assert jobs.job_of(database, job_id).next_ms == NOW_MS + 23 * SECOND_MS


def test_a_moment_that_is_put_off_when_its_run_waits_is_not_lost(database: Database) -> None:
    job_id = a_job(database, "ONCE")
    old = passes.plan_due(database, "one", now_ms=PLANNED_MS).claims
    assert not jobs.job_of(database, job_id).is_active, "its last time is planned"
    edited(database, job_id, schedule_text="2026-05-28T20:26:46Z")
    new = passes.plan_due(database, "two", now_ms=AGAIN_MS).claims
    [sent] = send(database, [*old, *new], DUE_MS).sendings
    assert sent.planned_ms == NOW_MS + 6 * SECOND_MS


def test_a_job_that_breaks_a_pass_is_stopped_and_no_other(database: Database) -> None:
    group_id = a_group(database)
    made = [started(database, group_id, **KINDS["CRON"]) for _ in range(7)]
    with refusing(database, "runs", f"{{row}}job_id = {made[4]}"):
        done = passes.plan_due(database, "one", now_ms=PLANNED_MS)
    assert done.stopped == (made[4],)
    assert sorted(claim.job_id for claim in done.claims) == sorted(set(made) - {made[4]})
    stopped = jobs.job_of(database, made[4])
    assert not stopped.is_active
    assert "it cannot be planned" in (stopped.stopped_because or "")
    edited(database, made[4])
    assert jobs.start_job(database, made[4], by(now_ms=CHANGED_MS)).changes
    assert len(passes.plan_due(database, "one", now_ms=AGAIN_MS).claims) == 1


def test_a_run_that_cannot_be_claimed_is_lost_and_holds_up_no_other(database: Database) -> None:
    group_id = a_group(database)
    made = [started(database, group_id, **KINDS["CRON"]) for _ in range(7)]
    passes.plan_due(database, "one", now_ms=PLANNED_MS)
    bad = results.runs_of(database, made[3])[0].log_id
    by_hand(database, f"UPDATE runs SET token = {2**31 - 1} WHERE log_id = {bad}")
    late_ms = DUE_MS + 60 * SECOND_MS
    with refusing(database, "runs", f"{{row}}log_id = {bad} AND {{row}}state <> 'LOST'"):
        claims = passes.claim_due(database, "two", now_ms=late_ms)
    assert len(claims) == 6
    run = results.run_of(database, bad)
    assert run.state is RunState.LOST
    assert "cannot be read" in (run.result_message or "")
    assert passes.claim_due(database, "two", now_ms=late_ms) == ()


def test_a_run_that_breaks_a_batch_is_refused_and_no_other(database: Database) -> None:
    group_id = a_group(database)
    made = [started(database, group_id, **KINDS["CRON"]) for _ in range(7)]
    claims = passes.plan_due(database, "one", now_ms=PLANNED_MS).claims
    with refusing(database, "runs", f"{{row}}job_id = {made[2]} AND {{row}}state = 'SENT'"):
        batch = send(database, claims, DUE_MS)
    assert (len(batch.sendings), batch.refused) == (6, 1)
    [run] = results.runs_of(database, made[2])
    assert run.state is RunState.REFUSED
    assert "it cannot be sent" in (run.trigger_message or "")


def test_a_result_that_breaks_a_batch_ends_its_run_and_holds_up_no_other(
    database: Database,
) -> None:
    group_id = a_group(database)
    child = jobs.add_job(database, group_id, settings(schedule_kind="NONE"), by())
    made = [started(database, group_id, **KINDS["CRON"]) for _ in range(7)]
    parent = started(database, group_id, **KINDS["CRON"], children=(child,))
    lost = started(database, group_id, **KINDS["CRON"])
    batch = send(database, passes.plan_due(database, "one", now_ms=PLANNED_MS).claims, DUE_MS)
    results_of = [results.Result(one.log_id, OK) for one in batch.sendings]
    never = f"{{row}}job_id = {child} OR {{row}}job_id = {lost} AND {{row}}state = 'DONE'"
    with refusing(database, "runs", never):
        results.note_deliveries(database, [results.Delivery(results_of)], now_ms=DUE_MS)
    for job_id in (*made, parent):
        assert [run.state for run in results.runs_of(database, job_id)] == [RunState.DONE]
    assert [run.state for run in results.runs_of(database, lost)] == [RunState.SENT]
    assert results.runs_of(database, child) == []
