"""XXL-Job's open API over sockets: a program changes the jobs of its own group, and no others."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipelines.database.clock import machine_ms
from pipelines.database.database import Database
from pipelines.scheduler.open_api import ACTIONS, ELSEWHERE, OWN_TOKEN
from pipelines.scheduler.store import audit, groups, jobs, results
from pipelines.scheduler.store.audit import Change
from pipelines.scheduler.wire.addresses import Address
from pipelines.scheduler.wire.client import Caller, headers_of, opened_caller
from pipelines.scheduler.wire.messages import Answer
from pipelines.scheduler.wire.server import WRONG_TOKEN
from tests.integration.alerting.stores import sqlite_address
from tests.integration.scheduler.stores import APP, settings
from tests.integration.scheduler.test_centre_process import OWN, TOKEN, a_centre

ADD = {
    "jobDesc": "bills", "author": "XXL", "scheduleType": "CRON", "scheduleConf": "0 0 8 * * ?",
    "executorRouteStrategy": "FIRST", "executorHandler": "bill", "executorParam": "x",
    "misfireStrategy": "DO_NOTHING", "executorBlockStrategy": "DISCARD_LATER",
    "executorTimeout": 30, "executorFailRetryCount": 2, "glueType": "BEAN", "childJobId": "",
    "alarmEmail": "a@b", "zone": "Asia/Shanghai",
}  # fmt: skip


@dataclass
class Program:
    """Somebody who has a token."""

    caller: Caller
    at: Address
    database: Database
    group_id: int
    other_job: int

    async def ask(self, name: str, token: str = OWN, app: str = APP, **fields: Any) -> Answer:
        return await self.caller.call(
            self.at, f"api/{name}", json.dumps(fields).encode(), headers=headers_of(token, app)
        )

    def job(self, job_id: int) -> jobs.Job:
        return jobs.job_of(self.database, job_id)


@asynccontextmanager
async def a_program(folder: Path) -> AsyncIterator[Program]:
    database = Database.at(sqlite_address(folder))
    by_ann = Change("ann", machine_ms())
    own = groups.add_group(database, APP, by_ann, token=OWN)
    other = jobs.add_job(database, groups.add_group(database, "other", by_ann), settings(), by_ann)
    try:
        async with opened_caller() as caller, a_centre(database, caller) as at:
            yield Program(caller, at, database, own, other)
    finally:
        database.close()


async def test_a_job_is_made_changed_started_run_stopped_and_removed(tmp_path: Path) -> None:
    async with a_program(tmp_path) as program:
        added = await program.ask("addJob", jobGroup=program.group_id, **ADD)
        assert added.is_success, added.message
        job_id = int(str(added.content))
        job = program.job(job_id)
        wanted = job.settings
        assert (job.group_id, job.is_active, wanted.title) == (program.group_id, False, "bills")
        assert (wanted.handler, wanted.timeout_s, wanted.retries, wanted.zone) == (
            "bill", 30, 2, "Asia/Shanghai"
        )  # fmt: skip

        assert (await program.ask("updateJob", id=job_id, executorTimeout=0)).is_success
        assert (await program.ask("updateJob", id=job_id, executorTimeout=0)).is_success
        changed = program.job(job_id).settings
        assert (changed.timeout_s, changed.title) == (0, "bills"), "what is not given stays"
        assert (await program.ask("startJob", id=job_id)).is_success
        assert program.job(job_id).next_ms is not None
        run = await program.ask("triggerJob", id=job_id, executorParam="y", runKey="once")
        again = await program.ask("triggerJob", id=job_id, executorParam="y", runKey="once")
        assert run.content == again.content, "the same key is the same run"
        assert [one.log_id for one in results.runs_of(program.database, job_id)] == [
            int(str(run.content))
        ]
        assert (await program.ask("stopJob", id=job_id)).is_success
        assert not program.job(job_id).is_active
        assert (await program.ask("removeJob", id=job_id)).is_success
        noted = audit.audit_of(program.database, f"job:{job_id}")
        assert [one.action for one in noted] == ["remove", "pause", "run", "start", "edit", "add"]
        assert {one.author for one in noted} == {f"app {APP}"}


@pytest.mark.parametrize("name", ACTIONS)
async def test_nothing_is_done_without_a_groups_own_token(tmp_path: Path, name: str) -> None:
    async with a_program(tmp_path) as program:
        for token, app, why in (
            ("wrong", APP, WRONG_TOKEN),
            (TOKEN, APP, WRONG_TOKEN),
            (OWN, "other", WRONG_TOKEN),
            (TOKEN, "other", OWN_TOKEN),
            (TOKEN, "", OWN_TOKEN),
        ):
            answer = await program.ask(name, token, app, id=program.other_job, **ADD)
            assert (answer.is_success, answer.message) == (False, why)
        theirs = await program.ask(name, id=program.other_job, jobGroup=program.group_id + 1, **ADD)
        assert "the token is that of group" in theirs.message
        if name != "addJob":
            for job_id in (program.other_job, 999):
                answer = await program.ask(name, id=job_id, executorTimeout=1)
                action = "see" if name == "updateJob" else "change"
                assert answer.message == f"app {APP} may not {action} the jobs"
        assert not audit.audit_of(program.database, f"job:{program.other_job}")[1:]
        assert [job.job_id for job in jobs.jobs_after(program.database)] == [program.other_job]


async def test_what_cannot_be_is_refused_with_its_name(tmp_path: Path) -> None:
    async with a_program(tmp_path) as program:
        flow = f"[steps.a]\njob = {program.other_job}"
        own = int(str((await program.ask("addJob", **ADD)).content))
        for name, changed, why in (
            ("addJob", ADD | {"scheduleConf": "0 0 0 30 2 ?"}, "a day that its months have"),
            ("addJob", ADD | {"executorTimeout": [1]}, "executorTimeout: not a text"),
            ("addJob", ADD | {"executorTimeout": True}, "executorTimeout: not a text"),
            ("addJob", ADD | {"title": "another"}, "title: another than"),
            ("addJob", ADD | {"childJobId": str(program.other_job)}, "may not change the jobs"),
            ("updateJob", {"id": own, "childJobId": str(program.other_job)}, "may not change"),
            ("updateJob", {"id": own, "glueType": "WORKFLOW", "executorHandler": "",
                           "executorTimeout": 0,
                           "glueSource": flow}, "may not change"),
            ("triggerJob", {"id": own, "addressList": "http://169.254.169.254/"}, ELSEWHERE),
            ("startJob", {"id": "1"}, "id: not a whole number"),
            ("startJob", {}, "id: missing"),
            ("stopJob", {"id": -1}, "id: not between"),
        ):  # fmt: skip
            answer = await program.ask(name, **changed)
            assert not answer.is_success
            assert why in answer.message, (name, answer.message)
        assert [job.job_id for job in jobs.jobs_after(program.database)] == [
            program.other_job, own
        ]  # fmt: skip
        assert results.runs_of(program.database, own) == []
