"""Centres and executors under losses, partitions and kills: each run begins once.

The centres are those of production, over one SQLite file, and so are two of the three executors;
one of XXL-Job is simulated. A cut keeps beats and results from a centre as it keeps runs from an
executor. Meanwhile people edit jobs, and pause and start them. The history is judged at the end,
when all faults are healed: each planned time has its run, one alone, but for those that the misfire
policy has one run make up for; no run began twice, and each ended; of a workflow, each step began
once, after all before it.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from pipelines.database.database import Database
from pipelines.scheduler.executor.job_queue import COVERED
from pipelines.scheduler.executor.run_files import CUT_OFF, NEVER_BEGUN
from pipelines.scheduler.run_life import ENDED, RunState
from pipelines.scheduler.schedules import WINDOW_MS, schedule_of
from pipelines.scheduler.store import flows, groups, jobs, results
from pipelines.scheduler.store.audit import audit_of
from pipelines.scheduler.workflows import StepState
from tests.integration.alerting.stores import sqlite_address
from tests.integration.scheduler.stores import APP, NOW_MS, by, settings
from tests.seeds import seeded
from tests.simulation.scheduling_world import CENTRES, JAVA, OURS, Active, World
from tests.simulation.world.loop import VirtualLoop

EXECUTORS = (*OURS, *JAVA)
FAULTS_S = 60
HEALED_S = 215
KILLS_MAX = 8
"""Of each centre."""
FAULTS = ("kill", "stop", "restart", "loss", "cut", "lock", "heal", "edit", "pause and start")
SCHEDULES = (
    ("CRON", "0/5 * * * * ?", "ROUND", "SERIAL_EXECUTION"),
    ("FIX_RATE", "7", "LEAST_RECENTLY_USED", "DISCARD_LATER"),
    ("CRON", "3/11 * * * * ?", "FAILOVER", "COVER_EARLY"),
    ("FIX_RATE", "13", "SHARDING_BROADCAST", "SERIAL_EXECUTION"),
    ("FIX_RATE", "3", "FIRST", "COVER_EARLY"),
)
NOT_BEGUN = (NEVER_BEGUN, CUT_OFF, "[job not executed, in the job queue, killed.]", COVERED)
"""What our executors say of runs of which none, or nobody knows how much, was done."""
STEPS = """
[steps.split]
job = {0}
[steps.left]
job = {1}
after = ["split"]
[steps.right]
job = {2}
after = ["split"]
[steps.join]
job = {0}
after = ["left", "right"]
[steps.tidy]
job = {1}
after = ["split", "join"]
always = true
"""


async def killed_for_a_while(world: World, address: str, for_s: float) -> None:
    """A process that is killed, and comes again."""
    await world.kill(address)
    await asyncio.sleep(for_s)
    if address in EXECUTORS:
        world.begin_executor(address)
    else:
        world.begin_centre(next(name for name, at in CENTRES.items() if at == address))


async def break_things(world: World) -> None:
    """Faults, one after the other; at the end all is healed."""
    until = world.loop.time() + FAULTS_S
    kills = Counter[str]()
    dead: dict[str, asyncio.Task[None]] = {}

    def die(address: str, for_s: float) -> None:
        if address in dead and not dead[address].done():
            return
        dead[address] = asyncio.create_task(killed_for_a_while(world, address, for_s))

    while world.loop.time() < until:
        await asyncio.sleep(world.chance.uniform(0.5, 5))
        executor = world.chance.choice(EXECUTORS)
        centre = world.chance.choice(sorted(CENTRES))
        match world.chance.choice(FAULTS):
            case ("edit" | "pause and start") as how if not world.is_locked:
                for _ in range(world.chance.randrange(1, 4)):
                    world.change(how, world.chance.choice(sorted(world.active)))
            case "kill" if kills[centre] < KILLS_MAX:
                kills[centre] += 1
                die(CENTRES[centre], world.chance.uniform(0.1, 4.0))
            case "stop":
                world.stop(centre, world.chance.uniform(3, 25))
            case "restart":
                die(executor, world.chance.uniform(1, 40))
            case "loss":
                world.loss = world.chance.uniform(0.05, 0.4)
            case "cut":
                world.cut.add((CENTRES[centre], executor))
            case "lock":
                world.is_locked = True
                world.loop.call_later(
                    world.chance.uniform(0.2, 3), setattr, world, "is_locked", False
                )
            case "heal":
                world.cut.clear()
                world.loss = 0.15
    world.cut.clear()
    world.loss = 0.0
    await asyncio.gather(*dead.values())


async def played(world: World) -> None:
    """Two centres over three executors, through all faults and the healing after them."""
    begin_all(world)
    await break_things(world)
    await asyncio.sleep(HEALED_S)
    await world.end()


def begin_all(world: World) -> None:
    for address in EXECUTORS:
        world.begin_executor(address)
    for name in CENTRES:
        world.begin_centre(name)


@seeded(1)
def test_no_run_begins_twice_and_no_time_is_left_out(seed: int, tmp_path: Path) -> None:
    loop = VirtualLoop(random.Random(f"{seed}/interleaving"))
    database = Database.at(sqlite_address(tmp_path))
    world = World(seed, loop, database, tmp_path)
    group_id = groups.add_group(database, APP, by())
    made = {}
    for kind, text, route, blocking in SCHEDULES:
        wanted = settings(
            schedule_kind=kind, schedule_text=text, route=route, blocking=blocking,
            misfire="FIRE_ONCE_NOW", retries=2,
        )  # fmt: skip
        made[jobs.add_job(database, group_id, wanted, by())] = schedule_of(kind, text)
    flow_id = a_workflow(database, group_id)
    made[flow_id] = schedule_of("FIX_RATE", "45")
    for job_id in made:
        job = jobs.start_job(database, job_id, by()).job
        assert job is not None
        assert job.next_ms is not None
        world.active[job_id] = [Active(job.next_ms)]
    try:
        loop.run_until_complete(played(world))
        assert world.unanswered > 0, "nothing was lost: nothing was tried"
        assert max(world.begun.values()) == 1, "a run began twice"
        assert world.early_ms <= 0, "a centre whose clock is ahead sent early"
        for job_id, schedule in made.items():
            judge(database, job_id, schedule, world)
        judge_steps(database, flow_id)
    finally:
        world.close()


def a_workflow(database: Database, group_id: int) -> int:
    """A diamond with an end that begins always; one of its sides is a broadcast."""
    steps = [
        jobs.add_job(
            database,
            group_id,
            settings(schedule_kind="NONE", schedule_text="", retries=1, route=route),
            by(),
        )
        for route in ("ROUND", "SHARDING_BROADCAST", "FIRST")
    ]
    wanted = settings(
        schedule_kind="FIX_RATE", schedule_text="45", misfire="FIRE_ONCE_NOW", handler="",
        glue_type="WORKFLOW", glue_source=STEPS.format(*steps),
    )  # fmt: skip
    return jobs.add_job(database, group_id, wanted, by())


def judge_steps(database: Database, job_id: int) -> None:
    """The history of a workflow's runs that are over."""
    ended = [one for one in results.runs_of(database, job_id) if one.state in ENDED]
    assert ended, "none has ended"  # Handlers fail by chance: with some seeds none is done.
    for run in ended:
        if run.state in {RunState.REFUSED, RunState.CANCELLED}:
            continue  # As many as may wait did; or its job was changed.
        shown = {step.name: step for step in flows.steps_of(database, run.log_id)}
        theirs = {
            name: [results.run_of(database, one) for one in step.log_ids]
            for name, step in shown.items()
        }
        for name, step in shown.items():
            if step.state is StepState.LEFT_OUT:
                assert not theirs[name]
                assert any(shown[one].state is not StepState.DONE for one in step.after)
                continue
            assert len({(one.shard_index, one.attempt) for one in theirs[name]}) == len(
                theirs[name]
            ), "a step began twice"
            assert {one.planned_ms for one in theirs[name]} == {run.planned_ms}
            latest_before = max(
                (one.ended_ms or 0 for before in step.after for one in theirs[before]), default=0
            )
            for one in theirs[name]:
                assert one.state in ENDED, "the workflow is over"
                assert one.sent_ms is None or one.sent_ms >= latest_before, "it did not wait"
        all_done = all(step.state is StepState.DONE for step in shown.values())
        assert all_done is (run.state is RunState.DONE)


