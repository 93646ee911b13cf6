"""Two centres and two executors, killed while jobs go on and people change them; and the judge of
the history that they leave. Played by tests, and by `python -m bench --only scheduler.kills`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from demo.ports import free_port_block
from pipelines.database.clock import machine_ms
from pipelines.database.database import Database
from pipelines.scheduler.run_life import ENDED, RunState
from pipelines.scheduler.schedules import schedule_of
from pipelines.scheduler.store import groups, jobs, results
from pipelines.scheduler.store.audit import Change
from tests.integration.scheduler.parties import CONTEXT, is_alive, until
from tests.integration.scheduler.processes import ROOT
from tests.integration.scheduler.stores import APP, settings

CENTRES, EXECUTORS = 2, 2
SETTLED_S = 600
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
        self.said: asyncio.Queue[str] = asyncio.Queue()
        """What a stopped one says when it has gone on."""

    async def hear(self) -> None:
        """What the processes say."""
        assert self._process.stdout is not None
        while line := (await self._process.stdout.readline()).decode().split():
            if line[0] == "begun":
                self._pids[line[1]] = int(line[2])
            elif line[0] == "ready":
                self._ready[line[1]].set()
            else:
                self.said.put_nowait(line[0])

    async def begin(self, name: str, **fields: Any) -> None:
        """Begin a process, and wait until it serves. What was killed under that name has its port
        and its folder until it is dead, which takes a moment on a busy machine.
        """
        assert self._process.stdin is not None
        if name in self._pids:
            await until(lambda: not is_alive(self._pids[name]))
        self._ready[name] = asyncio.Event()
        self._process.stdin.write(json.dumps({"name": name} | fields).encode() + b"\n")
        async with asyncio.timeout(SETTLED_S):
            await self._ready[name].wait()

    def kill(self, name: str, by: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self._pids[name], by)


@asynccontextmanager
async def nursery(log: Path) -> AsyncIterator[Nursery]:
    with log.open("ab") as log_file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.integration.scheduler.nursery"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log_file,
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


@dataclass
class Scene:
    """Two centres and two executors, and jobs that go on."""

    here: Nursery
    database: Database
    parties: dict[str, dict[str, Any]]
    schedules: dict[int, Any]
    """Of each job."""
    first_ms: dict[int, int | None]
    marks: Path
    paused: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Of each job, from when to when times may have been left out for a pause."""

    def change(self, chance: random.Random) -> None:
        """What people do to a job, at any moment: it is edited, or paused and started."""
        job_id = chance.choice(sorted(self.schedules))
        job = jobs.job_of(self.database, job_id)
        if job.settings.schedule_kind != "CRON" or chance.random() < 0.5:
            wanted = replace(job.settings, title=f"job {chance.random()}")
            jobs.edit_job(self.database, job_id, wanted, now())
            return
        waits = [
            run.planned_ms
            for run in results.runs_of(self.database, job_id)
            if run.sent_ms is None and run.state not in ENDED
        ]
        begin_ms = min([machine_ms(), job.next_ms or machine_ms(), *waits])
        jobs.pause_job(self.database, job_id, now())
        jobs.start_job(self.database, job_id, now())
        self.paused.setdefault(job_id, []).append((begin_ms, machine_ms()))

    @property
    def centres(self) -> list[str]:
        return sorted(
            name for name, settings_of in self.parties.items() if "database" in settings_of
        )

    @property
    def executors(self) -> list[str]:
        return sorted(self.parties.keys() - set(self.centres))

    async def end(self, missed: Sequence[tuple[int, int]] = ()) -> Counter[str]:
        """Wait until all has settled, and judge it: how many runs there were, and how many were
        lost. `missed`: when times may have been left out."""
        until_ms = machine_ms()
        for job_id in self.schedules:
            await all_planned(self.database, job_id, until_ms)
            jobs.pause_job(self.database, job_id, now())
        await all_ended(self.database, self.schedules)
        begun = Counter(int(line) for line in self.marks.read_text().split())
        figures: Counter[str] = Counter(runs=len(begun))
        for job_id, schedule in self.schedules.items():
            shown = all_runs_of(self.database, job_id)
            figures += judge(shown, begun)
            excused = [*missed, *self.paused.get(job_id, ())]
            times = {run.planned_ms for run in shown if run.state is not RunState.CANCELLED}
            planned_ms = self.first_ms[job_id]
            while planned_ms is not None and planned_ms <= until_ms:
                is_excused = any(begin <= planned_ms <= end for begin, end in excused)
                assert planned_ms in times or is_excused, f"{planned_ms} was left out"
                planned_ms = schedule.next_ms(planned_ms)
        return figures


