"""Unmodified Java executors of XXL-Job live under `tidemark scheduler run`.

They register, run, have their logs read, are killed, timed out and polled; results from a time
without a centre arrive when one is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from pipelines.database.clock import machine_ms
from pipelines.database.database import Database
from pipelines.scheduler.centre.run_requests import kill_run, log_of_run
from pipelines.scheduler.job_settings import JobSettings
from pipelines.scheduler.roles import Actor
from pipelines.scheduler.run_life import RunState
from pipelines.scheduler.service import JobService
from pipelines.scheduler.store import groups, jobs, registry, results, tables
from pipelines.scheduler.store.audit import Change
from provision import jars
from tests.integration.alerting.stores import sqlite_address
from tests.integration.scheduler.parties import LOOK_AGAIN_S, PATIENCE_S, TOKEN, until
from tests.integration.scheduler.processes import centre_process
from tests.integration.scheduler.test_centre_process import ended
from tests.interop.test_java_executor import java_executor

APP = "java-sample"
NEWEST = list(jars.XXL_JOB)[-1]
GROOVY = """
import com.xxl.job.core.context.XxlJobHelper
import com.xxl.job.core.handler.IJobHandler

class Told extends IJobHandler {{
    void execute() {{
        XxlJobHelper.log("groovy {} was given {{}}", XxlJobHelper.jobParam)
    }}
}}
"""


@dataclass
class Scheduler:
    """Jobs in the database of a centre that is another process."""

    database: Database
    group_id: int
    _keys: count[int] = field(default_factory=count)

    def job(self, **fields: Any) -> int:
        """A new job of the Java handler, each with a number of its own: kills end all of a job."""
        settings = JobSettings(title="java", handler="demo", **fields)
        return jobs.add_job(self.database, self.group_id, settings, now())

    def source(self, glue_type: str, source: str) -> int:
        """A new job whose source is sent to the executor."""
        settings = JobSettings(title="java", glue_type=glue_type, glue_source=source)
        return jobs.add_job(self.database, self.group_id, settings, now())

    def edit(self, job_id: int, source: str) -> None:
        """Give it another source."""
        settings = jobs.job_of(self.database, job_id).settings
        self.service.edit_job(job_id, replace(settings, glue_source=source))

    @property
    def service(self) -> JobService:
        return JobService(self.database, Actor("ann", is_admin=True), machine_ms)

    def run(self, job_id: int, parameters: str) -> int:
        key = str(next(self._keys))
        return results.run_by_hand(self.database, job_id, key, now(), parameters=parameters)

    async def end_of(self, parameters: str, **fields: Any) -> results.Run:
        """How one run of a new job ended."""
        return await ended(self.database, self.run(self.job(**fields), parameters))

    async def log_with(self, log_id: int, text: str) -> str:
        """The run's log, as soon as it has this."""
        async with asyncio.timeout(PATIENCE_S):
            log = await asyncio.to_thread(self._log, log_id)
            while text not in log:
                await asyncio.sleep(LOOK_AGAIN_S)
                log = await asyncio.to_thread(self._log, log_id)
        return log

    def _log(self, log_id: int) -> str:
        return log_of_run(self.database, log_id, now_ms=machine_ms(), token=TOKEN).text

    async def kill(self, log_id: int) -> None:
        await asyncio.to_thread(kill_run, self.database, log_id, now(), token=TOKEN)


def now() -> Change:
    return Change("ann", machine_ms())


@asynccontextmanager
async def scheduling(folder: Path) -> AsyncIterator[Scheduler]:
    database = Database.at(sqlite_address(folder))
    try:
        yield Scheduler(database, groups.add_group(database, APP, now()))
    finally:
        database.close()


def is_there(database: Database) -> bool:
    return APP in registry.registered(database, now_ms=machine_ms())


async def runs_end_as_their_handlers_do(scheduler: Scheduler) -> None:
    """By hand, by a schedule, and by each of the ways that ask around."""
    each_second = scheduler.job(schedule_kind="FIX_RATE", schedule_text="1", parameters="p1")
    jobs.start_job(scheduler.database, each_second, now())
    good = await scheduler.end_of("p2", route="SHARDING_BROADCAST")
    assert (good.state, good.result_code) == (RunState.DONE, 200)
    assert "hello p2 shard 0/1" in await scheduler.log_with(good.log_id, "finish")
    failed = await scheduler.end_of("fail", route="FAILOVER")
    assert (failed.state, failed.result_message) == (RunState.FAILED, "bad")
    broken = await scheduler.end_of("boom", route="BUSYOVER")
    assert "IllegalStateException: boom" in (broken.result_message or "")
    refused = await ended(scheduler.database, missing_handler(scheduler))
    assert refused.state is RunState.REFUSED
    assert refused.trigger_message == "job handler [missing] not found."
    await until(lambda: len(done(scheduler, each_second)) >= 2)
    jobs.pause_job(scheduler.database, each_second, now())


def missing_handler(scheduler: Scheduler) -> int:
    settings = JobSettings(title="no handler", handler="missing")
    job_id = jobs.add_job(scheduler.database, scheduler.group_id, settings, now())
    return scheduler.run(job_id, "")


def done(scheduler: Scheduler, job_id: int) -> list[results.Run]:
    return [
        run for run in results.runs_of(scheduler.database, job_id) if run.state is RunState.DONE
    ]