def misfires_of(database: Database, job_id: int) -> list[tuple[int, int]]:
    """When no centre was there for longer than a time may be late: from the first time that was
    missed, which has its run, to the last, for which that run makes up."""
    found = []
    for noted in audit_of(database, f"job:{job_id}"):
        if noted.action == "misfire":
            first = datetime.fromisoformat(json.loads(noted.detail)["missed_from"])
            found.append((round(first.timestamp() * 1000), noted.at_ms - WINDOW_MS - 1))
    return found


def judge(database: Database, job_id: int, schedule: Any, world: World) -> None:
    """The history of one job."""
    shown = results.runs_of(database, job_id)
    kept = [run for run in shown if run.state is not RunState.CANCELLED]
    named = Counter((run.planned_ms, run.shard_index, run.attempt) for run in kept)
    assert max(named.values()) == 1, "a time has two runs"
    times = {run.planned_ms for run in kept}
    made_up_for = misfires_of(database, job_id)
    end_ms = world.now_ms() - 60_000
    for stretch in world.active[job_id]:
        planned_ms = stretch.first_ms
        until_ms = end_ms - 1 if stretch.until_ms is None else stretch.until_ms
        while planned_ms <= until_ms:
            is_there = planned_ms in times or planned_ms in stretch.left_out
            is_made_up_for = any(first < planned_ms <= last for first, last in made_up_for)
            assert is_there or is_made_up_for, f"{planned_ms - NOW_MS} ms was left out"
            planned_ms = schedule.next_ms(planned_ms)
    old = [run for run in shown if run.planned_ms < end_ms - 30_000]
    stuck = [run for run in old if run.state not in ENDED]
    assert not stuck, stuck[0]
    for run in shown:
        if run.state in {RunState.DONE, RunState.FAILED} and run.address is not None:
            is_of_none = run.state is RunState.FAILED and any(
                one in (run.result_message or "") for one in NOT_BEGUN
            )
            assert world.begun[run.log_id] == 1 or is_of_none, f"a result of nothing: {run}"
        if run.state in {RunState.REFUSED, RunState.CANCELLED}:
            assert world.begun[run.log_id] == 0, "nobody had it, and yet it began"
