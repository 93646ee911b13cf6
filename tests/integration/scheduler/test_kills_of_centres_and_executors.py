"""Centres and executors, killed at random: each planned time has its run, none begins twice."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from demo.ports import free_port_block
from pipelines.alerting.store.database import Database
from pipelines.scheduler.run_life import ENDED, RunState
from pipelines.scheduler.schedules import schedule_of
from pipelines.scheduler.store import jobs, results
from pipelines.scheduler.store.clock import machine_ms
from pipelines.scheduler.store.jobs import Change
from tests.amounts import kills
from tests.integration.alerting.stores import postgresql_address, sqlite_address
from tests.integration.scheduler.parties import CONTEXT, PATIENCE_S
from tests.integration.scheduler.processes import ROOT
from tests.integration.scheduler.stores import APP, settings

CENTRES, EXECUTORS = 2, 2
SETTLED_S = 180
LOOK_AGAIN_S = 0.5
SCHEDULES = (
    ("CRON", "* * * * * ?", "ROUND", 1),
    ("FIX_RATE", "2", "SHARDING_BROADCAST", 0),
    ("FIX_RATE", "1", "FAILOVER", 1),
    ("CRON", "0/3 * * * * ?", "LEAST_RECENTLY_USED", 0),
)


class Nursery:
    """Processes by name, begun and killed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._pids: dict[str, int] = {}
        self._ready: dict[str, asyncio.Event] = {}

    async def hear(self) -> None:
        """What the processes say."""
        assert self._process.stdout is not None
        while line := (await self._process.stdout.readline()).decode().split():
            if line[0] == "begun":
                self._pids[line[1]] = int(line[2])
            elif line[0] == "ready":
                self._ready[line[1]].set()

    async def begin(self, name: str, **told: Any) -> None:
        """Begin a process, and wait until it serves."""
        assert self._process.stdin is not None
        self._ready[name] = asyncio.Event()
        self._process.stdin.write(json.dumps({"name": name} | told).encode() + b"\n")
        async with asyncio.timeout(PATIENCE_S):
            await self._ready[name].wait()

    def kill(self, name: str) -> None:
        os.kill(self._pids[name], signal.SIGKILL)


@asynccontextmanager
async def nursery(log: Path) -> AsyncIterator[Nursery]:
    with log.open("ab") as told:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.integration.scheduler.nursery"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=told,
            cwd=ROOT,
        )
    assert process.stdin is not None
    here = Nursery(process)
    hearing = asyncio.create_task(here.hear())
    try:
        yield here
    finally:
        process.stdin.close()
        await process.wait()
        hearing.cancel()


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield sqlite_address(tmp_path)
    else:
        with postgresql_address() as at:
            yield at


@kills(3, in_full=100)
async def test_no_run_begins_twice_and_no_time_is_left_out_however_often_a_party_is_killed(
    kills: int, address: str, tmp_path: Path
) -> None:
    chance = random.Random(kills)
    database = Database.at(address)
    marks = tmp_path / "marks"
    made = with_jobs(database, marks)
    port = free_port_block(CENTRES + EXECUTORS)
    centres = {f"centre-{n}": {"database": address, "port": port + n} for n in range(CENTRES)}
    admins = [f"http://127.0.0.1:{one['port']}{CONTEXT}" for one in centres.values()]
    executors = {
        f"executor-{n}": {
            "home": str(tmp_path / f"x{n}"),
            "admins": admins[:: 1 if n % 2 else -1],
            "port": port + CENTRES + n,
        }
        for n in range(EXECUTORS)
    }
    parties = {**centres, **executors}
    async with nursery(tmp_path / "log") as here:
        await asyncio.gather(*(here.begin(name, **told) for name, told in parties.items()))
        first = {of: jobs.start_job(database, of, now()) for of in made}
        for turn in range(kills):
            group = executors if turn % 2 else centres
            victim = chance.choice(sorted(group))
            # Its moment is any: nothing is waited for.
            await asyncio.sleep(chance.uniform(0.2, 2.0))
            here.kill(victim)
            await asyncio.sleep(chance.uniform(0.0, 1.0))
            await here.begin(victim, **parties[victim])
        until_ms = machine_ms()
        for job_id in made:
            await all_planned(database, job_id, until_ms)
            jobs.pause_job(database, job_id, now())
        await all_ended(database, made)
    begun = Counter(int(line.split()[0]) for line in marks.read_text().splitlines())
    for job_id, schedule in made.items():
        judge(results.runs_of(database, job_id), begun, schedule, (first[job_id], until_ms))
    database.close()


def now() -> Change:
    return Change("ann", machine_ms())


def with_jobs(database: Database, marks: Path) -> dict[int, Any]:
    """A group and its jobs, with the schedule of each."""
    group_id = jobs.add_group(database, APP, now())
    made = {}
    for kind, text, route, retries in SCHEDULES:
        told = settings(
            schedule_kind=kind,
            schedule_text=text,
            route=route,
            retries=retries,
            misfire="FIRE_ONCE_NOW",
            handler="marks-its-begin",
            parameters=str(marks),
        )
        made[jobs.add_job(database, group_id, told, now())] = schedule_of(kind, text)
    return made


async def all_planned(database: Database, job_id: int, until_ms: int) -> None:
    """Wait until what was due by then is sent: a pause cancels what waits."""

    def are_sent() -> bool:
        if (jobs.job_of(database, job_id).next_ms or until_ms) < until_ms:
            return False
        return all(
            run.planned_ms > until_ms or run.sent_ms is not None or run.state in ENDED
            for run in results.runs_of(database, job_id)
        )

    await settled(are_sent)


async def all_ended(database: Database, made: dict[int, Any]) -> None:
    """Wait until nothing of these jobs goes on."""
    await settled(
        lambda: all(
            run.state in ENDED for job_id in made for run in results.runs_of(database, job_id)
        )
    )


async def settled(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(SETTLED_S):
        while not await asyncio.to_thread(happened):  # noqa: ASYNC110 - rows tell nobody
            await asyncio.sleep(LOOK_AGAIN_S)


def judge(
    shown: list[results.Run], begun: Counter[int], schedule: Any, when: tuple[int | None, int]
) -> None:
    """The history of one job."""
    planned_ms, until_ms = when
    assert len(shown) < results.SHOWN_MAX, "the history was cut"
    times = {run.planned_ms for run in shown if run.state is not RunState.CANCELLED}
    while planned_ms is not None and planned_ms <= until_ms:
        assert planned_ms in times, f"{planned_ms} was left out"
        planned_ms = schedule.next_ms(planned_ms)
    for run in shown:
        assert begun[run.log_id] <= 1, f"it began twice: {run}"
        if run.state is RunState.DONE:
            assert begun[run.log_id] == 1, f"done, and never begun: {run}"
        if run.state in {RunState.REFUSED, RunState.CANCELLED}:
            assert begun[run.log_id] == 0, f"nobody had it, and yet it began: {run}"
