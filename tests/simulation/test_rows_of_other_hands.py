"""Row F1: rows damaged by other hands neither end a centre nor hold it up.

A job that nobody has touched has each of its runs.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from pipelines.database.database import Database
from pipelines.scheduler.run_life import ENDED, RunState
from pipelines.scheduler.schedules import schedule_of
from pipelines.scheduler.store import groups, jobs, registry, results, tables
from tests.integration.alerting.stores import sqlite_address
from tests.integration.scheduler.stores import APP, NOW_MS, by, settings
from tests.seeds import seeded
from tests.simulation.scheduling_world import OURS, Active, World
from tests.simulation.test_centres_and_executors import a_workflow, begin_all
from tests.simulation.world.loop import VirtualLoop

pytestmark = pytest.mark.timeout(900)

DAMAGED_S = 60
HEALED_S = 120
LATE_MS_MAX = 15_000
"""A claim that ended, and is taken over."""
BAD_HAND = "bad-hand"
GARBAGE = (
    "", "{", "[]", "null", "nobody knows", "\u0000\ud800".encode("utf-8", "surrogatepass"), 0, -1,
    2**31, 2**63 - 1, -(2**63), 3.5, b"\xff\xfe", "9" * 70_000, '"a"', "plan:x", "ÄÖ",
)  # fmt: skip
SPARED = {
    "jobs": {"job_id"},
    "runs": {"log_id"},
    "job_groups": {"group_id"},
    "flow_runs": {"log_id"},
    "executors": {"address"},
}
"""Columns that say which row it is: who changes these has made another one."""


def damage(world: World, file: Path, spared: tuple[int, int]) -> None:
    """One column of one row of what belongs to the victims becomes something else."""
    job_id, group_id = spared
    where = {
        "jobs": f"job_id <> {job_id}",
        "runs": f"job_id <> {job_id}",
        "job_groups": f"group_id <> {group_id}",
        "flow_runs": "1",
        "executors": f"app_name <> '{APP}'",
    }
    name = world.chance.choice(sorted(SPARED))
    table = tables.metadata.tables[name]
    columns = sorted({column.name for column in table.columns} - SPARED[name])
    column = world.chance.choice(columns)
    if name == "runs" and column == "job_id":
        return  # A run of the job that is judged would be somebody else's.
    value = world.chance.choice([*GARBAGE, *(state.value for state in RunState)])
    newest = f"SELECT rowid FROM {name} WHERE {where[name]} ORDER BY rowid DESC LIMIT 8"
    with closing(sqlite3.connect(file, isolation_level=None, timeout=10)) as connection:
        rows = [row for (row,) in connection.execute(newest)]
        if not rows:
            return
        change = f"UPDATE {name} SET {column} = ? WHERE rowid = ?"
        try:
            connection.execute(change, [value, world.chance.choice(rows)])
        except sqlite3.IntegrityError:
            return  # Not even other hands may do that.
    world.damaged += 1


@seeded(1)
def test_damaged_rows_end_no_centre_and_hold_up_no_job_of_others(seed: int, tmp_path: Path) -> None:
    loop = VirtualLoop(random.Random(f"{seed}/interleaving"))
    database = Database.at(sqlite_address(tmp_path))
    world = World(seed, loop, database, tmp_path)
    world.loss = 0.0  # What is late is late for what other hands did.
    group_id = groups.add_group(database, APP, by())
    others = groups.add_group(database, BAD_HAND, by(), manual_addresses=OURS)
    sound = jobs.add_job(
        database, group_id, settings(schedule_kind="FIX_RATE", schedule_text="5"), by()
    )
    victims = [
        jobs.add_job(
            database, others,
            settings(schedule_kind=kind, schedule_text=text, misfire="FIRE_ONCE_NOW", retries=1),
            by(),
        )
        for kind, text in (("CRON", "0/5 * * * * ?"), ("FIX_RATE", "3"), ("FIX_DELAY", "2"))
    ]  # fmt: skip
    victims.append(a_workflow(database, others))
    begun = [jobs.start_job(database, job_id, by()) for job_id in (sound, *victims)]
    first_ms = begun[0].job.next_ms if begun[0].job else None
    assert first_ms is not None
    world.active = {sound: [Active(first_ms)]}

    async def other_hands() -> None:
        registry.beat(database, BAD_HAND, OURS[0], now_ms=world.now_ms())
        until = loop.time() + DAMAGED_S
        while loop.time() < until:
            await asyncio.sleep(world.chance.uniform(0.05, 0.5))
            damage(world, tmp_path / "tidemark.db", (sound, group_id))
            if world.chance.random() < 0.3:  # Its victim is begun again, or there is nothing left.
                begin_again(database, world, victims)

    async def play() -> None:
        begin_all(world)
        await other_hands()
        await asyncio.sleep(HEALED_S)
        await world.end()

    try:
        loop.run_until_complete(play())
        assert world.damaged > 80
        judge(database, sound, first_ms, world)
        for job_id in (sound, *victims):
            results.runs_of(database, job_id)  # They can be shown.
        assert len(jobs.jobs_after(database)) >= len(victims)
    finally:
        world.close()


def begin_again(database: Database, world: World, victims: list[int]) -> None:
    """Somebody mends a row, as far as he sees what is wrong with it."""
    job_id = world.chance.choice(victims)
    mended = {
        "schedule_kind": "FIX_RATE", "schedule_text": "3", "zone": "UTC", "is_active": True,
        "misfire": "FIRE_ONCE_NOW", "next_ms": world.now_ms() + 1_000,
    }  # fmt: skip
    with database.writing() as connection:
        connection.execute(
            sa.update(tables.jobs).where(tables.jobs.c.job_id == job_id).values(mended)
        )


def judge(database: Database, job_id: int, first_ms: int, world: World) -> None:
    """The history of the job that nobody touched."""
    runs = results.runs_of(database, job_id)
    times = {run.planned_ms: run for run in runs if not run.attempt}
    schedule = schedule_of("FIX_RATE", "5")
    planned_ms: int | None = first_ms
    end_ms = world.now_ms() - 60_000
    while planned_ms is not None and planned_ms < end_ms:
        run = times.get(planned_ms)
        assert run is not None, f"{planned_ms - NOW_MS} ms was left out"
        assert run.state in ENDED, run
        assert run.sent_ms is not None, run
        late_ms = run.sent_ms - planned_ms
        assert late_ms < LATE_MS_MAX, f"{late_ms} ms late: {run}"
        planned_ms = schedule.next_ms(planned_ms)
    assert max(world.begun[run.log_id] for run in runs) == 1
