"""Rows F1 and F5: the database is gone while a centre plans and sends: nothing runs twice, and what
was due meanwhile goes by the job's policy once it is there again.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipelines.database.clock import machine_ms
from pipelines.database.database import LOCK_WAIT_S, Database
from pipelines.scheduler.run_life import ENDED, RunState
from pipelines.scheduler.schedules import WINDOW_MS, Schedule, schedule_of
from pipelines.scheduler.store import groups, jobs, results
from pipelines.scheduler.store.audit import Change
from tests.integration.alerting.stores import address_of, sqlite_address
from tests.integration.client.database_servers import stoppable_postgresql
from tests.integration.scheduler.parties import executor_here, until
from tests.integration.scheduler.processes import centre_process
from tests.integration.scheduler.stores import APP, settings

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

BACK_MS = 4_000
"""So long after the database is there a centre may have planned nothing yet: it tries again each
second, or waits for a lock."""
SCHEDULES = (
    ("FIX_RATE", "1", "DO_NOTHING"),
    ("CRON", "0/2 * * * * ?", "DO_NOTHING"),
    ("CRON", "* * * * * ?", "FIRE_ONCE_NOW"),
    ("FIX_RATE", "3", "FIRE_ONCE_NOW"),
)


@dataclass
class Outage:
    """A database that can be taken away."""

    address: str
    begin: Callable[[], None]
    end: Callable[[], None]


@contextmanager
def a_postgresql() -> Iterator[Outage]:
    with stoppable_postgresql() as server:
        yield Outage(address_of(server.address), server.stop, server.begin)


@contextmanager
def a_sqlite_file(folder: Path) -> Iterator[Outage]:
    """Another process has it locked."""
    holder: list[sqlite3.Connection] = []

    def lock() -> None:
        holder.append(sqlite3.connect(folder / "tidemark.db", isolation_level=None, timeout=60))
        holder[0].execute("BEGIN IMMEDIATE")

    def give_back() -> None:
        holder.pop().close()

    yield Outage(sqlite_address(folder), lock, give_back)


@pytest.fixture(params=["sqlite", "postgresql"])
def outage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Outage]:
    made = a_postgresql() if request.param == "postgresql" else a_sqlite_file(tmp_path)
    with made as one:
        yield one


@dataclass
class Jobs:
    """Jobs that are due each few seconds, by their numbers."""

    schedules: dict[int, tuple[Schedule, str]]
    """And what is done when they miss."""
    first_ms: dict[int, int]


def begun(database: Database, marks: Path) -> Jobs:
    now = Change("ann", machine_ms())
    group_id = groups.add_group(database, APP, now)
    made = {}
    for kind, text, misfire in SCHEDULES:
        wanted = settings(
            schedule_kind=kind, schedule_text=text, misfire=misfire, route="FIRST",
            handler="marks-its-begin", parameters=str(marks),
        )  # fmt: skip
        job_id = jobs.add_job(database, group_id, wanted, now)
        made[job_id] = (schedule_of(kind, text), misfire)
    first = {}
    for job_id in made:
        begun = jobs.start_job(database, job_id, Change("ann", machine_ms())).job
        assert begun is not None
        assert begun.next_ms is not None
        first[job_id] = begun.next_ms
    return Jobs(made, first)


@asynccontextmanager
async def at_work(address: str, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    async with centre_process(address, log=folder / "log") as (process, at):
        url = f"http://{at.host}:{at.port}/xxl-job-admin"
        async with executor_here(folder / "x", url, app=APP, processes=8):
            yield process


@pytest.mark.parametrize("gone_s", [2, LOCK_WAIT_S + 7, 60])
async def test_while_the_database_is_gone_nothing_is_sent_twice_and_policies_hold(
    gone_s: int, outage: Outage, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    database = Database.at(outage.address)
    async with at_work(outage.address, tmp_path) as centre:
        made = begun(database, marks)
        await until(lambda: marks.exists() and len(marks.read_text().split()) > 8)
        database.close()
        gone_ms = machine_ms()
        await asyncio.to_thread(outage.begin)
        await asyncio.sleep(gone_s)
        await asyncio.to_thread(outage.end)
        back_ms = machine_ms()
        assert centre.returncode is None, (tmp_path / "log").read_text()
        later_ms = back_ms + BACK_MS + 2 * WINDOW_MS
        await settled(lambda: all_sent(database, made, later_ms))
        for job_id in made.schedules:
            jobs.pause_job(database, job_id, Change("ann", machine_ms()))
        await settled(lambda: all_ended(database, made))
        assert centre.returncode is None
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log
    begins = Counter(int(line) for line in marks.read_text().split())
    for job_id, (schedule, misfire) in made.schedules.items():
        runs = [
            run for run in results.runs_of(database, job_id) if run.state is not RunState.CANCELLED
        ]
        judge(runs, begins)
        times = {run.planned_ms for run in runs}
        missing = []
        planned_ms = made.first_ms[job_id]
        while planned_ms <= later_ms - WINDOW_MS:
            if planned_ms not in times:
                missing.append(planned_ms)
            planned_ms = schedule.next_ms(planned_ms) or later_ms
        assert all(gone_ms < one < back_ms + BACK_MS - WINDOW_MS for one in missing)
        is_long = gone_s * 1000 > 2 * WINDOW_MS + BACK_MS
        assert bool(missing) >= is_long
        made_up = [run for run in runs if gone_ms <= run.planned_ms < back_ms - WINDOW_MS]
        made_up = [run for run in made_up if (run.sent_ms or 0) >= back_ms]
        if is_long and misfire == "FIRE_ONCE_NOW":
            assert made_up, "one run for all that was missed"
    database.close()


def judge(runs: list[results.Run], begins: Counter[int]) -> None:
    assert len({run.planned_ms for run in runs if not run.attempt}) == len(runs)
    for run in runs:
        assert begins[run.log_id] <= 1, f"it began twice: {run}"
        if run.state is RunState.DONE:
            assert begins[run.log_id] == 1
        assert run.state in {RunState.DONE, RunState.FAILED, RunState.LOST}, run


def all_sent(database: Database, made: Jobs, until_ms: int) -> bool:
    return all(
        (jobs.job_of(database, job_id).next_ms or 0) > until_ms
        and all(
            run.sent_ms is not None
            for run in results.runs_of(database, job_id)
            if run.planned_ms <= until_ms
        )
        for job_id in made.schedules
    )


def all_ended(database: Database, made: Jobs) -> bool:
    return all(run.state in ENDED for of in made.schedules for run in results.runs_of(database, of))


async def settled(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(300):
        while not await asyncio.to_thread(happened):  # noqa: ASYNC110 - rows wake nobody
            await asyncio.sleep(0.3)
