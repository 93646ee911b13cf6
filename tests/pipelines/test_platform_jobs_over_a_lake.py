"""Our own jobs over a small real lake: a centre, an executor and the command, each a process."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipelines.base.time_units import micros
from pipelines.database.clock import database_ms
from pipelines.database.database import Database
from pipelines.lake.lake import Lake
from pipelines.platform_jobs.installing import install
from pipelines.platform_jobs.job_commands import JOBS, VARIABLE
from pipelines.reading.moment import last_complete
from pipelines.reports.shelf import Shelf
from pipelines.scheduler.roles import Actor
from pipelines.scheduler.run_life import ENDED, RunState
from pipelines.scheduler.service import JobService
from pipelines.scheduler.store import jobs, results
from pipelines.scheduler.store.audit import Change
from pipelines.scheduler.wire.messages import Code
from pipelines.upkeep.maintainer import ROLE
from tests.integration.alerting.stores import sqlite_address
from tests.integration.scheduler.parties import PATIENCE_S, TOKEN
from tests.integration.scheduler.processes import COMMAND, ROOT, centre_process

RUN_S = 600
PARAMETERS = {"lag-report": "period=hourly", "backtest": "rules=ours days=1"}

pytestmark = pytest.mark.timeout(1_200)


@dataclass
class Place:
    """A lake, the jobs that are installed for it, and the moment for which they run."""

    lake: Path
    database: Database
    service: JobService
    fire_ms: int

    def job_of(self, handler: str) -> jobs.Job:
        return next(one for one in self.service.jobs_after() if one.settings.handler == handler)

    def begin(self, handler: str, *, timeout_s: int = 0) -> int:
        """The number of a run for the moment at which the lake's story is over."""
        job = self.job_of(handler)
        if timeout_s:
            jobs.edit_job(
                self.database,
                job.job_id,
                replace(job.settings, timeout_s=timeout_s),
                Change("ann", database_ms(self.database)),
            )
        key = f"{handler}-{timeout_s}-{len(results.runs_of(self.database, job.job_id))}"
        change = Change("ann", self.fire_ms)
        parameters = PARAMETERS.get(handler)
        return results.run_by_hand(self.database, job.job_id, key, change, parameters=parameters)

    async def ended(self, log_id: int) -> results.Run:
        async with asyncio.timeout(RUN_S):
            while (run := results.run_of(self.database, log_id)).state not in ENDED:  # noqa: ASYNC110 - a row
                await asyncio.sleep(0.1)
        return run

    def processes(self) -> list[str]:
        """Commands at work on the lake, whoever began them."""
        found = []
        for place in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = place.read_bytes().decode("utf-8", "replace").split("\0")
            except OSError:
                continue
            if any(str(self.lake) in word for word in words):
                found.append(" ".join(words))
        return found


@asynccontextmanager
async def at_work(computed_lake: Path, folder: Path) -> AsyncIterator[Place]:
    """A centre and an executor over a copy of the lake."""
    lake = folder / "lake"
    shutil.copytree(computed_lake, lake)
    moment = last_complete(Lake.at(str(lake)))
    assert moment is not None
    hour = max(one.judged_to for one in moment.reached).replace(minute=0, second=0, microsecond=0)
    settings = folder / "own-jobs.toml"
    address = sqlite_address(folder)
    settings.write_text(f'lake = "{lake}"\nmaster = "local[1]"\ndatabase = "{address}"\n')
    database = Database.at(address)
    service = JobService(database, Actor("ann", is_admin=True), lambda: database_ms(database))
    install(service, is_started=False)
    fire_ms = micros(hour + timedelta(hours=1, minutes=5)) // 1000
    environment = {VARIABLE: str(settings), "TIDEMARK_HOME": str(folder / "home")}
    environment |= {"TIDEMARK_JOBS_TOKEN": TOKEN}
    # Runs of a time long past would be forgotten once they have ended.
    for_ever = ("--log-days", "0")
    async with centre_process(address, *for_ever, log=folder / "centre.log") as (_, url):
        with (folder / "executor.log").open("wb") as errors:
            executor = await asyncio.create_subprocess_exec(
                *(COMMAND, "executor", "--admin", url.text, "--app", "tidemark", "--port", "0"),
                *(
                    "--module",
                    "pipelines.platform_jobs.handlers",
                    "--home",
                    str(folder / "executor"),
                ),
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env=os.environ | environment,
                cwd=ROOT,
            )
        assert executor.stdout is not None
        try:
            async with asyncio.timeout(PATIENCE_S):
                await executor.stdout.readline()
                while not service.registered():  # noqa: ASYNC110 - a row
                    await asyncio.sleep(0.1)
            yield Place(lake, database, service, fire_ms)
        finally:
            executor.terminate()
            await executor.wait()
            database.close()


@pytest.mark.slow
async def test_all_of_them_do_what_they_are_for(computed_lake: Path, tmp_path: Path) -> None:
    async with at_work(computed_lake, tmp_path) as place:
        begun = {handler: place.begin(handler) for handler in JOBS}
        runs = {handler: await place.ended(log_id) for handler, log_id in begun.items()}
        said = {handler: (run.state, run.result_message) for handler, run in runs.items()}
        # The lake's story has broken laws in it: who checks it has to say so, by his exit code.
        state, why = said.pop("expectations")
        assert (state, (why or "")[:12]) == (RunState.FAILED, "exit code 1:"), why
        assert {state for state, _ in said.values()} == {RunState.DONE}, said
        lake = Lake.at(str(place.lake))
        assert lake.table(lake.gold("dq_results")).count() > 100
        [report] = Shelf(lake).runs()
        fire = datetime.fromtimestamp(place.fire_ms / 1000, UTC)
        assert report.end == fire.replace(minute=0), "of the hour that was over"
        page = await asyncio.to_thread(
            place.service.log_of_run, begun["backtest"], from_line=1, token=TOKEN
        )
        assert "tidemark backtest ours --lake" in page.text
        assert (place.lake / "state" / "leases" / f"{ROLE}.json").exists()
        assert place.processes() == []


async def test_a_run_that_is_killed_or_takes_too_long_ends_its_command(
    computed_lake: Path, tmp_path: Path
) -> None:
    async with at_work(computed_lake, tmp_path) as place:
        killed = place.begin("lag-report")
        async with asyncio.timeout(PATIENCE_S):
            while not any("papermill" in one for one in place.processes()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await asyncio.to_thread(place.service.kill_run, killed, token=TOKEN)
        run = await place.ended(killed)
        assert run.state is RunState.FAILED
        await nothing_left(place)
        late = await place.ended(place.begin("lag-report", timeout_s=4))
        assert (late.state, late.result_code) == (RunState.FAILED, Code.TIMED_OUT)
        await nothing_left(place)
        assert Shelf(Lake.at(str(place.lake))).runs() == []


async def nothing_left(place: Place) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while place.processes():  # noqa: ASYNC110 - of other processes
            await asyncio.sleep(0.05)
