"""After a minute without a database, missed runs follow their job's policy; none is extra."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from pipelines.database.database import Database
from pipelines.scheduler.run_life import ENDED
from pipelines.scheduler.schedules import WINDOW_MS
from pipelines.scheduler.store import groups, jobs, results
from tests.integration.alerting.stores import sqlite_address
from tests.integration.scheduler.stores import APP, NOW_MS, by, settings
from tests.simulation.scheduling_world import JAVA, OURS, World
from tests.simulation.world.loop import VirtualLoop

GONE_FROM_S, GONE_FOR_S, PLAYED_S = 20, 60, 200
EACH_S = 10


def test_after_a_minute_without_a_database_missed_times_go_by_the_policy_of_their_job(
    tmp_path: Path,
) -> None:
    loop = VirtualLoop(random.Random(1))
    database = Database.at(sqlite_address(tmp_path))
    world = World(1, loop, database, tmp_path)
    world.loss = 0.0
    group_id = groups.add_group(database, APP, by())
    made = {
        misfire: jobs.add_job(
            database,
            group_id,
            settings(schedule_kind="FIX_RATE", schedule_text=str(EACH_S), misfire=misfire),
            by(),
        )
        for misfire in ("DO_NOTHING", "FIRE_ONCE_NOW")
    }
    for job_id in made.values():
        jobs.start_job(database, job_id, by())

    async def played() -> None:
        for address in (*OURS, *JAVA):
            world.begin_executor(address)
        world.begin_centre("a")
        loop.call_later(GONE_FROM_S, setattr, world, "is_locked", True)
        loop.call_later(GONE_FROM_S + GONE_FOR_S, setattr, world, "is_locked", False)
        await asyncio.sleep(PLAYED_S)
        await world.end()

    loop.run_until_complete(played())
    loop.close()
    back_s = GONE_FROM_S + GONE_FOR_S
    for misfire, job_id in made.items():
        shown = {
            (run.planned_ms - NOW_MS) // 1000: run for run in results.runs_of(database, job_id)
        }
        wanted = set(range(EACH_S, PLAYED_S - EACH_S, EACH_S))
        # What was planned ahead before it went is sent when it is back, and what is late by less
        # than the window then is not missed.
        planned_s = GONE_FROM_S + WINDOW_MS // 1000
        missed = {at for at in wanted if planned_s < at < back_s}
        if misfire == "FIRE_ONCE_NOW":
            missed -= {min(missed)}
        assert wanted - shown.keys() == missed
        assert all(run.state in ENDED for at, run in shown.items() if at < PLAYED_S - 40)
    assert max(world.begun.values()) == 1
    database.close()