async def runs_are_killed_refused_and_time_out(scheduler: Scheduler) -> None:
    """A Java executor kills all of a job, what waits too. What nobody wanted to end is tried again,
    the run that was meant is not.
    """
    late = scheduler.run(scheduler.job(timeout_s=1), "sleep60000")
    job_id = scheduler.job(retries=1)
    at_work = scheduler.run(job_id, "sleep60000")
    await scheduler.log_with(at_work, "hello")
    waiting = scheduler.run(job_id, "sleep60000")
    await until(lambda: results.run_of(scheduler.database, waiting).state is RunState.ACCEPTED)
    await scheduler.kill(at_work)
    killed = [await ended(scheduler.database, log_id) for log_id in (at_work, waiting)]
    assert "job running, killed" in (killed[0].result_message or "")
    assert "in the job queue, killed" in (killed[1].result_message or "")
    again, *others = results.runs_of(scheduler.database, job_id)
    assert (again.cause, again.attempt, len(others)) == (killed[1].cause, 1, 2)
    await scheduler.kill(again.log_id)
    timed_out = await ended(scheduler.database, late)
    assert (timed_out.state, timed_out.result_code) == (RunState.FAILED, 502)


async def sources_are_sent_run_edited_and_rolled_back(scheduler: Scheduler) -> None:
    """Groovy inside the executor, a script beside it; each run is of the source that the job has
    when it is sent.
    """
    groovy = scheduler.source("GLUE_GROOVY", GROOVY.format(1))
    first = await ended(scheduler.database, scheduler.run(groovy, "p4"))
    assert (first.state, first.result_code) == (RunState.DONE, 200), first
    assert "groovy 1 was given p4" in await scheduler.log_with(first.log_id, "groovy")
    scheduler.edit(groovy, GROOVY.format(2))
    second = await ended(scheduler.database, scheduler.run(groovy, "p5"))
    assert "groovy 2 was given p5" in await scheduler.log_with(second.log_id, "groovy")
    kept = scheduler.service.glue_of(groovy)
    scheduler.service.roll_back(groovy, kept[-1].glue_id)
    again = await ended(scheduler.database, scheduler.run(groovy, "p6"))
    assert "groovy 1 was given p6" in await scheduler.log_with(again.log_id, "groovy")
    assert len(scheduler.service.glue_of(groovy)) == 3
    scheduler.edit(groovy, "this is no Groovy {")
    broken = await ended(scheduler.database, scheduler.run(groovy, ""))
    assert broken.state in {RunState.FAILED, RunState.REFUSED}, broken

    shell = scheduler.source("GLUE_SHELL", 'echo "shell 1 was given $1 shard $2/$3"')
    good = await ended(scheduler.database, scheduler.run(shell, "p7"))
    assert (good.state, good.result_code) == (RunState.DONE, 200), good
    assert "shell 1 was given p7 shard 0/1" in await scheduler.log_with(good.log_id, "shell 1")
    scheduler.edit(shell, "echo shell 2; exit 4")
    failed = await ended(scheduler.database, scheduler.run(shell, ""))
    assert (failed.state, failed.result_code) == (RunState.FAILED, 500)
    assert "4" in (failed.result_message or "")
    assert "shell 2" in await scheduler.log_with(failed.log_id, "shell 2")


async def test_a_java_executor_lives_under_our_centre(tmp_path: Path) -> None:
    async with scheduling(tmp_path) as scheduler:
        database = scheduler.database
        async with centre_process(sqlite_address(tmp_path)) as (_, at):
            async with java_executor(NEWEST, tmp_path, at.text):
                await until(lambda: is_there(database))
                await runs_end_as_their_handlers_do(scheduler)
                await sources_are_sent_run_edited_and_rolled_back(scheduler)
                await runs_are_killed_refused_and_time_out(scheduler)
            await until(lambda: not is_there(database))
            gone = await scheduler.end_of("p3")
            assert gone.trigger_message == "no executor of its group is there"


@pytest.mark.slow
@pytest.mark.parametrize("version", jars.XXL_JOB)
async def test_a_java_executor_outlives_its_centre_and_beats(version: str, tmp_path: Path) -> None:
    """The centre is killed while a run is at work, and another listens where it did: the result
    comes when the executor reports it again, each 30 s.
    """
    async with scheduling(tmp_path) as scheduler:
        database = scheduler.database
        async with (
            centre_process(sqlite_address(tmp_path)) as (process, at),
            java_executor(version, tmp_path, at.text),
        ):
            await until(lambda: is_there(database))
            await runs_end_as_their_handlers_do(scheduler)
            await sources_are_sent_run_edited_and_rolled_back(scheduler)
            await runs_are_killed_refused_and_time_out(scheduler)
            first_beat_ms = seen_ms(database)
            at_work = scheduler.run(scheduler.job(), "sleep3000")
            await scheduler.log_with(at_work, "hello")
            process.kill()
            await process.wait()
            await scheduler.log_with(at_work, "finish")  # And no centre hears of it.
            async with centre_process(sqlite_address(tmp_path), port=at.port):
                run = await ended(database, at_work)
                assert (run.state, run.result_code) == (RunState.DONE, 200)
                await until(lambda: seen_ms(database) > first_beat_ms)


def seen_ms(database: Database) -> int:
    """When the executor said last that it is there."""
    with database.reading() as connection:
        return int(connection.execute(sa.select(tables.executors.c.seen_ms)).scalar_one())
