"""Row F3: fail-over and busy-over against real executors: the first that says yes has the run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from demo.ports import free_port_block
from pipelines.database.clock import machine_ms
from pipelines.database.database import Database
from pipelines.scheduler.run_life import RunState
from pipelines.scheduler.store import groups, jobs, results
from pipelines.scheduler.store.audit import Change
from pipelines.scheduler.wire.client import opened_caller
from tests.integration.alerting.stores import sqlite_address
from tests.integration.scheduler.parties import TOKEN, Party, executor_here, until
from tests.integration.scheduler.stores import APP, settings
from tests.integration.scheduler.test_centre_process import a_centre, ended


@asynccontextmanager
async def a_silent_one() -> AsyncIterator[str]:
    """It takes connections, and never answers."""

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(wait, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


class Scene:
    """A centre, two executors of ours, a dead one and a silent one."""

    def __init__(self, database: Database, first: Party, second: Party, silent: str) -> None:
        self.database = database
        self.first, self.second = first.at.text, second.at.text
        self.dead = f"http://127.0.0.1:{free_port_block(1)}/"
        self.silent = silent

    def job(self, route: str, *addresses: str, **text: str) -> int:
        now = Change("ann", machine_ms())
        named = {"handler": "demo", "schedule_kind": "NONE", "route": route} | text
        known = {group.app_name for group in groups.groups(self.database)}
        app = f"{APP}-{len(known)}"
        group_id = groups.add_group(self.database, app, now, manual_addresses=addresses)
        return jobs.add_job(self.database, group_id, settings(**named), now)

    def begin(self, job_id: int) -> int:
        now = Change("ann", machine_ms())
        return results.run_by_hand(self.database, job_id, str(now.now_ms), now)

    async def run(self, job_id: int) -> results.Run:
        return await ended(self.database, self.begin(job_id))


@asynccontextmanager
async def a_scene(folder: Path) -> AsyncIterator[Scene]:
    database = Database.at(sqlite_address(folder))
    async with AsyncExitStack() as held:
        caller = await held.enter_async_context(opened_caller())
        at = await held.enter_async_context(a_centre(database, caller, token=TOKEN))
        first, second = [
            await held.enter_async_context(executor_here(folder / name, at.text, app=APP))
            for name in ("x1", "x2")
        ]
        silent = await held.enter_async_context(a_silent_one())
        yield Scene(database, first, second, silent)
    database.close()


async def test_a_dead_and_a_silent_executor_are_passed_over(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        passed = await scene.run(scene.job("FAILOVER", scene.dead, scene.silent, scene.second))
        assert (passed.state, passed.address) == (RunState.DONE, scene.second)
        first = await scene.run(scene.job("FAILOVER", scene.first, scene.second))
        assert (first.state, first.address) == (RunState.DONE, scene.first)


async def test_a_busy_executor_is_passed_over_by_who_must_be_idle(tmp_path: Path) -> None:
    place = tmp_path / "marks"
    fields = {"handler": "marks-and-waits", "parameters": str(place)}
    async with a_scene(tmp_path) as scene:
        job_id = scene.job("BUSYOVER", scene.dead, scene.first, scene.second, **fields)
        begun = [scene.begin(job_id)]
        await until(lambda: place.exists() and len(place.read_text().split()) == 1)
        begun.append(scene.begin(job_id))
        await until(lambda: len(place.read_text().split()) == 2)
        where = [results.run_of(scene.database, log_id).address for log_id in begun]
        assert where == [scene.first, scene.second]

        refused = await scene.run(job_id)
        assert refused.state is RunState.REFUSED
        assert refused.trigger_message == "no executor said that it is there and ready"
        place.with_suffix(".go").touch()
        for log_id in begun:
            assert (await ended(scene.database, log_id)).state is RunState.DONE


@pytest.mark.parametrize("route", ["FAILOVER", "BUSYOVER"])
async def test_when_nobody_says_yes_the_run_is_refused_with_the_reason(
    route: str, tmp_path: Path
) -> None:
    async with a_scene(tmp_path) as scene:
        run = await scene.run(scene.job(route, scene.dead, scene.silent))
        assert run.state is RunState.REFUSED
        assert run.trigger_message == "no executor said that it is there and ready"
