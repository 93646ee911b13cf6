"""The scheduler's tables, on SQLite and PostgreSQL: what is due is planned, sent and ends once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import sqlalchemy as sa

from pipelines.database.clock import database_ms, machine_ms
from pipelines.database.database import Database
from pipelines.scheduler.run_life import CLAIM_MS, FAILED, OK, QUIET_MS, RunEvent, RunState
from pipelines.scheduler.store import glue, jobs, passes, registry, results, tables
from tests.integration.scheduler.stores import (
    ADDRESSES,
    APP,
    HOSTILE,
    MINUTE_MS,
    NOW_MS,
    SECOND_MS,
    a_group,
    answered,
    by,
    note_result,
    send,
    settings,
    started,
)

DUE_MS = NOW_MS + MINUTE_MS
ENDED_MS = DUE_MS + 2 * SECOND_MS


def states(database: Database, job_id: int) -> list[RunState]:
    return [run.state for run in reversed(results.runs_of(database, job_id))]


def test_what_is_due_is_planned_once_and_its_job_moves_on(database: Database) -> None:
    job_id = started(database, a_group(database))
    assert passes.plan_due(database, "one", now_ms=DUE_MS - 6 * SECOND_MS).claims == ()

    first = passes.plan_due(database, "one", now_ms=DUE_MS - 4 * SECOND_MS)
    again = passes.plan_due(database, "two", now_ms=DUE_MS - 3 * SECOND_MS)

    assert [(claim.token, claim.due_ms) for claim in first.claims] == [(1, DUE_MS)]
    assert again.claims == ()
    assert jobs.job_of(database, job_id).next_ms == DUE_MS + MINUTE_MS
    assert passes.claim_due(database, "two", now_ms=DUE_MS) == (), "it is claimed"


def test_a_run_is_sent_accepted_and_ends_once(database: Database) -> None:
    job_id = started(database, a_group(database), parameters=HOSTILE, title=HOSTILE)
    claims = passes.plan_due(database, "one", now_ms=DUE_MS).claims

    batch = send(database, claims, DUE_MS)
    assert send(database, claims, DUE_MS).sendings == (), "it was sent"
    [one] = batch.sendings
    assert (one.planned_ms, one.shard_index, one.shard_total) == (DUE_MS, 0, 1)
    assert one.settings.parameters == HOSTILE
    answered(database, batch, RunEvent.ACCEPT, DUE_MS + 5)
    assert states(database, job_id) == [RunState.ACCEPTED]

    assert note_result(database, one.log_id, OK, ENDED_MS) == 1
    assert note_result(database, one.log_id, FAILED, ENDED_MS + 9) == 0, "reported again"
    run = results.run_of(database, one.log_id)
    assert (run.state, run.result_code, run.ended_ms) == (RunState.DONE, OK, ENDED_MS)


def test_a_result_may_come_before_the_answer(database: Database) -> None:
    job_id = started(database, a_group(database))
    batch = send(database, passes.plan_due(database, "one", now_ms=DUE_MS).claims, DUE_MS)
    note_result(database, batch.sendings[0].log_id, OK, DUE_MS + 1)
    answered(database, batch, RunEvent.ACCEPT, DUE_MS + 5)
    assert states(database, job_id) == [RunState.DONE]


def test_what_a_dead_centre_had_claimed_is_sent_by_another(database: Database) -> None:
    job_id = started(database, a_group(database))
    lost = passes.plan_due(database, "one", now_ms=DUE_MS).claims
    over_ms = DUE_MS + CLAIM_MS

    taken = passes.claim_due(database, "two", now_ms=over_ms)
    assert [(claim.log_id, claim.token) for claim in taken] == [(lost[0].log_id, 2)]
    assert send(database, lost, over_ms).sendings == (), "the first has slept through its claim"
    assert len(send(database, taken, over_ms).sendings) == 1
    assert states(database, job_id) == [RunState.SENT]


def test_what_was_sent_is_sent_again_only_when_its_executor_has_none_of_it(
    database: Database,
) -> None:
    job_id = started(database, a_group(database))
    batch = send(database, passes.plan_due(database, "one", now_ms=DUE_MS).claims, DUE_MS)
    log_id = batch.sendings[0].log_id
    over_ms, quiet_ms = DUE_MS + CLAIM_MS, DUE_MS + CLAIM_MS + QUIET_MS

    def found(event: RunEvent, at_ms: int) -> list[RunState]:
        results.note_findings(database, {log_id: (event, "asked")}, now_ms=at_ms)
        return states(database, job_id)

    assert results.doubtful(database, now_ms=quiet_ms - 1) == ()
    assert [doubt.log_id for doubt in results.doubtful(database, now_ms=quiet_ms)] == [log_id]
    assert found(RunEvent.LOSE_SIGHT, over_ms - 1) == [RunState.SENT], "its centre may be at it"
    assert found(RunEvent.LOSE_SIGHT, over_ms) == [RunState.UNKNOWN]
    assert found(RunEvent.MISS, quiet_ms - 1) == [RunState.UNKNOWN], "it may still arrive"
    assert found(RunEvent.MISS, quiet_ms) == [RunState.PLANNED]
    again = passes.claim_due(database, "two", now_ms=quiet_ms)
    assert [one.log_id for one in send(database, again, quiet_ms).sendings] == [log_id]


def test_a_run_that_fails_is_tried_again_with_its_shard(database: Database) -> None:
    job_id = started(database, a_group(database), route="SHARDING_BROADCAST", retries=1)
    batch = send(database, passes.plan_due(database, "one", now_ms=DUE_MS).claims, DUE_MS)
    assert [(one.address, one.shard_index, one.shard_total) for one in batch.sendings] == [
        (address, index, 3) for index, address in enumerate(ADDRESSES)
    ]
    answered(database, batch, RunEvent.ACCEPT, DUE_MS)
    for one, code in zip(batch.sendings, (OK, FAILED, OK), strict=True):
        note_result(database, one.log_id, code, ENDED_MS)

    again = send(database, passes.claim_due(database, "one", now_ms=ENDED_MS), ENDED_MS)
    assert [(one.address, one.shard_index, one.shard_total) for one in again.sendings] == [
        (ADDRESSES[1], 1, 3)
    ]
    note_result(database, again.sendings[0].log_id, FAILED, ENDED_MS)
    assert passes.claim_due(database, "one", now_ms=ENDED_MS + MINUTE_MS) == (), "one retry"
    assert states(database, job_id).count(RunState.FAILED) == 2


def test_a_success_begins_the_children_once(database: Database) -> None:
    group_id = a_group(database)
    child = jobs.add_job(database, group_id, settings(schedule_kind="NONE"), by())
    gone = jobs.add_job(database, group_id, settings(), by())
    started(database, group_id, children=(child, gone))
    jobs.remove_job(database, gone, by())
    batch = send(database, passes.plan_due(database, "one", now_ms=DUE_MS).claims, DUE_MS)
    log_id = batch.sendings[0].log_id
    note_result(database, log_id, OK, ENDED_MS)
    note_result(database, log_id, OK, ENDED_MS)

    [run] = results.runs_of(database, child)
    assert (run.cause, run.state, run.planned_ms) == (f"after:{log_id}", RunState.PLANNED, DUE_MS)


def test_a_delay_begins_when_a_run_has_ended(database: Database) -> None:
    job_id = started(database, a_group(database), schedule_kind="FIX_DELAY")
    batch = send(database, passes.plan_due(database, "one", now_ms=DUE_MS).claims, DUE_MS)
    assert jobs.job_of(database, job_id).next_ms is None
    note_result(database, batch.sendings[0].log_id, FAILED, ENDED_MS)
    assert jobs.job_of(database, job_id).next_ms == ENDED_MS + MINUTE_MS


def test_without_an_executor_a_run_is_refused(database: Database) -> None:
    job_id = started(database, a_group(database, ()))
    batch = send(database, passes.plan_due(database, "one", now_ms=DUE_MS).claims, DUE_MS)
    assert (batch.sendings, batch.refused) == ((), 1)
    [run] = results.runs_of(database, job_id)
    assert run.state is RunState.REFUSED
    assert run.trigger_message == "no executor of its group is there"


def test_who_asks_around_is_given_the_addresses_and_says_which(database: Database) -> None:
    started(database, a_group(database), route="BUSYOVER")
    claims = passes.plan_due(database, "one", now_ms=DUE_MS).claims
    [open_one] = send(database, claims, DUE_MS).undecided
    assert (open_one.addresses, open_one.must_be_idle) == (ADDRESSES, True)
    batch = send(database, claims, DUE_MS, chosen={claims[0].log_id: ADDRESSES[2]})
    assert [one.address for one in batch.sendings] == [ADDRESSES[2]]


def test_routes_go_on_where_they_were_for_every_centre(database: Database) -> None:
    job_id = started(database, a_group(database))
    taken = []
    for turn, centre in enumerate(("one", "two", "one")):
        due = DUE_MS + turn * MINUTE_MS
        for address in ADDRESSES:
            registry.beat(database, APP, address, now_ms=due)
        batch = send(database, passes.plan_due(database, centre, now_ms=due).claims, due)
        taken.append(ADDRESSES.index(batch.sendings[0].address))
    assert [(taken[0] + turn) % 3 for turn in range(3)] == taken
    assert len(states(database, job_id)) == 3


def test_a_job_that_is_paused_sends_nothing_more(database: Database) -> None:
    job_id = started(database, a_group(database))
    claims = passes.plan_due(database, "one", now_ms=DUE_MS).claims
    jobs.pause_job(database, job_id, by())
    assert send(database, claims, DUE_MS).sendings == ()
    assert states(database, job_id) == [RunState.CANCELLED]
    assert passes.plan_due(database, "one", now_ms=DUE_MS + 2 * MINUTE_MS).claims == ()


def test_an_executor_that_says_nothing_is_gone_and_its_run_lost(database: Database) -> None:
    job_id = started(database, a_group(database, ADDRESSES[:1]))
    batch = send(database, passes.plan_due(database, "one", now_ms=DUE_MS).claims, DUE_MS)
    answered(database, batch, RunEvent.ACCEPT, DUE_MS)
    gone_ms = NOW_MS + registry.GONE_MS
    assert registry.registered(database, now_ms=gone_ms - 1) == {APP: ADDRESSES[:1]}
    assert registry.registered(database, now_ms=gone_ms) == {}
    assert registry.forget_silent(database, now_ms=gone_ms) == 1

    log_id = batch.sendings[0].log_id
    results.note_findings(database, {log_id: (RunEvent.BEREAVE, "gone")}, now_ms=gone_ms)
    assert note_result(database, log_id, OK, gone_ms + 5) == 0
    run = results.run_of(database, log_id)
    assert (run.state, run.late_code) == (RunState.LOST, OK)
    assert states(database, job_id) == [RunState.LOST]


def test_a_run_by_hand_is_one_run_however_often_it_is_asked_for(database: Database) -> None:
    job_id = jobs.add_job(database, a_group(database), settings(), by())
    first = results.run_by_hand(database, job_id, "a1", by(), parameters="p")
    assert results.run_by_hand(database, job_id, "a1", by(), parameters="p") == first
    batch = send(database, passes.claim_due(database, "one", now_ms=NOW_MS), NOW_MS)
    assert [one.settings.parameters for one in batch.sendings] == ["p"]


def test_a_schedule_that_cannot_be_read_stops_its_job_alone(database: Database) -> None:
    group_id = a_group(database)
    broken, sound = started(database, group_id), started(database, group_id)
    with database.writing() as connection:
        connection.execute(
            sa.update(tables.jobs)
            .where(tables.jobs.c.job_id == broken)
            .values(schedule_kind="CRON", schedule_text="0 0 0 30 2 ?")
        )
    done = passes.plan_due(database, "one", now_ms=DUE_MS)
    assert done.stopped == (broken,)
    assert states(database, sound) == [RunState.CLAIMED]
    assert "a day that its months have" in (jobs.job_of(database, broken).stopped_because or "")


def test_a_moment_that_has_been_stops_its_job(database: Database) -> None:
    once = started(
        database, a_group(database), schedule_kind="ONCE", schedule_text="2026-05-28T20:27:00Z"
    )
    next_ms = jobs.job_of(database, once).next_ms
    assert next_ms is not None
    assert len(passes.plan_due(database, "one", now_ms=next_ms).claims) == 1
    job = jobs.job_of(database, once)
    assert (job.is_active, job.stopped_because) == (False, "its schedule has no time to come")


def test_sources_are_kept_thirty_times(database: Database) -> None:
    shell = settings(glue_type="GLUE_SHELL", glue_source="echo 0")
    job_id = jobs.add_job(database, a_group(database), shell, by())
    for number in range(1, 35):
        changed = settings(glue_type="GLUE_SHELL", glue_source=f"echo {number}")
        jobs.edit_job(database, job_id, changed, by())
    kept = glue.glue_of(database, job_id)
    assert [one.source for one in kept] == [f"echo {number}" for number in range(34, 4, -1)]


def test_centres_that_plan_at_once_plan_each_time_once(database: Database) -> None:
    group_id = a_group(database)
    wanted = [started(database, group_id) for _ in range(6)]
    with ThreadPoolExecutor(4) as threads:
        passed = list(
            threads.map(lambda who: passes.plan_due(database, who, now_ms=DUE_MS), "abcd")
        )
    assert sum(len(one.claims) for one in passed) == len(wanted)
    assert all(len(states(database, job_id)) == 1 for job_id in wanted)


def test_a_report_counts_a_day_and_what_is_old_is_forgotten(database: Database) -> None:
    job_id = started(database, a_group(database))
    batch = send(database, passes.plan_due(database, "one", now_ms=DUE_MS).claims, DUE_MS)
    counted = {"from_ms": NOW_MS, "to_ms": NOW_MS + 86_400_000}
    assert results.report(database, "2026-05-28", **counted) == (1, 0, 0)
    note_result(database, batch.sendings[0].log_id, OK, ENDED_MS)
    assert results.report(database, "2026-05-28", **counted) == (0, 1, 0)
    assert results.forget(database, before_ms=DUE_MS) == 0
    assert results.forget(database, before_ms=DUE_MS + 1) == 1
    assert states(database, job_id) == []


def test_upkeep_counts_the_last_days_and_forgets_what_is_older_than_configured(
    database: Database,
) -> None:
    job_id = started(database, a_group(database))
    batch = send(database, passes.plan_due(database, "one", now_ms=DUE_MS).claims, DUE_MS)
    note_result(database, batch.sendings[0].log_id, OK, ENDED_MS)
    passes.plan_due(database, "one", now_ms=DUE_MS + MINUTE_MS)
    jobs.pause_job(database, job_id, by())
    assert states(database, job_id) == [RunState.DONE, RunState.CANCELLED]

    results.report_days(database, days=3, now_ms=DUE_MS + results.DAY_MS)
    assert [(one.day, one.done_count) for one in results.reports(database)] == [
        ("2026-05-29", 0),
        ("2026-05-28", 1),
        ("2026-05-27", 0),
    ]
    old_ms = DUE_MS + MINUTE_MS + 4 * results.DAY_MS
    for log_days in (5, 2):  # Fewer than three days mean: for ever.
        assert not results.forget_batch(database, log_days=log_days, now_ms=old_ms)
        assert len(states(database, job_id)) == 2
    results.forget_batch(database, log_days=4, now_ms=old_ms + 1)
    assert states(database, job_id) == []


def test_the_database_says_what_time_it_is(database: Database) -> None:
    before_ms = machine_ms()
    reported_ms = database_ms(database)
    assert before_ms - 1_000 <= reported_ms <= machine_ms() + 1_000, "it is this machine's too"


def test_a_result_counts_from_its_own_executor_alone(database: Database) -> None:
    job_id = started(database, a_group(database))
    batch = send(database, passes.plan_due(database, "one", now_ms=DUE_MS).claims, DUE_MS)
    log_id = batch.sendings[0].log_id
    stranger = results.Delivery([results.Result(log_id, FAILED)], lambda app: app != APP)
    owner = results.Delivery([results.Result(log_id, OK)], lambda app: app == APP)
    found = results.note_deliveries(database, [stranger], now_ms=ENDED_MS)
    assert (found, states(database, job_id)) == ([{log_id}], [RunState.SENT])
    found = results.note_deliveries(database, [stranger, owner], now_ms=ENDED_MS)
    assert (found, states(database, job_id)) == ([{log_id}, frozenset()], [RunState.DONE])


def test_a_job_that_cannot_be_read_is_listed_with_its_fault_and_disturbs_no_other(
    database: Database,
) -> None:
    group_id = a_group(database)
    sound, child = started(database, group_id), started(database, group_id)
    broken = started(database, group_id, children=(child,), schedule_kind="FIX_DELAY", retries=1)
    claims = passes.plan_due(database, "one", now_ms=DUE_MS).claims
    batch = send(database, claims, DUE_MS)
    with database.writing() as connection:
        connection.execute(
            sa.update(tables.jobs)
            .where(tables.jobs.c.job_id == broken)
            .values(route="NEAREST", children="{", schedule_text="soon", counters='{"odd": 1}')
        )
    results.note_results(
        database, [results.Result(one.log_id, OK) for one in batch.sendings], now_ms=ENDED_MS
    )
    assert states(database, sound) == states(database, broken) == [RunState.DONE]

    listed = {job.job_id: job for job in jobs.jobs_after(database)}
    assert listed[sound].wrong_because is None
    assert "a list of numbers of jobs" in (listed[broken].wrong_because or "")
    assert listed[broken].settings.route == "NEAREST"
    by_hand = [results.run_by_hand(database, of, "now", by()) for of in (sound, broken)]
    again = send(database, passes.claim_due(database, "one", now_ms=ENDED_MS), ENDED_MS)
    assert [one.log_id for one in again.sendings] == by_hand[:1]
    assert "numbers of jobs" in (results.run_of(database, by_hand[1]).trigger_message or "")
    assert broken in passes.plan_due(database, "one", now_ms=ENDED_MS + MINUTE_MS).stopped

    jobs.pause_job(database, broken, by())
    mended = replace(listed[broken].settings, route="FIRST", schedule_text="60")
    jobs.edit_job(database, broken, mended, by())
    assert jobs.job_of(database, broken).wrong_because is None
