"""Jobs that begin each other in a circle: refused by every way in, and stopped where a database has
one that nobody here let in.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.foundation.errors import RuleBroken
from pipelines.database.database import Database
from pipelines.scheduler.run_life import OK
from pipelines.scheduler.store import audit, jobs, passes, results, tables, troubles
from tests.integration.alerting.stores import sqlite_address
from tests.integration.scheduler.test_open_api import ADD, a_program
from tests.integration.scheduler.test_scheduler_store import (
    DUE_MS,
    ENDED_MS,
    a_group,
    by,
    note_result,
    send,
    settings,
    started,
)
from tests.integration.scheduler.test_the_jobs_command import asked

SENTENCE = "these jobs begin each other in a circle and would run without end: {}; leave out job {}"


def flow_of(*job_ids: int) -> str:
    return "".join(f"[steps.s{job_id}]\njob = {job_id}\n" for job_id in job_ids)


def test_the_store_refuses_a_circle_with_its_path_through_children_and_steps(
    database: Database,
) -> None:
    group_id = a_group(database)
    one, two, three = (jobs.add_job(database, group_id, settings(), by()) for _ in range(3))
    jobs.edit_job(database, two, settings(children=(one,)), by())
    with pytest.raises(RuleBroken) as refused:
        jobs.edit_job(database, one, settings(children=(three, two)), by())
    assert str(refused.value).startswith(SENTENCE.format(f"{one} → {two} → {one}", two))
    with pytest.raises(RuleBroken, match=f"{three} → {three}"):
        jobs.edit_job(database, three, settings(children=(three,)), by())
    workflow = settings(glue_type="WORKFLOW", handler="", glue_source=flow_of(two, three))
    flow = jobs.add_job(database, group_id, workflow, by())
    with pytest.raises(RuleBroken, match=f"{one} → {flow} → {two} → {one}"):
        jobs.edit_job(database, one, settings(children=(flow,)), by())
    jobs.edit_job(database, one, settings(children=(three,)), by())
    with pytest.raises(RuleBroken, match=f"{three} → {flow} → {three}"):
        jobs.edit_job(database, three, settings(children=(flow,)), by())
    assert jobs.job_of(database, three).settings.children == (), "nothing is stored of it"


def test_a_circle_that_a_database_has_stops_at_its_first_job_and_is_reported(
    database: Database,
) -> None:
    group_id = a_group(database)
    other = jobs.add_job(database, group_id, settings(), by())
    second = jobs.add_job(database, group_id, settings(), by())
    first = started(database, group_id, children=(second, other))
    with database.writing() as connection:
        closing = tables.jobs.update().where(tables.jobs.c.job_id == second)
        connection.execute(closing.values(children=json.dumps([first])))
    batch = send(database, passes.plan_due(database, "one", now_ms=DUE_MS).claims, DUE_MS)
    note_result(database, batch.sendings[0].log_id, OK, ENDED_MS)

    assert results.runs_of(database, second) == [], "it would begin the first again"
    assert len(results.runs_of(database, other)) == 1, "the other child begins"
    job = jobs.job_of(database, first)
    because = (
        f"jobs begin each other in a circle: {first} → {second} → {first}. Job {second} was not "
        f"begun: leave it out of the children of job {first}, then start that"
    )
    assert (job.is_active, job.stopped_because) == (False, because)
    [noted] = [one for one in audit.audit_of(database, f"job:{first}") if one.action == "stop"]
    assert noted.author == "the scheduler"
    [trouble] = troubles.troubles(database, now_ms=ENDED_MS)
    assert (trouble.outcome, trouble.job_id) == ("STOPPED", first)
    assert trouble.evidence == f"The scheduler has stopped the job: {because}."

    again = results.run_by_hand(database, first, "again", by())
    claims = passes.claim_due(database, "one", now_ms=ENDED_MS)
    hand = [one for one in send(database, claims, ENDED_MS).sendings if one.log_id == again]
    note_result(database, hand[0].log_id, OK, ENDED_MS + 1)
    stops = [one for one in audit.audit_of(database, f"job:{first}") if one.action == "stop"]
    assert len(stops) == 1, "it is noted once, until somebody has changed it"
    edited = jobs.edit_job(database, first, settings(title="b", children=(second, other)), by())
    assert edited.job is not None, "who changes the title need not mend the circle"
    mended = jobs.edit_job(database, first, settings(children=(other,)), by())
    assert mended.job is not None
    assert mended.job.stopped_because is None


def test_a_circle_is_refused_by_the_command(tmp_path: Path) -> None:
    for title in ("a", "b"):
        asked(tmp_path, "jobs", "add", "--group", "g", f"title={title}", "handler=h")
    asked(tmp_path, "jobs", "edit", "2", "children=1")
    refused = asked(tmp_path, "jobs", "edit", "1", "children=2", code=1)
    assert refused.endswith(SENTENCE.format("1 → 2 → 1", 2) + ", or a later one of them"), refused
    assert "1 → 1" in asked(tmp_path, "jobs", "edit", "1", "children=1", code=1)
    assert "1 → 2 → 1" in asked(tmp_path, "jobs", "edit", "1", "children=2", "--preview", code=1)


async def test_a_circle_is_refused_by_the_open_api(tmp_path: Path) -> None:
    async with a_program(tmp_path) as program:
        first = int(str((await program.ask("addJob", **ADD)).content))
        second = int(
            str((await program.ask("addJob", **(ADD | {"childJobId": str(first)}))).content)
        )
        refused = await program.ask("updateJob", id=first, childJobId=str(second))
        assert not refused.is_success
        assert f"{first} → {second} → {first}" in refused.message


def test_a_number_that_is_given_again_closes_no_circle(tmp_path: Path) -> None:
    database = Database.at(sqlite_address(tmp_path))
    group_id = a_group(database)
    one = jobs.add_job(database, group_id, settings(), by())
    two = jobs.add_job(database, group_id, settings(), by())
    jobs.edit_job(database, one, settings(children=(two,)), by())
    jobs.remove_job(database, two, by())
    with pytest.raises(RuleBroken, match=f"{two} → {one} → {two}"):
        jobs.add_job(database, group_id, settings(children=(one,)), by())
    database.close()


def test_a_copy_begins_no_job_that_is_not_there(tmp_path: Path) -> None:
    """What its original began, and was removed, is left out; what is named is there, or refused."""
    for title in ("a", "b"):
        asked(tmp_path, "jobs", "add", "--group", "g", f"title={title}", "handler=h")
    for named in ("children=3", "children=77"):
        refused = asked(tmp_path, "jobs", "copy", "1", named, code=1)
        assert f"there is no job {named.removeprefix('children=')}" in refused
    asked(tmp_path, "jobs", "edit", "1", "children=2")
    asked(tmp_path, "jobs", "remove", "2")
    number = asked(tmp_path, "jobs", "copy", "1")
    assert "children: ()" in asked(tmp_path, "jobs", "show", number)