@asynccontextmanager
async def playing(address: str, folder: Path) -> AsyncIterator[Scene]:
    database = Database.at(address)
    marks = folder / "marks"
    made = with_jobs(database, marks)
    port = free_port_block(CENTRES + EXECUTORS)
    parties: dict[str, dict[str, Any]] = {
        f"centre-{n}": {"database": address, "port": port + n} for n in range(CENTRES)
    }
    admins = [f"http://127.0.0.1:{one['port']}{CONTEXT}" for one in parties.values()]
    for n in range(EXECUTORS):
        in_turn = admins[:: 1 if n % 2 else -1]
        fields = {"home": str(folder / f"x{n}"), "admins": in_turn, "port": port + CENTRES + n}
        parties[f"executor-{n}"] = fields
    async with nursery(folder / "log") as here:
        await asyncio.gather(*(here.begin(name, **fields) for name, fields in parties.items()))
        started = [jobs.start_job(database, of, now()) for of in made]
        first = {one.job_id: one.job.next_ms for one in started if one.job}
        yield Scene(here, database, parties, made, first, marks)
    database.close()


async def killed_at_random(address: str, folder: Path, kills: int) -> Counter[str]:
    """Kill centres and executors in turn at random moments, while people edit and pause jobs; what
    came of it: `runs` that began, `triggers` that were to be, `lost`. AssertionError as the judge
    finds a run that began twice, or a time that was left out.
    """
    chance = random.Random(kills)
    async with playing(address, folder) as scene:
        for turn in range(kills):
            victim = chance.choice(scene.executors if turn % 2 else scene.centres)
            # Its moment is any: nothing is waited for.
            await asyncio.sleep(chance.uniform(0.2, 2.0))
            await asyncio.to_thread(scene.change, chance)
            scene.here.kill(victim)
            await asyncio.sleep(chance.uniform(0.0, 1.0))
            await asyncio.to_thread(scene.change, chance)
            await scene.here.begin(victim, **scene.parties[victim])
        return await scene.end()


def now() -> Change:
    return Change("ann", machine_ms())


def with_jobs(database: Database, marks: Path) -> dict[int, Any]:
    """A group and its jobs, with the schedule of each."""
    group_id = groups.add_group(database, APP, now())
    made = {}
    for kind, text, route, retries in SCHEDULES:
        wanted = settings(
            schedule_kind=kind,
            schedule_text=text,
            route=route,
            retries=retries,
            misfire="FIRE_ONCE_NOW",
            handler="marks-its-begin",
            parameters=str(marks),
        )
        made[jobs.add_job(database, group_id, wanted, now())] = schedule_of(kind, text)
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
        while not await asyncio.to_thread(happened):  # noqa: ASYNC110 - rows wake nobody
            await asyncio.sleep(LOOK_AGAIN_S)


def all_runs_of(database: Database, job_id: int) -> list[results.Run]:
    found = results.runs_of(database, job_id)
    while older := results.runs_of(database, job_id, before=found[-1].log_id):
        found += older
    return found


def judge(shown: list[results.Run], begun: Counter[int]) -> Counter[str]:
    """The history of one job; how many of its runs are lost: what became of them is not known."""
    kept = [run for run in shown if run.state is not RunState.CANCELLED]
    named = Counter((run.cause, run.shard_index, run.attempt) for run in kept)
    assert max(named.values()) == 1, "a time has two runs"
    for run in shown:
        assert begun[run.log_id] <= 1, f"it began twice: {run}"
        if run.state is RunState.DONE:
            assert begun[run.log_id] == 1, f"done, and never begun: {run}"
        if run.state in {RunState.REFUSED, RunState.CANCELLED}:
            assert begun[run.log_id] == 0, f"nobody had it, and yet it began: {run}"
    return Counter(triggers=len(kept), lost=sum(run.state is RunState.LOST for run in shown))
